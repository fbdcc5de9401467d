"""Single files of Lance: footers, files in memory, sealed files, and deletion files.

This module reads footers itself, from a file's last bytes: a plan may look into ten thousand files, and opening a Lance
reader takes ten times as long. A damaged footer raises an error here, whereas Lance's Rust may end the process.

A sealed file has a digest of its own bytes, because Lance keeps no checksums and some flipped bits make its Rust panic.
The digest is the global buffer after Lance's own: xxh3-128 of all bytes except the digest's 16, which stay zero until
everything else is written. So Lance can read the file, and no second file is needed.

A deletion file has the offsets of all deleted rows of a fragment: one column of an Arrow file or, if they are many, a
roaring bitmap in its portable format (https://github.com/RoaringBitmap/RoaringFormatSpec). Reading it is cheaper than a
scan, which reads every row's id. A restore can bring deleted rows back, in the same fragment and data files; otherwise
rows stay deleted. A column file has no values for the rows that were deleted when it was written, so it records which
those were (`Deletions`).
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
import xxhash
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from lance.file import LanceFileSession, LanceFileWriter

from leman_core.model.row_positions import RowRange
from leman_core.storage.filesystems import filesystem_of

_TAIL_BYTES = 1 << 16
#: The last bytes of a file: the offsets of the columns' metadata, of the table of their places, and of the table of
#: global buffers; the numbers of buffers and of columns; the format's version (two numbers); `_MAGIC`.
_FOOTER = struct.Struct("<QQQIIHH4s")
_PLACE = struct.Struct("<QQ")
_MAGIC = b"LANC"
_Proto = descriptor_pb2.FieldDescriptorProto

Value = TypeVar("Value")


def read_buffer(filesystem: pafs.FileSystem, path: str, key: str) -> bytes | None:
    """Return the global buffer whose number is in the file's schema metadata under `key`; None without such a key.

    Raises:
        OSError: The file cannot be read.
        ValueError: Its layout is unknown.
    """

    def buffer(end: _End) -> bytes | None:
        number = end.metadata.get(key)
        return None if number is None else end.buffer(int(number))

    return _read(filesystem, path, buffer)


def read_metadata(filesystem: pafs.FileSystem, path: str) -> dict[str, bytes]:
    """Return the file's schema metadata. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.metadata)


def read_rows(filesystem: pafs.FileSystem, path: str) -> int:
    """Return the number of rows of the file. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.rows)


def read_column_bytes(filesystem: pafs.FileSystem, path: str) -> list[int]:
    """Return the size of each column's pages, in bytes. Raises what `read_buffer` raises."""
    return _read(filesystem, path, lambda end: end.column_bytes())


def place_of_buffer(content: bytes, number: int) -> tuple[int, int]:
    """Return the offset and length of the global buffer `number` in the content of a whole file.

    Raises:
        ValueError: There is no such buffer, or the content is not that of a Lance file.
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
    """Return the offset at which the values of a file end and its metadata (columns, buffers, rows) begins.

    Args:
        tail: The file's last bytes. If the metadata begins before them, call again with the bytes from the returned
            offset on.
        size_bytes: The size of the whole file.

    Raises:
        ValueError: These are not the last bytes of a Lance file.
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
    """Return the offset of the table of global buffers, and the number of buffers.

    Raises:
        ValueError, struct.error: These are not the last bytes of a Lance file.
    """
    _, _, table, buffers, _, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
    if magic != _MAGIC:
        raise ValueError("it has no footer of a Lance file")
    return table, buffers


class _End:
    """The metadata of an open file. Its last bytes are read at once, earlier ones when needed."""

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
        """Return a global buffer. Buffer 0 is the file's descriptor."""
        return self._part(*self._places[number])

    def column_bytes(self) -> list[int]:
        """Return the size of each column's pages, in bytes."""
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
    """Return a class for `FileDescriptor` of Lance's file.proto with the fields read here: metadata and row count."""
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
    """Return a class for `ColumnMetadata` of Lance's file2.proto with the field read here: sizes of pages' buffers."""
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


#: On Linux `as_file` uses nameless files in memory, which vanish with the process; elsewhere temporary files.
_IN_MEMORY = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def made_in_memory(
    name: str, schema: pa.Schema, write: Callable[[LanceFileWriter], None], version: str | None = None
) -> bytes:
    """Return the bytes of the Lance file that `write` writes to the given writer, and closes.

    Raises:
        OSError, or another of Lance's errors: Lance refuses the values.
    """
    memory = LanceFileSession("memory://")
    writer = memory.open_writer(name, schema=schema, version=version)
    write(writer)
    return bytes(memory.read_range(name, 0, writer.size_bytes or 0))


