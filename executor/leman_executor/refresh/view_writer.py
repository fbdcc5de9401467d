"""Divide the rows of a view among fragments, and write the files of the fragments.

Selected columns come from the source by row id, function columns from the scratch table. `ViewWriter` blocks, so call
it in a thread. It writes batch by batch, so that memory does not grow with the size of the fragment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from leman_core.functions.arrow_values import concatenate
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import Ids
from leman_core.model.row_positions import RowRange, fragments_of, offsets_of
from leman_core.model.service_errors import LemanError
from leman_core.model.view import SCRATCH_PREFIX, RefreshPlan, ResolvedFunction
from leman_core.storage import view_data_files as view_files
from leman_core.storage.scan import fewer_rows, in_parts, is_overflow
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.source_rows import SourceRows
from leman_executor.worker.row_source import first_rows, rows_within

#: New rows are divided among the slots if each slot gets at least the first number of rows, or if the total exceeds the
#: second number.
_LEAST_ROWS = 1 << 16
_MOST_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class FragmentRowsToCompute:
    """The rows of one fragment of the view that are recomputed."""

    fragment_id: int
    #: Physical offsets, ascending.
    offsets: Ids
    #: The position of the fragment's first recomputed row among all recomputed rows.
    first: int


def split_new_rows(rows: int, most: int, slots: int) -> list[tuple[int, int]]:
    """Divide new rows into fragments.

    Args:
        rows: The number of new rows.
        most: Exact number of rows in each fragment except the last. If 0, make one fragment or, if there are many rows,
            one for each slot.
        slots: Number of task slots.

    Returns:
        Start and end of each fragment.
    """
    if not rows:
        return []
    size = most or min(max(-(-rows // slots), _LEAST_ROWS), _MOST_ROWS)
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def group_by_fragment(addresses: Ids) -> list[FragmentRowsToCompute]:
    """Group ascending row addresses (`leman_core.model.row_positions`) by fragment."""
    if not len(addresses):
        return []
    fragments, offsets = fragments_of(addresses), offsets_of(addresses)
    starts = np.flatnonzero(np.diff(fragments, prepend=-1))
    ends = [*starts[1:], len(addresses)]
    return [FragmentRowsToCompute(int(fragments[a]), offsets[a:b], int(a)) for a, b in zip(starts, ends, strict=True)]


def work_digest(plan: RefreshPlan, version: int, functions: Sequence[ResolvedFunction], rows: Iterable[Ids]) -> str:
    """Return a digest that identifies a piece of work by its view, source version, functions and rows."""
    found = xxhash.xxh3_128()
    identity = [
        plan.uri,
        plan.incarnation,
        plan.definition.source_uri,
        plan.target_incarnation,
        version,
        [[f.column.name, f.udf.name, f.udf.version, list(f.column.inputs)] for f in functions],
    ]
    found.update(json.dumps(identity).encode())
    for ids in rows:
        found.update(len(ids).to_bytes(8, "little"))
        found.update(np.ascontiguousarray(ids).data)
    return found.hexdigest()


def scratch_table_name(view: str, of: str) -> str:
    """Return the name of a scratch table."""
    return f"{SCRATCH_PREFIX}{view}_{of[:16]}"


def scratch_table_pattern(view: str) -> re.Pattern[str]:
    """Return a pattern that matches the names of the view's scratch tables, and no others."""
    return re.compile(re.escape(f"{SCRATCH_PREFIX}{view}_") + "[0-9a-f]{16}")


#: Number of rows to read first, while their width is unknown.
_FIRST_ROWS = 64
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class ScratchValues:
    """Consecutive rows of the scratch table. Row `at + i` of the scratch table is the source row `ids[i]`."""

    ids: Ids
    at: int

    def part(self, start: int, end: int) -> ScratchValues:
        return ScratchValues(self.ids[start:end], self.at + start)


