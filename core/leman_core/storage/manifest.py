"""A table's manifest: its fragments and inline row ids, read from the protobuf without generated code.

Lance's `get_fragments()` builds several Python objects for each fragment: at 100,000 fragments it takes several times
as long and as much memory. The manifest's bytes come from its file on a local disk, or from a private call of Lance.
Where neither has them, the public calls are used. Stable row ids of single rows come from the manifest, too, because a
scan would read the ids of whole fragments.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from lance.fragment import RowIdMeta, RowIdSequence

from leman_core.model.plan_columns import FragmentColumns, Numbers, offsets_of_counts
from leman_core.model.table import DataFile, Fragment
from leman_core.storage.locations import in_object_store

Kind = descriptor_pb2.FieldDescriptorProto
#: For each message, its fields: name, number, type, and the name of the field's message, if it is one.
Layout = Mapping[str, Sequence[tuple[str, int, int, str]]]

#: Wire types of protobuf: a varint, a length with bytes, numbers of fixed size (with their size).
_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}

#: The part of Lance's table.proto about fragments and their files that is read here.
FRAGMENTS: Layout = {
    # declared as bytes, the packed field ids: most files of a table have the same ones, which are decoded once
    "DataFile": [("path", 1, Kind.TYPE_STRING, ""), ("fields", 2, Kind.TYPE_BYTES, "")],
    "DeletionFile": [
        ("read_version", 2, Kind.TYPE_UINT64, ""),
        ("id", 3, Kind.TYPE_UINT64, ""),
        ("num_deleted_rows", 4, Kind.TYPE_UINT64, ""),
    ],
    "DataFragment": [
        ("id", 1, Kind.TYPE_UINT64, ""),
        ("files", 2, Kind.TYPE_MESSAGE, "DataFile"),
        ("deletion_file", 3, Kind.TYPE_MESSAGE, "DeletionFile"),
        ("physical_rows", 4, Kind.TYPE_UINT64, ""),
    ],
}


def message_class(package: str, layout: Layout, *, root: str, repeated: Collection[str]) -> Any:
    """Build a protobuf class for the message `root`.

    Messages keep fields that the layout does not have, as unknown fields. `HasField` works for fields that are not
    repeated.

    Args:
        package: A package name that no other call uses.
        layout: The fields of each message.
        root: The message to return.
        repeated: Names of repeated fields, in any of the messages.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package)
    file.syntax = "proto2"
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for field, number, kind, target in fields:
            added = message.field.add(name=field, number=number)
            added.type = kind  # type: ignore[assignment]
            added.label = Kind.LABEL_REPEATED if field in repeated else Kind.LABEL_OPTIONAL
            if kind == Kind.TYPE_MESSAGE:
                added.type_name = f".{package}.{target}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root}"))


def parts_of(message: bytes, most_fields: int) -> Iterator[bytes]:
    """Split a message into parts with `most_fields` fields each, without copying or parsing the fields.

    Each part is a message of the same type. Merged in order, the parts are the whole message.

    Raises:
        DecodeError: It ends within a field, or has a field of an unknown wire type.
    """
    begin = at = count = 0
    while at < len(message):
        at = _after_field(message, at)
        count += 1
        if count == most_fields:
            yield message[begin:at]
            begin, count = at, 0
    if at > len(message):
        raise DecodeError("the message ends in the middle of a field")
    yield message[begin:]


def _after_field(message: bytes, at: int) -> int:
    """Return the end of the field that begins at offset `at`."""
    try:
        wire = message[at] & 7
        while message[at] >= 0x80:
            at += 1
        at += 1
        if wire == _LENGTH:
            length, shift = message[at] & 0x7F, 7
            while message[at] >= 0x80:
                at += 1
                length |= (message[at] & 0x7F) << shift
                shift += 7
            return at + 1 + length
        if wire == _VARINT:
            while message[at] >= 0x80:
                at += 1
            return at + 1
    except IndexError:
        raise DecodeError("the message ends in the middle of a field") from None
    if wire not in _FIXED:
        raise DecodeError(f"{wire} is not a known wire type")
    return at + _FIXED[wire]


