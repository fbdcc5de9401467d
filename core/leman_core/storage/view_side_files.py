"""The files in a view's folder `_refresh`: evictions, failed rows, and records of source versions. They never change.

Evictions are the rows that leave the view: a refresh writes a file that lists them, and the commit reads it. Another
file lists the failed rows. A source record describes the fragments of a source version: their files, deleted rows and
row ids. With it, a refresh can compare the source with that version even after the version was cleaned up (decision
18). The view's metadata has the names of its list of failed rows and of its source record. Each of these two names
contains the digest of the file's content.
"""

from __future__ import annotations

import contextlib
import json
import uuid
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import xxhash

from leman._format import stored_documents, view_definitions
from leman._format.view_definitions import FAILED_PREFIX, FailedNote, ViewQuery
from leman_core.model.plan_columns import materialize
from leman_core.model.row_ids import NO_IDS, Ids, Mask, difference, union
from leman_core.model.row_positions import addresses_of, fragments_of, offsets_of
from leman_core.model.service_errors import DataLoss, LemanError, NotFound, check_format
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.sql.expressions import columns_read
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.error_translation import using_storage
from leman_core.storage.lance_files import deleted_offsets
from leman_core.storage.lance_tables import snapshot_of
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.manifest import (
    all_ids,
    collector_paused,
    ids_at,
    inline_row_ids,
    manifest_bytes,
    parse_fragments,
    walk_fragments,
)
from leman_core.storage.opening import open_version
from leman_core.storage.source_rows import NO_ROWS, RowFacts

#: The name of the folder of side files, in the view's folder.
REFRESH_FOLDER = "_refresh"


def side_files(view: str) -> DocumentFolder:
    """Return the store of the files in a view's folder `_refresh`."""
    return DocumentFolder(f"{view}/{REFRESH_FOLDER}", f"The folder {REFRESH_FOLDER} of view {view}")


_EVICTIONS = pa.schema([pa.field("fragment_id", pa.int64()), pa.field("offset", pa.int64())])


def write_evictions(uri: str, addresses: Ids) -> tuple[str, str]:
    """Store the addresses of the rows to evict from the view. Return the name of the file and its digest."""
    table = pa.table([pa.array(fragments_of(addresses)), pa.array(offsets_of(addresses))], schema=_EVICTIONS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _EVICTIONS) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    name = f"{uuid.uuid4().hex}.arrow"
    side_files(uri).put(name, content)
    return name, xxhash.xxh3_128(content).hexdigest()


def read_evictions(uri: str, name: str, digest: str) -> Ids:
    """Return the addresses that `write_evictions` stored.

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED.
    """
    content = side_files(uri).read(name)
    if content is None:
        raise NotFound("FILE_MISSING", f"Evictions {name} are not in the view's {REFRESH_FOLDER} folder")
    if xxhash.xxh3_128(content).hexdigest() != digest:
        raise DataLoss("FILE_DAMAGED", f"Evictions {name} changed after they were written")
    table = pa.ipc.open_file(content).read_all()
    fragments, offsets = (np.asarray(table.column(c).to_numpy(), np.int64) for c in _EVICTIONS.names)
    return np.asarray(addresses_of(fragments, offsets), np.int64)


def remove_evictions(uri: str, name: str) -> None:
    """Delete a file of evictions after their commit. If that fails, garbage collection deletes the file."""
    with contextlib.suppress(LemanError):
        side_files(uri).delete(name)


#: The key of a group of failed rows: (column, job id).
_Group = tuple[str, str]
_FAILED_ROWS_SCHEMA = pa.schema([("column", pa.string()), ("job_id", pa.string()), ("source_row_id", pa.int64())])


@dataclass(frozen=True, slots=True, eq=False)
class FailedRows:
    """Failed rows of a view: for each function column and job, the sorted source row ids. The oldest job is first."""

    groups: Mapping[_Group, Ids]

    def of(self, column: str) -> Ids:
        """Return all failed rows of a column, sorted."""
        return np.sort(np.concatenate([NO_IDS, *(ids for (name, _), ids in self.groups.items() if name == column)]))

    def without(self, ids: Ids, columns: Collection[str]) -> FailedRows:
        """Return the failed rows, except those of `columns` that are in `ids`."""
        left = {
            (column, job): difference(own, ids) if column in columns else own
            for (column, job), own in self.groups.items()
        }
        return FailedRows({group: own for group, own in left.items() if len(own)})

    def plus(self, job_id: str, failed: Mapping[str, Ids]) -> FailedRows:
        """Return the failed rows and those of a later job (`failed`: ids by column)."""
        found = dict(self.groups)
        for column, ids in failed.items():
            if len(ids):
                found[column, job_id] = union(found.pop((column, job_id), NO_IDS), ids)
        return FailedRows(found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FailedRows) or self.groups.keys() != other.groups.keys():
            return False
        return all(np.array_equal(ids, other.groups[group]) for group, ids in self.groups.items())

    __hash__ = None  # type: ignore[assignment]


