"""Read the rows of one version of a table or view, in order and with bounded memory, in threads.

The number of concurrent calls is limited.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import INTERNAL_COLUMNS, IS_SET
from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io.checkpointed_rows import CheckpointedRows
from leman_coordinator.tables.schema_casting import bytes_beside_dictionaries
from leman_core.functions import arrow_types
from leman_core.functions.column_checks import column_not_found
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Aborted, FailedPrecondition, InvalidArgument
from leman_core.model.table import TableField, TableSnapshot
from leman_core.server.admission import limit_store_calls
from leman_core.server.blocking import SLOW_STORE_SECONDS, STORE, UNBOUNDED, BlockingPool
from leman_core.sql import filters
from leman_core.sql.time_values import pin_relative_times
from leman_core.storage import lance_files
from leman_core.storage.checkpoint_records import ROW_ADDRESS
from leman_core.storage.error_translation import LANCE_ERRORS, using_storage
from leman_core.storage.lance_sql import Dialect
from leman_core.storage.lance_tables import LanceTables, snapshot_of
from leman_core.storage.scan import checked_batches, fewer_rows, is_overflow, offsets_matching
from leman_core.storage.source_rows import blob_sizes

#: Rows in a record batch, unless the caller asks for fewer.
BATCH_ROWS = 1 << 13
#: The target size of one scan in bytes, which a single row may exceed; and the bytes that are kept in memory of a scan
#: that returns more, because the sizes of rows vary.
_WINDOW_BYTES, _HELD_BYTES = 8 << 20, 16 << 20
#: The maximum number of rows in a window: without blobs, and with blobs, whose sizes are read before each window.
_MOST_ROWS, _BLOB_ROWS = 1 << 20, 1 << 12
_LEAST_ROW_BYTES = 8.0
#: Bytes that Lance may read before decoding them in a scan.
_READ_AHEAD_BYTES = 16 << 20
_SAMPLE_ROWS = 8
_ALL = 1 << 62
_BLOBS_AS_BYTES: Final = "all_binary"
_ROW_ID = "_rowid"
#: Lance's own columns that filters may read.
_ROW_COLUMNS = frozenset(
    {_ROW_ID, ROW_ADDRESS, "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)

Addresses: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a read returns, with their version and schema."""

    version: int
    incarnation: str
    schema: pa.Schema
    #: Lists of batches that are in memory together. Iteration raises the errors of `storage_unusable`, and
    #: FailedPrecondition (FILTER_FAILED).
    windows: Iterator[list[pa.RecordBatch]]

    @property
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches of all windows."""
        return itertools.chain.from_iterable(self.windows)


@dataclass(frozen=True, slots=True)
class Prospect:
    """A description of what a read would return: version, schema, filter and number of rows."""

    version: int
    incarnation: str
    schema: pa.Schema
    #: The request's filter, with fixed values for `now()` and similar functions.
    where: str
    #: None if unknown before the rows are read.
    rows: int | None
    is_view: bool


def open_rows(request: ReadRequest, now: dt.datetime) -> Rows:
    """Check a request and return its rows, which are read only as batches are requested.

    Args:
        now: The value of `now()` in the filter, in UTC.

    Raises:
        LemanError: see `TableService.ReadRows` (protos/leman/v1/tables.proto).
    """
    if request.include_checkpointed:
        return _with_checkpointed(request, now)
    table, reading, fields = _opened(request, now)
    with using_storage(request.uri):
        reading.bound(fields)
    schema = _schema(table, reading)
    windows = ([*_bounded(window, request)] for window in reading.windows(schema))
    return Rows(table.version, table.incarnation, schema, windows)


def _with_checkpointed(request: ReadRequest, now: dt.datetime) -> Rows:
    """Return the rows of the latest version, with uncommitted values from checkpoints and finished files."""
    tables = LanceTables()
    table = tables.snapshot(request.uri)
    dataset = tables.dataset(request.uri, table.version)
    _check_incarnation(table, request)
    if view_definitions.is_view(table.metadata):
        raise FailedPrecondition(
            "IS_A_VIEW",
            f"{request.uri} is a view, whose rows appear with its refreshes: leave include_checkpointed out",
            uri=request.uri,
        )
    fields = _wanted(table, request.columns, is_view=False)
    where = _filter(tables, dataset, request, now)
    mentioned = filters.names_in_filter(where) if where else frozenset[str]()
    read = [field for field in table.fields if field.name.casefold() in mentioned]
    stored = CheckpointedRows(table, {field.name.partition(".")[0] for field in (*fields, *read)})
    asked = [field.name for field in fields]
    scanned, judge = replace(request, with_row_address=True), None
    if any(stored.has(field.name) for field in read):
        _check_row_columns(mentioned)
        fields += [field for field in read if field.name not in asked]
        judge = _Judge(request, pin_relative_times(request.where, now), [field.name for field in read])
        scanned, where = replace(scanned, where="", limit=None, offset=0), ""
    reading = _Reading(dataset, [field.name for field in fields], where, scanned)
    with using_storage(request.uri):
        reading.bound(fields)
        schema = reading.schema()
    shown = [*asked, *([_ROW_ID] if request.with_row_id else []), *([ROW_ADDRESS] if request.with_row_address else [])]

    def windows() -> Iterator[list[pa.RecordBatch]]:
        for window in reading.windows(schema):
            for batch in window:
                for rows in stored.over(batch, fields):
                    matching = rows if judge is None else judge.matching(rows)
                    yield [*_bounded([matching.select(shown)], request)]
                    if judge is not None and judge.is_done:
                        return

    visible = pa.schema([schema.field(name) for name in shown], schema.metadata)
    return Rows(table.version, table.incarnation, visible, windows())


class _Judge:
    """Evaluates a filter on values that are not committed yet, and counts the returned rows.

    Args:
        where: The checked filter.
        columns: The columns that it reads.
    """

    def __init__(self, request: ReadRequest, where: str, columns: list[str]) -> None:
        self._request = request
        self._where = where
        self._columns = columns
        self._offset = request.offset
        self._left = _ALL if request.limit is None else request.limit

    @property
    def is_done(self) -> bool:
        return not self._left

    def matching(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        read = rows.select(self._columns)
        schema = pa.schema([field.remove_metadata() for field in read.schema])
        read = pa.Table.from_batches([pa.RecordBatch.from_arrays(read.columns, schema=schema)])
        with using_storage(self._request.uri):
            table = lance.write_dataset(read, "memory://rows.lance", max_rows_per_file=read.num_rows)
            scanner = table.scanner(columns=[], filter=Dialect(table).lance(self._where), with_row_address=True)
            found = checked_batches(iter(scanner.to_batches()), self._request.where)
            parts = [batch.column(ROW_ADDRESS).to_numpy().astype(np.int64) for batch in found]
        places = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
        wanted = places[self._offset :][: self._left]
        self._offset -= min(self._offset, len(places))
        self._left -= len(wanted)
        return rows if len(wanted) == rows.num_rows else rows.take(pa.array(wanted))


def _check_row_columns(mentioned: Collection[str]) -> None:
    """Refuse a filter on checkpointed values that also reads row positions, which only Lance can evaluate."""
    if own := [name for name in mentioned if name in _ROW_COLUMNS]:
        raise filters.invalid_filter(
            f"it reads {own[0]} and a column with checkpointed values; leave one of them out, or include_checkpointed"
        )


def inspect_rows(request: ReadRequest, now: dt.datetime) -> Prospect:
    """Check a request as `open_rows` does, and describe its result without reading rows.

    Raises the errors of `open_rows`.
    """
    table, reading, _ = _opened(request, now)
    where = pin_relative_times(request.where, now) if request.where else ""
    is_view = view_definitions.is_view(table.metadata)
    return Prospect(table.version, table.incarnation, _schema(table, reading), where, reading.count(), is_view)


def shown_columns(table: TableSnapshot, *, is_view: bool) -> list[TableField]:
    """Return the columns that a query returns by default."""
    return [field for field in table.fields if not (is_view and field.name in INTERNAL_COLUMNS)]


def _opened(request: ReadRequest, now: dt.datetime) -> tuple[TableSnapshot, _Reading, list[TableField]]:
    """Return the requested version, its reader, and the requested columns."""
    tables = LanceTables()
    version = tables.tagged(request.uri, request.tag) if request.tag else request.version
    dataset = tables.dataset(request.uri, version)
    table = snapshot_of(request.uri, dataset, ())
    _check_incarnation(table, request)
    is_view = view_definitions.is_view(table.metadata)
    fields = _wanted(table, request.columns, is_view=is_view)
    where = _filter(tables, dataset, request, now)
    if is_view:
        where = f"({where}) AND {IS_SET}" if where else IS_SET
    return table, _Reading(dataset, [field.name for field in fields], where, request), fields


def _check_incarnation(table: TableSnapshot, request: ReadRequest) -> None:
    if request.incarnation and request.incarnation != table.incarnation:
        raise Aborted(
            "TABLE_REPLACED", f"{request.uri} was replaced by another table: restart the read", uri=request.uri
        )


def _schema(table: TableSnapshot, reading: _Reading) -> pa.Schema:
    with using_storage(table.uri):
        schema = reading.schema()
    return schema.remove_metadata() if view_definitions.is_view(table.metadata) else schema  # these rows are not a view


def _wanted(table: TableSnapshot, columns: tuple[str, ...], *, is_view: bool) -> list[TableField]:
    """Return the requested columns or fields of structs, in that order, by default those of `shown_columns`."""
    shown = shown_columns(table, is_view=is_view)
    if len(set(columns)) < len(columns):
        raise InvalidArgument("BAD_COLUMN", "A column is listed more than once: list each once", field="columns")
    found, names = [], dict.fromkeys(field.name for field in shown)
    for path in columns or names:
        field = table.find(path)
        if field is None or path.partition(".")[0] not in names:
            raise column_not_found(path, list(names), uri=table.uri)
        column = table.column(path.partition(".")[0])
        arrow_types.check_readable_path(path, None if column is None else column.arrow)
        arrow_types.check_readable(path, field.arrow.type)
        found.append(field)
    return found


def _filter(tables: LanceTables, dataset: lance.LanceDataset, request: ReadRequest, now: dt.datetime) -> str:
    """Return the request's filter in Lance's SQL, or "" if there is none."""
    if not request.where:
        return ""
    pinned = pin_relative_times(request.where, now)
    tables.check_filter(request.uri, pinned, int(dataset.version))
    return Dialect(dataset).lance(pinned)


class _Reading:
    """A read of one version, window by window. Between windows it uses no memory of Lance.

    A window is a part of one fragment whose rows all fit into memory.
    """

    def __init__(self, dataset: lance.LanceDataset, columns: list[str], where: str, request: ReadRequest) -> None:
        self._dataset = dataset
        self._columns = columns
        self._where = where
        self._request = request
        self._offset = request.offset
        self._left = _ALL if request.limit is None else request.limit
        #: The number of rows in the next window, and the maximum for any window.
        self._window = self._most = 1
        self._blobs: list[str] = []

    def bound(self, fields: list[TableField]) -> None:
        """Choose the number of rows in a window."""
        self._blobs = [field.name for field in fields if arrow_types.is_blob(field.arrow)]
        others = [field.name for field in fields if field.name not in self._blobs]
        stored = max((_row_bytes(fragment.metadata) for fragment in self._dataset.get_fragments()), default=0.0)
        if self._blobs:  # their sizes are read before each window
            stored = 0.0
        widest = max(stored, _sampled_row_bytes(self._dataset, others), _LEAST_ROW_BYTES)
        self._window = self._most = max(1, min(_BLOB_ROWS if self._blobs else _MOST_ROWS, int(_WINDOW_BYTES / widest)))

    def schema(self) -> pa.Schema:
        return self._scanner().projected_schema

    def count(self) -> int | None:
        """Return the number of rows, or None if that requires reading values."""
        if self._where:
            return None
        with using_storage(self._request.uri):
            rows = int(self._dataset.count_rows())
        return min(max(0, rows - self._offset), self._left)

    def windows(self, schema: pa.Schema) -> Iterator[list[pa.RecordBatch]]:
        for fragment in self._dataset.get_fragments():
            if not self._left:
                return
            found = self._filtered(fragment) if self._where else self._every(fragment)
            for window in found:
                yield [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in window]

    def _every(self, fragment: lance.LanceFragment) -> Iterator[list[pa.RecordBatch]]:
        """Yield all rows of a fragment, one window after the other."""
        rows = fragment.count_rows()
        at = min(self._offset, rows)
        self._offset -= at
        while at < rows and self._left:
            count = min(self._window, rows - at, self._left)
            for part in self._parts(fragment, count, {"offset": at, "limit": count}):
                window, taken = self._held(fragment, part, {"offset": at, "limit": part})
                yield window
                at += taken
                self._left -= taken
                if taken < part:
                    break

    def _filtered(self, fragment: lance.LanceFragment) -> Iterator[list[pa.RecordBatch]]:
        """Yield the matching rows of a fragment. Their addresses are collected first, at 8 bytes each."""
        most = None if self._left == _ALL else self._offset + self._left
        with using_storage(self._request.uri):
            large = offsets_matching(self._dataset, fragment, self._where, most)
        found = self._matching(fragment) if large is None else large
        addresses = found[self._offset :][: self._left]
        self._offset -= min(self._offset, len(found))
        self._left -= len(addresses)
        if large is not None:
            yield from self._chosen(fragment, addresses)
            return
        at = 0
        while at < len(addresses):
            around = addresses[at : at + self._window]
            for part in self._parts(fragment, len(around), self._between(around)):
                window, taken = self._held(fragment, part, self._between(addresses[at : at + part]))
                yield window
                at += taken
                if taken < part:
                    break

    def _chosen(self, fragment: lance.LanceFragment, offsets: Addresses) -> Iterator[list[pa.RecordBatch]]:
        """Yield the rows at physical offsets that a filter on large values matched, without evaluating it again."""
        places = offsets
        if fragment.num_deletions:
            live = lance_files.live_rows(fragment, RowRange(0, fragment.physical_rows))
            places = np.searchsorted(np.flatnonzero(live), offsets)
        while len(places):
            begin = int(places[0])
            rows = int(places[np.searchsorted(places, begin + self._window) - 1]) + 1 - begin
            for part in self._parts(fragment, rows, {"offset": begin, "limit": rows}):
                window, taken = self._held(fragment, part, {"offset": begin, "limit": part})
                wanted = np.zeros(taken, np.bool_)
                wanted[places[: np.searchsorted(places, begin + taken)] - begin] = True
                ends = np.cumsum([batch.num_rows for batch in window])[:-1]
                yield [batch.filter(pa.array(m)) for batch, m in zip(window, np.split(wanted, ends), strict=True)]
                begin += taken
                places = places[np.searchsorted(places, begin) :]
                if taken < part:
                    break

    def _held(
        self, fragment: lance.LanceFragment, rows: int, options: dict[str, Any], at_once: int = 0
    ) -> tuple[list[pa.RecordBatch], int]:
        """Scan a window, and return the rows that fit into memory, and their number.

        Other rows of the window are dropped, and scanned again when the reader reaches them, so a stalled reader keeps
        no wide rows in memory. If a batch is larger than Lance supports, the scan is repeated with fewer rows.
        """
        held: list[pa.RecordBatch] = []
        left, taken = _HELD_BYTES, 0
        at_once = at_once or max(BATCH_ROWS, self._request.batch_size)
        with using_storage(self._request.uri):
            scanner = self._scanner(fragments=[fragment], batch_size=at_once, **options)
            try:
                for batch in checked_batches(iter(scanner.to_batches()), self._request.where):
                    size = bytes_beside_dictionaries(batch)
                    if size > left:
                        fitting = _rows_within(batch, left)
                        if fitting or not taken:
                            held.append(_copied(batch.slice(0, max(1, fitting))))
                            taken += held[-1].num_rows
                        break
                    held.append(batch)
                    taken += batch.num_rows
                    left -= size
                else:
                    if _HELD_BYTES - left < _WINDOW_BYTES // 2:
                        self._window = min(self._most, 2 * self._window)
                    return held, rows
            except LANCE_ERRORS as error:
                most = min(rows, at_once)
                if not is_overflow(error) or most == 1:
                    raise
                if not taken:
                    return self._held(fragment, rows, options, fewer_rows(most))
        self._window = max(1, taken)
        return held, taken

    def _matching(self, fragment: lance.LanceFragment) -> Addresses:
        """Return the addresses of the rows that match the filter, up to the requested number."""
        most: dict[str, Any] = {} if self._left == _ALL else {"limit": self._offset + self._left}
        with using_storage(self._request.uri):
            scanner = self._dataset.scanner(
                columns=[],
                filter=self._where,
                fragments=[fragment],
                with_row_address=True,
                scan_in_order=True,
                **most,
            )
            found = checked_batches(iter(scanner.to_batches()), self._request.where)
            parts = [batch.column("_rowaddr").to_numpy().astype(np.int64) for batch in found]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def _between(self, addresses: Addresses) -> dict[str, Any]:
        inside = f"_rowaddr >= {addresses[0]} AND _rowaddr <= {addresses[-1]}"
        return {"filter": f"({self._where}) AND {inside}"}

    def _parts(self, fragment: lance.LanceFragment, rows: int, window: dict[str, Any]) -> list[int]:
        """Split a window into parts that each fit into memory, and return the number of rows in each part.

        If columns are blobs, the sizes of the blobs determine the parts.
        """
        if not self._blobs:
            return [rows]
        with using_storage(self._request.uri):
            places = self._dataset.scanner(columns=self._blobs, fragments=[fragment], scan_in_order=True, **window)
            found = places.to_table()
        sizes = np.sum([blob_sizes(found.column(name).combine_chunks()) for name in self._blobs], axis=0)
        parts = np.cumsum(sizes) // _WINDOW_BYTES
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        return [int(part) for part in np.diff([*starts.tolist(), rows])]

    def _scanner(self, batch_size: int = BATCH_ROWS, **options: Any) -> lance.LanceScanner:
        return self._dataset.scanner(
            columns=self._columns,
            with_row_id=self._request.with_row_id,
            with_row_address=self._request.with_row_address,
            blob_handling=_BLOBS_AS_BYTES,
            scan_in_order=True,
            batch_readahead=1,
            fragment_readahead=1,
            io_buffer_size=_READ_AHEAD_BYTES,
            batch_size=batch_size,
            **options,
        )


def _row_bytes(fragment: lance.FragmentMetadata) -> float:
    """Return the bytes per row of a fragment's widest file."""
    return max((f.file_size_bytes or 0 for f in fragment.files), default=0) / max(1, fragment.physical_rows)


