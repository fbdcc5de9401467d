"""Write and read data files of views, their definitions, and the order of their rows. A commit installs the files.

A file that replaces columns of a fragment contains a patch, which lists the rows that changed. All other rows have the
values of the old files, so views on this view need not compute them again. The patch is a global buffer of the file;
the schema metadata has the buffer's number under `leman.patch`. A patch has three parts: the length of the header (4
bytes, little endian), the header (JSON: {"replaces": {column: old file}, "rows": n}), and the offsets of the changed
rows (n 32-bit numbers, little endian, ascending, compressed with zlib). The file of a computed column has no patch: it
lists its predecessors instead (`leman_core.model.row_states`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileWriter

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewDefinition, ViewQuery
from leman_core.functions import arrow_types
from leman_core.model import keys, view_metadata
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import NO_IDS, Bounds, Ids, Keys, distinct, in_order, order_keys
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Aborted, DataLoss, LemanError
from leman_core.model.table import TableSnapshot
from leman_core.model.view import VIEW_FILE_PREFIX
from leman_core.model.view_metadata import from_metadata
from leman_core.storage import lance_files
from leman_core.storage.column_files import data_path, read_predecessors, tagged_digest_of
from leman_core.storage.error_translation import table_error, using_storage
from leman_core.storage.filesystems import count_request, filesystem_of
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, fields_of, incarnation_at
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.object_stores import lance_options
from leman_core.storage.opening import open_version
from leman_core.storage.scan import batches_in_parts, batches_of, window
from leman_core.storage.source_rows import blob_sizes

PATCH_KEY = "leman.patch"
_LONGEST_CHAIN = 1000

Patch = tuple[dict[str, str], Ids]


def encode_patch(replaces: Mapping[str, str], offsets: Ids) -> bytes:
    """Return a patch as bytes; the module describes the format."""
    header = json.dumps({"replaces": dict(replaces), "rows": len(offsets)}).encode()
    body = zlib.compress(np.sort(offsets).astype("<u4").tobytes(), 1)
    return len(header).to_bytes(4, "little") + header + body


def decode_patch(buffer: bytes) -> Patch:
    """Decode a patch. Return the file that each column had before, and the offsets of the changed rows.

    Raises:
        ValueError: The bytes are not a patch.
    """
    end = 4 + int.from_bytes(buffer[:4], "little")
    header = json.loads(buffer[4:end])
    try:
        offsets: npt.NDArray[np.uint32] = np.frombuffer(zlib.decompress(buffer[end:]), "<u4")
    except zlib.error as error:
        raise ValueError(f"damaged patch: {error}") from None
    if len(offsets) != header["rows"]:
        raise ValueError("damaged patch: other number of rows")
    return {str(c): str(f) for c, f in header["replaces"].items()}, offsets.astype(np.int64)


def read_patch(uri: str, file: str) -> Patch | None:
    """Return the patch in a data file; None if it has none."""
    try:
        buffer = lance_files.read_buffer(*filesystem_of(data_path(uri, file)), PATCH_KEY)
        return None if buffer is None else decode_patch(buffer)
    except (OSError, ValueError, KeyError):
        return None


def patched_offsets(uri: str, before: Mapping[str, str], after: Mapping[str, str]) -> Ids | None:
    """Return the sorted offsets of a fragment's rows that changed between two states.

    A state maps each column to the file that has the column.

    Return None if any row may have changed.
    """
    known: dict[str, Patch | None] = {}
    found = NO_IDS
    for column, file in after.items():
        chain = _chain(uri, known, column, file, before.get(column, ""))
        if chain is None:
            return None
        found = distinct(np.concatenate([found, *chain]))
    return found


def _chain(uri: str, known: dict[str, Patch | None], column: str, file: str, oldest: str) -> list[Ids] | None:
    """Return the offsets in each patch between an older file of a column and its file; None if a patch is missing."""
    chain: list[Ids] = []
    at = file
    if at != oldest and keys.parse_column_file_name(at) is not None:
        earlier = next((p for p in read_predecessors(uri, at) if p.file == oldest), None)
        return None if earlier is None else [np.flatnonzero(earlier.changed)]
    while at != oldest:
        if at not in known:
            known[at] = read_patch(uri, at)
        patch = known[at]
        if patch is None or column not in patch[0] or len(chain) == _LONGEST_CHAIN:
            return None
        chain.append(patch[1])
        at = patch[0][column]
    return chain


def definition_in(view: TableSnapshot) -> ViewDefinition | None:
    """Return the definition of a view, with its source as seen from its present place; None if the table is no view.

    Raises:
        DataLoss: VIEW_DAMAGED.
    """
    definition = from_metadata(view.metadata, view.uri)
    return None if definition is None else relocated_definition(definition, view.uri, view.incarnation)


def relocated_definition(definition: ViewDefinition, uri: str, incarnation: str) -> ViewDefinition:
    """Return the definition of a view, with the source in its present database if the database was copied or moved.

    Views of earlier releases store an absolute place of their source, even of one in their own database. So the
    definition of a copied view refers to the source in the former database. This function replaces that source if two
    conditions hold. The present database has the same source or a copy of it. And the former database either still has
    the same view, or has neither a table at the view's place nor the source.

    Args:
        definition: The stored definition.
        uri: The present place of the view.
        incarnation: The incarnation of the view.
    """
    home, _, name = uri.rpartition("/")
    source = f"{home}/{definition.query.table}{TABLE_ENDING}"
    if source == definition.source_uri or not _is_source(source, definition):
        return definition
    with contextlib.suppress(LemanError):
        former = definition.source_uri.rpartition("/")[0]
        there = incarnation_at(f"{former}/{name}")
        if incarnation == there if there is not None else incarnation_at(definition.source_uri) is None:
            query = replace(definition.query, database=home)
            return replace(definition, query=query, source_uri=source, in_own_database=True)
    return definition


def _is_source(uri: str, definition: ViewDefinition) -> bool:
    """Return whether the table at `uri` is the view's source, or a copy of that source."""
    tables, known = LanceTables(), definition.base_incarnation
    for version in (definition.base_version, 0):  # `base_version` may have been cleaned up; 0 is the latest
        with contextlib.suppress(LemanError):
            found = tables.snapshot(uri, version)
            return found.identity == known
    return False


