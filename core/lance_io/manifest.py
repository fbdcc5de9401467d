"""A table's fragments, straight from its manifest.

`get_fragments()` builds several Python objects a fragment: at 100,000 fragments it takes three times as long
and twice the memory. The manifest's bytes come from its file, or from a private call where that is not on this
machine's disk, so the public calls are kept as a fallback.
"""

from __future__ import annotations

import contextlib
import gc
import os
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lance
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from core.domain.table import DataFile, Fragment

_Proto = descriptor_pb2.FieldDescriptorProto
#: The part of Lance's table.proto that planning reads: (name, number, type, message) by message.
_LAYOUT: dict[str, list[tuple[str, int, int, str]]] = {
    # packed field ids, taken as bytes: most files of a table hold the same ones, and are looked up
    "DataFile": [("path", 1, _Proto.TYPE_STRING, ""), ("fields", 2, _Proto.TYPE_BYTES, "")],
    "DeletionFile": [
        ("read_version", 2, _Proto.TYPE_UINT64, ""),
        ("id", 3, _Proto.TYPE_UINT64, ""),
        ("num_deleted_rows", 4, _Proto.TYPE_UINT64, ""),
    ],
    "DataFragment": [
        ("id", 1, _Proto.TYPE_UINT64, ""),
        ("files", 2, _Proto.TYPE_MESSAGE, "DataFile"),
        ("deletion_file", 3, _Proto.TYPE_MESSAGE, "DeletionFile"),
        ("physical_rows", 4, _Proto.TYPE_UINT64, ""),
    ],
    "Manifest": [("fragments", 2, _Proto.TYPE_MESSAGE, "DataFragment")],
}
_REPEATED = {"files", "fragments"}
#: The end of a manifest's file: where the message begins, version of the format, magic.
_FOOTER = struct.Struct("<QHH4s")
_MAGIC = b"LANC"
_LENGTH_BYTES = 4


def read_fragments(dataset: lance.LanceDataset) -> tuple[Fragment, ...]:
    """All fragments in the order of the manifest."""
    with collector_paused():
        parsed = parse(manifest_bytes(dataset))
        return walk(dataset) if parsed is None else parsed


def manifest_bytes(dataset: lance.LanceDataset) -> bytes | None:
    """The manifest as a protobuf message. Once it is read, the dataset may go: it takes as much memory as the rest."""
    if "://" not in dataset.uri:
        name = f"{(1 << 64) - 1 - dataset.version:020d}.manifest"
        with contextlib.suppress(OSError, struct.error), Path(dataset.uri, "_versions", name).open("rb") as file:
            file.seek(-_FOOTER.size, os.SEEK_END)
            position, _, _, magic = _FOOTER.unpack(file.read(_FOOTER.size))
            if magic == _MAGIC:
                file.seek(position)
                return file.read(int.from_bytes(file.read(_LENGTH_BYTES), "little"))
    serialized: Callable[[], bytes] | None = getattr(dataset._ds, "serialized_manifest", None)
    return None if serialized is None else serialized()


def walk(dataset: lance.LanceDataset) -> tuple[Fragment, ...]:
    """By Lance's public calls."""
    fragments = []
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        deletions = metadata.deletion_file
        deleted, deletion_file = 0, ""
        if deletions is not None:
            deletion_file = f"{deletions.id}-{deletions.read_version}"
            known: int | None = deletions.num_deleted_rows  # None: written by an old Lance
            deleted = metadata.physical_rows - fragment.count_rows() if known is None else known
        files = tuple(DataFile(str(f.path), tuple(f.fields)) for f in metadata.files)
        fragments.append(Fragment(metadata.id, metadata.physical_rows, deleted, files, deletion_file))
    return tuple(fragments)


def parse(serialized: bytes | None) -> tuple[Fragment, ...] | None:
    """From the manifest's bytes; None where there are none or an old manifest says too little."""
    if not serialized:
        return None
    try:
        manifest = _manifest_class().FromString(serialized)
    except DecodeError:
        return None
    columns = _Columns()
    fragments = []
    for raw in manifest.fragments:
        rows, deleted, deletion_file = raw.physical_rows, 0, ""
        if raw.HasField("deletion_file"):
            deleted = raw.deletion_file.num_deleted_rows
            deletion_file = f"{raw.deletion_file.id}-{raw.deletion_file.read_version}"
            rows = rows if deleted else 0
        if not rows:
            return None
        files = tuple([DataFile(file.path, columns[file.fields]) for file in raw.files])
        fragments.append(Fragment(raw.id, rows, deleted, files, deletion_file))
    return None if b"" in columns else tuple(fragments)


class _Columns(dict[bytes, tuple[int, ...]]):
    """Field ids by their packed bytes."""

    def __missing__(self, packed: bytes) -> tuple[int, ...]:
        found = self[packed] = tuple(_varints(packed))
        return found


def _varints(packed: bytes) -> Iterator[int]:
    """Packed int32 of protobuf; negative ones (columns that are gone) take ten bytes."""
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value - (1 << 64) if value >> 63 else value
            value = shift = 0


@cache
def _manifest_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="leman/lance_manifest.proto", package="leman.lance")
    file.syntax = "proto3"
    for name, fields in _LAYOUT.items():
        message = file.message_type.add(name=name)
        for field, number, kind, target in fields:
            added = message.field.add(name=field, number=number)
            added.type = kind  # type: ignore[assignment]
            added.label = _Proto.LABEL_REPEATED if field in _REPEATED else _Proto.LABEL_OPTIONAL
            if kind == _Proto.TYPE_MESSAGE:
                added.type_name = f".leman.lance.{target}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("leman.lance.Manifest"))


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """The garbage collector would look at every new object again and again: three times slower. Afterwards they count
    as old, so that it does not begin with all of them at once."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.unfreeze()
            gc.enable()
