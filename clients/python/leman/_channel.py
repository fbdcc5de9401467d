"""Channels to the services, and calls that outlast a restart of theirs."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own notes on standard error are no user's business

import grpc

from leman import _status
from leman._patience import Patience
from leman._patient_channel import Metadata, PatientChannel
from leman._token import Token
from leman.errors import InvalidArgument, LemanError
from leman.v1 import (
    catalog_pb2_grpc,
    commit_pb2_grpc,
    databases_pb2_grpc,
    info_pb2,
    info_pb2_grpc,
    jobs_pb2_grpc,
    planner_pb2_grpc,
    tables_pb2_grpc,
)

PATIENCE = 60.0
"""Seconds that a call waits for a service that is being restarted."""
FIRST_CONTACT = 10.0
"""Seconds in which an endpoint given by the user must answer for the first time."""

_MAX_MESSAGE = 64 << 20
_TRY_SECONDS = 1.0  # in which a named address must answer to be called instead of the endpoint


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services are, as host:port, and what they ask for.

    `tls_ca`: PEM file; empty: no TLS. `tls_cert`, `tls_key`: PEM files of a certificate to show; empty: none.
    """

    planner: str
    executor: str
    commit_coordinator: str
    token: str | Token = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


class Locator(Protocol):
    """Knows where the services are."""

    def locate(self) -> Endpoints:
        """Where they are now. Asked again when one of them does not answer; must not wait for that one."""
        ...


class Services:
    """The generated stubs of the services, over channels that are opened when first needed.

    Safe for use by several threads. Every call of the API may be sent twice: reads, calls that carry a request id, and
    those that say the same thing twice. So each is sent again while the service is away, for `patience` seconds, and
    has a deadline where it names none. Streams are opened once.

    `direct`: whether rows are read and written by this process, with pylance, and not through the services.
    """

    def __init__(self, locator: Locator, patience: float = PATIENCE, *, direct: bool = False) -> None:
        self.direct = direct
        self._locator = locator
        self._patience = patience
        self._endpoints: Endpoints | None = None
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._closed = False
        planner, catalog = self._stub_channel("planner", 300.0), self._stub_channel("planner", 60.0)
        coordinator = self._stub_channel("commit_coordinator", 600.0)
        self.catalog = catalog_pb2_grpc.CatalogServiceStub(catalog)
        self.databases = databases_pb2_grpc.DatabaseServiceStub(catalog)
        self.planner = planner_pb2_grpc.PlannerServiceStub(planner)
        self.jobs = jobs_pb2_grpc.JobServiceStub(self._stub_channel("executor", 300.0))
        self.commits = commit_pb2_grpc.CommitServiceStub(coordinator)
        self.tables = tables_pb2_grpc.TableServiceStub(coordinator)

    def explain(self, service: str, error: grpc.RpcError) -> LemanError:
        """The Leman error for a failed call of `service`. Raise it `from None`."""
        endpoints = self._endpoints
        return _status.from_rpc(error, service=service, address=getattr(endpoints, service, "?"))

    def patient(self) -> Patience:
        """A new measure of how long one call may wait for its service."""
        return Patience(self._patience)

    def look_again(self) -> bool:
        """Ask the locator once more; True when the services have moved, or were started anew."""
        found = self._locator.locate()
        with self._lock:
            if found == self._endpoints:
                return False
            self._endpoints = found
            self._channels.clear()  # not closed: calls that other threads have on them end by themselves
            return True

    def close(self) -> None:
        """Close all channels; calls fail from now on."""
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def wait_or_raise(self, service: str, error: Exception, patience: Patience, *, repeatable: bool = False) -> None:
        """After a failed call: returns when another try is worth it, raises the Leman error when not.

        A ValueError is what gRPC raises on a channel that is closed. `repeatable`: whether the call may also be made
        again where the service has too much to do, and says when.
        """
        if not isinstance(error, grpc.RpcError):
            raise (_closed_error() if self._closed else error) from None
        code, delay = error.code(), _status.retry_after(error)
        if not self._closed and self._may_try_again(code, delay, patience, repeatable=repeatable):
            if code is grpc.StatusCode.UNAVAILABLE and self.look_again():
                return
            if code is grpc.StatusCode.UNAUTHENTICATED or patience.pause(delay):
                return
        raise self.explain(service, error) from None

    def _may_try_again(self, code: grpc.StatusCode, delay: float, patience: Patience, *, repeatable: bool) -> bool:
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return (patience.may_renew() and self._renewed()) or self.look_again()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return repeatable and delay > 0 and patience.may_stand_in_line()
        return code is grpc.StatusCode.UNAVAILABLE

    def channel(self, service: str) -> grpc.Channel:
        """The channel to a service as it is known, opened when first needed. Raises InvalidArgument (CLOSED)."""
        if self._endpoints is None:
            self.look_again()
        with self._lock:
            if self._closed or self._endpoints is None:
                raise _closed_error()
            address: str = getattr(self._endpoints, service)
            if address not in self._channels:
                self._channels[address] = open_channel(address, self._endpoints)
            return self._channels[address]

    def metadata(self) -> Metadata:
        """What each call carries: the token, and an id of its own."""
        return metadata(self._endpoints.token if self._endpoints else "")

    def patient_channel(self, service: str, timeout: float) -> PatientChannel:
        """What stubs make their calls by. `timeout`: seconds that a call may take which names none."""
        return PatientChannel(self, service, timeout)

    def _stub_channel(self, service: str, timeout: float) -> grpc.Channel:
        return cast("grpc.Channel", self.patient_channel(service, timeout))

    def _renewed(self) -> bool:
        """Ask the source of tokens again, where there is one."""
        token = self._endpoints.token if self._endpoints else ""
        return isinstance(token, Token) and token.renew()