_BUCKETS = 64
#: The most ids to sort in memory. They take 32 MB, and their sort keys take as much again.
_IN_MEMORY = 1 << 22
_PIECE = 1 << 18


def in_view_order(ids: Ids, query: ViewQuery) -> Ids:
    """Return the ids in the order of the view's rows: sorted or, with `shuffle`, by a keyed hash (`view_rows`)."""
    return in_order(ids, shuffle=query.shuffle, seed=query.seed)


def view_rows(matching: Iterable[Ids], query: ViewQuery, in_memory: int = _IN_MEMORY) -> Iterator[Ids]:
    """Yield the ids of a view's rows in the view's order: the matching ids, after its limit and offset are applied.

    The ids come in pieces. If there are more than `in_memory`, they are sorted in buckets on disk. This takes at most
    about 100 MB of memory for each 100 million ids.
    """
    with using_storage(tempfile.gettempdir()):
        yield from _in_pieces(matching, query, in_memory)


def _in_pieces(matching: Iterable[Ids], query: ViewQuery, in_memory: int) -> Iterator[Ids]:
    bounds = Bounds(query.offset, query.limit)
    chosen = _cut(_sorted(matching, in_memory, shuffle=False, seed=0), bounds) if bounds.bounded else matching
    if bounds.bounded and not query.shuffle:
        yield from chosen
    else:
        yield from _sorted(chosen, in_memory, shuffle=query.shuffle, seed=query.seed)


def _cut(pieces: Iterable[Ids], bounds: Bounds) -> Iterator[Ids]:
    skip = bounds.offset
    left = bounds.limit
    for piece in pieces:
        rest = piece[min(skip, len(piece)) :]
        skip -= len(piece) - len(rest)
        if left is not None:
            rest = rest[:left]
            left -= len(rest)
        if len(rest):
            yield rest
        if left == 0:
            return