NONE_FAILED = FailedRows({})


def read_failed_rows(view: str, note: FailedNote) -> FailedRows | None:
    """Return the failed rows that a view's metadata names; None if the file is missing or damaged.

    Raises:
        LemanError: The storage cannot be read now.
    """
    if not note.file:
        return NONE_FAILED
    content = side_files(view).read(note.file)
    if content is None or note.file != _name(content):
        return None
    found: dict[_Group, list[int]] = {}
    for column, job, row_id in zip(*pa.ipc.open_stream(content).read_all().to_pydict().values(), strict=True):
        found.setdefault((column, job), []).append(row_id)
    return FailedRows({group: np.array(ids, np.int64) for group, ids in found.items()})


def lost_failed_rows(name: str, note: FailedNote, what: str = "is damaged or gone") -> str:
    """Return a text for users about an unusable list of failed rows and its consequence for the view.

    Args:
        name: The view.
        note: The entry in the view's metadata.
        what: What is wrong with the list.
    """
    path = f"{name}{TABLE_ENDING}/{REFRESH_FOLDER}/{note.file}"
    return (
        f"{path} {what}: it names the {note.total} missing values of view {name}. They stay NULL until a full refresh "
        "computes them"
    )


def write_failed_rows(view: str, failed: FailedRows) -> FailedNote:
    """Store failed rows in the view's folder and return the entry for its metadata.

    Raises:
        LemanError: They cannot be stored.
    """
    if not failed.groups:
        return FailedNote()
    columns = [
        [column for (column, _), ids in failed.groups.items() for _ in ids],
        [job for (_, job), ids in failed.groups.items() for _ in ids],
        np.concatenate(list(failed.groups.values())),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _FAILED_ROWS_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.table(columns, schema=_FAILED_ROWS_SCHEMA))
    content = bytes(sink.getvalue())
    name = _name(content)
    side_files(view).put(name, content)
    rows, jobs = Counter[str](), Counter[str]()
    for (column, job), ids in failed.groups.items():
        rows[column] += len(ids)
        jobs[job] += len(ids)
    return FailedNote(name, dict(rows), dict(reversed(jobs.items())))


def _name(content: bytes) -> str:
    return f"{FAILED_PREFIX}{xxhash.xxh3_128(content).hexdigest()}.arrow"


