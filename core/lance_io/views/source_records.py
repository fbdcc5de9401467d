"""What a view keeps of the source version that it is right for: fragments with their files, deleted rows and row ids.

So a refresh can tell what changed since, although that version was cleaned away. See decision 18. A record is one file
in the view's folder `_refresh`, and never changes. Its name has the digest of its content, and the view's metadata has
the name.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from lance.fragment import RowIdMeta, RowIdSequence

from core.domain.row_address import addresses_of
from core.domain.table import DataFile, Fragment, TableField, TableSnapshot
from core.domain.view import ViewQuery
from core.errors import NotFound
from core.lance_io.error_translation import using_storage
from core.lance_io.manifest import collector_paused, manifest_bytes, parse, walk
from core.lance_io.opening import filesystem_of, open_version
from core.lance_io.protobuf import Kind, Layout, message_class
from core.lance_io.tables import snapshot_of
from core.lance_io.views.refresh_folder import REFRESH_FOLDER, bytes_beside, write_beside
from core.lance_io.views.source import NO_ROWS, RowFacts
from core.sql.query_columns import columns_read
from core.storage_errors import failed
from core.views import metadata as view_metadata
from core.views.rows import Ids

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
_LAYOUT: Layout = {
    "DataFragment": [("id", 1, Kind.TYPE_UINT64, ""), ("inline_row_ids", 5, Kind.TYPE_BYTES, "")],
    "Manifest": [("fragments", 2, Kind.TYPE_MESSAGE, "DataFragment")],
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one fragment, as they are stored."""

    ids: bytes
    deleted: bytes


class SourceRecord:
    """A source version as a view keeps it.

    `snapshot` names only files that hold what the view reads, and its `incarnation` is what
    `core.views.metadata.identity` said of that version.
    """

    def __init__(self, snapshot: TableSnapshot, rows: Mapping[int, _Rows]) -> None:
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

    def live_rows(self, fragments: Collection[int]) -> int:
        """Return what `SourceRows.live_rows` does."""
        return sum(self._fragments[i].live_rows for i in fragments if i in self._fragments)

    def stored(self, fragment: Fragment) -> _Rows | None:
        """Return the rows of a fragment that has the same ones."""
        known = self._fragments.get(fragment.fragment_id)
        same = known is not None and known._replace(files=()) == fragment._replace(files=())
        return self._rows.get(fragment.fragment_id) if same else None

    def _rows_of(self, fragment_id: int, low: int, high: int | None) -> tuple[Ids, Ids]:
        stored, rows = self._rows[fragment_id], self._fragments[fragment_id].physical_rows
        ids = _decoded(stored.ids)
        wanted = ids >= low
        if high is not None:
            wanted &= ids < high
        if stored.deleted:
            wanted &= ~np.unpackbits(np.frombuffer(zlib.decompress(stored.deleted), np.uint8), count=rows).astype(bool)
        return ids[wanted], addresses_of(fragment_id, np.flatnonzero(wanted))


def write(view: str, query: ViewQuery, source: str, version: int, before: str = "") -> str:
    """Keep a source version in a view's folder and return the record's name.

    Args:
        before: the name of an earlier record, of which rows are taken that stayed.

    Returns:
        The name; empty where the source has no stable row ids: such a view stays at its version.

    Raises:
        LemanError: what `storage_errors.unusable` gives where the source cannot be read, or the folder not be written.
    """
    with using_storage(view), collector_paused():
        dataset = open_version(source, version)
        if not dataset.has_stable_row_ids:
            return ""
        serialized = manifest_bytes(dataset)
        fragments = parse(serialized) or walk(dataset)
        snapshot = snapshot_of(source, dataset, fragments)
        known = _earlier(view, before) if any(f.deleted_rows for f in fragments) else None
        rows = _all_rows(dataset, serialized, fragments, known)
        content = _encoded(snapshot, _read_ids(snapshot, query), rows)
    name = f"{view_metadata.RECORD_PREFIX}{version}-{xxhash.xxh3_128(content).hexdigest()}.arrow"
    write_beside(view, name, content)
    return name


def read(view: str, name: str, source: str) -> SourceRecord | None:
    """Return a record of a view; None where there is none, or it is not what was written.

    Raises:
        LemanError: what `storage_errors.failed` gives where that cannot be told.
    """
    content = content_of(view, name) if name else None
    if content is None or not is_whole(name, content):
        return None
    return _record(source, pa.ipc.open_stream(content).read_all())