#: The part of a manifest that planning reads.
_LAYOUT: Layout = {**FRAGMENTS, "Manifest": [("fragments", 2, Kind.TYPE_MESSAGE, "DataFragment")]}
_REPEATED = {"files", "fragments"}
#: Fragments to parse at once. Parsed messages take several times the memory of their bytes.
_AT_ONCE = 8192
#: The end of a manifest's file: the manifest's offset, the format's version (two numbers), `_MAGIC`.
_FOOTER = struct.Struct("<QHH4s")
_MAGIC = b"LANC"
_LENGTH_BYTES = 4
#: Names of manifests count down from here, so that a listing begins with the latest.
LAST_VERSION = (1 << 64) - 1
NAME_DIGITS = 20


def read_fragments(dataset: lance.LanceDataset) -> FragmentColumns:
    """Return all fragments in the order of the manifest."""
    with collector_paused():
        parsed = parse_fragments(manifest_bytes(dataset))
        return walk_fragments(dataset) if parsed is None else parsed


def manifest_bytes(dataset: lance.LanceDataset) -> bytes | None:
    """Return the manifest as protobuf bytes; None if neither its file nor Lance's private call has them.

    Drop the dataset before you parse them: it takes as much memory as parsing does.
    """
    if not in_object_store(dataset.uri):
        name = manifest_file_name(dataset.version)
        with contextlib.suppress(OSError, struct.error), Path(dataset.uri, "_versions", name).open("rb") as file:
            file.seek(-_FOOTER.size, os.SEEK_END)
            position, _, _, magic = _FOOTER.unpack(file.read(_FOOTER.size))
            if magic == _MAGIC:
                file.seek(position)
                return file.read(int.from_bytes(file.read(_LENGTH_BYTES), "little"))
    serialized: Callable[[], bytes] | None = getattr(dataset._ds, "serialized_manifest", None)
    return None if serialized is None else serialized()


def manifest_identity(dataset: lance.LanceDataset) -> tuple[int, ...] | None:
    """Return numbers that identify the manifest's file: they differ for another file of the same name.

    Returns:
        None if the file is missing or not on a local disk.
    """
    if in_object_store(dataset.uri):
        return None
    try:
        found = Path(dataset.uri, "_versions", manifest_file_name(dataset.version)).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def manifest_file_name(version: int) -> str:
    """Return the name of a version's manifest in the folder `_versions`, where the latest version sorts first."""
    return f"{LAST_VERSION - version:0{NAME_DIGITS}d}.manifest"


def position_in(content: bytes) -> int:
    """Return the offset of the manifest in its file, which the file's last bytes state.

    Args:
        content: The file's content, or at least its end.

    Raises:
        ValueError: The file's end is not that of a manifest.
    """
    if len(content) < _FOOTER.size:
        raise ValueError(f"{len(content)} bytes are too few for a manifest")
    position, _, _, magic = _FOOTER.unpack(content[-_FOOTER.size :])
    if magic != _MAGIC:
        raise ValueError("its last bytes are not those of a manifest's file")
    return int(position)


def message_in(content: bytes) -> bytes:
    """Return the manifest in the content of its file. Raises ValueError if there is none."""
    return block_at(content, position_in(content))


def last_block(content: bytes) -> bytes:
    """Return the last block of `content`, or b"" if `content` does not consist entirely of blocks."""
    position, block = 0, b""
    while position < len(content):
        try:
            block = block_at(content, position)
        except ValueError:
            return b""
        position += _LENGTH_BYTES + len(block)
    return block


def block_at(content: bytes, position: int) -> bytes:
    """Return the block at an offset of a manifest's file, without its length.

    Raises:
        ValueError: It is cut off.
    """
    begin = position + _LENGTH_BYTES
    end = begin + int.from_bytes(content[position:begin], "little")
    if end > len(content):
        raise ValueError(f"the block at {position} ends at {end}, and there are only {len(content)} bytes")
    return content[begin:end]