def _sampled_row_bytes(dataset: lance.LanceDataset, columns: list[str]) -> float:
    """Estimate the decoded size of a row from some of the first rows, because files may be compressed."""
    if not columns:
        return 0.0
    try:
        rows = dataset.scanner(columns=columns, limit=_SAMPLE_ROWS, batch_size=_SAMPLE_ROWS).to_table()
    except LANCE_ERRORS as error:
        if is_overflow(error):
            return float(_WINDOW_BYTES)  # so that windows have one row
        raise
    return float(sum(map(bytes_beside_dictionaries, rows.to_batches())) / max(1, rows.num_rows))


def _rows_within(batch: pa.RecordBatch, size: int) -> int:
    """Return how many rows from the first one on fit into this many bytes."""
    low, high = 0, batch.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        if bytes_beside_dictionaries(batch.slice(0, middle)) <= size:
            low = middle
        else:
            high = middle - 1
    return low


def _copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of the rows, because a slice would keep the memory of the whole batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def _bounded(batches: Iterable[pa.RecordBatch], request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most the requested rows and bytes, and at least one row."""
    rows = request.batch_size or BATCH_ROWS
    for batch in batches:
        count = max(1, batch.num_rows)
        most = max(1, min(rows, int(request.batch_bytes * count / max(bytes_beside_dictionaries(batch), 1))))
        for at in range(0, batch.num_rows, most):
            yield batch.slice(at, most)


#: Threads that read rows. A call uses one only while it produces its next piece.
_THREADS = 4
#: The number of plain reads that count as much as one read of checkpoints, with one or two checkpoints of 128 MB each
#: in memory.
_PLAIN_READS = 8
#: The number of pieces that may wait for a thread. Each call produces one at a time, so this is never reached.
_MOST_PIECES = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class RowReads:
    """All reads of a process, on one event loop.

    Args:
        most: The maximum number of concurrent calls that read rows.
    """

    def __init__(self, most: int) -> None:
        self._places = limit_store_calls(most, "TOO_MANY_READS", "calls that read rows")
        few = max(1, most // _PLAIN_READS)
        self._with_checkpoints = limit_store_calls(
            few, "TOO_MANY_READS", "calls that read rows with checkpointed values"
        )
        self._pool = BlockingPool(_THREADS, max_queued=_MOST_PIECES, name="rows")
        # Opening has its own pool: an opening call may wait long for a store, but does not have rows in memory yet.
        self._opening = BlockingPool(_THREADS, max_queued=UNBOUNDED, name="opening", slow_seconds=SLOW_STORE_SECONDS)

    def close(self) -> None:
        """Cancel the calls that have not started."""
        self._opening.close()
        self._pool.close()

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that opens tables but reads no rows in a thread, and return its result."""
        return await self._opening.run(function, *args, **kwargs)

    async def each(
        self, wanted: ReadRequest, made: Callable[[Rows], Iterator[T]]
    ) -> AsyncGenerator[tuple[Rows, T], None]:
        """Read rows, and yield the items of `made(rows)`. The next item is produced while the caller uses this one.

        Raises:
            LemanError: raised by `open_rows`; ResourceExhausted (TOO_MANY_READS).
        """
        store = STORE.get()
        checkpoints = self._with_checkpoints.acquire(store) if wanted.include_checkpointed else nullcontext()
        with self._places.acquire(store), checkpoints:
            rows = await self._opening.run(open_rows, wanted, filter_now())
            items: AsyncGenerator[Any, None] = self._pool.each(made(rows))
            async with contextlib.aclosing(items):
                async for item in items:
                    yield rows, item


def filter_now() -> dt.datetime:
    """Return the current time, which is the value of `now()` in a filter."""
    return dt.datetime.now(dt.UTC)
