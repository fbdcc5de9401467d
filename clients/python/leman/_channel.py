"""Channels to the services, and calls that outlast a restart of theirs."""

from __future__ import annotations

import ipaddress
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own notes on standard error are no user's business

import grpc

from leman import _status
from leman.errors import InvalidArgument, LemanError
from leman.v1 import catalog_pb2_grpc, commit_pb2_grpc, info_pb2, info_pb2_grpc, jobs_pb2_grpc, planner_pb2_grpc

PATIENCE = 60.0
"""Seconds that a call waits for a service that is being restarted."""
FIRST_CONTACT = 10.0
"""Seconds in which an endpoint given by the user must answer for the first time."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_MAX_MESSAGE = 64 << 20


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services are, as host:port, and what they ask for. `tls_ca`: PEM file; empty: no TLS."""

    planner: str
    executor: str
    commit_coordinator: str
    token: str = ""
    tls_ca: str = ""


class Locator(Protocol):
    """Knows where the services are."""

    def locate(self) -> Endpoints:
        """Where they are now. Asked again when one of them does not answer; must not wait for that one."""
        ...


class Services:
    """Stubs of the services, with channels that are opened when first needed. Safe for use by several
    threads.

    Every call of the API may be sent twice: reads, calls that carry a request id, and those that say the
    same thing twice. So each is sent again while the service is away, for `patience` seconds.
    """

    def __init__(self, locator: Locator, patience: float = PATIENCE) -> None:
        self._locator = locator
        self._patience = patience
        self._endpoints: Endpoints | None = None
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._closed = False

    def catalog(self, method: str, request: Any, *, timeout: float = 60.0) -> Any:
        """Calls a method of CatalogService."""
        return self._call("planner", catalog_pb2_grpc.CatalogServiceStub, method, request, timeout)

    def planner(self, method: str, request: Any, *, timeout: float = 300.0) -> Any:
        """Calls a method of PlannerService."""
        return self._call("planner", planner_pb2_grpc.PlannerServiceStub, method, request, timeout)

    def jobs(self, method: str, request: Any, *, timeout: float = 300.0) -> Any:
        """Calls a method of JobService."""
        return self._call("executor", jobs_pb2_grpc.JobServiceStub, method, request, timeout)

    def commits(self, method: str, request: Any, *, timeout: float = 600.0) -> Any:
        """Calls a method of CommitService."""
        return self._call("commit_coordinator", commit_pb2_grpc.CommitServiceStub, method, request, timeout)

    def watch(self, request: Any, *, timeout: float) -> Any:
        """Opens JobService.WatchJob. Iterating over it raises grpc.RpcError; `explain` says what it means."""
        stub: Any = jobs_pb2_grpc.JobServiceStub(self._channel("executor"))
        return stub.WatchJob(request, timeout=timeout, metadata=self._metadata())

    def verify(self, request: Any, *, timeout: float) -> Any:
        """Opens CommitService.VerifyDatabase. Iterating over it raises grpc.RpcError; `explain` says what it means."""
        stub: Any = commit_pb2_grpc.CommitServiceStub(self._channel("commit_coordinator"))
        return stub.VerifyDatabase(request, timeout=timeout, metadata=self._metadata())

    def explain(self, service: str, error: grpc.RpcError) -> LemanError:
        """The Leman error for a failed call of `service`. Raise it `from None`."""
        endpoints = self._endpoints
        return _status.from_rpc(error, service=service, address=getattr(endpoints, service, "?"))

    def patient(self) -> Patience:
        """A new measure of how long one call may wait for its service."""
        return Patience(self._patience)

    def look_again(self) -> bool:
        """Asks the locator once more; True when the services have moved, or were started anew."""
        found = self._locator.locate()
        with self._lock:
            if found == self._endpoints:
                return False
            self._endpoints = found
            self._channels.clear()  # not closed: calls that other threads have on them end by themselves
            return True

    def close(self) -> None:
        """Closes all channels; calls fail from now on."""
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _call(
        self, service: str, stub: Callable[[grpc.Channel], Any], method: str, request: Any, timeout: float
    ) -> Any:
        patience = self.patient()
        while True:
            call = getattr(stub(self._channel(service)), method)
            try:
                return call(request, timeout=timeout, metadata=self._metadata())
            except grpc.RpcError as error:
                failure = error
            except ValueError:  # what gRPC raises on a channel that is closed
                if not self._closed:
                    raise
                raise _closed_error() from None
            self.wait_or_raise(service, failure, patience)

    def wait_or_raise(self, service: str, error: grpc.RpcError, patience: Patience) -> None:
        """After a failed call: returns when another try is worth it, raises the Leman error when not."""
        code: grpc.StatusCode = error.code()
        if self._closed or code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED):
            raise self.explain(service, error) from None
        moved = self.look_again()
        if moved:
            return
        if code is grpc.StatusCode.UNAUTHENTICATED or not patience.pause(_status.retry_after(error)):
            raise self.explain(service, error) from None

    def _channel(self, service: str) -> grpc.Channel:
        if self._endpoints is None:
            self.look_again()
        with self._lock:
            if self._closed or self._endpoints is None:
                raise _closed_error()
            address: str = getattr(self._endpoints, service)
            if address not in self._channels:
                self._channels[address] = open_channel(address, self._endpoints.tls_ca)
            return self._channels[address]

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return metadata(self._endpoints.token if self._endpoints else "")