def _sorted(pieces: Iterable[Ids], in_memory: int, *, shuffle: bool, seed: int) -> Iterator[Ids]:
    held: list[Ids] = []
    count = 0
    source = iter(pieces)
    for piece in source:
        held.append(piece)
        count += len(piece)
        if count > in_memory:
            break
    else:
        if held:
            yield in_order(np.concatenate(held), shuffle=shuffle, seed=seed)
        return
    with tempfile.TemporaryDirectory(prefix="leman-order-") as folder:
        spool = _Spool(Path(folder), shuffle=shuffle, seed=seed)
        for piece in held:
            spool.add(piece)
        del held
        for piece in source:
            spool.add(piece)
        yield from spool.drain(in_memory)


class _Spool:
    """Sorts ids on disk, in one file for each range of sort keys.

    Row ids may be up to 2^63, but most are small. So without a shuffle, one file may get most of the ids. It is then
    split until each part fits in memory.
    """

    def __init__(self, folder: Path, *, shuffle: bool, seed: int, shift: int = 58) -> None:
        self._folder = folder
        self._shuffle = shuffle
        self._seed = seed
        self._shift = shift
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._files = [(folder / f"{shift}-{i}").open("wb", buffering=_PIECE) for i in range(_BUCKETS)]

    def add(self, ids: Ids) -> None:
        buckets = self._bucket(order_keys(ids, shuffle=self._shuffle, seed=self._seed))
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=_BUCKETS)
        at = 0
        for bucket in np.flatnonzero(counts):
            end = at + int(counts[bucket])
            self._files[bucket].write(np.ascontiguousarray(ids[order[at:end]]).tobytes())
            at = end
        self._counts += counts

    def drain(self, in_memory: int) -> Iterator[Ids]:
        """Yield all ids in order, and delete each file once its ids were read."""
        for file in self._files:
            file.close()
        for bucket, count in enumerate(self._counts.tolist()):
            path = self._folder / f"{self._shift}-{bucket}"
            if count > in_memory and self._shift:
                yield from self._split(path, count, in_memory)
            elif count:
                yield in_order(np.fromfile(path, np.int64), shuffle=self._shuffle, seed=self._seed)
            path.unlink()

    def _split(self, path: Path, count: int, in_memory: int) -> Iterator[Ids]:
        finer = _Spool(self._folder, shuffle=self._shuffle, seed=self._seed, shift=max(self._shift - 6, 0))
        for start in range(0, count, _PIECE):
            finer.add(np.fromfile(path, np.int64, count=min(_PIECE, count - start), offset=start * 8))
        yield from finer.drain(in_memory)

    def _bucket(self, keys: Keys) -> Ids:
        return (keys >> np.uint64(self._shift)).astype(np.int64) & (_BUCKETS - 1)


_BATCH_ROWS = 1 << 13
_BATCH_BYTES = 32 << 20


def storage_version(schema: pa.Schema) -> str | None:
    """Return the file format that a view with these columns needs; None for Lance's default."""
    return "{}.{}".format(*arrow_types.VIEW_FORMAT) if any(arrow_types.is_blob(field) for field in schema) else None


def stored_field(field: pa.Field) -> pa.Field:
    """Return a source column in the form in which a view stores it: nullable, and any blob as a plain Lance blob."""
    return arrow_types.values_field(field) if arrow_types.is_blob(field) else field.with_nullable(True)


def new_name(prefix: str = VIEW_FILE_PREFIX) -> str:
    """Return a unique file name."""
    return f"{prefix}{uuid.uuid4().hex}.lance"


