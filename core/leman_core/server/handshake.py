"""Flight's Handshake: a client that can say user and password only is told how to show its token from then on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from leman_core.server.auth.authentication import shown_token
from leman_core.server.flight_calls import FLIGHT, HANDSHAKE
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.interceptors import Context


def add_handshake(server: grpc.aio.Server) -> None:
    """Answer Handshake on this server."""
    handler = grpc.stream_stream_rpc_method_handler(
        _handshake,
        request_deserializer=Flight_pb2.HandshakeRequest.FromString,
        response_serializer=Flight_pb2.HandshakeResponse.SerializeToString,
    )
    handlers = {HANDSHAKE.rpartition("/")[2]: handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FLIGHT.full_name, handlers),))


async def _handshake(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    """Give a token back that came as a password and holds, in headers and in trailers: clients look at either."""
    given = dict(context.invocation_metadata() or ()).get("authorization")
    token = shown_token(given, basic=True)
    if token is not None:
        shown = ("authorization", f"Bearer {token.decode('latin-1')}")
        context.set_trailing_metadata((*context.trailing_metadata(), shown))
        await context.send_initial_metadata((shown,))
    async for _ in requests:
        yield Flight_pb2.HandshakeResponse()
