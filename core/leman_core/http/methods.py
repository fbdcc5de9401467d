"""What can be called over HTTP: the public contract's methods, and Health.Check."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from leman_core.server.idempotency import allows_get
from leman_core.server.routes import path_of, public_services

#: Its proto is not ours, and has no idempotency level.
_CHECK = "grpc.health.v1.Health.Check"


@dataclass(frozen=True, slots=True)
class Method:
    """A method with the classes of its messages."""

    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool
    #: Whether GET may ask for it, too.
    allows_get: bool


@functools.cache
def methods() -> dict[str, Method]:
    """Return all of them, by the path of their calls."""
    check: Any = health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name["Check"]
    found: list[Any] = [method for service in public_services().values() for method in service.methods]
    return {path_of(method): _method(method) for method in (*found, check)}


def _method(method: MethodDescriptor) -> Method:
    return Method(
        path_of(method),
        message_factory.GetMessageClass(method.input_type),
        message_factory.GetMessageClass(method.output_type),
        method.client_streaming,
        method.server_streaming,
        method.full_name == _CHECK or (allows_get(method) and not method.server_streaming),
    )