def _closed_error() -> InvalidArgument:
    return InvalidArgument("the connection is closed: call leman.connect() again", reason="CLOSED")


class Patience:
    """Pauses between attempts, growing from 50 ms to a second, `seconds` in all."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = _FIRST_PAUSE

    def pause(self, at_least: float = 0.0) -> bool:
        """Waits; False, without waiting, when the time is used up."""
        wanted = max(at_least, self._next * random.uniform(0.5, 1.0))
        if time.monotonic() + wanted > self._end:
            return False
        time.sleep(wanted)
        self._next = min(self._next * 2, _LONGEST_PAUSE)
        return True


class Remote:
    """Locator for `endpoint`, the address of any one service: that one names the others."""

    def __init__(self, endpoint: str, token: str, tls_ca: str) -> None:
        host, colon, port = endpoint.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise InvalidArgument(f"endpoint={endpoint!r} is not host:port, such as 'leman.internal:7443'")
        self._endpoint = endpoint
        self._given = Endpoints("", "", "", token=token, tls_ca=tls_ca)
        self._known: Endpoints | None = None

    def locate(self) -> Endpoints:
        """Asks the endpoint; when it does not answer, what it said before still holds."""
        info = ask(self._endpoint, self._given, timeout=1.0 if self._known else FIRST_CONTACT)
        if isinstance(info, grpc.RpcError):
            if self._known is None:
                raise _status.from_rpc(info, service="endpoint", address=self._endpoint) from None
            return self._known
        found = {
            "planner": info.planner_address,
            "executor": info.executor_address,
            "commit_coordinator": info.commit_coordinator_address,
        }
        if info.service in found:
            found[info.service] = self._endpoint  # the way we came works, whatever it calls itself
        self._known = replace(self._given, **found)
        return self._known


def ask(address: str, endpoints: Endpoints, *, timeout: float) -> info_pb2.GetInfoResponse | grpc.RpcError:
    """GetInfo of the service at `address`, waiting for it up to `timeout` seconds; or the error."""
    with open_channel(address, endpoints.tls_ca) as channel:
        stub = info_pb2_grpc.InfoServiceStub(channel)
        patience = Patience(timeout)
        while True:
            try:
                return stub.GetInfo(info_pb2.GetInfoRequest(), timeout=timeout, metadata=metadata(endpoints.token))
            except grpc.RpcError as error:
                failure = error
            unavailable = failure.code() is grpc.StatusCode.UNAVAILABLE
            if not unavailable or not patience.pause():
                return failure


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """What each call carries."""
    request_id = ("x-request-id", uuid.uuid4().hex)
    return (request_id, ("authorization", f"Bearer {token}")) if token else (request_id,)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def open_channel(address: str, tls_ca: str) -> grpc.Channel:
    """A channel that notices a peer that hangs, and does not wait long between attempts to reach one."""
    options = [
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel tries at once, whatever others have seen
        ("grpc.enable_retries", 0),  # one layer of retries: ours
    ]
    if is_loopback(address.rpartition(":")[0]):
        options.append(("grpc.enable_http_proxy", 0))  # a proxy reaches its own machine, not this one
    if not tls_ca:
        return grpc.insecure_channel(address, options)
    try:
        authority = Path(tls_ca).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"tls_ca cannot be read: {error}") from None
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options)
