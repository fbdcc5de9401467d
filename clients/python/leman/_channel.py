"""Channels to the services, and calls that outlast a restart of theirs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Protocol, cast

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's own notes on standard error are no user's business

import grpc

from leman import _status
from leman._addresses import is_loopback
from leman._patience import Patience
from leman._patient_channel import Metadata, PatientChannel
from leman._tls_files import Pem, TlsFiles
from leman._token import Token
from leman.errors import InvalidArgument, LemanError, Unavailable
from leman.v1 import (
    catalog_pb2_grpc,
    commit_pb2_grpc,
    databases_pb2_grpc,
    jobs_pb2_grpc,
    planner_pb2_grpc,
    tables_pb2_grpc,
)

PATIENCE = 60.0
"""Seconds that a call waits for a service that is being restarted."""

_SILENCE = 60.0
"""Seconds after which services that were watched and have said nothing did not end just now."""

_MAX_MESSAGE = 64 << 20


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services are, as host:port, and what they ask for.

    `tls_ca`: PEM file; empty: no TLS. `tls_cert`, `tls_key`: PEM files of a certificate to show; empty: none.
    `plaintext`: whether other machines may be shown the token without TLS.
    """

    planner: str
    executor: str
    commit_coordinator: str
    token: str | Token = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    plaintext: bool = False

    def exposes(self, address: str) -> bool:
        """Whether a call of that address would show the token to whoever is on the way, which nobody permitted."""
        return bool(self.token) and not (self.tls_ca or self.plaintext or is_loopback(address))


class Locator(Protocol):
    """Knows where the services are."""

    def check(self, *, reads: bool) -> Endpoints | None:
        """Asked before each call. Raises where it is not to be made; `reads`: it changes nothing. Returns where the
        services are, where they may be elsewhere than was said before."""
        ...

    def expect_writes(self) -> None:
        """Told that calls which change something follow soon: what they need may start before them."""
        ...

    def would_start(self) -> bool:
        """Whether a call that only reads would have to start them."""
        ...

    def locate_first(self) -> Endpoints:
        """Where they are, once they answer."""
        ...

    def locate(self) -> Endpoints:
        """Where they are now. Asked again when one of them does not answer; must not wait for that one."""
        ...

    def find_restarted(self) -> Endpoints | None:
        """As `locate`, for who watches what they do: None where they have ended and somebody else is to start them."""
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
        self._tls: TlsFiles | None = None
        self._pem: Pem | None = None
        self._lock = threading.Lock()
        self._finding = threading.Lock()
        self._closed = False
        #: Until when services that are away count as ended a moment ago, for watches that begin now.
        self.heard_until = 0.0
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

    def hear(self) -> float:
        """Note that a watch has heard from the services; returns its `heard_until`."""
        self.heard_until = time.monotonic() + _SILENCE + self._patience
        return self.heard_until

    def look_again(self) -> bool:
        """Ask the locator once more; True when the services have moved, or were started anew."""
        return self._moved_to(self._locator.locate())

    def _moved_to(self, found: Endpoints) -> bool:
        with self._lock:
            if found == self._endpoints:
                return False
            self._endpoints = found
            self._channels.clear()  # not closed: calls that other threads have on them end by themselves
            return True

    def _check(self, *, reads: bool) -> None:
        found = self._locator.check(reads=reads)
        if found is not None and self._endpoints is not None:
            self._moved_to(found)

    def close(self) -> None:
        """Close all channels; calls fail from now on."""
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def wait_or_raise(
        self,
        service: str,
        error: Exception,
        patience: Patience,
        *,
        repeatable: bool = False,
        stands_in_line: bool = False,
    ) -> None:
        """After a failed call: returns when another try is worth it, raises the Leman error when not.

        A ValueError is what gRPC raises on a channel that is closed. A connection that was lost twice while the call
        ran is not tried again: the call may end the service. `repeatable`: whether the call may also be made
        again where the service has too much to do, and says when; `stands_in_line`: as long as patience lasts.
        """
        if not isinstance(error, grpc.RpcError):
            raise (_closed_error() if self._closed else error) from None
        code, delay = _status.code_of(error), _status.retry_after(error)
        hopeless = self._closed or _status.is_of_function_server(error)
        hopeless |= _status.lost_connection(error) and not patience.may_lose_connection()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and stands_in_line:
            if not hopeless and delay > 0 and patience.pause(delay):
                return
        elif not hopeless and self._may_try_again(code, delay, patience, repeatable=repeatable):
            if code is grpc.StatusCode.UNAVAILABLE and self.look_again():
                return
            if code is grpc.StatusCode.UNAUTHENTICATED or patience.pause(delay):
                return
        raise self.explain(service, error) from None

    def wait_as_watch(self, service: str, error: grpc.RpcError, patience: Patience, heard_until: float) -> None:
        """As `wait_or_raise`, after a watch was cut. Where its services spoke a moment ago and have ended, it waits for
        those that come back, and starts none: whoever restarts them would find others.

        `heard_until`: the watch's own, from when it began or last heard: that others have given up changes nothing."""
        is_away = _status.code_of(error) is grpc.StatusCode.UNAVAILABLE and time.monotonic() < heard_until
        if self._closed or not is_away:
            self.wait_or_raise(service, error, patience, repeatable=True)
            return
        found = self._locator.find_restarted()
        if (found is not None and self._moved_to(found)) or patience.pause(_status.retry_after(error)):
            return
        if found is not None:
            raise self.explain(service, error) from None
        self.heard_until = 0.0
        raise Unavailable(
            f"the services have ended, and nobody has started them again within {self._patience:g} s: what was watched"
            " goes on once they run, and the next call starts them"
        )

    def _may_try_again(self, code: grpc.StatusCode, delay: float, patience: Patience, *, repeatable: bool) -> bool:
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return (patience.may_renew() and self._renewed()) or self.look_again()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return repeatable and delay > 0 and patience.may_stand_in_line()
        return code is grpc.StatusCode.UNAVAILABLE

    def begin(self) -> None:
        """Find the services, where that was not done yet."""
        with self._finding:
            if self._endpoints is None and not self._closed:
                self._endpoints = self._locator.locate_first()

    def expect_writes(self) -> None:
        """Say that a call which changes something follows."""
        self._locator.expect_writes()

    def reads_alone(self) -> bool:
        """Whether this process looks into tables itself, as it reads their rows: services would have to be started for
        no more than that."""
        return self.direct and self._endpoints is None and not self._closed and self._locator.would_start()

    def start(self) -> None:
        """Have the services run, and a local database be served by them. Raises what the locator raises."""
        self._check(reads=False)
        self.begin()

    def channel(self, service: str, *, reads: bool = False) -> grpc.Channel:
        """The channel to a service as it is known, opened when first needed; `reads`: for a call that changes nothing.
        Raises InvalidArgument (CLOSED), and what the locator raises."""
        if not self._closed:
            self._check(reads=reads)
        if self._endpoints is None:
            self.begin()
        with self._lock:
            if self._closed or self._endpoints is None:
                raise _closed_error()
            self._look_at_files(self._endpoints)
            address: str = getattr(self._endpoints, service)
            if address not in self._channels:
                self._channels[address] = open_channel(address, self._endpoints, self._pem)
            return self._channels[address]

    def _look_at_files(self, shown: Endpoints) -> None:
        """Have channels opened anew where their certificates were renewed."""
        if not shown.tls_ca:
            return
        if self._tls is None:
            self._tls = tls_files(shown)
        pem = self._tls.current()
        if pem is not self._pem:
            self._pem = pem
            self._channels.clear()  # not closed: calls that other threads have on them end by themselves

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


