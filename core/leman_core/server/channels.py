"""Channels from one service to another: token, TLS, keepalive, message size, retries, and errors that name the peer.

If a peer cannot be reached, gRPC lets calls wait and then ends them as DEADLINE_EXCEEDED without naming the peer. So
`PeerLink` follows the state of the channel. A call that cannot reach the peer in time ends as PEER_UNAVAILABLE, with
the peer's address and the setting that has it. The log has one line for each outage. If TLS files are
renewed, the next call uses them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, Self

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from leman_core.model.service_errors import (
    CALL_NOT_OFFERED,
    NEVER_REACHED,
    PEER_UNAVAILABLE,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    Unavailable,
)
from leman_core.process.addresses import proxy_options
from leman_core.server import status
from leman_core.server.interceptors import REQUEST_ID
from leman_core.server.request_messages import TRANSPORT_FACTOR, may_be_repeated
from leman_core.server.routes import internal_services, public_services
from leman_core.server.tls import Pem, TlsFiles, settings_named
from leman_core.settings import Peers, Settings
from leman_core.telemetry import tracing

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_AGAIN_SECONDS = 1.0


async def follow_health(channel: grpc.aio.Channel, services: Sequence[str], checks: health.aio.HealthServicer) -> None:
    """Copy the health of the peer's services to `checks` until cancelled: NOT_SERVING while the peer is unreachable.

    The call to the peer ends as soon as the peer begins to drain, so that the peer need not wait for it.
    """
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for service in services:
        await checks.set(service, _NOT_SERVING)
    while True:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=services[0]))
        try:
            async for answer in watch:
                fit = answer.status == _SERVING
                for service in services:
                    await checks.set(service, _SERVING if fit else _NOT_SERVING)
                if not fit:
                    break
        except grpc.aio.AioRpcError:
            for service in services:
                await checks.set(service, _NOT_SERVING)
        finally:
            watch.cancel()
        await asyncio.sleep(_AGAIN_SECONDS)


#: How long calls wait for a peer that has not been reached since this service started, as its address may be wrong.
NEVER_REACHED_SECONDS = 15.0
_PROBE = "/grpc.health.v1.Health/Check"
_PROBE_SECONDS = 2.0
#: gRPC's errors for a failed handshake, and for a certificate with another name.
_TLS_FAULT = re.compile(r"SSL_ERROR_SSL|CERTIFICATE|Peer name|Hostname verification|Cannot check peer", re.IGNORECASE)
_HANGS_UP = "Socket closed"
_CUT_BY_A_PROXY = "RST_STREAM"
#: gRPC's codes for a connection that cannot be established, or breaks.
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_READY, _FAILING = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE

_log = structlog.get_logger(__name__)


class PeerLink:
    """Knows whether one peer can be reached, and translates the errors of calls to it, for one event loop.

    Args:
        settings: The settings of this service.
        name: The name of the peer, such as `commit_coordinator`.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name.replace("_", " ")
        self.address: str = getattr(settings.peers, name)
        self.setting = f"LEMAN_PEERS__{name.upper()}"
        self._channel: grpc.aio.Channel | None = None
        self._is_followed = False
        self._shown = _shown(settings)
        self._trusts = settings.peers.tls_ca
        self._tasks: set[asyncio.Task[None]] = set()
        self._was_reached = asyncio.Event()
        self._is_away = self._refuses = False

    def use(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """Follow this channel instead of an earlier one, from the next call on. Return the channel."""
        self._channel, self._is_followed = channel, False
        return channel

    async def wait(self, seconds: float | None) -> None:
        """Wait at most this long until the peer has been reached once.

        Raises:
            AioRpcError: PEER_UNAVAILABLE.
        """
        self._begin_following()
        if self._was_reached.is_set():
            return
        longest = NEVER_REACHED_SECONDS if seconds is None else min(seconds, NEVER_REACHED_SECONDS)
        try:
            async with asyncio.timeout(longest):
                await self._was_reached.wait()
        except TimeoutError:
            raise as_rpc_error(self._never_reached(await self._fault())) from None

    def reached(self) -> None:
        """Note that the peer answers."""
        self._was_reached.set()
        self._refuses = False
        if self._is_away:
            self._is_away = False
            _log.info("a peer is reached again", peer=self.name, address=self.address)

    async def translate(self, error: grpc.aio.AioRpcError, seconds: float | None) -> grpc.aio.AioRpcError:
        """Return the error to raise for a failed call: the peer's own one, or one that names the peer.

        If the peer refuses the token, the error is about a setting of this service, whose token it is.

        Args:
            error: The error of the call.
            seconds: The timeout of the call.
        """
        code, said = error.code(), error.details() or ""
        refusal = self._refusal(error)
        if refusal is not None:
            return as_rpc_error(refusal)
        if is_peer_error(error):
            self.reached()
            return error
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            fault = await self._fault()
            return as_rpc_error(self._away(fault, seconds) if fault else self._slow(seconds))
        if code in BROKEN or (code is grpc.StatusCode.INTERNAL and _CUT_BY_A_PROXY in said):
            return as_rpc_error(self.broken(said))
        return error

    def broken(self, said: str, here: str = "") -> LemanError:
        """Return the error for a call whose connection broke or could not be established.

        Args:
            said: gRPC's description of the error.
            here: The service that calls.
        """
        if _TLS_FAULT.search(said):
            return self._distrusted(said, here)
        self.note_away(said)
        return self._unavailable(
            f"{self._named(here)} cannot be reached, or went away: {said}. It may have executed the call or not: retry "
            "the call"
        )

    def _begin_following(self) -> None:
        if self._channel is None or self._is_followed:
            return
        self._is_followed = True
        # in a new context, so that log lines do not have the first request's id
        following = asyncio.create_task(self._follow(self._channel), context=Context())
        self._tasks.add(following)
        following.add_done_callback(self._tasks.discard)

    async def _follow(self, channel: grpc.aio.Channel) -> None:
        """Note the channel's state until it is closed or replaced."""
        while channel is self._channel:
            state = channel.get_state(try_to_connect=not self._was_reached.is_set())
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            if state is _READY:
                self.reached()
            elif state is _FAILING and not self._is_away:
                self.note_away(await self._fault())
                continue
            await channel.wait_for_state_change(state)

    def note_away(self, why: str) -> None:
        if not self._is_away:
            self._is_away = True
            _log.warning(
                "a peer cannot be reached", peer=self.name, address=self.address, setting=self.setting, why=why
            )

    async def _fault(self) -> str:
        """Return gRPC's description of why the peer cannot be reached; empty if it can."""
        if self._channel is None or self._channel.get_state() is _READY:
            return ""
        probe: Any = self._channel.unary_unary(_PROBE)
        try:
            await probe(health_pb2.HealthCheckRequest().SerializeToString(), timeout=_PROBE_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return "it does not answer"
            return error.details() or error.code().name if error.code() is grpc.StatusCode.UNAVAILABLE else ""
        return ""

    def _refusal(self, error: grpc.aio.AioRpcError) -> LemanError | None:
        """Return the error for a call that the peer does not accept from this service; None for any other failure."""
        code, said = error.code(), status.error_from_rpc(error)
        unknown = said.reason == CALL_NOT_OFFERED or not is_peer_error(error)
        if code is grpc.StatusCode.UNIMPLEMENTED and unknown:
            why = (
                f"the service at {self.address} ({self.setting}) does not have the calls of the {self.name}: it is "
                f"another service, or of another release. Set {self.setting} to the {self.name}'s address"
            )
            return self._refused(why, self.setting, "WRONG_PEER")
        of_its_role = said.reason == "ROLE_REQUIRED" or not is_peer_error(error)
        if code is not grpc.StatusCode.UNAUTHENTICATED and not (
            code is grpc.StatusCode.PERMISSION_DENIED and of_its_role
        ):
            return None
        return self._refused(
            f"{self._named()} refuses {self._shown}: {said.message}. Set LEMAN_PEERS__TOKEN here to a token that it "
            "accepts and to which it gives the role `service`",
            "LEMAN_PEERS__TOKEN",
        )

    def _refused(self, why: str, setting: str, reason: str = "PEER_REFUSED") -> LemanError:
        """Return the error for a refusal that a setting of this service causes, and log it once."""
        about = {"peer": self.name, "address": self.address, "setting": setting}
        if not self._refuses:
            self._refuses = True
            _log.warning("a peer refuses this service", **about, why=why)
        error = FailedPrecondition(reason, why)
        error.facts = about
        return error

    def _never_reached(self, fault: str) -> LemanError:
        if _TLS_FAULT.search(fault):
            return self._distrusted(fault)
        error = self._unavailable(
            f"{self._named()} was not reached since this service started: {fault or 'it answers only now'}"
            f"{self._hint(fault)}. Start it, or correct {self.setting} here, then retry the call"
        )
        error.facts[NEVER_REACHED] = "true"
        return error

    def _away(self, fault: str, seconds: float | None) -> LemanError:
        if _TLS_FAULT.search(fault):
            return self._distrusted(fault)
        return self._unavailable(
            f"{self._named()} could not be reached within {_span(seconds)}: {fault}{self._hint(fault)}. "
            "It may have executed the call before it went away or not: retry the call when it is back"
        )

    def _distrusted(self, fault: str, here: str = "") -> LemanError:
        return self._refused(
            f"{self._named(here)} and this service cannot agree on TLS: {fault}. Set LEMAN_PEERS__TLS_CA here to the "
            "authority of the peer's certificate, which has to be for that host. If the peer does not speak TLS, leave "
            "it empty",
            "LEMAN_PEERS__TLS_CA",
        )

    def _hint(self, fault: str) -> str:
        """Return a hint on the TLS settings if the peer accepts connections and closes them at once."""
        if _HANGS_UP not in fault:
            return ""
        if not self._trusts:
            return " (it closes the connection: if it speaks TLS, set LEMAN_PEERS__TLS_CA here)"
        return (
            " (it closes the connection: if it asks for a certificate, set LEMAN_PEERS__TLS_CERT here to one that it "
            "accepts)"
        )

    def _slow(self, seconds: float | None) -> LemanError:
        return self._unavailable(
            f"{self._named()} has not answered within {_span(seconds)} (LEMAN_PEERS__TIMEOUT_SECONDS). It may have "
            "executed the call or not: retry the call"
        )

    def _unavailable(self, message: str) -> LemanError:
        return Unavailable(PEER_UNAVAILABLE, message, peer=self.name, address=self.address, setting=self.setting)

    def _named(self, here: str = "") -> str:
        return f"the {self.name} at {self.address} ({self.setting}{f' of the {here}' if here else ''})"


def as_rpc_error(error: LemanError) -> grpc.aio.AioRpcError:
    """Convert a Leman error to the AioRpcError that a call to a peer would raise."""
    trailers = grpc.aio.Metadata(*status.trailers_of(error))
    return grpc.aio.AioRpcError(status.code_of(error), grpc.aio.Metadata(), trailers, error.message)


def is_probe(method: str | bytes) -> bool:
    """Return whether a call only probes the peer's health."""
    return method in (_PROBE, _PROBE.encode())


def is_peer_error(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the peer itself ended the call, with a Leman error."""
    return any(key == status.DETAILS_KEY for key, _ in error.trailing_metadata() or ())


def _shown(settings: Settings) -> str:
    """Return a text that names the credentials which this service shows to peers."""
    peers = settings.peers
    if peers.token.get_secret_value():
        return "the LEMAN_PEERS__TOKEN of this service"
    if peers.tls_cert:
        return "the LEMAN_PEERS__TLS_CERT of this service"
    return "this service, which shows neither token nor certificate"


def _span(seconds: float | None) -> str:
    return "its deadline" if seconds is None else f"{seconds:g} s"


#: How long calls may run on an old channel after files were renewed. The next renewal ends older ones.
_GRACE_SECONDS = 3600.0


class RenewedChannel(grpc.aio.Channel):
    """A channel that is reopened when its files are renewed. Running calls stay on the old channel.

    Args:
        files: The certificate files to watch.
        opened: A function that opens a channel, given the contents of the files.
    """

    def __init__(self, files: TlsFiles, opened: Callable[[Pem], grpc.aio.Channel]) -> None:
        self._files = files
        self._opened = opened
        self._shown = files.current()
        self._channel = opened(self._shown)
        #: Old channels, each with the time at which its last call began.
        self._left: deque[tuple[float, grpc.aio.Channel]] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    def _current(self) -> grpc.aio.Channel:
        shown = self._files.current()
        if shown is not self._shown:
            self._left.append((time.monotonic(), self._channel))
            self._shown, self._channel = shown, self._opened(shown)
            self._close_old()
        return self._channel

    def _close_old(self) -> None:
        while time.monotonic() - self._left[0][0] > _GRACE_SECONDS:
            closing = asyncio.get_running_loop().create_task(self._left.popleft()[1].close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _method(self, kind: str, method: tuple[Any, ...], more: dict[str, Any]) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(self._current(), kind)(*method, **more)(*arguments, **options)

        return call

    def unary_unary(self, *method: Any, **more: Any) -> Any:
        return self._method("unary_unary", method, more)

    def unary_stream(self, *method: Any, **more: Any) -> Any:
        return self._method("unary_stream", method, more)

    def stream_unary(self, *method: Any, **more: Any) -> Any:
        return self._method("stream_unary", method, more)

    def stream_stream(self, *method: Any, **more: Any) -> Any:
        return self._method("stream_stream", method, more)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 gRPC's own
        return self._current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._current().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._current().channel_ready()

    async def close(self, grace: float | None = None) -> None:
        channels = [channel for _, channel in self._left]
        await asyncio.gather(*self._closing, *(channel.close(grace) for channel in (*channels, self._channel)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}

Details = grpc.aio.ClientCallDetails


def open_peer(settings: Settings, name: str) -> grpc.aio.Channel:
    """Return a channel to `planner`, `executor` or `commit_coordinator`. Call it on the event loop that will use it.

    Calls carry the token for peers and the current request id. Their timeout is `peers.timeout_seconds` unless a call
    has its own. A call that may be retried waits that long for a peer that cannot be reached. Errors that do not come
    from the peer name it.

    Raises:
        FailedPrecondition: PEER_NOT_SET.
    """
    address = getattr(settings.peers, name)
    if not address:
        raise FailedPrecondition(
            "PEER_NOT_SET", f"the address of the {name} is not known: set LEMAN_PEERS__{name.upper()}"
        )
    calls = _PeerCalls(settings.peers.token.get_secret_value(), settings.peers.timeout_seconds)
    link = PeerLink(settings, name)
    interceptors = [_Unary(calls, link), _Streaming(calls, link)]
    return _open(settings, address, [("grpc.service_config", service_config())], interceptors, link.use)


def open_for_forwarding(settings: Settings, name: str) -> grpc.aio.Channel:
    """Return a channel for forwarding calls to a peer whose address is set.

    Calls have the metadata of their original callers. A call that reached the peer is not retried here, because the
    original caller can retry it.
    """
    return open_to(settings, getattr(settings.peers, name))


def open_to(settings: Settings, address: str) -> grpc.aio.Channel:
    """Return a channel like that of `open_for_forwarding`, to a peer at this address."""
    return _open(settings, address, [])


def _open(
    settings: Settings,
    address: str,
    more: list[tuple[str, Any]],
    interceptors: list[grpc.aio.ClientInterceptor] | None = None,
    used: Callable[[grpc.aio.Channel], grpc.aio.Channel] = lambda channel: channel,
) -> grpc.aio.Channel:
    """Open a channel. `used` gets each channel that is opened, also those after files were renewed."""
    options = [*_options(settings), *more, *proxy_options(address)]
    files = _files(settings)
    if files is None:
        return used(grpc.aio.insecure_channel(address, options=options, interceptors=interceptors))

    def opened(pem: Pem) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(*pem)
        return used(grpc.aio.secure_channel(address, credentials, options=options, interceptors=interceptors))

    return RenewedChannel(files, opened)


def service_config() -> str:
    """Return a gRPC service config that retries repeatable calls and makes them wait for an unreachable peer.

    Calls that change something are repeatable, too: if their requests have a field for a request id, services set it.
    """
    services = (*public_services().values(), *internal_services().values())
    names = [
        {"service": service.full_name, "method": method.name}
        for service in services
        for method in service.methods
        if may_be_repeated(method)
    ]
    config = {"methodConfig": [{"name": names, "waitForReady": True, "retryPolicy": _RETRY_POLICY}]}
    return json.dumps(config)


class _PeerCalls:
    """Adds token, request id, trace and deadline to calls to a peer."""

    def __init__(self, token: str, timeout_seconds: float) -> None:
        self._token = token
        self._timeout = timeout_seconds

    def completed(self, details: Details) -> Details:
        """Return a call's details with token, request id, trace and timeout added."""
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        if self._token:
            metadata.add("authorization", f"Bearer {self._token}")
        if metadata.get(REQUEST_ID) is None:
            current = structlog.contextvars.get_contextvars().get("request_id")
            metadata.add(REQUEST_ID, str(current or uuid.uuid4().hex))
        for key, value in tracing.outgoing_metadata().items():
            metadata.add(key, value)
        return Details(
            details.method,
            self._timeout if details.timeout is None else details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
        )


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, calls: _PeerCalls, link: PeerLink) -> None:
        self._calls, self._link = calls, link

    async def intercept_unary_unary(
        self,
        continuation: Callable[[Details, Any], Awaitable[Any]],
        client_call_details: Details,
        request: Any,
    ) -> Any:
        if is_probe(client_call_details.method):
            return await continuation(client_call_details, request)
        details = self._calls.completed(client_call_details)
        await self._link.wait(details.timeout)
        call = await continuation(details, request)
        try:
            await call
        except grpc.aio.AioRpcError as error:
            raise await self._link.translate(error, details.timeout) from None
        self._link.reached()
        return call


class _Streaming(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, calls: _PeerCalls, link: PeerLink) -> None:
        self._calls, self._link = calls, link

    async def intercept_unary_stream(
        self,
        continuation: Callable[[Details, Any], Awaitable[Any]],
        client_call_details: Details,
        request: Any,
    ) -> Any:
        details = self._calls.completed(client_call_details)
        await self._link.wait(details.timeout)
        return self._messages(await continuation(details, request), details)

    async def _messages(self, call: Any, details: Details) -> AsyncIterator[Any]:
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise await self._link.translate(error, details.timeout) from None
        self._link.reached()


def check_peer_files(peers: Peers) -> None:
    """Raise InvalidArgument (BAD_SETTING) if one of the TLS files for calls to peers is set without the others."""
    if bool(peers.tls_cert) != bool(peers.tls_key) or (peers.tls_cert and not peers.tls_ca):
        raise InvalidArgument(
            "BAD_SETTING", "LEMAN_PEERS__TLS_CERT needs LEMAN_PEERS__TLS_KEY and LEMAN_PEERS__TLS_CA: set all three"
        )


def _files(settings: Settings) -> TlsFiles | None:
    peers = settings.peers
    check_peer_files(peers)
    if not peers.tls_ca:
        return None
    try:
        return TlsFiles(ca=peers.tls_ca, cert=peers.tls_cert, key=peers.tls_key)
    except OSError as error:
        paths = {f"LEMAN_PEERS__TLS_{kind.upper()}": getattr(peers, f"tls_{kind}") for kind in ("ca", "cert", "key")}
        said = f"{settings_named(error, paths)}: a file cannot be read or used: {error}"
        raise InvalidArgument("BAD_SETTING", said) from None


def _options(settings: Settings) -> list[tuple[str, Any]]:
    largest = settings.server.max_message_mb << 20
    return [
        # larger messages may be sent, too: the peer refuses them with a reason
        ("grpc.max_send_message_length", TRANSPORT_FACTOR * largest),
        ("grpc.max_receive_message_length", largest),
        # so that a peer that hangs during a call is noticed
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # without it gRPC waits a minute for a ping's answer
        # reconnect quickly, as a peer that restarts is back within seconds
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
