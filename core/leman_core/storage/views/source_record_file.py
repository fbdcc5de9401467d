"""A record of a source version as one file: fragments with their files, deleted rows and row ids."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from leman_core.model import view_metadata
from leman_core.model.row_address import addresses_of
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.model.view_rows import Ids, Mask
from leman_core.storage import stored_formats
from leman_core.storage.row_id_sequences import all_ids, ids_at
from leman_core.storage.views.row_facts import NO_ROWS, RowFacts

_HEADER = b"leman.source"
_VIEW_KEYS = view_metadata.PREFIX.encode()
_INLINE, _PLAIN = b"L", b"Z"
_SCHEMA = pa.schema(
    [
        ("fragment_id", pa.int64()),
        ("physical_rows", pa.int64()),
        ("deleted_rows", pa.int64()),
        ("deletion_file", pa.string()),
        ("files", pa.list_(pa.string())),
        ("holding", pa.list_(pa.int32())),
        ("row_ids", pa.binary()),
        ("deleted", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one fragment, as they are stored."""

    #: The row ids: as the manifest has them, or packed here.
    ids: bytes
    #: Which rows are deleted, one bit for each; empty: none is.
    deleted: bytes

    @classmethod
    def of_manifest(cls, fragment: Fragment, inline: bytes, deleted: Ids) -> StoredRows:
        """Store the rows of a fragment whose row ids the manifest has; `deleted`: offsets of deleted rows."""
        mask = np.zeros(fragment.physical_rows, np.bool_)
        mask[deleted] = True
        return cls(_INLINE + inline, _bits(mask))

    @classmethod
    def of_ids(cls, inline: bytes, ids: pa.Array) -> StoredRows:
        """Store the rows of a fragment by their row ids, NULL in deleted rows.

        Args:
            inline: Row ids as the manifest has them; empty: they are not in it.
            ids: The row ids.
        """
        return cls(_INLINE + inline if inline else _packed(ids), _bits(ids.is_null().to_numpy(zero_copy_only=False)))


class SourceRecord:
    """A source version as a view keeps it.

    `snapshot` names only files that hold what the view reads, and its `incarnation` is what
    `leman_core.model.view_metadata.identity` said of that version.
    """

    def __init__(self, snapshot: TableSnapshot, rows: Mapping[int, StoredRows]) -> None:
        self.snapshot = snapshot
        self._rows = rows
        self._fragments = {fragment.fragment_id: fragment for fragment in snapshot.fragments}

    def rows_of(self, fragments: Collection[int], low: int = 0, high: int | None = None) -> RowFacts:
        """Return what `SourceRows.rows_of` does. Nothing is known of when the rows were updated."""
        parts = [self._rows_of(i, low, high) for i in sorted(fragments) if i in self._fragments]
        if not parts:
            return NO_ROWS
        ids, addresses = (np.concatenate(column) for column in zip(*parts, strict=True))
        return RowFacts(ids, addresses, np.full(len(ids), -1, np.int64))

    def deleted(self, fragment_id: int) -> Ids:
        """Return what `SourceRows.deleted` does."""
        return np.flatnonzero(self._mask(fragment_id))

    def at(self, fragment_id: int, offsets: Ids, *, updated: bool) -> RowFacts:  # noqa: ARG002 - there is no more
        """Return what `SourceRows.at` does. Nothing is known of when the rows were updated."""
        stored = self._rows[fragment_id].ids
        ids = ids_at(stored[1:], offsets) if stored[:1] == _INLINE else _decoded(stored)[offsets]
        return RowFacts(ids, addresses_of(fragment_id, offsets), np.full(len(ids), -1, np.int64))

    def live_rows(self, fragments: Collection[int]) -> int:
        """Return what `SourceRows.live_rows` does."""
        return sum(self._fragments[i].live_rows for i in fragments if i in self._fragments)

    def stored(self, fragment: Fragment) -> StoredRows | None:
        """Return the rows of a fragment that has the same ones."""
        known = self._fragments.get(fragment.fragment_id)
        same = known is not None and known._replace(files=()) == fragment._replace(files=())
        return self._rows.get(fragment.fragment_id) if same else None

    def _rows_of(self, fragment_id: int, low: int, high: int | None) -> tuple[Ids, Ids]:
        ids = _decoded(self._rows[fragment_id].ids)
        wanted = (ids >= low) & ~self._mask(fragment_id)
        if high is not None:
            wanted &= ids < high
        return ids[wanted], addresses_of(fragment_id, np.flatnonzero(wanted))

    def _mask(self, fragment_id: int) -> Mask:
        """Tell for each row of a fragment whether it is deleted."""
        stored, rows = self._rows[fragment_id].deleted, self._fragments[fragment_id].physical_rows
        if not stored:
            return np.zeros(rows, np.bool_)
        return np.unpackbits(np.frombuffer(zlib.decompress(stored), np.uint8), count=rows).astype(np.bool_)


