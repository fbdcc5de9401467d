"""Forward public calls to the service that serves them, so that callers can send any call to any service.

Message bytes, metadata, deadline, trailers and cancellation pass through unchanged. The service that serves the call
applies the caller's limits and writes the call's log line. The forwarding service adds the caller's identity
(`leman_core.server.callers`), and logs at `debug` where the call went, under the same request id. A forwarded call
carries `x-leman-forwarded-by`. A service that does not serve it refuses it, so no call is forwarded twice.
`leman_core.server.routes` says which service serves which RPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health

from leman_core.model.service_errors import FailedPrecondition, Internal, LemanError, Unavailable, Unimplemented
from leman_core.server import channels, interceptors, status
from leman_core.server.admission import CallAdmission
from leman_core.server.call_streams import Activity
from leman_core.server.callers import (
    FORWARDED_BY,
    KEYS,
    Caller,
    Requirement,
    forwarded_metadata,
    requirement_from_options,
)
from leman_core.server.channels import BROKEN, PeerLink, is_peer_error
from leman_core.server.interceptors import REQUEST_ID, Context, Continuation, Handler
from leman_core.server.request_messages import tolerant_reader
from leman_core.server.routes import HANDSHAKE, SERVED_BY, callers_services, path_of
from leman_core.settings import Settings

#: Keys of metadata, and prefixes of keys, that belong to a connection and are not forwarded.
_OF_A_CONNECTION = ("user-agent", "content-type", "te", "host", *KEYS)
_OF_GRPC = ("grpc-", ":")

#: A call on a channel: an awaitable for a single answer, or an iterator over a stream.
Opened: TypeAlias = Any
#: A key of metadata and its value.
Pair: TypeAlias = tuple[str, str | bytes]

log = structlog.get_logger(__name__)


class ForwardedCall:
    """The state of one forwarded call.

    Args:
        here: The name of this service.
        method: The called method.
        context: The context of the caller's call.
        activity: Counts the call while it runs.
        draining: The event of this service's shutdown, if that cancels the call; see `ended`.
        link: The state of the connection to the peer; None if the peer's address is unknown.
    """

    def __init__(
        self,
        here: str,
        method: MethodDescriptor,
        context: Context,
        activity: Activity,
        draining: asyncio.Event | None = None,
        link: PeerLink | None = None,
    ) -> None:
        self._here = here
        self._link = link
        self._method = method
        self._peer = SERVED_BY[method.containing_service.full_name]
        self._context = context
        self._activity = activity
        self._draining = draining
        self._given = tuple(context.invocation_metadata() or ())
        self.metadata: dict[str, str | bytes] = dict(self._given)
        self._request_id = next((str(value) for key, value in self._given if key == REQUEST_ID), "")
        self._minted: tuple[tuple[str, str], ...] = ()
        if not self._request_id:
            self._request_id = uuid.uuid4().hex
            self._minted = ((REQUEST_ID, self._request_id),)
        self._outcome = "OK"
        self.caller: Caller | None = None

    def __enter__(self) -> ForwardedCall:
        self._activity.begin()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._activity.end()
        log.debug(
            "forwarded",
            method=f"{self._method.containing_service.name}/{self._method.name}",
            to=self._peer,
            code="CANCELLED" if kind in (asyncio.CancelledError, GeneratorExit) else self._outcome,
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
            request_id=self._request_id,
        )

    async def admit(self, admission: CallAdmission, required: Requirement, request: Any) -> Caller:
        """Check the call here, as the peer may be unable to identify callers. Return its caller.

        Raises:
            LemanError: The call is refused; see `CallAdmission.admit`.
        """
        if self._method.client_streaming and required.code_where:  # later messages are not read here
            required = replace(required, code=True, code_where=())
        if required.code_where:
            request = tolerant_reader(GetMessageClass(self._method.input_type).FromString)(request)
        else:
            request = None
        return await admission.admit(self, required, request, self._context, limited=False)

    @contextlib.contextmanager
    def to(self, channel: grpc.aio.Channel, request: Any, caller: Caller) -> Iterator[Opened]:
        """Open the call to the peer for the duration of the block. `request` is bytes, or an iterator over them."""
        given = (*self._given, *self._minted)
        opened = _opener(channel, self._method)(
            request,
            timeout=self._context.time_remaining(),
            metadata=forwarded_call_metadata(given, self._here, caller, self._context.peer()),
        )
        try:
            yield opened
        finally:
            opened.cancel()

    async def take_metadata(self, opened: Opened) -> None:
        """Pass the trailers of the peer's answer to the caller, and note that the peer was reached."""
        self._context.set_trailing_metadata(tuple(await opened.trailing_metadata() or ()))
        if self._link is not None:
            self._link.reached()

    async def ended(self, cancelled: asyncio.CancelledError) -> None:
        """End a cancelled call. If the shutdown of this service cancelled it, the caller gets an error (DRAINING).

        Raises:
            CancelledError: The caller cancelled the call or disconnected.
        """
        task = asyncio.current_task()
        if self._draining is None or not self._draining.is_set() or (task is not None and task.cancelling()):
            raise cancelled
        await self.fail(Unavailable("DRAINING", f"The {self._here} is shutting down: retry the call"))

    async def fail(self, error: Exception) -> NoReturn:
        """End the call with an error: the peer's own one unchanged, or one for a peer that cannot be reached."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, grpc.aio.AioRpcError):
            trailers = tuple(error.trailing_metadata() or ())
            if self._link is None or error.code() not in BROKEN or is_peer_error(error):
                self._outcome = error.code().name
                await self._context.abort(error.code(), error.details() or "", trailers)
            error = self._link.broken(error.details() or error.code().name, self._here)
        await self._abort(error if isinstance(error, LemanError) else self._bug(error))

    async def _abort(self, error: LemanError) -> NoReturn:
        self._outcome = status.code_of(error).name
        if self._outcome in interceptors.REFUSALS:
            self._write_audit(error)
        trailers = ((REQUEST_ID, self._request_id), *status.trailers_of(error))
        await self._context.abort(status.code_of(error), status.header_message(error.message), trailers)

    def _write_audit(self, error: LemanError) -> None:
        """Write the audit line of a call that is refused here. The service that serves a call writes it otherwise."""
        name = f"{self._method.containing_service.name}/{self._method.name}"
        outcome = {"code": self._outcome, "reason": error.reason, "message": error.message}
        took = round((time.perf_counter() - self._started) * 1000, 3)
        facts = {"method": name, "duration_ms": took, "request_id": self._request_id, **outcome}
        interceptors.write_audit_line(self._context, self.caller, {}, **facts)

    def check_first_hop(self) -> None:
        """Refuse a call that was forwarded before. Call it only after `admit`: any caller can send that metadata.

        Raises:
            FailedPrecondition: WRONG_PEER.
        """
        sender = next((value for key, value in self._given if key == FORWARDED_BY), None)
        if sender is not None:
            sender = sender if sender in SERVED_BY.values() else "service before"
            raise FailedPrecondition(
                "WRONG_PEER",
                f"the {sender!s} forwarded this call to the {self._here}, which does not serve it: set "
                f"LEMAN_PEERS__{self._peer.upper()} for the {sender!s} to the address of the {self._peer}",
            )

    def _bug(self, error: Exception) -> LemanError:
        log.error("a call could not be forwarded", request_id=self._request_id, exc_info=error)
        return Internal("INTERNAL_BUG", f"The {self._here} has a bug: see its log")


def forwarded_call_metadata(given: Iterable[Pair], here: str, caller: Caller, address: str) -> tuple[Pair, ...]:
    """Return the metadata of a call that the service `here` forwards.

    Args:
        given: The metadata of the caller's call.
        here: The name of the forwarding service.
        caller: The caller.
        address: The address of the caller's connection.
    """
    not_passed = (*_OF_A_CONNECTION, FORWARDED_BY)
    kept = [pair for pair in given if pair[0] not in not_passed and not pair[0].startswith(_OF_GRPC)]
    return (*kept, (FORWARDED_BY, here), *forwarded_metadata(caller, address))


def _opener(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    """Return the function that opens calls of a method, with bytes as messages."""
    path = path_of(method)
    match method.client_streaming, method.server_streaming:
        case False, False:
            return channel.unary_unary(path)
        case False, True:
            return channel.unary_stream(path)
        case True, False:
            return channel.stream_unary(path)
    return channel.stream_stream(path)


class Forwarding(grpc.aio.ServerInterceptor):
    """Forward calls to peers. `CallInterceptor`, which comes after it, gets only calls of the service's own methods.

    Args:
        settings: The service's settings, which have the peers' addresses.
        name: The name of this service.
        admission: Decides which calls may enter.
        draining: The event of this service's shutdown. It ends forwarded streams, which callers may open elsewhere.
        activity: Counts forwarded calls while they run.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        admission: CallAdmission,
        draining: asyncio.Event,
        activity: Activity,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._name = name
        self._draining = draining
        self._activity = activity
        self._handlers: dict[str, Handler] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._links = {
            peer: PeerLink(settings, peer) for peer in set(SERVED_BY.values()) if getattr(settings.peers, peer)
        }
        self._streams: set[Opened] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, served: list[str], checks: health.aio.HealthServicer) -> list[str]:
        """Start to forward calls of services that are not `served` here, and to copy the peers' health to `checks`.

        Returns:
            The names of the forwarded services whose peer has an address.
        """
        forwarded: dict[str, list[str]] = {}
        for name, service in callers_services().items():
            if name in served or name not in SERVED_BY:
                continue
            if getattr(self._settings.peers, SERVED_BY[name]):
                forwarded.setdefault(SERVED_BY[name], []).append(name)
            for method in service.methods:
                if path_of(method) != HANDSHAKE:
                    self._handlers[path_of(method)] = self._handler(method)
        opened = [(self.channel(peer), names) for peer, names in forwarded.items()]  # may raise, so before any task
        following = (channels.follow_health(channel, names, checks) for channel, names in opened)
        self._tasks = [asyncio.create_task(work) for work in (self._end_streams(), *following)]
        return [name for names in forwarded.values() for name in names]

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler that forwards the call, or the service's own handler."""
        return self._handlers.get(handler_call_details.method) or await continuation(handler_call_details)

    def channel(self, peer: str) -> grpc.aio.Channel:
        """Return the channel to a peer. It is opened when it is needed first."""
        if peer not in self._channels:
            self._channels[peer] = channels.open_for_forwarding(self._settings, peer)
        return self._channels[peer]

    async def stop(self) -> None:
        """Stop the tasks, and close the channels to the peers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()

    async def _end_streams(self) -> None:
        await self._draining.wait()
        for opened in list(self._streams):
            opened.cancel()

    def _handler(self, method: MethodDescriptor) -> Handler:
        """Return a handler that forwards a method, with bytes as messages."""
        one, many = self._answering_once(method), self._answering_stream(method)
        match method.client_streaming, method.server_streaming:
            case False, False:
                return grpc.unary_unary_rpc_method_handler(one)
            case False, True:
                return grpc.unary_stream_rpc_method_handler(many)
            case True, False:
                return grpc.stream_unary_rpc_method_handler(one)
        return grpc.stream_stream_rpc_method_handler(many)

    def _answering_once(self, method: MethodDescriptor) -> Callable[[Any, Context], Awaitable[bytes | None]]:
        required, link = (
            requirement_from_options(method),
            self._links.get(SERVED_BY[method.containing_service.full_name]),
        )

        async def forward(request: Any, context: Context) -> bytes | None:
            with ForwardedCall(self._name, method, context, self._activity, link=link) as call:
                try:
                    caller = await call.admit(self._admission, required, request)
                    call.check_first_hop()
                    with call.to(self._peer(method), request, caller) as opened:
                        answer: bytes = await opened
                        await call.take_metadata(opened)
                        return answer
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    return await call.fail(error)

        return forward

    def _answering_stream(self, method: MethodDescriptor) -> Callable[[Any, Context], AsyncIterator[bytes]]:
        required, link = (
            requirement_from_options(method),
            self._links.get(SERVED_BY[method.containing_service.full_name]),
        )

        async def forward(request: Any, context: Context) -> AsyncIterator[bytes]:
            with ForwardedCall(self._name, method, context, self._activity, self._draining, link) as call:
                try:
                    caller = await call.admit(self._admission, required, request)
                    call.check_first_hop()
                    with call.to(self._peer(method), request, caller) as opened, self._ended_by_draining(opened):
                        async for message in opened:
                            yield message
                        await call.take_metadata(opened)
                except asyncio.CancelledError as ended:
                    await call.ended(ended)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await call.fail(error)

        return forward

    def _peer(self, method: MethodDescriptor) -> grpc.aio.Channel:
        peer = SERVED_BY[method.containing_service.full_name]
        if not getattr(self._settings.peers, peer):
            raise _not_served(method, self._name, peer)
        return self.channel(peer)

    @contextlib.contextmanager
    def _ended_by_draining(self, opened: Opened) -> Iterator[None]:
        self._streams.add(opened)
        try:
            yield
        finally:
            self._streams.discard(opened)


def _not_served(method: MethodDescriptor, here: str, peer: str) -> LemanError:
    return Unimplemented(
        "NOT_SERVED_HERE",
        f"The {peer} serves {method.containing_service.full_name}, and the {here} does not know its address: call the "
        f"{peer}, or set LEMAN_PEERS__{peer.upper()} for the {here}",
    )