class RowIndex:
    """The positions of source rows in a scratch table that has the rows `ids`, in this order.

    The rows of one view fragment are consecutive in the scratch table. If compaction merged fragments, this holds for
    the rows of each of the merged fragments.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._order: Ids | None = None
        self._next = 0

    def runs(self, wanted: Ids) -> list[ScratchValues]:
        """Return the wanted rows, in order, in as few runs as possible.

        The scratch table must have all of these rows.
        """
        found = []
        while len(wanted):
            place = self._place(int(wanted[0]))
            here = self._ids[place : place + len(wanted)]
            differ = np.flatnonzero(here != wanted[: len(here)])
            count = int(differ[0]) if len(differ) else len(here)
            found.append(ScratchValues(wanted[:count], place))
            wanted = wanted[count:]
            self._next = place + count
        return found

    def _place(self, row_id: int) -> int:
        if self._next < len(self._ids) and self._ids[self._next] == row_id:
            return self._next
        if self._order is None:
            self._order = np.argsort(self._ids)
        return int(self._order[np.searchsorted(self._ids, row_id, sorter=self._order)])


_NewRows = Callable[[ScratchValues], Iterator[pa.RecordBatch]]


class ViewWriter:
    """One thread's access to a view, its source at one version, and the scratch table.

    Args:
        plan: The plan.
        source: The version of the source.
        scratch: The scratch table. If None, no function column is read.
        functions: The function columns.
        known: The selected columns of the first rows of the scratch table, if already read. If None, they are read.

    Raises:
        Aborted: SCRATCH_TABLE_TAKEN – the scratch table was dropped, or another refresh created a new one of this name.
    """

    def __init__(
        self,
        plan: RefreshPlan,
        source: SourceRows,
        scratch: ScratchTable | None,
        functions: Sequence[str],
        known: pa.RecordBatch | None = None,
    ) -> None:
        self._plan = plan
        self._source = source
        self._known = known
        self._scratch = None if scratch is None else scratch.again()
        self._functions = list(functions)
        self._selected = {c.name: c.expression for c in plan.definition.query.columns}
        self.rows_read = 0

    def append(self, rows: ScratchValues) -> StagedFile:
        """Write a file with all columns for a new fragment."""
        schema = _bare(self._plan.schema)
        batches = (b.select(schema.names) for b in self._values(rows))
        return view_files.stage_append(self._plan.uri, schema, batches, self._plan.file_format)

    def fill(self, fragment_id: int, parts: Sequence[ScratchValues]) -> StagedFile:
        """Write a file with `__is_set` and all values for a fragment that has placeholders."""
        schema = _without_row_id(self._plan.schema)
        batches = (b.select(schema.names) for rows in parts for b in self._values(rows))
        return view_files.stage_columns(
            self._plan.uri, schema, batches, fragment_id=fragment_id, version=self._plan.version
        )

    def swap(self, fragment_id: int, offsets: Ids, rows: ScratchValues) -> StagedFile:
        """Write a file for a fragment in which the rows at `offsets` (ascending) were recomputed.

        All other rows keep their values.
        """
        schema = _without_row_id(self._plan.schema)
        batches = self._patched(fragment_id, offsets, rows, schema, self._values)
        return view_files.stage_columns(
            self._plan.uri, schema, batches, fragment_id=fragment_id, version=self._plan.version, patch=offsets
        )

    def swap_columns(self, fragment_id: int, offsets: Ids, rows: ScratchValues, columns: Sequence[str]) -> StagedFile:
        """Write a file as `swap` does, but only with some function columns, so that the source is not read."""
        schema = pa.schema([f for f in _bare(self._plan.schema) if f.name in set(columns)])
        batches = self._patched(fragment_id, offsets, rows, schema, self._computed)
        return view_files.stage_columns(
            self._plan.uri, schema, batches, fragment_id=fragment_id, version=self._plan.version, patch=offsets
        )

    # values

    def _values(self, rows: ScratchValues) -> Iterator[pa.RecordBatch]:
        """Yield all columns of consecutive rows of the scratch table."""
        schema = _bare(self._plan.schema)
        at, step = 0, first_rows(_BATCH_BYTES, schema)
        while at < len(rows.ids):
            part = rows.part(at, at + step)
            if not self._knows(part):
                part = part.part(0, self._source.within(part.ids, self._selected, _BATCH_BYTES))
            try:
                columns = self._columns(part)
            except LemanError as error:
                step = _fewer(part, error)
                continue
            batch = pa.RecordBatch.from_arrays([_as(columns[f.name], f.type) for f in schema], schema=schema)
            step = rows_within(_BATCH_BYTES, batch)
            at += len(part.ids)
            yield batch

    def _columns(self, part: ScratchValues) -> dict[str, pa.Array]:
        count = len(part.ids)
        columns = {
            SOURCE_ROW_ID: pa.array(part.ids, pa.int64()),
            IS_SET: pa.array(np.ones(count, np.bool_)),
        }
        if self._selected:
            taken = self._taken(part)
            columns |= dict(zip(taken.schema.names, taken.columns, strict=True))
        if self._scratch is not None and self._functions:
            computed = self._scratch.values(self._functions, part.at, count)
            columns |= dict(zip(computed.schema.names, computed.columns, strict=True))
        return columns

    def _knows(self, part: ScratchValues) -> bool:
        return self._known is not None and part.at + len(part.ids) <= self._known.num_rows

    def _taken(self, part: ScratchValues) -> pa.RecordBatch:
        if self._known is not None and self._knows(part):
            return self._known.slice(part.at, len(part.ids))
        taken = self._source.take(part.ids, self._selected)
        self.rows_read += len(part.ids)
        return taken

    def _computed(self, rows: ScratchValues) -> Iterator[pa.RecordBatch]:
        """Yield only the function columns."""
        at, step = 0, _FIRST_ROWS
        while at < len(rows.ids):
            part = rows.part(at, at + step)
            if self._scratch is None:
                raise RuntimeError("function columns without a scratch table")
            try:
                batch = self._scratch.values(self._functions, part.at, len(part.ids))
            except LemanError as error:
                step = _fewer(part, error)
                continue
            step = rows_within(_BATCH_BYTES, batch)
            at += len(part.ids)
            yield batch

    def _patched(
        self, fragment_id: int, offsets: Ids, rows: ScratchValues, schema: pa.Schema, new: _NewRows
    ) -> Iterator[pa.RecordBatch]:
        """Yield all physical rows of a fragment. Replace those at `offsets`."""
        base = 0
        for batch in view_files.current_values(self._plan.uri, self._plan.version, fragment_id, schema.names):
            first, last = (int(n) for n in np.searchsorted(offsets, [base, base + batch.num_rows]))
            if first == last:
                yield _cast(batch, schema)
            else:
                fresh = [_cast(b, schema) for b in new(rows.part(first, last))]
                yield from _merged(_cast(batch, schema), offsets[first:last] - base, pa.Table.from_batches(fresh))
            base += batch.num_rows


def _fewer(part: ScratchValues, error: LemanError) -> int:
    """Return a smaller number of rows to read if an error says that a batch overflows. Otherwise raise the error."""
    if len(part.ids) < 2 or not is_overflow(error):
        raise error
    return fewer_rows(len(part.ids))


def _merged(batch: pa.RecordBatch, places: Ids, fresh: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the batch with the rows at `places` (ascending) replaced, in parts if one array cannot hold the values."""

    def merged(part: RowRange) -> pa.RecordBatch:
        first, last = (int(n) for n in np.searchsorted(places, [part.start, part.end]))
        pick = np.arange(part.rows, dtype=np.int64)
        pick[places[first:last] - part.start] = part.rows + np.arange(last - first)
        kept, new = batch.slice(part.start, part.rows), fresh.slice(first, last - first)
        columns = [concatenate([kept.column(at), *new.column(at).chunks]) for at in range(len(batch.schema))]
        return pa.RecordBatch.from_arrays([column.take(pa.array(pick)) for column in columns], schema=batch.schema)

    yield from (made for _, made in in_parts(RowRange(0, batch.num_rows), merged))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_as(batch.column(f.name), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _bare(schema: pa.Schema) -> pa.Schema:
    return schema.remove_metadata()


def _without_row_id(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f for f in _bare(schema) if f.name != SOURCE_ROW_ID])