def _closed_error() -> InvalidArgument:
    return InvalidArgument("the connection is closed: call leman.connect() again", reason="CLOSED")


class Remote:
    """Locator for `endpoint`, the address of any one service.

    That one answers for all of them, and names the others: those that answer from here are called themselves, which is
    shorter.
    """

    def __init__(self, endpoint: str, token: Token, tls_ca: str, tls_cert: str = "", tls_key: str = "") -> None:
        host, colon, port = endpoint.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise InvalidArgument(f"endpoint={endpoint!r} is not host:port, such as 'leman.internal:7443'")
        self._endpoint = endpoint
        if bool(tls_cert) != bool(tls_key) or (tls_cert and not tls_ca):
            raise InvalidArgument("tls_cert and tls_key go together, and with tls_ca")
        self._token = token
        self._given = Endpoints("", "", "", token=token, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
        self._known: Endpoints | None = None

    def locate(self) -> Endpoints:
        """Ask the endpoint, and try what it names; when it does not answer, what it said before still holds."""
        seconds = 1.0 if self._known else FIRST_CONTACT
        info = ask(self._endpoint, self._given, timeout=seconds)
        if self._known is None and _is_refused(info) and self._token.renew():
            info = ask(self._endpoint, self._given, timeout=seconds)
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
        answering = {self._endpoint, *self._answering({*found.values()} - {self._endpoint, ""})}
        shortest = {name: place if place in answering else self._endpoint for name, place in found.items()}
        self._known = replace(self._given, **shortest)
        return self._known

    def _answering(self, addresses: set[str]) -> list[str]:
        """Give those of the addresses that answer from here at once; they are asked side by side."""
        with contextlib.ExitStack() as channels:
            asked = {}
            for address in addresses:
                stub = info_pb2_grpc.InfoServiceStub(channels.enter_context(open_channel(address, self._given)))
                carried = metadata(self._given.token)
                asked[address] = stub.GetInfo.future(info_pb2.GetInfoRequest(), timeout=_TRY_SECONDS, metadata=carried)
            return [address for address, answer in asked.items() if answer.exception() is None]


def ask(address: str, endpoints: Endpoints, *, timeout: float) -> info_pb2.GetInfoResponse | grpc.RpcError:
    """GetInfo of the service at `address`, waiting for it up to `timeout` seconds; or the error."""
    with open_channel(address, endpoints) as channel:
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


def _is_refused(info: info_pb2.GetInfoResponse | grpc.RpcError) -> bool:
    return isinstance(info, grpc.RpcError) and info.code() is grpc.StatusCode.UNAUTHENTICATED


def metadata(token: str | Token) -> Metadata:
    """What each call carries."""
    request_id = ("x-request-id", uuid.uuid4().hex)
    text = token() if isinstance(token, Token) else token
    return (request_id, ("authorization", f"Bearer {text}")) if text else (request_id,)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def open_channel(address: str, shown: Endpoints) -> grpc.Channel:
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
    if not shown.tls_ca:
        return grpc.insecure_channel(address, options)
    try:
        files = (shown.tls_ca, shown.tls_key, shown.tls_cert)
        authority, key, chain = (Path(file).read_bytes() if file else None for file in files)
    except OSError as error:
        raise InvalidArgument(f"tls_ca, tls_cert or tls_key cannot be read: {error}") from None
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, chain), options)