@contextlib.contextmanager
def as_file(content: bytes, start: int = 0) -> Iterator[str]:
    """Yield the path of a temporary file with these bytes, which exists until the context ends.

    Args:
        content: The file's bytes from `start` on.
        start: The number of zero bytes before `content`, which take no memory.

    Raises:
        OSError: The file cannot be written.
    """
    if not _IN_MEMORY:
        with tempfile.NamedTemporaryFile(prefix="leman-", suffix=".lance") as file:
            file.seek(start)
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("leman"), "wb", buffering=0) as file:  # noqa: PTH123 -- there is no path
        file.seek(start)
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
        yield f"/proc/self/fd/{file.fileno()}"


_BLANK = bytes(16)
#: The number of the digest's buffer. Buffer 0 is Lance's description of the file.
_BUFFER = 1


def make_room(writer: LanceFileWriter) -> None:
    """Add the digest's buffer, as zeros, to a file that is being written. Call it before adding any other buffer."""
    if writer.add_global_buffer(_BLANK) != _BUFFER:
        raise RuntimeError("the file has buffers already")


def seal_file(content: bytes) -> tuple[int, bytes]:
    """Return where the digest belongs in a written file, and the digest.

    Raises:
        ValueError: The file has no buffer for a digest (see `make_room`).
    """
    at = _place(content)
    return at, _digest(content, at)


def sealed_file_problem(content: bytes) -> str:
    """Return what is wrong with the content of a sealed file; empty if its bytes match its digest."""
    try:
        at = _place(content)
    except ValueError as error:
        return f"no digest is found in its {len(content)} bytes: {error}"
    if content[at : at + len(_BLANK)] != _digest(content, at):
        return "its bytes do not have the digest that they carry"
    return ""


def _place(content: bytes) -> int:
    start, length = place_of_buffer(content, _BUFFER)
    if length != len(_BLANK):
        raise ValueError(f"its buffer {_BUFFER} has {length} bytes")
    return start


def _digest(content: bytes, at: int) -> bytes:
    """Return the digest of all bytes except the digest itself, which is at offset `at`."""
    digest, whole = xxhash.xxh3_128(), memoryview(content)
    digest.update(whole[:at])
    digest.update(whole[at + len(_BLANK) :])
    return digest.digest()


Offsets = npt.NDArray[np.int64]

_NONE: Offsets = np.empty(0, np.int64)
_ENDINGS = {"array": "arrow", "bitmap": "bin"}
_PLAIN, _WITH_RUNS = 12346, 12347
#: A container has the lower 16 bits of its values: up to this many values as an array, more as a bitmap of this size.
_LARGEST_ARRAY, _BITMAP_BYTES = 4096, 8192
#: A bitmap with runs states where each container begins, if it has at least this many containers.
_WITH_PLACES = 4


def deletion_file_path(fragment_id: int, file: lance.fragment.DeletionFile) -> str:
    """Return the path of a fragment's deletion file in its table's folder."""
    return f"_deletions/{fragment_id}-{file.read_version}-{file.id}.{_ENDINGS.get(file.file_type, file.file_type)}"


def deleted_offsets(uri: str, fragment: lance.LanceFragment) -> Offsets | None:
    """Return the sorted offsets of a fragment's deleted rows.

    Returns:
        None if only Lance can read its deletion file: the file does not match the manifest, or is not in the table's
        folder.
    """
    metadata = fragment.metadata
    file = metadata.deletion_file
    if file is None:
        return _NONE
    known: int | None = file.num_deleted_rows  # None: written by an old Lance
    if not known or file.base_id is not None or file.file_type not in _ENDINGS:
        return None
    try:
        filesystem, root = filesystem_of(uri)
        with filesystem.open_input_file(f"{root}/{deletion_file_path(fragment.fragment_id, file)}") as stored:
            content = stored.read()
        offsets = _offsets_in(content, file)
    except (OSError, ValueError, struct.error):  # pa.ArrowInvalid is a ValueError
        return None
    return offsets if _are_sound(offsets, known, metadata.physical_rows) else None


def is_sound_deletion_file(content: bytes, file: lance.fragment.DeletionFile, rows: int) -> bool:
    """Return whether a deletion file of a fragment with `rows` rows matches the manifest."""
    try:
        offsets = _offsets_in(content, file)
    except (OSError, ValueError, struct.error):
        return False
    known: int | None = file.num_deleted_rows
    if not len(offsets):
        return not known
    return _are_sound(offsets, len(offsets) if known is None else known, rows)


