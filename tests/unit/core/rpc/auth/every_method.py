"""Every RPC of the contract and of what the services say to each other, behind a real server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

import leman.v1
import leman_internal.v1
from leman_core.server.callers import current_caller
from leman_core.server.server import RunningServer, start_server
from leman_core.settings import Server, Settings

#: For those who ask a call about its token only.
NO_CONNECTION: Any = None


def methods() -> Iterator[MethodDescriptor]:
    """All of them, by package, service and place in it."""
    for package in (leman.v1, leman_internal.v1):
        for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name.endswith("_pb2")):
            file = importlib.import_module(f"{package.__name__}.{module}").DESCRIPTOR
            for service in file.services_by_name.values():
                yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


class EveryService:
    """Answers each call of each service with an empty message, but for InfoService, which the server has itself."""

    def __init__(self) -> None:
        self.answered: list[tuple[str, str]] = []

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        services: dict[str, dict[str, Any]] = {}
        for method in methods():
            if method.containing_service.name != "InfoService":
                handlers = services.setdefault(method.containing_service.full_name, {})
                handlers[method.name] = self._handler(method)
        generic = [grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items()]
        server.add_generic_rpc_handlers(tuple(generic))
        return list(services)

    async def stop(self) -> None:
        pass

    def _handler(self, method: MethodDescriptor) -> Any:
        answer = GetMessageClass(method.output_type)

        def note() -> None:
            caller = current_caller()
            self.answered.append((method.name, caller.name if caller is not None else ""))

        async def hear(requests: Any) -> None:
            if method.client_streaming:
                async for _ in requests:
                    pass
            note()

        async def unary(request: Any, _context: Any) -> Any:
            await hear(request)
            return answer()

        async def stream(request: Any, _context: Any) -> AsyncIterator[Any]:
            await hear(request)
            yield answer()

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[method.client_streaming, method.server_streaming]
        return make(
            stream if method.server_streaming else unary,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=answer.SerializeToString,
        )


@contextlib.asynccontextmanager
async def every_service(server: Server, **sections: Any) -> AsyncIterator[tuple[RunningServer, EveryService]]:
    """All of it behind a real server; stopped at the end."""
    service = EveryService()
    up = await start_server(Settings(server=server, **sections), "planner", service, asyncio.Event())
    try:
        yield up, service
    finally:
        await up.stop()


async def ask(channel: grpc.aio.Channel, method: MethodDescriptor, request: Any, token: str = "") -> tuple[str, Any]:
    """Return (code, ErrorInfo or None) of a call."""
    serializers = {
        "request_serializer": GetMessageClass(method.input_type).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    stub = getattr(channel, shape)(path_of(method), **serializers)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call = stub(_once(request) if method.client_streaming else request, metadata=metadata)
    try:
        if method.server_streaming:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error_info(error)
    return "OK", None


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(raw).details[0].Unpack(info)
    return info


def with_field(method: MethodDescriptor, path: tuple[str, ...]) -> Any:
    """A request of a method in which one field is set, and what it lies in."""
    request = message = GetMessageClass(method.input_type)()
    *above, last = path
    for name in above:
        message = getattr(message, name)
    field = message.DESCRIPTOR.fields_by_name[last]
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, last).SetInParent()
    else:
        setattr(message, last, b"x" if field.type == FieldDescriptor.TYPE_BYTES else "x")
    return request
