"""gRPC server reflection, v1 and v1alpha.

grpcio-reflection serves v1alpha alone (https://github.com/grpc/grpc/issues/38576). The messages of both are the same on
the wire, so that one servicer answers for both; v1 differs in the name of its package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1ALPHA = reflection.SERVICE_NAME
V1 = V1ALPHA.replace(".v1alpha.", ".v1.")


def add_reflection(names: Iterable[str], server: grpc.aio.Server) -> None:
    """Answer reflection on this server: `names` are the full names of what else it answers."""
    _pool_with_v1()
    servicer = reflection.aio.ReflectionServicer([*names, V1, V1ALPHA], pool=_EveryName())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    generic = (grpc.method_handlers_generic_handler(service, handlers) for service in (V1, V1ALPHA))
    server.add_generic_rpc_handlers(tuple(generic))


class _EveryName:
    """The descriptor pool, which also finds methods, fields and values of enums by their names."""

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's own name
        try:
            return self._pool.FindFileContainingSymbol(symbol)  # type: ignore[no-any-return]
        except KeyError:
            above, _, name = symbol.rpartition(".")
            if name not in self._members(above):
                raise
            return self._pool.FindFileContainingSymbol(above)  # type: ignore[no-any-return]

    def _members(self, parent: str) -> set[str]:
        for find in (self._pool.FindServiceByName, self._pool.FindMessageTypeByName):
            try:
                found = find(parent)
            except KeyError:
                continue
            if isinstance(found, Descriptor):
                return {*found.fields_by_name, *found.oneofs_by_name, *found.enum_values_by_name}
            return set(found.methods_by_name)
        return set()


def _pool_with_v1() -> None:
    """Put the file of v1 into the pool, so that reflection tells of itself, too."""
    alpha = reflection_pb2.DESCRIPTOR
    pool = descriptor_pool.Default()
    name = alpha.name.replace("v1alpha", "v1")
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        alpha.CopyToProto(file)
        _rename(file)
        pool.AddSerializedFile(file.SerializeToString())


def _rename(message: Message) -> None:
    """Write `v1` for `v1alpha` in every name below."""
    for field, value in message.ListFields():
        parts = value if field.is_repeated else [value]
        if field.message_type is not None:
            for part in parts:
                _rename(part)
        elif isinstance(value, str):
            setattr(message, field.name, value.replace("v1alpha", "v1"))
