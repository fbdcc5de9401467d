"""Data files of views: placeholders, values, patches. All are staged: a commit makes them part of the view."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileWriter

from leman_core.functions import blobs
from leman_core.model import view_metadata
from leman_core.model.errors import Aborted, DataLoss
from leman_core.model.plan import StagedFile
from leman_core.model.ranges import RowRange
from leman_core.model.view import IS_SET, SOURCE_ROW_ID, VIEW_FILE_PREFIX, ViewDefinition
from leman_core.model.view_rows import Ids
from leman_core.storage.column_files import data_path, tagged_digest_of
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.opening import open_version
from leman_core.storage.scan import batches_in_parts, batches_of, window
from leman_core.storage.table_errors import table_error
from leman_core.storage.tables import INCARNATION_KEY, fields_of
from leman_core.storage.views import patches as view_patches
from leman_core.storage.views.definitions import placed
from leman_core.storage.views.patches import PATCH_KEY
from leman_core.storage.views.source import blob_sizes

_BATCH_ROWS = 1 << 13
_BATCH_BYTES = 32 << 20


def storage_version(schema: pa.Schema) -> str | None:
    """Return the file format of a view with these columns; None: Lance's own choice."""
    return "{}.{}".format(*blobs.VIEW_FORMAT) if any(blobs.is_blob(field) for field in schema) else None


def stored_field(field: pa.Field) -> pa.Field:
    """Return how a view keeps a column of its source: nullable, and blobs of any kind as plain Lance blobs."""
    return blobs.values_field(field) if blobs.is_blob(field) else field.with_nullable(True)


def new_name(prefix: str = VIEW_FILE_PREFIX) -> str:
    """Return a file name that is used only once."""
    return f"{prefix}{uuid.uuid4().hex}.lance"


class ViewFileWriter:
    """What writes one data file of a view, batch by batch.

    It is published by `close` alone.

    Each call raises what `storage_errors.unusable` gives where the store refuses, or the values do not fit.
    """

    def __init__(self, uri: str, schema: pa.Schema, version: str | None, prefix: str = VIEW_FILE_PREFIX) -> None:
        self._uri = uri
        self._file = new_name(prefix)
        self._schema = schema.remove_metadata()
        self._rows = 0
        count(uri, "lance", writes=True)
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
        """Note which rows differ from the files that the new one replaces."""
        with using_storage(self._uri):
            buffer = self._writer.add_global_buffer(view_patches.encode(replaces, offsets))
            self._writer.add_schema_metadata(PATCH_KEY, str(buffer))

    @property
    def rows(self) -> int:
        """Return the rows that were written so far."""
        return self._rows

    def close(self) -> StagedFile:
        """Publish the file."""
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
    """Write a file with all columns of the view (`schema`: the view's), for a new fragment.

    Args:
        file_format: that of the view; empty: the view is opened to learn it.
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
    """Write a file with some columns (`schema`) for a fragment of the view at `version` (0: latest).

    It has one row for each physical row of the fragment.

    Args:
        patch: offsets of the only rows whose values differ from those at `version`; None: any may differ.

    Raises:
        Aborted: FRAGMENT_GONE.
        DataLoss: ROW_COUNT_MISMATCH, where `batches` have another number of rows.
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
            "ROW_COUNT_MISMATCH", f"{writer.rows} rows were made for fragment {fragment_id}, it has {physical_rows}"
        )
    return writer.close()


def source_row_ids(uri: str, version: int, fragment_id: int) -> tuple[Ids, int]:
    """Return `__source_row_id` of all physical rows of a fragment of the view, and how many rows have no values yet.

    The ids are in order, those of deleted rows included.
    """
    parts, unset = [np.empty(0, np.int64)], 0
    for batch in current_values(uri, version, fragment_id, [SOURCE_ROW_ID, IS_SET]):
        parts.append(batch.column(SOURCE_ROW_ID).to_numpy())
        unset += batch.num_rows - (pc.sum(batch.column(IS_SET)).as_py() or 0)
    return np.concatenate(parts), unset


def current_values(uri: str, version: int, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield values of all physical rows of a fragment, in order, in bounded batches.

    Blobs come as bytes; deleted rows have some value or NULL.

    Raises:
        Aborted: FRAGMENT_GONE.
        LemanError: what `storage_errors.unusable` gives.
    """
    dataset = _open(uri, version)
    fragment = _fragment(dataset, fragment_id)
    wanted_blobs = [field.name for field in dataset.schema if field.name in set(columns) and blobs.is_blob(field)]
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
    """Yield parts of the batch of which the blobs can be held: a scan that reads blobs itself holds far more."""
    if not wanted or not batch.num_rows:
        yield batch
        return
    part = np.cumsum(np.sum([blob_sizes(batch.column(blob)) for blob in wanted], axis=0)) // _BATCH_BYTES
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    for start, end in itertools.pairwise([*starts.tolist(), batch.num_rows]):
        yield batch.slice(start, end - start)


def _with_blobs(dataset: lance.LanceDataset, batch: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
    """Return the batch with the blobs' bytes instead of where they lie; NULL in deleted rows."""
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
    """Remove files that no commit will ever name. What cannot be removed stays, until garbage is collected."""
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
    """Return the latest version of a view, and what it says of itself.

    Raises:
        NotFound: TABLE_NOT_FOUND.
        DataLoss: VIEW_DAMAGED.
        Aborted: VIEW_CHANGED, where it is no view any more.
    """
    dataset = _open(uri, 0)
    found = view_metadata.read(dataset.schema, uri)
    if found is None:
        raise Aborted("VIEW_CHANGED", f"{uri} is no view any more")
    return int(dataset.version), placed(found, uri, str(dataset.config().get(INCARNATION_KEY, "")))


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
    """Return column → the one file that holds it; empty where it is in none or in several."""
    files = [(str(f.path), frozenset(f.fields)) for f in _fragment(dataset, fragment_id).metadata.files]
    fields = {f.name: f.field_ids for f in fields_of(dataset)}
    found = {}
    for column in columns:
        names = [path for path, ids in files if ids.intersection(fields.get(column, ()))]
        found[column] = names[0] if len(names) == 1 else ""
    return found