def encode(snapshot: TableSnapshot, wanted: frozenset[int], rows: Sequence[StoredRows]) -> bytes:
    """Return the content of a record.

    Args:
        snapshot: The source version.
        wanted: Ids of the fields that the view reads; files without any of them are left out.
        rows: The rows of each fragment.
    """
    layouts: dict[tuple[int, ...], int] = {}
    files, holding = [], []
    for fragment in snapshot.fragments:
        # the first one too: it tells a fragment with other columns from another fragment
        kept = [f for at, f in enumerate(fragment.files) if not at or not wanted.isdisjoint(f.field_ids)]
        files.append([f.path for f in kept])
        holding.append([layouts.setdefault(f.field_ids, len(layouts)) for f in kept])
    fields = pa.schema([field.arrow for field in snapshot.fields]).serialize().to_pybytes().hex()
    header = {
        "format": stored_formats.SOURCE_RECORD.current,
        "version": snapshot.version,
        "identity": view_metadata.identity(snapshot),
        "schema": fields,
        "ids": [_ids_of(field) for field in snapshot.fields],
        "layouts": [list(layout) for layout in layouts],
        "view": {k.decode(): v.decode() for k, v in snapshot.metadata.items() if k.startswith(_VIEW_KEYS)},
    }
    columns = [[getattr(f, name) for f in snapshot.fragments] for name in _SCHEMA.names[:4]]
    columns += [files, holding, [r.ids for r in rows], [r.deleted for r in rows]]
    schema = _SCHEMA.with_metadata({_HEADER: json.dumps(header).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    return bytes(sink.getvalue())


def decode(source: str, content: bytes) -> SourceRecord:
    """Return the record that `encode` made, of a source that lies at `source`."""
    table = pa.ipc.open_stream(content).read_all()
    header = json.loads((table.schema.metadata or {})[_HEADER])
    stored_formats.SOURCE_RECORD.check(header.get("format"), f"The record of version {header['version']} of {source}")
    layouts = [tuple(layout) for layout in header["layouts"]]
    fields = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(header["schema"])))
    fragments, rows = [], {}
    for row in _rows(table):
        *numbers, names, holding, ids, deleted = row
        held = tuple(DataFile(name, layouts[at]) for name, at in zip(names, holding, strict=True))
        fragment_id, physical, gone, deletion_file = numbers
        fragments.append(Fragment(fragment_id, physical, gone, held, deletion_file))
        rows[fragment_id] = StoredRows(ids, deleted)
    snapshot = TableSnapshot(
        uri=source,
        version=int(header["version"]),
        incarnation=str(header["identity"]),
        fields=tuple(_field(arrow, ids) for arrow, ids in zip(fields, header["ids"], strict=True)),
        fragments=tuple(fragments),
        stable_row_ids=True,
        metadata={k.encode(): v.encode() for k, v in header["view"].items()},
    )
    return SourceRecord(snapshot, rows)


def _bits(deleted: Mask) -> bytes:
    """Return which rows are deleted, one bit for each; empty: none is."""
    return zlib.compress(np.packbits(deleted).tobytes(), 1) if deleted.any() else b""


def _packed(ids: pa.Array) -> bytes:
    """Return the row ids that the manifest does not have itself. Those of deleted rows do not matter."""
    numbers = ids.fill_null(0).to_numpy().astype("<i8")
    return _PLAIN + zlib.compress(np.diff(numbers, prepend=0).tobytes(), 1)


def _decoded(stored: bytes) -> Ids:
    if stored[:1] == _PLAIN:
        return np.cumsum(np.frombuffer(zlib.decompress(stored[1:]), "<i8")).astype(np.int64)
    return all_ids(stored[1:])


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _ids_of(field: TableField) -> list[Any]:
    return [list(field.field_ids), [_ids_of(part) for part in field.parts]]


def _field(arrow: pa.Field, ids: Sequence[Any]) -> TableField:
    own, parts = ids
    inner = zip(arrow.type, parts, strict=True) if parts else ()
    return TableField(arrow, tuple(own), tuple(_field(*pair) for pair in inner))
