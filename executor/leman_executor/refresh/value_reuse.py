"""Reuses values that a view had before: stores them as checkpoints of a scratch table, whose backfill finds them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import structlog

from leman_core.model import keys
from leman_core.model.errors import LemanError
from leman_core.model.plan import FragmentTask, Plan
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange, chunks
from leman_core.model.refresh import EarlierValues, RefreshPlan, SourceChange
from leman_core.model.sorted_sets import contains, distinct
from leman_core.model.udf import UdfKind
from leman_core.model.view import ViewQuery
from leman_core.model.view_rows import NO_IDS, Mask
from leman_core.storage.checkpoints.rows import Piece, to_checkpoint
from leman_core.storage.views import failed_rows_file as view_failed
from leman_executor.refresh.diff.earlier_values import EarlierColumns, EarlierRows, earlier_rows, equal_inputs
from leman_executor.refresh.file_layout import Ints
from leman_executor.refresh.storage_retries import in_thread

_log = structlog.get_logger(__name__)

#: The most rows of a scratch table that go into one checkpoint.
_CHUNK_ROWS = 1 << 15
_CHUNK_BYTES = 32 << 20
#: Stands in place of a filter where a checkpoint does not have all rows of its range.
_SOME = keys.md5("rows that an earlier version of the view has")
_ERRORS = (LemanError, KeyError)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Where earlier versions of the view have the values of a scratch table's rows."""

    versions: Sequence[EarlierValues]
    #: For each row: which of the versions has its value; -1: none.
    chosen: Ints
    #: For each row: in which row of that version.
    own_ids: Ints


class ValueReuse:
    """The reuse of one step of a refresh. Blocking.

    Args:
        plan: The plan, at whose version of the source the rows are to be computed.
        rows: Source row ids of the rows that the scratch table has.
    """

    def __init__(self, plan: RefreshPlan, rows: Ints) -> None:
        self._plan = plan
        self._rows = rows
        self._found: dict[tuple[int, ViewQuery, tuple[SourceChange, ...]], EarlierRows | None] = {}

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return the function columns of which an earlier version may have values."""
        return frozenset(name for earlier in self._plan.earlier for name in earlier.columns)

    def store(self, store: CheckpointStore, plan: Plan, rows: Sequence[int], stop: threading.Event) -> int:
        """Store what is known of the scratch table's column that `plan` is about.

        What cannot be read is computed.

        Args:
            store: The checkpoints of the scratch table.
            plan: The plan of the column's backfill.
            rows: How many rows each fragment of the scratch table has.
            stop: Set to end early.

        Returns:
            How many values were stored.
        """
        stored = 0
        starts = np.cumsum([0, *rows]).tolist()
        try:
            known = self._known(plan.header.output.name, stop)
            for task in plan.tasks:
                for key, batch in self._batches(plan, task, known, starts[task.fragment_id]):
                    if stop.is_set():
                        return stored
                    if key not in store:
                        store[key] = batch
                    stored += batch.num_rows
        except _ERRORS as error:
            _log.warning("earlier values cannot be read", uri=self._plan.uri, error=str(error))
        return stored

    def _known(self, column: str, stop: threading.Event) -> _Known:
        versions = [earlier for earlier in self._plan.earlier if column in earlier.columns]
        chosen, own = np.full(len(self._rows), -1, np.int64), np.full(len(self._rows), -1, np.int64)
        for number, earlier in enumerate(versions):
            left = chosen < 0
            found = self._earlier_rows(earlier) if left.any() else None
            if found is None:
                continue
            left &= ~contains(self._failed(earlier, column), self._rows)  # a function may get another chance
            same = found.among(self._rows, same=True)
            fresh = left & (same >= 0)
            chosen[fresh], own[fresh] = number, same[fresh]
            written = found.among(self._rows, same=False)
            asked = np.flatnonzero(left & (written >= 0))
            equal = asked[self._equal_inputs(earlier, column, self._rows[asked], stop)]
            chosen[equal], own[equal] = number, written[equal]
        return _Known(versions, chosen, own)

    def _earlier_rows(self, earlier: EarlierValues) -> EarlierRows | None:
        at, comparison = earlier.view_version, (earlier.view_version, earlier.definition.query, earlier.changes)
        if comparison not in self._found:
            try:
                if view_failed.read(self._plan.uri, earlier.definition.failed) is None:
                    raise KeyError("its failed rows are not known any more")
                self._found[comparison] = earlier_rows(self._plan, earlier, self._rows)
            except _ERRORS as error:
                _log.warning("an earlier version cannot be read", uri=self._plan.uri, version=at, error=str(error))
                self._found[comparison] = None
        return self._found[comparison]

    def _equal_inputs(self, earlier: EarlierValues, column: str, ids: Ints, stop: threading.Event) -> Mask:
        """Tell for rewritten rows whether the inputs of the function are equal."""
        function = next(f for f in self._plan.functions if f.column.name == column)
        if len(ids) and function.udf.kind is not UdfKind.SQL:  # an expression costs no more than the comparison
            try:
                return equal_inputs(self._plan, earlier, function.column.inputs, ids, stop)
            except _ERRORS as error:
                _log.warning("rows cannot be compared", uri=self._plan.definition.source_uri, error=str(error))
        return np.zeros(len(ids), np.bool_)

    def _failed(self, earlier: EarlierValues, column: str) -> Ints:
        """Return the rows that had no value, sorted."""
        known = view_failed.read(self._plan.uri, earlier.definition.failed)
        return NO_IDS if known is None else known.of(column)

    def _batches(
        self, plan: Plan, task: FragmentTask, known: _Known, start: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the checkpoints of one fragment of the scratch table."""
        output = plan.header.output
        for missing in task.missing:
            for covered in chunks(missing, _CHUNK_ROWS):
                for piece in self._pieces(output.name, known, start, covered):
                    batch = to_checkpoint(task.fragment_id, output.name, [piece], piece.values.type)
                    yield _key(task, piece.offsets), batch

    def _pieces(self, column: str, known: _Known, start: int, covered: RowRange) -> Iterator[Piece]:
        """Yield the known rows of a range of a fragment that begins at row `start` of the scratch table."""
        chosen = known.chosen[start + covered.start : start + covered.end]
        for number in distinct(chosen[chosen >= 0]).tolist():
            offsets = covered.start + np.flatnonzero(chosen == number)
            columns = EarlierColumns(self._plan.uri, known.versions[number].view_version)
            at = 0
            for values in columns.values(column, known.own_ids[start + offsets], _CHUNK_ROWS, _CHUNK_BYTES):
                yield Piece(offsets[at : at + len(values)], values)
                at += len(values)


class KnownValues:
    """What a step reuses, for the backfills of its scratch table.

    `rows` has the number of rows of each fragment of that table.
    """

    def __init__(self, reuse: ValueReuse, store: CheckpointStore, rows: Sequence[int]) -> None:
        self._reuse = reuse
        self._store = store
        self._rows = rows

    async def store(self, plan: Plan, stop: threading.Event) -> int:
        """Store what is known of the column that the plan fills, where its next plan finds it.

        Returns:
            How many values were stored.
        """
        if plan.header.output.name not in self._reuse.columns:
            return 0
        return await in_thread(self._reuse.store, self._store, plan, self._rows, stop)


def _key(task: FragmentTask, offsets: Ints) -> str:
    """Return the key of a checkpoint with these rows: it settles its range only if they have no gap."""
    covered = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
    whole = covered.rows == len(offsets)
    prefix = task.checkpoint_prefix if whole else keys.under_filter(task.checkpoint_prefix, _SOME)
    return keys.range_key(prefix, task.fragment_id, covered)