class ViewFileWriter:
    """A writer of one data file of a view, batch by batch. The file appears under its name only with `close`.

    Each call raises the error that `storage_unusable` gives, if the store refuses or the values do not fit the file's
    types.
    """

    def __init__(self, uri: str, schema: pa.Schema, version: str | None, prefix: str = VIEW_FILE_PREFIX) -> None:
        self._uri = uri
        self._file = new_name(prefix)
        self._schema = schema.remove_metadata()
        self._rows = 0
        count_request(uri, "lance", writes=True)
        with using_storage(uri):
            self._writer = LanceFileWriter(
                data_path(uri, self._file), self._schema, version=version, storage_options=lance_options(uri)
            )

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows: columns by name, cast to the file's types."""
        with using_storage(self._uri):
            arrays = [_fitting(batch.column(field.name), field.type) for field in self._schema]
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows += batch.num_rows

    def patch(self, replaces: Mapping[str, str], offsets: Ids) -> None:
        """Add a patch to the file: the offsets of the rows whose values differ from those in the replaced files."""
        with using_storage(self._uri):
            buffer = self._writer.add_global_buffer(encode_patch(replaces, offsets))
            self._writer.add_schema_metadata(PATCH_KEY, str(buffer))

    @property
    def rows(self) -> int:
        """Return the number of rows written so far."""
        return self._rows

    def close(self) -> StagedFile:
        """Finish the file and give it its name."""
        with using_storage(self._uri):
            self._writer.close()
        stored, digest = tagged_digest_of(self._uri, self._file, self._writer.size_bytes)
        return StagedFile(
            file=self._file,
            size_bytes=stored.size_bytes,
            digest=digest,
            physical_rows=self._rows,
            rows_computed=self._rows,
            rows_failed=0,
            etag=stored.etag,
        )


def stage_append(uri: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file_format: str = "") -> StagedFile:
    """Write a file with all columns of the view, for a new fragment.

    Args:
        uri: The view.
        schema: The view's schema.
        batches: The rows.
        file_format: The file format of the view. If it is empty, open the view to find it.
    """
    writer = ViewFileWriter(uri, schema, file_format or version_of(uri))
    for batch in batches:
        writer.write(batch)
    return writer.close()


def stage_columns(
    uri: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    fragment_id: int,
    patch: Ids | None = None,
    version: int = 0,
) -> StagedFile:
    """Write a file with some columns for a fragment of the view, one row for each physical row.

    Args:
        uri: The view.
        schema: The columns.
        batches: The rows.
        fragment_id: The fragment.
        version: The version with the fragment; 0 for the latest.
        patch: The offsets of all rows whose values differ from those at `version`; None if any row may differ.

    Raises:
        Aborted: FRAGMENT_GONE.
        DataLoss: ROW_COUNT_MISMATCH if `batches` and the fragment differ in their number of rows.
    """
    dataset = _open(uri, version)
    physical_rows = _fragment(dataset, fragment_id).physical_rows
    writer = ViewFileWriter(uri, schema, dataset.data_storage_version)
    for batch in batches:
        writer.write(batch)
    if patch is not None:
        replaces = _files_of(dataset, fragment_id, schema.names)
        if all(replaces.values()):
            writer.patch(replaces, np.asarray(patch, np.int64))
    if writer.rows != physical_rows:
        raise DataLoss(
            "ROW_COUNT_MISMATCH",
            f"{writer.rows} rows were computed for fragment {fragment_id}, which has {physical_rows}",
        )
    return writer.close()


def source_row_ids(uri: str, version: int, fragment_id: int) -> tuple[Ids, int]:
    """Return `__source_row_id` of all physical rows of a fragment, and the number of its rows that have no values."""
    parts, unset = [np.empty(0, np.int64)], 0
    for batch in current_values(uri, version, fragment_id, [SOURCE_ROW_ID, IS_SET]):
        parts.append(batch.column(SOURCE_ROW_ID).to_numpy())
        unset += batch.num_rows - (pc.sum(batch.column(IS_SET)).as_py() or 0)
    return np.concatenate(parts), unset