def walk_fragments(dataset: lance.LanceDataset, ids: Collection[int] | None = None) -> FragmentColumns:
    """Return all fragments, or those with the given ids, by Lance's public calls."""
    fragments = []
    for fragment in dataset.get_fragments() if ids is None else map(dataset.get_fragment, sorted(ids)):
        if fragment is None:
            continue
        metadata = fragment.metadata
        deletions = metadata.deletion_file
        deleted, deletion_file = 0, ""
        if deletions is not None:
            deletion_file = f"{deletions.id}-{deletions.read_version}"
            known: int | None = deletions.num_deleted_rows  # None: written by an old Lance
            deleted = metadata.physical_rows - fragment.count_rows() if known is None else known
        files = tuple(DataFile(str(f.path), tuple(f.fields)) for f in metadata.files)
        fragments.append(Fragment(metadata.id, metadata.physical_rows, deleted, files, deletion_file))
    return FragmentColumns.from_fragments(fragments)


def parse_fragments(serialized: bytes | None) -> FragmentColumns | None:
    """Parse the fragments in a manifest's bytes.

    Returns:
        None if there are no bytes, they are invalid, or an old Lance wrote them without the number of rows or of
        deleted rows.
    """
    if not serialized:
        return None
    parsed = _Parsed()
    try:
        for part in parts_of(serialized, _AT_ONCE):
            if not parsed.add(_manifest_class().FromString(part).fragments):
                return None
    except (DecodeError, OverflowError):
        return None
    return parsed.columns()


class _Parsed:
    """The fragments of a manifest that have been parsed so far."""

    def __init__(self) -> None:
        #: For each part: ids, rows, deleted rows, and counts of files of fragments, and for each file its field set.
        self._numbers: list[list[Numbers]] = [[np.zeros(0, np.int64)] for _ in range(5)]
        self._paths: list[pa.Array] = [pa.array([], pa.large_string())]
        self._field_ids = _Places()
        self._deletions: dict[int, str] = {}
        self._count = 0

    def add(self, fragments: Sequence[Any]) -> bool:
        """Add fragments. Return False if the manifest does not state all their rows, deleted rows and field ids."""
        rows = [raw.physical_rows for raw in fragments]
        deleted = [0] * len(rows)
        complete = all(rows)
        for at, raw in enumerate(fragments):
            if raw.HasField("deletion_file"):
                deleted[at] = raw.deletion_file.num_deleted_rows
                complete = complete and bool(deleted[at])
                self._deletions[self._count + at] = f"{raw.deletion_file.id}-{raw.deletion_file.read_version}"
        files = [raw.files for raw in fragments]
        each = list(itertools.chain.from_iterable(files))
        held = [self._field_ids[file.fields] for file in each]
        found = [raw.id for raw in fragments], rows, deleted, list(map(len, files)), held
        for known, values in zip(self._numbers, found, strict=True):
            known.append(np.array(values, np.int64))
        self._paths.append(pa.array([file.path for file in each], pa.large_string()))
        self._count += len(rows)
        return complete and b"" not in self._field_ids

    def columns(self) -> FragmentColumns:
        """Return all fragments as columns."""
        ids, rows, deleted, files, held = map(np.concatenate, self._numbers)
        return FragmentColumns(
            ids=ids,
            physical_rows=rows,
            deleted_rows=deleted,
            first_file=offsets_of_counts(files),
            paths=pa.concat_arrays(self._paths),
            held=held,
            field_sets=tuple(tuple(_varints(packed)) for packed in self._field_ids),
            deletion_files=self._deletions,
        )


class _Places(dict[bytes, int]):
    """A number for each distinct set of packed field ids, counted from 0 in the order of first use."""

    def __missing__(self, packed: bytes) -> int:
        found = self[packed] = len(self)
        return found