def metadata(token: str | Token) -> Metadata:
    """What each call carries."""
    carried = (("x-request-id", uuid.uuid4().hex), *_trace())
    text = token() if isinstance(token, Token) else token
    return (*carried, ("authorization", f"Bearer {text}")) if text else carried


def _trace() -> Metadata:
    """The span at hand, as W3C has it, of a program that is traced by OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return ()
    carrier: dict[str, str] = {}
    with contextlib.suppress(Exception):  # whatever the program's tracing does: no call ends by it
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        TraceContextTextMapPropagator().inject(carrier)
    return tuple((key, value) for key, value in carrier.items() if key in ("traceparent", "tracestate"))


def tls_files(shown: Endpoints) -> TlsFiles:
    """The files that a connection over TLS shows and believes. Raises InvalidArgument."""
    try:
        return TlsFiles(shown.tls_ca, shown.tls_cert, shown.tls_key)
    except OSError as error:
        raise InvalidArgument(f"tls_ca, tls_cert or tls_key cannot be read, or used: {error}") from None


def open_channel(address: str, shown: Endpoints, pem: Pem | None = None) -> grpc.Channel:
    """A channel that notices a peer that hangs, and does not wait long between attempts to reach one.

    `pem`: what its files have, where that is known.
    """
    options = [
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # without it gRPC waits a minute for a ping's answer
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel tries at once, whatever others have seen
        ("grpc.enable_retries", 0),  # one layer of retries: ours
    ]
    if is_loopback(address):
        options.append(("grpc.enable_http_proxy", 0))  # a proxy reaches its own machine, not this one
    if not shown.tls_ca:
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(*(pem or tls_files(shown).current()))
    return grpc.secure_channel(address, credentials, options)