def current_values(uri: str, version: int, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield values of all physical rows of a fragment, in order, in bounded batches.

    Blobs come as bytes. The values of deleted rows are arbitrary and may be NULL.

    Raises:
        Aborted: FRAGMENT_GONE.
        LemanError: What `storage_unusable` gives.
    """
    dataset = _open(uri, version)
    fragment = _fragment(dataset, fragment_id)
    wanted_blobs = [field.name for field in dataset.schema if field.name in set(columns) and arrow_types.is_blob(field)]
    with using_storage(uri):

        def scanner(rows: RowRange, bounds: dict[str, Any]) -> lance.LanceScanner:
            return fragment.scanner(
                columns=list(columns),
                with_row_id=True,
                with_row_address=bool(wanted_blobs),
                include_deleted_rows=True,
                **window(rows),
                **bounds,
            )

        every = RowRange(0, fragment.physical_rows)
        for batch in batches_in_parts(scanner, every, batches_of(fragment, _BATCH_ROWS, 2)):
            for piece in _pieces(batch, wanted_blobs):
                yield _with_blobs(dataset, piece, wanted_blobs).select(list(columns))


def _pieces(batch: pa.RecordBatch, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch, small enough that the bytes of each slice's blobs fit in memory.

    The blobs are read later (`_with_blobs`), because a scan that reads them needs far more memory.
    """
    if not wanted or not batch.num_rows:
        yield batch
        return
    part = np.cumsum(np.sum([blob_sizes(batch.column(blob)) for blob in wanted], axis=0)) // _BATCH_BYTES
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    for start, end in itertools.pairwise([*starts.tolist(), batch.num_rows]):
        yield batch.slice(start, end - start)


def _with_blobs(dataset: lance.LanceDataset, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
    """Return the batch with the bytes of blobs in place of their descriptions, and NULL in deleted rows."""
    for blob in wanted:
        alive = pc.and_(batch.column("_rowid").is_valid(), batch.column(blob).is_valid())
        addresses = batch.column("_rowaddr").filter(alive)
        found = dataset.read_blobs(blob, addresses=addresses, preserve_order=True) if len(addresses) else []
        values = pc.replace_with_mask(
            pa.nulls(batch.num_rows, pa.large_binary()), alive, pa.array([v for _, v in found], pa.large_binary())
        )
        at = batch.schema.get_field_index(blob)
        batch = batch.set_column(at, pa.field(blob, pa.large_binary()), values)
    return batch


def remove_staged(uri: str, files: Iterable[str]) -> None:
    """Remove staged files that will not be committed. If that fails, garbage collection removes them later."""
    filesystem, root = filesystem_of(uri)
    for file in files:
        with contextlib.suppress(OSError):
            filesystem.delete_file(f"{root}/data/{file}")


def version_of(uri: str) -> str:
    """Return the file format of a view.

    Raises:
        NotFound: TABLE_NOT_FOUND.
    """
    return _open(uri, 0).data_storage_version


def latest_version(uri: str) -> int:
    """Return the latest version of a view.

    Raises:
        NotFound: TABLE_NOT_FOUND.
    """
    return int(_open(uri, 0).version)


def latest_definition(uri: str) -> tuple[int, ViewDefinition]:
    """Return the latest version of a view, and its definition.

    Raises:
        NotFound: TABLE_NOT_FOUND.
        DataLoss: VIEW_DAMAGED.
        Aborted: VIEW_CHANGED if the table is no longer a view.
    """
    dataset = _open(uri, 0)
    found = view_metadata.read(dataset.schema, uri)
    if found is None:
        raise Aborted("VIEW_CHANGED", f"{uri} is no view any more")
    return int(dataset.version), relocated_definition(found, uri, str(dataset.config().get(INCARNATION_KEY, "")))


def _fitting(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


def _open(uri: str, version: int) -> lance.LanceDataset:
    try:
        return open_version(uri, version)
    except (ValueError, OSError) as error:
        raise table_error(uri, error, version) from None


def _fragment(dataset: lance.LanceDataset, fragment_id: int) -> lance.LanceFragment:
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        raise Aborted("FRAGMENT_GONE", f"Fragment {fragment_id} is not in the view any more: refresh again")
    return fragment


def _files_of(dataset: lance.LanceDataset, fragment_id: int, columns: Iterable[str]) -> dict[str, str]:
    """Return the file of each column; an empty text if no file or several have the column."""
    files = [(str(f.path), frozenset(f.fields)) for f in _fragment(dataset, fragment_id).metadata.files]
    fields = {f.name: f.field_ids for f in fields_of(dataset)}
    found = {}
    for column in columns:
        names = [path for path, ids in files if ids.intersection(fields.get(column, ()))]
        found[column] = names[0] if len(names) == 1 else ""
    return found
