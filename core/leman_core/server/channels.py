"""Channels from one service to another: token, TLS, keepalive, message size, retry."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog

from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.server.addresses import proxy_options
from leman_core.server.idempotency import may_be_repeated
from leman_core.server.interceptors import REQUEST_ID
from leman_core.server.peer_link import PeerLink, is_probe
from leman_core.server.renewed_channel import RenewedChannel
from leman_core.server.routes import internal_services, public_services
from leman_core.server.tls import Pem, TlsFiles, settings_named
from leman_core.server.unreadable import TRANSPORT_FACTOR
from leman_core.settings import Peers, Settings
from leman_core.telemetry import tracing

_RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}

Details = grpc.aio.ClientCallDetails


def open_peer(settings: Settings, name: str) -> grpc.aio.Channel:
    """Return a channel to `planner`, `executor` or `commit_coordinator`; call it on the event loop that uses it.

    Calls carry the peers' token and the current request id, and get `peers.timeout_seconds` where they name no timeout.
    The retried ones wait for a peer that is away until then. An error that is not the peer's own names the peer, see
    `leman_core.server.peer_link`.

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
    """Return a channel for calls that are passed on to a peer whose address is set.

    They carry what their callers gave them. One that has reached the peer is not sent again: that is for its caller to
    say.
    """
    return open_to(settings, getattr(settings.peers, name))


def open_to(settings: Settings, address: str) -> grpc.aio.Channel:
    """Return a channel as `open_for_forwarding` does, to a peer at this address."""
    return _open(settings, address, [])


def _open(
    settings: Settings,
    address: str,
    more: list[tuple[str, Any]],
    interceptors: list[grpc.aio.ClientInterceptor] | None = None,
    used: Callable[[grpc.aio.Channel], grpc.aio.Channel] = lambda channel: channel,
) -> grpc.aio.Channel:
    """Open a channel; `used` is given each one that is opened, also after files were renewed."""
    options = [*_options(settings), *more, *proxy_options(address)]
    files = _files(settings)
    if files is None:
        return used(grpc.aio.insecure_channel(address, options=options, interceptors=interceptors))

    def opened(pem: Pem) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(*pem)
        return used(grpc.aio.secure_channel(address, credentials, options=options, interceptors=interceptors))

    return RenewedChannel(files, opened)


def service_config() -> str:
    """Return gRPC's service config: calls that may be repeated wait for a peer that is away, and are sent again.

    Services give a request id wherever one can be given.
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
    """What every call to a peer carries."""

    def __init__(self, token: str, timeout_seconds: float) -> None:
        self._token = token
        self._timeout = timeout_seconds

    def completed(self, details: Details) -> Details:
        """Return the call's details with token, request id and deadline."""
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        if self._token:
            metadata.add("authorization", f"Bearer {self._token}")
        if metadata.get(REQUEST_ID) is None:
            current = structlog.contextvars.get_contextvars().get("request_id")
            metadata.add(REQUEST_ID, str(current or uuid.uuid4().hex))
        for key, value in tracing.outgoing().items():
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
            raise await self._link.told(error, details.timeout) from None
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
            raise await self._link.told(error, details.timeout) from None
        self._link.reached()


def check_peer_files(peers: Peers) -> None:
    """Raise InvalidArgument (BAD_SETTING) where the files for the way to peers do not go together."""
    if bool(peers.tls_cert) != bool(peers.tls_key) or (peers.tls_cert and not peers.tls_ca):
        raise InvalidArgument(
            "BAD_SETTING", "LEMAN_PEERS__TLS_CERT and LEMAN_PEERS__TLS_KEY go together, and with LEMAN_PEERS__TLS_CA"
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
        said = f"{settings_named(error, paths)}: a file cannot be read, or used: {error}"
        raise InvalidArgument("BAD_SETTING", said) from None


def _options(settings: Settings) -> list[tuple[str, Any]]:
    largest = settings.server.max_message_mb << 20
    return [
        # The peer says why it does not take what is larger.
        ("grpc.max_send_message_length", TRANSPORT_FACTOR * largest),
        ("grpc.max_receive_message_length", largest),
        # A peer that hangs, and does not just close, is noticed while a call is open.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # without it gRPC waits a minute for a ping's answer
        # A peer that restarts is back within seconds: do not wait long between attempts to reach it.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
