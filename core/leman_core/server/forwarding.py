"""One front address: a service answers the public RPCs of its peers too, by passing them on.

A call is passed on as it came and answered as its service answered it, see `leman_core.server.forwarded_call`. Which
service serves which RPC stands in `leman_core.server.routes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health

from leman_core.model.errors import LemanError, Unimplemented
from leman_core.server import channels, peer_health
from leman_core.server.activity import Activity
from leman_core.server.auth.authentication import Authenticator
from leman_core.server.auth.requirements import described
from leman_core.server.flight_calls import HANDSHAKE
from leman_core.server.forwarded_call import ForwardedCall, Opened
from leman_core.server.interceptors import Context, Continuation, Handler
from leman_core.server.peer_link import PeerLink
from leman_core.server.routes import SERVED_BY, callers_services, path_of
from leman_core.settings import Settings


class Forwarding(grpc.aio.ServerInterceptor):
    """What passes calls on. It stands before all other interceptors: these see the calls of the service's own methods.

    Args:
        settings: say where the peers are.
        name: of this service.
        callers: knows whose calls they are; what they may not call is not passed on.
        draining: ends streams that are passed on; their callers may open them again elsewhere.
        activity: counts calls while they are passed on.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        callers: Authenticator,
        draining: asyncio.Event,
        activity: Activity,
    ) -> None:
        self._settings = settings
        self._callers = callers
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
        """Pass on from now on what is not `served` here, and have `checks` say how the peers are.

        Returns:
            The services whose peer is known.
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
        opened = [(self.channel(peer), names) for peer, names in forwarded.items()]  # first, as one may be refused
        following = (peer_health.follow(channel, names, checks) for channel, names in opened)
        self._tasks = [asyncio.create_task(work) for work in (self._end_streams(), *following)]
        return [name for names in forwarded.values() for name in names]

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return what passes the call on, or the service's own handler."""
        return self._handlers.get(handler_call_details.method) or await continuation(handler_call_details)

    def channel(self, peer: str) -> grpc.aio.Channel:
        """Return the channel to a peer, opened when first needed."""
        if peer not in self._channels:
            self._channels[peer] = channels.open_for_forwarding(self._settings, peer)
        return self._channels[peer]

    async def stop(self) -> None:
        """Close the channels to the peers."""
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
        """Return a handler without codecs: messages stay bytes."""
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
        required, link = described(method), self._links.get(SERVED_BY[method.containing_service.full_name])

        async def passed_on(request: Any, context: Context) -> bytes | None:
            with ForwardedCall(self._name, method, context, self._activity, link=link) as call:
                try:
                    caller = await call.admit(self._callers, required, request)
                    call.check_first_hop()
                    with call.to(self._peer(method), request, caller) as opened:
                        answer: bytes = await opened
                        await call.take_metadata(opened)
                        return answer
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    return await call.fail(error)

        return passed_on

    def _answering_stream(self, method: MethodDescriptor) -> Callable[[Any, Context], AsyncIterator[bytes]]:
        required, link = described(method), self._links.get(SERVED_BY[method.containing_service.full_name])

        async def passed_on(request: Any, context: Context) -> AsyncIterator[bytes]:
            with ForwardedCall(self._name, method, context, self._activity, self._draining, link) as call:
                try:
                    caller = await call.admit(self._callers, required, request)
                    call.check_first_hop()
                    with call.to(self._peer(method), request, caller) as opened, self._ended_by_draining(opened):
                        async for message in opened:
                            yield message
                        await call.take_metadata(opened)
                except asyncio.CancelledError as ended:
                    await call.ended(ended)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await call.fail(error)

        return passed_on

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
        f"{method.containing_service.full_name} is served by the {peer}, whose address the {here} does not know: ask "
        f"that one, or set LEMAN_PEERS__{peer.upper()} for the {here}",
    )