_HEADER = b"leman.source"
_VIEW_KEYS = view_definitions.PREFIX.encode()
_INLINE, _PLAIN = b"L", b"Z"
_SOURCE_RECORD_SCHEMA = pa.schema(
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
    """The rows of one fragment of the source, in the form in which a source record stores them."""

    #: The row ids, in the manifest's form or packed.
    ids: bytes
    #: One bit for each row, set if the row is deleted; empty if no row is.
    deleted: bytes

    @classmethod
    def of_manifest(cls, fragment: Fragment, inline: bytes, deleted: Ids) -> StoredRows:
        """Return the rows of a fragment whose row ids are in the manifest. `deleted`: the offsets of deleted rows."""
        mask = np.zeros(fragment.physical_rows, np.bool_)
        mask[deleted] = True
        return cls(_INLINE + inline, _bits(mask))

    @classmethod
    def of_ids(cls, inline: bytes, ids: pa.Array) -> StoredRows:
        """Return the rows of a fragment whose row ids were read by a scan.

        Args:
            inline: Row ids in the manifest's form; empty if the manifest does not contain them.
            ids: The row ids, NULL for deleted rows.
        """
        return cls(_INLINE + inline if inline else _packed(ids), _bits(ids.is_null().to_numpy(zero_copy_only=False)))


class SourceRecord:
    """A view's record of a source version.

    `snapshot` lists only files with columns that the view reads, and the first file of each fragment. Its `incarnation`
    is the `TableSnapshot.identity` of the source version.
    """

    def __init__(self, snapshot: TableSnapshot, rows: Mapping[int, StoredRows]) -> None:
        self.snapshot = snapshot
        self._rows = rows
        self._fragments = {fragment.fragment_id: fragment for fragment in snapshot.fragments}

    def rows_of(self, fragments: Collection[int], low: int = 0, high: int | None = None) -> RowFacts:
        """Return what `SourceRows.rows_of` does, without the versions of updates."""
        parts = [self._rows_of(i, low, high) for i in sorted(fragments) if i in self._fragments]
        if not parts:
            return NO_ROWS
        ids, addresses = (np.concatenate(column) for column in zip(*parts, strict=True))
        return RowFacts(ids, addresses, np.full(len(ids), -1, np.int64))

    def deleted(self, fragment_id: int) -> Ids:
        """Return what `SourceRows.deleted` does."""
        return np.flatnonzero(self._mask(fragment_id))

    def at(self, fragment_id: int, offsets: Ids, *, updated: bool) -> RowFacts:  # noqa: ARG002 - there is no more
        """Return what `SourceRows.at` does, without the versions of updates."""
        stored = self._rows[fragment_id].ids
        ids = ids_at(stored[1:], offsets) if stored[:1] == _INLINE else _decoded(stored)[offsets]
        return RowFacts(ids, addresses_of(fragment_id, offsets), np.full(len(ids), -1, np.int64))

    def live_rows(self, fragments: Collection[int]) -> int:
        """Return what `SourceRows.live_rows` does."""
        return sum(self._fragments[i].live_rows for i in fragments if i in self._fragments)

    def stored(self, fragment: Fragment) -> StoredRows | None:
        """Return the stored rows of a fragment; None if the fragment has changed since in more than its files."""
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
        """Return a mask of the deleted rows of a fragment."""
        stored, rows = self._rows[fragment_id].deleted, self._fragments[fragment_id].physical_rows
        if not stored:
            return np.zeros(rows, np.bool_)
        return np.unpackbits(np.frombuffer(zlib.decompress(stored), np.uint8), count=rows).astype(np.bool_)


def encode_source_record(snapshot: TableSnapshot, wanted: frozenset[int], rows: Sequence[StoredRows]) -> bytes:
    """Return the content of a source record's file.

    Args:
        snapshot: The source version.
        wanted: Ids of the fields that the view reads. Files without such a field are left out, except for the first
            file of a fragment.
        rows: The rows of each fragment.
    """
    layouts: dict[tuple[int, ...], int] = {}
    files, holding = [], []
    for fragment in snapshot.fragments:
        # always keep the first file: it identifies the fragment even if the view reads none of its columns
        kept = [f for at, f in enumerate(fragment.files) if not at or not wanted.isdisjoint(f.field_ids)]
        files.append([f.path for f in kept])
        holding.append([layouts.setdefault(f.field_ids, len(layouts)) for f in kept])
    fields = pa.schema([field.arrow for field in snapshot.fields]).serialize().to_pybytes().hex()
    header = {
        "format": stored_documents.SOURCE_RECORD.current,
        "version": snapshot.version,
        "identity": snapshot.identity,
        "schema": fields,
        "ids": [_ids_of(field) for field in snapshot.fields],
        "layouts": [list(layout) for layout in layouts],
        "view": {k.decode(): v.decode() for k, v in snapshot.metadata.items() if k.startswith(_VIEW_KEYS)},
    }
    columns = [[getattr(f, name) for f in snapshot.fragments] for name in _SOURCE_RECORD_SCHEMA.names[:4]]
    columns += [files, holding, [r.ids for r in rows], [r.deleted for r in rows]]
    schema = _SOURCE_RECORD_SCHEMA.with_metadata({_HEADER: json.dumps(header).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    return bytes(sink.getvalue())


def decode_source_record(source: str, content: bytes) -> SourceRecord:
    """Decode what `encode_source_record` returned for a version of the table at `source`."""
    table = pa.ipc.open_stream(content).read_all()
    header = json.loads((table.schema.metadata or {})[_HEADER])
    check_format(
        stored_documents.SOURCE_RECORD, header.get("format"), f"The record of version {header['version']} of {source}"
    )
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
    """Return one bit for each row, set if the row is deleted; empty if no row is."""
    return zlib.compress(np.packbits(deleted).tobytes(), 1) if deleted.any() else b""


def _packed(ids: pa.Array) -> bytes:
    """Pack row ids that the manifest does not contain. Deleted rows get arbitrary ids."""
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


def write_source_record(
    view: str,
    query: ViewQuery,
    source: str,
    version: int,
    before: str = "",
    opened: lance.LanceDataset | None = None,
) -> str:
    """Store the record of a source version in a view's folder and return its name.

    Args:
        view: The view.
        query: The view's query, which determines the columns to record.
        source: The source.
        version: The source version to record.
        before: The name of an earlier record. The rows of unchanged fragments are copied from that record.
        opened: The source version as a dataset, if the caller has it open.

    Returns:
        The name; empty if the source has no stable row ids, so that no record is possible.

    Raises:
        LemanError: The source cannot be read, or the record cannot be stored.
    """
    with using_storage(view), collector_paused():
        dataset = open_version(source, version) if opened is None else opened
        if not dataset.has_stable_row_ids:
            return ""
        serialized = manifest_bytes(dataset)
        fragments = materialize(parse_fragments(serialized) or walk_fragments(dataset))
        snapshot = snapshot_of(source, dataset, fragments)
        known = _earlier(view, before) if any(f.deleted_rows for f in fragments) else None
        rows = _all_rows(dataset, serialized, fragments, known)
        content = encode_source_record(snapshot, _read_ids(snapshot, query), rows)
    name = f"{view_definitions.RECORD_PREFIX}{version}-{xxhash.xxh3_128(content).hexdigest()}.arrow"
    side_files(view).put(name, content)
    return name


def read_source_record(view: str, name: str, source: str) -> SourceRecord | None:
    """Return a source record of a view; None if the file is missing or damaged.

    Raises:
        LemanError: The storage cannot be read now.
    """
    content = side_files(view).read(name) if name else None
    if content is None or not is_whole_source_record(name, content):
        return None
    return decode_source_record(source, content)


def is_whole_source_record(name: str, content: bytes) -> bool:
    """Return whether the content of a record's file matches the digest in its name."""
    return name.endswith(f"-{xxhash.xxh3_128(content).hexdigest()}.arrow")


def read_or_rebuild_source_record(view: str, name: str, source: str, version: int) -> SourceRecord:
    """Return a view's record of a source version that was cleaned up.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND if the view has no usable record.
    """
    found = read_source_record(view, name, source)
    if found is None:
        raise NotFound(
            "SOURCE_VERSION_NOT_FOUND",
            f"Version {version} of the source {source} was cleaned up, and the view has no record of it",
            uri=source,
            version=version,
        )
    return found


def _earlier(view: str, name: str) -> SourceRecord | None:
    return read_source_record(view, name, "")


def _read_ids(snapshot: TableSnapshot, query: ViewQuery) -> frozenset[int]:
    names = columns_read(query, [field.name for field in snapshot.fields])
    return frozenset(i for field in snapshot.fields if field.name in names for i in field.field_ids)


def _all_rows(
    dataset: lance.LanceDataset, serialized: bytes | None, fragments: Sequence[Fragment], known: SourceRecord | None
) -> list[StoredRows]:
    inline = inline_row_ids(serialized)
    stored = {f.fragment_id: found for f in fragments if known is not None and (found := known.stored(f)) is not None}
    asked = []
    for fragment in fragments:
        if fragment.fragment_id not in stored:
            ids = inline.get(fragment.fragment_id, b"")
            deleted = _deleted(dataset, fragment) if ids else None
            if deleted is None:
                asked.append(fragment)
            else:
                stored[fragment.fragment_id] = StoredRows.of_manifest(fragment, ids, deleted)
    for fragment, scanned in zip(asked, _scanned(dataset, asked), strict=True):
        stored[fragment.fragment_id] = StoredRows.of_ids(inline.get(fragment.fragment_id, b""), scanned)
    return [stored[fragment.fragment_id] for fragment in fragments]


def _deleted(dataset: lance.LanceDataset, fragment: Fragment) -> Ids | None:
    """Return the offsets of a fragment's deleted rows; None if only a scan can find them."""
    if not fragment.deleted_rows:
        return NO_IDS
    opened = dataset.get_fragment(fragment.fragment_id)
    return None if opened is None else deleted_offsets(dataset.uri, opened)


def _scanned(dataset: lance.LanceDataset, fragments: Sequence[Fragment]) -> Iterator[pa.Array]:
    """Yield row ids of the fragments, NULL in deleted rows, in one scan.

    A scan for each fragment would take ten times as long.
    """
    opened = [dataset.get_fragment(fragment.fragment_id) for fragment in fragments]
    chosen = [fragment for fragment in opened if fragment is not None]
    batches: Iterator[pa.RecordBatch] = iter(())
    if chosen:
        scanner = dataset.scanner(
            columns=[], with_row_id=True, include_deleted_rows=True, fragments=chosen, scan_in_order=True
        )
        batches = scanner.to_batches()
    left = pa.array([], pa.uint64())
    for fragment in fragments:
        parts = [left]
        while sum(map(len, parts)) < fragment.physical_rows:
            parts.append(next(batches).column("_rowid"))
        joined = pa.concat_arrays(parts)
        left = joined.slice(fragment.physical_rows)
        yield joined.slice(0, fragment.physical_rows)
