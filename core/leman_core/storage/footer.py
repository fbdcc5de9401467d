"""What a Lance file says of itself, straight from its last bytes.

Opening a reader takes ten times as long, and a plan may have to look into ten thousand files. And where bytes have
changed, this raises, whatever they are: Lance's Rust may end the process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_TAIL_BYTES = 1 << 16
#: Offsets of column metadata, of their table, of the table of global buffers; numbers of buffers and columns; version.
_FOOTER = struct.Struct("<QQQIIHH4s")
_PLACE = struct.Struct("<QQ")
_MAGIC = b"LANC"
_Proto = descriptor_pb2.FieldDescriptorProto

Value = TypeVar("Value")


def read_buffer(filesystem: pafs.FileSystem, path: str, key: str) -> bytes | None:
    """Return the global buffer whose number the file's schema metadata has under `key`; None where it has no such key.

    Raises:
        OSError: the file cannot be read.
        ValueError: its layout is another one than is known here.
    """

    def buffer(end: _End) -> bytes | None:
        number = end.metadata.get(key)
        return None if number is None else end.buffer(int(number))

    return _read(filesystem, path, buffer)


def read_metadata(filesystem: pafs.FileSystem, path: str) -> dict[str, bytes]:
    """Return the file's schema metadata. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.metadata)


def read_rows(filesystem: pafs.FileSystem, path: str) -> int:
    """Return how many rows the file has. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.rows)


def read_column_bytes(filesystem: pafs.FileSystem, path: str) -> list[int]:
    """Return how many bytes the pages of each column of the file have. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.column_bytes())


def place_of_buffer(content: bytes, number: int) -> tuple[int, int]:
    """Return where in a whole file a global buffer begins, and its length.

    Raises:
        ValueError: there is none.
    """
    try:
        table, buffers = _table(content)
        start, length = _PLACE.unpack_from(content, table + number * _PLACE.size)
    except struct.error as error:
        raise ValueError(f"it is laid out in an unknown way ({error})") from None
    if number >= buffers:
        raise ValueError(f"it has {buffers} buffers")
    if start + length > len(content):
        raise ValueError(f"{length} bytes at {start} would lie behind its end")
    return start, length


def start_of_metadata(tail: bytes, size_bytes: int) -> int:
    """Return from where on a file has to be known to tell all that it says of itself: columns, buffers, rows.

    Args:
        tail: its last bytes. Where they do not tell it, from where on they may.
        size_bytes: of the whole file.

    Raises:
        ValueError: these are not the last bytes of a Lance file.
    """
    try:
        columns, offsets, table, buffers, _, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
        start = min(columns, offsets, table)
        if magic != _MAGIC or max(columns, offsets, table) > size_bytes:
            raise ValueError("it has no footer of a Lance file")
        at = table - (size_bytes - len(tail))
        if at >= 0:
            places = _PLACE.iter_unpack(tail[at : at + buffers * _PLACE.size])
            start = min([start, *(begin for begin, _ in places)])
    except struct.error as error:
        raise ValueError(f"it is laid out in an unknown way ({error})") from None
    return int(start)


def _table(tail: bytes) -> tuple[int, int]:
    """Return where the table of global buffers lies, and how many there are.

    Raises:
        ValueError, struct.error: these are not the last bytes of a Lance file.
    """
    _, _, table, buffers, _, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
    if magic != _MAGIC:
        raise ValueError("it has no footer of a Lance file")
    return table, buffers


class _End:
    """The end of a file, and more of it where that is not enough."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        size = file.size()
        self._size, self._at = size, max(0, size - _TAIL_BYTES)
        self._tail = bytes(file.read_at(size - self._at, self._at))
        table, buffers = _table(self._tail)
        self._places = list(_PLACE.iter_unpack(self._part(table, buffers * _PLACE.size)))
        descriptor = _descriptor_class().FromString(self.buffer(0))
        self.metadata: dict[str, bytes] = dict(descriptor.schema.metadata)
        self.rows = int(descriptor.length)

    def buffer(self, number: int) -> bytes:
        """Return a global buffer; the first one is the file's descriptor."""
        return self._part(*self._places[number])

    def column_bytes(self) -> list[int]:
        """Return how many bytes the pages of each column have."""
        _, table, _, _, columns, _, _, _ = _FOOTER.unpack(self._tail[-_FOOTER.size :])
        places = _PLACE.iter_unpack(self._part(table, columns * _PLACE.size))
        found = (_column_class().FromString(self._part(*place)) for place in places)
        return [sum(sum(page.buffer_sizes) for page in column.pages) for column in found]

    def _part(self, start: int, length: int) -> bytes:
        if start + length > self._size:
            raise ValueError(f"{length} bytes at {start} would lie behind its end")
        if start >= self._at:
            return self._tail[start - self._at : start - self._at + length]
        return bytes(self._file.read_at(length, start))


def _read(filesystem: pafs.FileSystem, path: str, what: Callable[[_End], Value]) -> Value:
    with filesystem.open_input_file(path) as file:
        try:
            return what(_End(file))
        except (struct.error, IndexError, DecodeError, ValueError) as error:
            raise ValueError(f"{path} is laid out in an unknown way: {error}") from None


@cache
def _descriptor_class() -> Any:
    """Return what is needed of `FileDescriptor` in Lance's file.proto: its schema's metadata, and its rows."""
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
    descriptor.field.add(name="length", number=2, type=_Proto.TYPE_UINT64, label=_Proto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("leman.lance.FileDescriptor"))


@cache
def _column_class() -> Any:
    """Return what is needed of `ColumnMetadata` in Lance's file2.proto: the sizes of its pages' buffers."""
    file = descriptor_pb2.FileDescriptorProto(name="leman/lance_column.proto", package="leman.lance", syntax="proto3")
    column = file.message_type.add(name="ColumnMetadata")
    page = column.nested_type.add(name="Page")
    page.field.add(name="buffer_sizes", number=2, type=_Proto.TYPE_UINT64, label=_Proto.LABEL_REPEATED)
    column.field.add(
        name="pages",
        number=2,
        type=_Proto.TYPE_MESSAGE,
        label=_Proto.LABEL_REPEATED,
        type_name=".leman.lance.ColumnMetadata.Page",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("leman.lance.ColumnMetadata"))
