"""A table's fragments, straight from its manifest.

`get_fragments()` builds several Python objects a fragment: at 100,000 fragments it takes three times as long
and twice the memory. The manifest's bytes come from a private call, so the public one is kept as a fallback.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import lance
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from core.domain.table import DataFile, Fragment

_Proto = descriptor_pb2.FieldDescriptorProto
#: The part of Lance's table.proto that planning reads: (name, number, type, message) by message.
_LAYOUT: dict[str, list[tuple[str, int, int, str]]] = {
    "DataFile": [("path", 1, _Proto.TYPE_STRING, ""), ("fields", 2, _Proto.TYPE_INT32, "*")],
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
_REPEATED = {"fields", "files", "fragments"}


def read_fragments(dataset: lance.LanceDataset) -> tuple[Fragment, ...]:
    """All fragments in the order of the manifest."""
    with collector_paused():
        parsed = parse(dataset)
        return walk(dataset) if parsed is None else parsed


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


def parse(dataset: lance.LanceDataset) -> tuple[Fragment, ...] | None:
    """From the manifest's bytes; None where Lance has no such call or an old manifest says too little."""
    serialized: Callable[[], bytes] | None = getattr(dataset._ds, "serialized_manifest", None)
    if serialized is None:
        return None
    try:
        manifest = _manifest_class().FromString(serialized())
    except DecodeError:
        return None
    columns: dict[tuple[int, ...], tuple[int, ...]] = {}
    fragments = []
    for raw in manifest.fragments:
        deleted = raw.deletion_file.num_deleted_rows
        if not raw.physical_rows or (raw.HasField("deletion_file") and not deleted):
            return None
        files = []
        for file in raw.files:
            ids = tuple(file.fields)
            files.append(DataFile(file.path, columns.setdefault(ids, ids)))
        deletion_file = f"{raw.deletion_file.id}-{raw.deletion_file.read_version}" if deleted else ""
        fragments.append(Fragment(raw.id, raw.physical_rows, deleted, tuple(files), deletion_file))
    return tuple(fragments)


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
    """The garbage collector would look at every new object again and again: three times slower."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
