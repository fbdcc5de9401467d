"""Global buffers of a Lance file, straight from its last bytes.

Opening a reader takes ten times as long, and a plan may have to look into ten thousand files.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import pyarrow.fs as pafs
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_TAIL_BYTES = 1 << 16
#: Offsets of column metadata, of their table, of the table of global buffers; numbers of buffers and columns; version.
_FOOTER = struct.Struct("<QQQIIHH4s")
_PLACE = struct.Struct("<QQ")
_MAGIC = b"LANC"
_Proto = descriptor_pb2.FieldDescriptorProto


def read_buffer(filesystem: pafs.FileSystem, path: str, key: str) -> bytes | None:
    """The global buffer whose number the file's schema metadata has under `key`; None where it has no such key.

    Raises OSError where the file cannot be read, ValueError where it is laid out otherwise than is known here.
    """
    with filesystem.open_input_file(path) as file:
        size = file.size()
        at = max(0, size - _TAIL_BYTES)
        tail = file.read_at(size - at, at)

        def part(start: int, length: int) -> bytes:
            if start >= at:
                return bytes(tail[start - at : start - at + length])
            return bytes(file.read_at(length, start))

        try:
            _, _, table, buffers, _, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
            if magic != _MAGIC:
                raise ValueError(f"{path} has no footer of a Lance file")
            places = list(_PLACE.iter_unpack(part(table, buffers * _PLACE.size)))
            number = _metadata(part(*places[0])).get(key)
            return None if number is None else part(*places[int(number)])
        except (struct.error, IndexError, DecodeError) as error:
            raise ValueError(f"{path} is laid out in an unknown way: {error}") from None


def _metadata(descriptor: bytes) -> dict[str, bytes]:
    return dict(_descriptor_class().FromString(descriptor).schema.metadata)


@cache
def _descriptor_class() -> Any:
    """What is needed of `FileDescriptor` in Lance's file.proto: its schema's metadata."""
    file = descriptor_pb2.FileDescriptorProto(name="leman/lance_file.proto", package="leman.lance", syntax="proto3")
    schema = file.message_type.add(name="Schema")
    entry = schema.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Proto.TYPE_STRING, label=_Proto.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_Proto.TYPE_BYTES, label=_Proto.LABEL_OPTIONAL)
    schema.field.add(
        name="metadata",
        number=5,
        type=_Proto.TYPE_MESSAGE,
        label=_Proto.LABEL_REPEATED,
        type_name=".leman.lance.Schema.MetadataEntry",
    )
    descriptor = file.message_type.add(name="FileDescriptor")
    descriptor.field.add(
        name="schema",
        number=1,
        type=_Proto.TYPE_MESSAGE,
        label=_Proto.LABEL_OPTIONAL,
        type_name=".leman.lance.Schema",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("leman.lance.FileDescriptor"))