def roaring_values(content: bytes) -> Offsets:
    """Return the sorted values of a roaring bitmap.

    Raises:
        ValueError: `content` is not a roaring bitmap, or is cut off.
        struct.error: `content` is cut off.
    """
    (cookie,) = struct.unpack_from("<I", content)
    runs: npt.NDArray[np.bool_]
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, 4
        flags = np.frombuffer(content, np.uint8, (count + 7) // 8, at)
        runs = np.unpackbits(flags, count=count, bitorder="little").astype(np.bool_)
        at += len(flags)
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", content, 4)
        at, runs = 8, np.zeros(count, np.bool_)
    else:
        raise ValueError(f"it begins with {cookie}, not with the number of a roaring bitmap")
    header = np.frombuffer(content, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2)
    at += 4 * count
    if cookie == _PLAIN or count >= _WITH_PLACES:
        at += 4 * count
    found = [_NONE]
    for (key, most), has_runs in zip(header.tolist(), runs.tolist(), strict=True):
        if has_runs:
            (pairs,) = struct.unpack_from("<H", content, at)
            begins, more = np.frombuffer(content, "<u2", 2 * pairs, at + 2).astype(np.int64).reshape(-1, 2).T
            low = np.repeat(begins - np.cumsum(more + 1) + more + 1, more + 1) + np.arange(int((more + 1).sum()))
            at += 2 + 4 * pairs
        elif most + 1 > _LARGEST_ARRAY:
            bits = np.frombuffer(content, np.uint8, _BITMAP_BYTES, at)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            at += _BITMAP_BYTES
        else:
            low = np.frombuffer(content, "<u2", most + 1, at).astype(np.int64)
            at += 2 * (most + 1)
        found.append(low + (key << 16))
    return np.concatenate(found)


def _offsets_in(content: bytes, file: lance.fragment.DeletionFile) -> Offsets:
    return _from_arrow(content) if file.file_type == "array" else roaring_values(content)


def _from_arrow(content: bytes) -> Offsets:
    column = pa.ipc.open_file(content).read_all().column(0)
    return np.sort(column.to_numpy().astype(np.int64))


def _are_sound(offsets: Offsets, number: int, rows: int) -> bool:
    ascending = bool((offsets[1:] > offsets[:-1]).all())
    return len(offsets) == number and ascending and bool(offsets[0] >= 0) and bool(offsets[-1] < rows)


@dataclass(frozen=True, slots=True, eq=False)
class Deletions:
    """The deleted rows of one fragment."""

    #: The name of Lance's deletion file: equal names mean equal rows.
    file: str
    mask: npt.NDArray[np.bool_]

    def encode(self) -> bytes:
        """Return the deletions as bytes.

        These are the length of `file` (2 bytes, little endian), `file`, and, compressed with zlib, the number of rows
        (8 bytes, little endian) and a bit for each row.
        """
        name = self.file.encode()
        bits = len(self.mask).to_bytes(8, "little") + np.packbits(self.mask).tobytes()
        return len(name).to_bytes(2, "little") + name + zlib.compress(bits, 1)

    @classmethod
    def decode(cls, buffer: bytes) -> Deletions:
        """Decode bytes that `encode` returned."""
        end = 2 + int.from_bytes(buffer[:2], "little")
        bits = zlib.decompress(buffer[end:])
        rows = int.from_bytes(bits[:8], "little")
        mask = np.unpackbits(np.frombuffer(bits[8:], np.uint8), count=rows).astype(np.bool_)
        return cls(buffer[2:end].decode(), mask)


def live_rows(fragment: lance.LanceFragment, covered: RowRange) -> npt.NDArray[np.bool_]:
    """Return for each physical row of `covered` whether it is live, that is, not deleted."""
    scanner = fragment.scanner(
        columns=[], offset=covered.start, limit=covered.rows, with_row_id=True, include_deleted_rows=True
    )
    ids = scanner.to_table().column("_rowid")
    return np.asarray(ids.is_valid().to_numpy(), dtype=np.bool_)


def deletions_of(fragment: lance.LanceFragment) -> Deletions | None:
    """Return a fragment's deletions; None if it has no deletion file."""
    file = fragment.metadata.deletion_file
    if file is None:
        return None
    return Deletions(_name(file), ~live_rows(fragment, RowRange(0, fragment.metadata.physical_rows)))


def are_still_deleted(fragment: lance.LanceFragment, before: Deletions) -> bool:
    """Return whether every row that `before` has as deleted is still deleted."""
    file = fragment.metadata.deletion_file
    if file is None:
        return not before.mask.any()
    if _name(file) == before.file:
        return True
    now = ~live_rows(fragment, RowRange(0, fragment.metadata.physical_rows))
    return len(now) == len(before.mask) and bool(now[before.mask].all())


def _name(file: lance.fragment.DeletionFile) -> str:
    return f"{file.read_version}-{file.id}"