def content_of(view: str, name: str) -> bytes | None:
    """Return the bytes of a record; None where there is none.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    try:
        return bytes_beside(view, name)
    except OSError as error:
        path = f"{filesystem_of(view)[1]}/{REFRESH_FOLDER}/{name}"
        raise failed(error, f"The record {path} cannot be read now: {error}", path) from None


def is_whole(name: str, content: bytes) -> bool:
    """Tell whether a record is what was written under its name."""
    return name.endswith(f"-{xxhash.xxh3_128(content).hexdigest()}.arrow")


def read_for(view: str, name: str, source: str, version: int) -> SourceRecord:
    """Return the record of a source version that was cleaned away.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND, where `read` finds none.
    """
    found = read(view, name, source)
    if found is None:
        raise NotFound(
            "SOURCE_VERSION_NOT_FOUND",
            f"Version {version} of the source {source} was cleaned up, and the view has no record of it",
            uri=source,
            version=version,
        )
    return found


def _earlier(view: str, name: str) -> SourceRecord | None:
    return read(view, name, "")


def _read_ids(snapshot: TableSnapshot, query: ViewQuery) -> frozenset[int]:
    names = columns_read(query, [field.name for field in snapshot.fields])
    return frozenset(i for field in snapshot.fields if field.name in names for i in field.field_ids)


def _all_rows(
    dataset: lance.LanceDataset, serialized: bytes | None, fragments: Sequence[Fragment], known: SourceRecord | None
) -> list[_Rows]:
    inline = {raw.id: raw.inline_row_ids for raw in _manifest_class().FromString(serialized or b"").fragments}
    stored = {f.fragment_id: found for f in fragments if known is not None and (found := known.stored(f)) is not None}
    wanted = [f for f in fragments if f.fragment_id not in stored]
    asked = [f for f in wanted if f.deleted_rows or not inline.get(f.fragment_id)]
    for fragment, ids in zip(wanted, _scanned(dataset, wanted, asked), strict=True):
        kept = inline.get(fragment.fragment_id, b"")
        stored[fragment.fragment_id] = _Rows(_INLINE + kept if kept else _plain(ids), _bits(fragment, ids))
    return [stored[fragment.fragment_id] for fragment in fragments]


def _scanned(
    dataset: lance.LanceDataset, fragments: Sequence[Fragment], asked: Sequence[Fragment]
) -> Iterator[pa.Array | None]:
    """Yield row ids of the asked ones of the fragments, NULL in deleted rows; None for the others.

    One scan for all of them: one for each takes ten times as long.
    """
    opened = [dataset.get_fragment(fragment.fragment_id) for fragment in asked]
    chosen = [fragment for fragment in opened if fragment is not None]
    batches: Iterator[pa.RecordBatch] = iter(())
    if chosen:
        scanner = dataset.scanner(
            columns=[], with_row_id=True, include_deleted_rows=True, fragments=chosen, scan_in_order=True
        )
        batches = scanner.to_batches()
    numbers = {fragment.fragment_id for fragment in asked}
    left = pa.array([], pa.uint64())
    for fragment in fragments:
        if fragment.fragment_id not in numbers:
            yield None
            continue
        parts = [left]
        while sum(map(len, parts)) < fragment.physical_rows:
            parts.append(next(batches).column("_rowid"))
        joined = pa.concat_arrays(parts)
        left = joined.slice(fragment.physical_rows)
        yield joined.slice(0, fragment.physical_rows)


def _bits(fragment: Fragment, ids: pa.Array | None) -> bytes:
    """Return which rows are deleted, one bit for each; empty: none is."""
    if ids is None or not fragment.deleted_rows:
        return b""
    deleted = ids.is_null().to_numpy(zero_copy_only=False)
    return zlib.compress(np.packbits(deleted).tobytes(), 1)


def _plain(ids: pa.Array | None) -> bytes:
    """Return the row ids that the manifest does not have itself. Those of deleted rows do not matter."""
    if ids is None:
        return _PLAIN
    numbers = ids.fill_null(0).to_numpy().astype("<i8")
    return _PLAIN + zlib.compress(np.diff(numbers, prepend=0).tobytes(), 1)


def _decoded(stored: bytes) -> Ids:
    if stored[:1] == _PLAIN:
        return np.cumsum(np.frombuffer(zlib.decompress(stored[1:]), "<i8")).astype(np.int64)
    meta: RowIdMeta = RowIdMeta.from_json(  # type: ignore[misc,call-arg]  # the stub lacks the decorator
        json.dumps({"Inline": list(stored[1:])})
    )
    ids: npt.NDArray[Any] = RowIdSequence.from_inline_metadata(meta).to_pyarrow().to_numpy()
    return ids.astype(np.int64)


def _encoded(snapshot: TableSnapshot, wanted: frozenset[int], rows: Sequence[_Rows]) -> bytes:
    layouts: dict[tuple[int, ...], int] = {}
    files, holding = [], []
    for fragment in snapshot.fragments:
        # the first one too: it tells a fragment with other columns from another fragment
        kept = [f for at, f in enumerate(fragment.files) if not at or not wanted.isdisjoint(f.field_ids)]
        files.append([f.path for f in kept])
        holding.append([layouts.setdefault(f.field_ids, len(layouts)) for f in kept])
    fields = pa.schema([field.arrow for field in snapshot.fields]).serialize().to_pybytes().hex()
    header = {
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


def _record(source: str, table: pa.Table) -> SourceRecord:
    header = json.loads((table.schema.metadata or {})[_HEADER])
    layouts = [tuple(layout) for layout in header["layouts"]]
    fields = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(header["schema"])))
    fragments, rows = [], {}
    for row in _rows(table):
        *numbers, names, holding, ids, deleted = row
        held = tuple(DataFile(name, layouts[at]) for name, at in zip(names, holding, strict=True))
        fragment_id, physical, gone, deletion_file = numbers
        fragments.append(Fragment(fragment_id, physical, gone, held, deletion_file))
        rows[fragment_id] = _Rows(ids, deleted)
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


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _ids_of(field: TableField) -> list[Any]:
    return [list(field.field_ids), [_ids_of(part) for part in field.parts]]


def _field(arrow: pa.Field, ids: Sequence[Any]) -> TableField:
    own, parts = ids
    inner = zip(arrow.type, parts, strict=True) if parts else ()
    return TableField(arrow, tuple(own), tuple(_field(*pair) for pair in inner))


@functools.cache
def _manifest_class() -> Any:
    return message_class("leman.lance_rows", _LAYOUT, root="Manifest", repeated={"fragments"})
