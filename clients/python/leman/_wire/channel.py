"""Channels to the services. They find the services, wait for them, and retry calls while services restart."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool

from leman._wire import conversions
from leman._wire.credentials import Pem, TlsFiles, Token, is_loopback, parse_addresses
from leman.errors import InvalidArgument, LemanError, NotSupported, Unavailable
from leman.v1 import (
    annotations_pb2,
    catalog_pb2_grpc,
    commit_pb2_grpc,
    databases_pb2_grpc,
    info_pb2,
    info_pb2_grpc,
    jobs_pb2_grpc,
    planner_pb2_grpc,
    tables_pb2_grpc,
)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_BUSY_TRIES = 5  # equals the published retry policy
_LOSSES = 2  # lost connections of one call; equals the clients in other languages


def check_timeout(timeout: float | None) -> None:
    """Raise InvalidArgument unless the timeout is None or a number of seconds that is not negative."""
    if timeout is not None and not timeout >= 0:  # false for NaN, too
        raise InvalidArgument(f"timeout must be None or a number of seconds, 0 or more, not {timeout:g}")


class RetryBudget:
    """Limits how often and for how long one call is retried.

    The pauses between attempts grow from 50 ms to a second; all pauses together take at most `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = _FIRST_PAUSE
        self._renewals = 1
        self._turns = _BUSY_TRIES - 1
        self._losses = _LOSSES

    def may_renew(self) -> bool:
        """Return whether the token may be renewed for this call: True the first time, then False."""
        self._renewals -= 1
        return self._renewals >= 0

    def may_stand_in_line(self) -> bool:
        """Return whether the call may be repeated although the service is overloaded."""
        self._turns -= 1
        return self._turns >= 0

    def may_lose_connection(self) -> bool:
        """Return whether a call that lost its connection may be retried: True the first time, then False.

        A call that loses its connection twice probably crashes the service.
        """
        self._losses -= 1
        return self._losses > 0

    def pause(self, at_least: float = 0.0) -> bool:
        """Pause before the next attempt. If the time is used up, return False without waiting."""
        wanted = max(at_least, self._next * random.uniform(0.5, 1.0))
        if time.monotonic() + wanted > self._end:
            return False
        time.sleep(wanted)
        self._next = min(self._next * 2, _LONGEST_PAUSE)
        return True


Metadata = tuple[tuple[str, str], ...]


_LEVEL = descriptor_pb2.MethodOptions.IdempotencyLevel


def is_repeatable(path: str) -> bool:
    """Return whether the published retry policy allows to repeat a method, `/package.Service/Method`."""
    return is_read(path) or _level(path) == _LEVEL.Value("IDEMPOTENT")


def is_read(path: str) -> bool:
    options = _options(path)
    return _level(path) == _LEVEL.Value("NO_SIDE_EFFECTS") or bool(options.Extensions[annotations_pb2.access].reads)


def _level(path: str) -> int:
    return int(_options(path).idempotency_level)


def _options(path: str) -> descriptor_pb2.MethodOptions:
    method = descriptor_pool.Default().FindMethodByName(path.lstrip("/").replace("/", "."))
    options: descriptor_pb2.MethodOptions = method.GetOptions()
    return options


os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # users should not see gRPC's own messages on standard error


PATIENCE = 60.0
"""Seconds that a call waits for a service that is being restarted."""

_SILENCE = 60.0
"""If the last message of a watch is older than this many seconds, its services are taken to have ended earlier."""

_MAX_MESSAGE = 64 << 20


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of the services, as host:port, with the token and the certificates for them.

    `tls_ca`: PEM file; empty for no TLS. `tls_cert`, `tls_key`: PEM files of a client certificate, if any.
    `plaintext`: the token may be sent to other machines without TLS.
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
        """Return whether a call to that address would send the token in the clear without permission."""
        return bool(self.token) and not (self.tls_ca or self.plaintext or is_loopback(address))


class Locator:
    """Finds the services. This base class never starts any."""

    def locate(self) -> Endpoints:
        """Return the current addresses, without waiting for a service that does not answer."""
        raise NotImplementedError

    def locate_first(self) -> Endpoints:
        """Wait until the services answer, and return their addresses."""
        return self.locate()

    def find_restarted(self) -> Endpoints | None:
        """Return the current addresses for a watch that lost its connection.

        Return None if the services have ended and this process may not start new ones.
        """
        return self.locate()

    def check(self, *, reads: bool) -> Endpoints | None:  # noqa: ARG002 - used by locators that start services
        """Raise an error if the next call must not be made. Return the addresses if the services may have moved.

        `reads`: the call only reads.
        """
        return None

    def expect_writes(self) -> None:
        """Announce calls that write, so that the processes for them can start early."""

    def would_start(self) -> bool:
        """Return whether a call that only reads would have to start the services."""
        return False


class PatientChannel:
    """A channel for generated stubs, with the part of `grpc.Channel` that they use.

    Each call goes to the service's current address. A unary call is retried while the service cannot be reached. A
    stream is opened once; iterating over it raises `grpc.RpcError`.
    """

    def __init__(self, services: Services, service: str, timeout: float) -> None:
        """`timeout`: in seconds, for unary calls without a timeout."""
        self._services = services
        self._service = service
        self._timeout = timeout

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        repeatable, reads = is_repeatable(method), is_read(method)

        def call(request: Any, timeout: float | None = None) -> Any:
            patience = self._services.patient()
            while True:
                channel = self._services.channel(self._service, reads=reads)
                send = channel.unary_unary(method, *codecs, **options)
                try:
                    return send(request, timeout=timeout or self._timeout, metadata=self._services.metadata())
                except (grpc.RpcError, ValueError) as error:  # the channel raises ValueError when closed
                    failure = error
                self._services.wait_or_raise(self._service, failure, patience, repeatable=repeatable)

        return call

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        def call(requests: Any, timeout: float | None = None) -> Any:
            opened = self._services.channel(self._service).stream_unary(method, *codecs, **options)
            return opened(requests, timeout=timeout or self._timeout, metadata=self._services.metadata())

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        reads = is_read(method)

        def call(request: Any, timeout: float | None = None) -> Any:
            channel = self._services.channel(self._service, reads=reads)
            opened = channel.unary_stream(method, *codecs, **options)
            return opened(request, timeout=timeout, metadata=self._services.metadata())

        return call


class Services:
    """The generated stubs of the services. Their channels are opened when first needed. Thread-safe.

    Every call of the API may be sent twice, because it only reads, carries a request id, or is idempotent. So each
    unary call is retried for `patience` seconds while the service cannot be reached. It gets a deadline if the caller
    sets none. Streams are opened once.

    `direct`: this process reads and writes rows itself, with pylance, and not through the services.
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
        #: A watch that loses its connection before this time assumes that the services ended just now.
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
        """Return the Leman error for a failed call of `service`. The caller raises this error `from None`."""
        endpoints = self._endpoints
        return conversions.from_rpc(error, service=service, address=getattr(endpoints, service, "?"))

    def patient(self) -> RetryBudget:
        return RetryBudget(self._patience)

    def hear(self) -> float:
        """Record that a watch received a message now. Return the time for its `heard_until`."""
        self.heard_until = time.monotonic() + _SILENCE + self._patience
        return self.heard_until

    def look_again(self) -> bool:
        """Get the addresses from the locator again. Return whether the services moved or were restarted."""
        return self._moved_to(self._locator.locate())

    def _moved_to(self, found: Endpoints) -> bool:
        with self._lock:
            if found == self._endpoints:
                return False
            self._endpoints = found
            self._channels.clear()  # not closed, so that calls of other threads on them can end
            return True

    def _check(self, *, reads: bool) -> None:
        found = self._locator.check(reads=reads)
        if found is not None and self._endpoints is not None:
            self._moved_to(found)

    def close(self) -> None:
        """Close all channels. Later calls fail."""
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def wait_or_raise(
        self,
        service: str,
        error: Exception,
        patience: RetryBudget,
        *,
        repeatable: bool = False,
        stands_in_line: bool = False,
    ) -> None:
        """Wait before a failed call is retried. If a retry would not help, raise the call's Leman error.

        gRPC raises ValueError on a closed channel. A call that lost its connection twice while it ran is not retried,
        as it may crash the service. With `repeatable`, an overloaded service that says when to retry is called a few
        more times; with `stands_in_line`, as long as patience lasts.
        """
        if not isinstance(error, grpc.RpcError):
            raise (_closed_error() if self._closed else error) from None
        code, delay = conversions.code_of(error), conversions.retry_after(error)
        hopeless = self._closed or conversions.is_of_function_server(error)
        hopeless |= conversions.lost_connection(error) and not patience.may_lose_connection()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and stands_in_line:
            if not hopeless and delay > 0 and patience.pause(delay):
                return
        elif not hopeless and self._may_try_again(code, delay, patience, repeatable=repeatable):
            if code is grpc.StatusCode.UNAVAILABLE and self.look_again():
                return
            if code is grpc.StatusCode.UNAUTHENTICATED or patience.pause(delay):
                return
        raise self.explain(service, error) from None

    def wait_as_watch(self, service: str, error: grpc.RpcError, patience: RetryBudget, heard_until: float) -> None:
        """Wait, as `wait_or_raise` does, after the connection of a watch broke.

        If the services ended just now, wait for their restart. Starting other services would get in the way of that
        restart. `heard_until`: the time that `hear` returned when this watch began or last received a message.
        """
        is_away = conversions.code_of(error) is grpc.StatusCode.UNAVAILABLE and time.monotonic() < heard_until
        if self._closed or not is_away:
            self.wait_or_raise(service, error, patience, repeatable=True)
            return
        found = self._locator.find_restarted()
        if (found is not None and self._moved_to(found)) or patience.pause(conversions.retry_after(error)):
            return
        if found is not None:
            raise self.explain(service, error) from None
        self.heard_until = 0.0
        raise Unavailable(
            f"the services have ended and were not restarted within {self._patience:g} s: the job continues once they"
            " run, and the next call starts them"
        )

    def _may_try_again(self, code: grpc.StatusCode, delay: float, patience: RetryBudget, *, repeatable: bool) -> bool:
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return (patience.may_renew() and self._renewed()) or self.look_again()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return repeatable and delay > 0 and patience.may_stand_in_line()
        return code is grpc.StatusCode.UNAVAILABLE

    def begin(self) -> None:
        """Find the services, unless that was done before."""
        with self._finding:
            if self._endpoints is None and not self._closed:
                self._endpoints = self._locator.locate_first()

    def expect_writes(self) -> None:
        self._locator.expect_writes()

    def reads_alone(self) -> bool:
        """Return whether this process should read tables itself, because services would have to be started."""
        return self.direct and self._endpoints is None and not self._closed and self._locator.would_start()

    def start(self) -> None:
        """Start the services if they do not run, and have them serve a local database. Raises the locator's errors."""
        self._check(reads=False)
        self.begin()

    def channel(self, service: str, *, reads: bool = False) -> grpc.Channel:
        """Return the channel to a service, opened when first needed. `reads`: the call only reads.

        Raises InvalidArgument (CLOSED), and the locator's errors.
        """
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
        """Reopen channels if their certificates were renewed."""
        if not shown.tls_ca:
            return
        if self._tls is None:
            self._tls = tls_files(shown)
        pem = self._tls.current()
        if pem is not self._pem:
            self._pem = pem
            self._channels.clear()  # not closed, so that calls of other threads on them can end

    def metadata(self) -> Metadata:
        return metadata(self._endpoints.token if self._endpoints else "")

    def _stub_channel(self, service: str, timeout: float) -> grpc.Channel:
        return cast("grpc.Channel", PatientChannel(self, service, timeout))

    def _renewed(self) -> bool:
        token = self._endpoints.token if self._endpoints else ""
        return isinstance(token, Token) and token.renew()


def _closed_error() -> InvalidArgument:
    return InvalidArgument("the connection is closed: call leman.connect() again", reason="CLOSED")


def metadata(token: str | Token) -> Metadata:
    carried = (("x-request-id", uuid.uuid4().hex), *_trace())
    text = token() if isinstance(token, Token) else token
    return (*carried, ("authorization", f"Bearer {text}")) if text else carried


def _trace() -> Metadata:
    """Return the current span in the W3C form, if OpenTelemetry traces the program."""
    if "opentelemetry.trace" not in sys.modules:
        return ()
    carrier: dict[str, str] = {}
    with contextlib.suppress(Exception):  # a failure of the program's tracing must not fail a call
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        TraceContextTextMapPropagator().inject(carrier)
    return tuple((key, value) for key, value in carrier.items() if key in ("traceparent", "tracestate"))


def tls_files(shown: Endpoints) -> TlsFiles:
    """Return the contents of the TLS files. Raises InvalidArgument."""
    try:
        return TlsFiles(shown.tls_ca, shown.tls_cert, shown.tls_key)
    except OSError as error:
        raise InvalidArgument(f"tls_ca, tls_cert or tls_key cannot be read, or used: {error}") from None


def open_channel(address: str, shown: Endpoints, pem: Pem | None = None) -> grpc.Channel:
    """Open a channel that detects a hanging peer and reconnects quickly.

    `pem`: the contents of the TLS files, if known.
    """
    options = [
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # otherwise gRPC waits a minute for a ping's answer
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.use_local_subchannel_pool", 1),  # a new channel connects at once, even if others wait after failures
        ("grpc.enable_retries", 0),  # only this module retries
    ]
    if is_loopback(address):
        options.append(("grpc.enable_http_proxy", 0))  # a proxy would connect to its own loopback
    if not shown.tls_ca:
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(*(pem or tls_files(shown).current()))
    return grpc.secure_channel(address, credentials, options)


FIRST_CONTACT = 2.0
"""Seconds within which an endpoint given by the user must answer for the first time."""

_TRY_SECONDS = 1.0  # a reported address that answers within this time is called directly


class Remote(Locator):
    """Finds the services through `endpoint`, the address of any one of them, or several such as two executors.

    That service forwards calls to the other services and returns their addresses. Services that can be reached from
    here are called directly. Of several endpoints, one is used until it does not answer, then the first that does.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        token: Token,
        tls_ca: str,
        tls_cert: str = "",
        tls_key: str = "",
        *,
        plaintext: bool = False,
    ) -> None:
        """Raises InvalidArgument; its `reason` is PLAINTEXT_TOKEN if a token would be sent in the clear."""
        self._endpoints = parse_addresses(endpoint)
        self._endpoint = self._endpoints[0]
        if bool(tls_cert) != bool(tls_key) or (tls_cert and not tls_ca):
            raise InvalidArgument("tls_cert and tls_key need each other, and tls_ca: give all three")
        if plaintext and tls_ca:
            raise InvalidArgument("plaintext and tls_ca contradict each other: leave one of them out")
        self._token = token
        self._given = Endpoints(
            "", "", "", token=token, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, plaintext=plaintext
        )
        for address in self._endpoints:
            if self._given.exposes(address):
                raise _in_the_clear(address)
        self._known: Endpoints | None = None

    def locate(self) -> Endpoints:
        """Get the addresses from the endpoint, and try them. If it does not answer, use its last answer."""
        seconds = 1.0 if self._known else FIRST_CONTACT
        self._endpoint = self._answering_endpoint()
        info = fetch_service_info(self._endpoint, self._given, timeout=seconds)
        if self._known is None and _is_refused(info) and self._token.renew():
            info = fetch_service_info(self._endpoint, self._given, timeout=seconds)
        if isinstance(info, grpc.RpcError):
            if self._known is None:
                raise _no_contact(info, self._endpoints, tls=bool(self._given.tls_ca)) from None
            return self._known
        found = {
            "planner": info.planner_address,
            "executor": info.executor_address,
            "commit_coordinator": info.commit_coordinator_address,
        }
        if info.service in found:
            found[info.service] = self._endpoint  # the endpoint works, even if the service reports another address
        named = {place for place in found.values() if place and not self._given.exposes(place)}
        answering = {self._endpoint, *self._answering(named - {self._endpoint})}
        planner, executor, coordinator = (place if place in answering else self._endpoint for place in found.values())
        self._known = replace(self._given, planner=planner, executor=executor, commit_coordinator=coordinator)
        return self._known

    def _answering_endpoint(self) -> str:
        """Return the last used endpoint if it answers or is the only one, or else the first one that answers."""
        if len(self._endpoints) == 1:
            return self._endpoint
        answering = self._answering({*self._endpoints})
        return next((one for one in (self._endpoint, *self._endpoints) if one in answering), self._endpoint)

    def _answering(self, places: set[str]) -> list[str]:
        """Call all addresses concurrently, and return those that answer at once."""
        with contextlib.ExitStack() as channels:
            asked = {}
            for address in places:
                stub = info_pb2_grpc.InfoServiceStub(channels.enter_context(open_channel(address, self._given)))
                carried = metadata(self._given.token)
                asked[address] = stub.GetInfo.future(info_pb2.GetInfoRequest(), timeout=_TRY_SECONDS, metadata=carried)
            return [address for address, answer in asked.items() if answer.exception() is None]


def fetch_service_info(
    address: str, endpoints: Endpoints, *, timeout: float
) -> info_pb2.GetInfoResponse | grpc.RpcError:
    """Return the answer to GetInfo of the service at `address`, or the error after up to `timeout` seconds."""
    end = time.monotonic() + timeout
    with open_channel(address, endpoints) as channel:
        stub = info_pb2_grpc.InfoServiceStub(channel)
        patience = RetryBudget(timeout)
        while True:
            left = max(0.1, end - time.monotonic())
            try:
                return stub.GetInfo(info_pb2.GetInfoRequest(), timeout=left, metadata=metadata(endpoints.token))
            except grpc.RpcError as error:
                failure = error
            unavailable = conversions.code_of(failure) is grpc.StatusCode.UNAVAILABLE
            if not unavailable or conversions.tls_failure(failure) or not patience.pause():
                return failure


def _in_the_clear(address: str) -> InvalidArgument:
    return InvalidArgument(
        f"{address} is another machine, and without TLS anyone on the way can read the token: give tls_ca=, or"
        " plaintext=True (on the command line LEMAN_PLAINTEXT=true) if the network is protected",
        reason="PLAINTEXT_TOKEN",
    )


def _no_contact(error: grpc.RpcError, endpoints: Sequence[str], *, tls: bool) -> LemanError:
    """Return the error for endpoints that did not answer. It says how they were called and what they returned."""
    address = " or ".join(endpoints)
    told = conversions.from_rpc(error, service="endpoint", address=address)
    if conversions.code_of(error) is grpc.StatusCode.UNIMPLEMENTED:
        what = f"the server at {address} is not a service of Leman, or is of another release: check the address"
        return NotSupported(f"{what}, and whether a proxy is in front of it")
    if conversions.code_of(error) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return told
    if conversions.tls_failure(error):
        return told
    details = (error.details() or "").rpartition("last error: ")[2].strip()
    way = "with TLS" if tls else "without TLS (tls_ca= turns it on)"
    tried = f"cannot reach the endpoint at {address}: tried for {FIRST_CONTACT:g} s {way}"
    return Unavailable(f"{tried}; {details or 'no answer'}. Is it host:port of a running service?")


def _is_refused(info: info_pb2.GetInfoResponse | grpc.RpcError) -> bool:
    return isinstance(info, grpc.RpcError) and info.code() is grpc.StatusCode.UNAUTHENTICATED