class FieldIds(dict[bytes, tuple[int, ...]]):
    """Field ids by their packed bytes. Each distinct set is decoded once."""

    def __missing__(self, packed: bytes) -> tuple[int, ...]:
        found = self[packed] = tuple(_varints(packed))
        return found


def _varints(packed: bytes) -> Iterator[int]:
    """Decode packed int32 values of protobuf. Negative ones (dropped columns) take ten bytes."""
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value - (1 << 64) if value >> 63 else value
            value = shift = 0


@cache
def _manifest_class() -> Any:
    return message_class("leman.lance", _LAYOUT, root="Manifest", repeated=_REPEATED)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, whose repeated visits of new objects make parsing three times slower.

    Afterwards the new objects count as old, so that the collector does not first visit all of them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.unfreeze()
            gc.enable()


Ids = npt.NDArray[np.int64]

_MANIFEST: Layout = {
    "DataFragment": [("id", 1, Kind.TYPE_UINT64, ""), ("inline_row_ids", 5, Kind.TYPE_BYTES, "")],
    "Manifest": [("fragments", 2, Kind.TYPE_MESSAGE, "DataFragment")],
}
#: The kind of segment that newly written rows have. Moved rows have other kinds, which Lance decodes.
_SEQUENCE: Layout = {
    "Range": [("start", 1, Kind.TYPE_UINT64, ""), ("end", 2, Kind.TYPE_UINT64, "")],
    "Segment": [("range", 1, Kind.TYPE_MESSAGE, "Range")],
    "Sequence": [("segments", 1, Kind.TYPE_MESSAGE, "Segment")],
}


def inline_row_ids(serialized: bytes | None) -> dict[int, bytes]:
    """Return the encoded row ids of each fragment, by fragment id; empty where the manifest lacks them."""
    return {raw.id: raw.inline_row_ids for raw in _row_id_manifest_class().FromString(serialized or b"").fragments}


def inline_row_ids_of(dataset: lance.LanceDataset) -> dict[int, bytes]:
    """Return what `inline_row_ids` does, for an open dataset."""
    return inline_row_ids(manifest_bytes(dataset))


def all_ids(inline: bytes) -> Ids:
    """Decode the ids of all rows of a fragment, including deleted ones, in the order of their offsets."""
    meta: RowIdMeta = RowIdMeta.from_json(  # type: ignore[misc,call-arg]  # the stub lacks the decorator
        json.dumps({"Inline": list(inline)})
    )
    ids: npt.NDArray[Any] = RowIdSequence.from_inline_metadata(meta).to_pyarrow().to_numpy()
    return ids.astype(np.int64)


def ids_at(inline: bytes, offsets: Ids) -> Ids:
    """Return the ids of the rows at these offsets of a fragment, in the order of `offsets`."""
    ranges = _ranges(inline)
    if ranges is None:
        return all_ids(inline)[offsets]
    starts, lengths = ranges
    first = np.cumsum(lengths) - lengths
    segment = np.searchsorted(first, offsets, side="right") - 1
    return np.asarray(starts[segment] + offsets - first[segment], np.int64)


def _ranges(inline: bytes) -> tuple[Ids, Ids] | None:
    """Return the starts and lengths of the ranges that the ids consist of; None unless all segments are ranges."""
    try:
        segments = _sequence_class().FromString(inline).segments
    except DecodeError:
        return None
    if not segments or not all(segment.HasField("range") for segment in segments):
        return None
    starts, ends = (np.array([getattr(s.range, name) for s in segments], np.int64) for name in ("start", "end"))
    filled = ends > starts
    return starts[filled], (ends - starts)[filled]


@functools.cache
def _row_id_manifest_class() -> Any:
    return message_class("leman.lance_rows", _MANIFEST, root="Manifest", repeated={"fragments"})


@functools.cache
def _sequence_class() -> Any:
    return message_class("leman.lance_row_ids", _SEQUENCE, root="Sequence", repeated={"segments"})
