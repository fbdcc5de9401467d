"""Read the rows of one version of a table or view, in order and with bounded memory."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import lance
import pyarrow as pa
import pyarrow.types as pt

from commit_coordinator.tables.requests import ReadRequest
from core.domain.table import TableField, TableSnapshot
from core.domain.view import INTERNAL_COLUMNS, IS_SET
from core.errors import FailedPrecondition, InvalidArgument
from core.lance_io.dialect import Dialect
from core.lance_io.error_translation import using_storage
from core.lance_io.scan import judged
from core.lance_io.tables import LanceTables, snapshot_of
from core.sql.relative_time import pin
from core.udf import blobs, storable_types
from core.views.metadata import QUERY

#: Rows of a record batch, unless the caller asks for fewer.
BATCH_ROWS = 1 << 13
#: Bytes of a record batch at the most, where it has more than one row.
BATCH_BYTES = 4 << 20
#: Bytes that Lance may have read and not decoded yet.
_READ_AHEAD_BYTES = 16 << 20
#: Rows of blobs that are read at once: their size is known when they are there.
_BLOB_ROWS = 16
_SAMPLE_ROWS = 8
_COLUMNS_LISTED = 40
_BLOBS_AS_BYTES: Final = "all_binary"


@dataclass(frozen=True, slots=True)
class Rows:
    """What a read gives."""

    version: int
    schema: pa.Schema
    #: Raises what `storage_errors.unusable` gives, and FailedPrecondition (FILTER_FAILED).
    batches: Iterator[pa.RecordBatch]


def open_rows(request: ReadRequest, now: dt.datetime) -> Rows:
    """Check a request and begin to read; no row is read before the first batch is asked for.

    Args:
        now: what `now()` in the filter means, in UTC.

    Raises:
        LemanError: what `TableService.ReadRows` (protos/leman/v1/tables.proto) names.
    """
    tables = LanceTables()
    version = tables.tagged(request.uri, request.tag) if request.tag else request.version
    dataset = tables.dataset(request.uri, version)
    table = snapshot_of(request.uri, dataset, ())
    is_view = QUERY.encode() in table.metadata  # of a damaged view too
    fields = _wanted(table, request.columns, is_view=is_view)
    where = _filter(tables, dataset, request, now)
    if is_view:
        where = f"({where}) AND {IS_SET}" if where else IS_SET
    with using_storage(request.uri):
        scanner = dataset.scanner(
            columns=[field.name for field in fields],
            filter=where or None,
            limit=request.limit,
            offset=request.offset or None,
            with_row_id=request.with_row_id,
            with_row_address=request.with_row_address,
            blob_handling=_BLOBS_AS_BYTES,
            scan_in_order=True,
            **_bounds(dataset, fields, request.batch_size or BATCH_ROWS),
        )
        schema = scanner.projected_schema
    if is_view:
        schema = schema.remove_metadata()  # these rows are no view
    batches = _batches(request.uri, scanner, schema, request.where)
    return Rows(table.version, schema, _bounded(batches, request.batch_size or BATCH_ROWS))


def checked_filter(uri: str, where: str, now: dt.datetime) -> str:
    """Return a filter that can be used on the latest version of a table, with `now()` and the like as of `now`.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: what else `LanceTables.check_filter` raises.
    """
    pinned = pin(where, now)
    LanceTables().check_filter(uri, pinned)
    return pinned


def shown_columns(table: TableSnapshot, *, is_view: bool) -> list[TableField]:
    """Return the columns that queries show."""
    return [field for field in table.fields if not (is_view and field.name in INTERNAL_COLUMNS)]


def _wanted(table: TableSnapshot, columns: tuple[str, ...], *, is_view: bool) -> list[TableField]:
    """Return the columns that are asked for, or fields of structs, in that order; those that queries show for none."""
    shown = shown_columns(table, is_view=is_view)
    if len(set(columns)) < len(columns):
        raise InvalidArgument("BAD_COLUMN", "A column is named twice", field="columns")
    found = []
    for path in columns or [field.name for field in shown]:
        field = table.find(path)
        if field is None or path.partition(".")[0] not in {column.name for column in shown}:
            names = [column.name for column in shown]
            listed = ", ".join(names[:_COLUMNS_LISTED]) + (", …" if len(names) > _COLUMNS_LISTED else "")
            raise FailedPrecondition(
                "COLUMN_NOT_FOUND",
                f"Column '{path}' not found in table schema. Its columns are: {listed}",
                uri=table.uri,
                column=path,
            )
        storable_types.check_read(path, field.arrow.type)
        found.append(field)
    return found


def _filter(tables: LanceTables, dataset: lance.LanceDataset, request: ReadRequest, now: dt.datetime) -> str:
    """Return the request's filter as Lance reads it; empty: none."""
    if not request.where:
        return ""
    pinned = pin(request.where, now)
    tables.check_filter(request.uri, pinned, int(dataset.version))
    return Dialect(dataset).lance(pinned)


def _bounds(dataset: lance.LanceDataset, fields: list[TableField], rows: int) -> dict[str, Any]:
    """Return options of a scanner that bound what it holds.

    Lance decodes `batch_size` rows at once and cuts them by `batch_size_bytes` only then: of wide rows these are few.
    """
    if any(blobs.is_blob(field.arrow) for field in fields):
        rows = min(rows, _BLOB_ROWS)
    stored = max((_row_bytes(fragment.metadata) for fragment in dataset.get_fragments()), default=0.0)
    widest = max(stored, _sampled_row_bytes(dataset, fields), 1.0)
    return {
        "batch_size": max(1, min(rows, int(BATCH_BYTES / widest))),
        "batch_size_bytes": BATCH_BYTES,
        "batch_readahead": 2,
        "fragment_readahead": 1,
        "io_buffer_size": _READ_AHEAD_BYTES,
    }


def _row_bytes(fragment: lance.FragmentMetadata) -> float:
    """Return the bytes of a row in the widest of a fragment's files."""
    return max((f.file_size_bytes or 0 for f in fragment.files), default=0) / max(1, fragment.physical_rows)


def _sampled_row_bytes(dataset: lance.LanceDataset, fields: list[TableField]) -> float:
    """Return the bytes of a row of some of the first rows, once decoded: long values may be well compressed."""
    varying = [f.name for f in fields if not (_is_fixed(f.arrow.type) or blobs.is_blob(f.arrow))]
    if not varying:
        return 0.0
    rows = dataset.scanner(columns=varying, limit=_SAMPLE_ROWS, batch_size=_SAMPLE_ROWS).to_table()
    return float(rows.nbytes / max(1, rows.num_rows))


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pt.is_primitive(kind) or pt.is_fixed_size_list(kind) or pt.is_decimal(kind))


def _batches(uri: str, scanner: Any, schema: pa.Schema, where: str) -> Iterator[pa.RecordBatch]:
    with using_storage(uri), contextlib.closing(scanner.to_reader()) as reader:
        for batch in judged(iter(reader), where):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _bounded(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most so many rows, and of BATCH_BYTES where that is more than one row."""
    for batch in batches:
        count = max(1, batch.num_rows)
        most = max(1, min(rows, int(BATCH_BYTES * count / max(batch.nbytes, 1))))
        for at in range(0, batch.num_rows, most):
            yield batch.slice(at, most)
