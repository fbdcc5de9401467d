"""Copy values of earlier versions of a view into checkpoints of a scratch table, so that no function is called for
them.

An unchanged row keeps its value. A rewritten row keeps its value if the function's inputs are equal in both source
versions. To find that out, the inputs of both versions are read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import structlog

from leman._format.stored_functions import UdfKind
from leman._format.view_definitions import ViewQuery
from leman_core.functions.arrow_values import equal_rows
from leman_core.model import keys
from leman_core.model.plan import FragmentTask, Plan
from leman_core.model.row_ids import NO_IDS, Ids, Mask, distinct, isin_sorted, positions
from leman_core.model.row_positions import RowRange, split_range
from leman_core.model.service_errors import LemanError
from leman_core.model.view import EarlierValues, RefreshPlan, SourceChange
from leman_core.storage import view_side_files
from leman_core.storage.checkpoint_records import Piece, to_checkpoint
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.error_translation import using_storage
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.source_rows import SourceRows, plain_columns
from leman_executor.refresh.row_diff import BaseSourceVersion, diff_rows, view_rows_with_values
from leman_executor.worker.row_source import rows_within

_log = structlog.get_logger(__name__)

#: Number of rows to read first, while the width of values is unknown.
_FIRST_ROWS = 64
#: If there are more rows than this, a sample of this size is compared first. If no row of the sample has equal inputs,
#: no other rows are read.
_SAMPLE = 1 << 16
_MOST_BYTES = 32 << 20
#: Maximum number of rows of a scratch table in one checkpoint.
_CHUNK_ROWS = 1 << 15
#: Replaces the filter in the key of a checkpoint that does not have all rows of its range.
_SOME = keys.md5("rows that an earlier version of the view has")
_ERRORS = (LemanError, KeyError)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRows:
    """The rows that an earlier version of a view has."""

    #: The source row ids, sorted.
    ids: Ids
    #: The view's row ids, in the same order as `ids`.
    own_ids: Ids
    #: Whether each row is unchanged in the source. Even if a row has changed, the inputs of a function may be equal.
    same: Mask

    def among(self, wanted: Ids, *, same: bool) -> Ids:
        """Return the view's id of each wanted row that is unchanged (if `same`) or rewritten (if not), else -1."""
        at = positions(self.ids, wanted)
        chosen = at >= 0
        chosen[chosen] = self.same[at[chosen]] == same
        found = np.full(len(wanted), -1, np.int64)
        found[chosen] = self.own_ids[at[chosen]]
        return found


def earlier_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    """Return those of the wanted rows for which an earlier version of the view has values.

    These rows are in the source version of the earlier view version, and in that of the plan.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        LemanError: The view's version cannot be read; see `storage_errors.unusable`.
    """
    with using_storage(plan.definition.source_uri):
        return _earlier_rows(plan, earlier, wanted)


def _earlier_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    then = replace(plan, version=earlier.view_version, definition=earlier.definition, changes=earlier.changes)
    ids, own_ids = view_rows_with_values(then.uri, then.version, np.sort(wanted))
    if not earlier.changes or not len(ids):
        return EarlierRows(ids, own_ids, np.ones(len(ids), np.bool_))
    moves = diff_rows(then, BaseSourceVersion(then), SourceRows(then.definition.source_uri, then.target_version)).moves
    stayed = ~(isin_sorted(moves.fresh, ids) | isin_sorted(moves.gone, ids))
    return EarlierRows(ids[stayed], own_ids[stayed], ~isin_sorted(moves.changed, ids[stayed]))


def equal_inputs(
    plan: RefreshPlan, earlier: EarlierValues, inputs: Sequence[str], ids: Ids, stop: threading.Event
) -> Mask:
    """Return for each row whether its inputs are equal, bit for bit, to those from which the earlier value was
    computed.

    Both source versions must have the rows. Memory is bounded. If `stop` is set, all rows that are not compared yet
    count as different.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        Aborted: SOURCE_ROW_GONE.
        LemanError: As `storage_errors.unusable` returns.
    """
    versions = earlier.definition.base_version, plan.target_version
    then, now = (SourceRows(plan.definition.source_uri, version) for version in versions)
    same = np.zeros(len(ids), np.bool_)
    if len(ids) > _SAMPLE:
        some = np.linspace(0, len(ids) - 1, _SAMPLE).astype(np.int64)
        if not any(found.any() for _, found in _compared(then, now, inputs, ids[some], stop)):
            return same
    for at, found in _compared(then, now, inputs, ids, stop):
        same[at : at + len(found)] = found
    return same


def _compared(
    then: SourceRows, now: SourceRows, inputs: Sequence[str], ids: Ids, stop: threading.Event
) -> Iterator[tuple[int, Mask]]:
    """Compare the rows in parts. For each part, yield its start, and whether the inputs of each row are equal."""
    at, step = 0, _FIRST_ROWS
    columns = plain_columns(inputs)
    while at < len(ids) and not stop.is_set():
        part = ids[at : at + step]
        part = part[: min(rows.within(part, columns, _MOST_BYTES) for rows in (then, now))]
        after = now.take_first(part, columns)
        before = then.take_first(part[: after.num_rows], columns)
        part, after = part[: before.num_rows], after.slice(0, before.num_rows)
        pairs = zip(before.columns, after.columns, strict=True)
        yield at, np.logical_and.reduce([equal_rows(*pair) for pair in pairs])
        step = rows_within(_MOST_BYTES, after)
        at += len(part)


class EarlierColumns:
    """Values of an earlier version's columns, by the view's row ids. Blobs are read as bytes."""

    def __init__(self, uri: str, version: int) -> None:
        self._rows = SourceRows(uri, version)

    def values(self, column: str, own_ids: Ids, most_rows: int, most_bytes: int) -> Iterator[pa.Array]:
        """Yield values in order, in parts of at most `most_rows` rows and, if sizes are known, about `most_bytes`."""
        at, step = 0, _FIRST_ROWS
        columns: dict[str, str] = plain_columns([column])
        while at < len(own_ids):
            part = own_ids[at : at + min(step, most_rows)]
            part = part[: self._rows.within(part, columns, most_bytes)]
            batch = self._rows.take_first(part, columns)
            step = rows_within(most_bytes, batch)
            at += batch.num_rows
            yield batch.column(column)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The places of a scratch table's values in earlier versions of the view."""

    versions: Sequence[EarlierValues]
    #: For each row, the index of the version that has its value, or -1 if none has it.
    chosen: Ids
    #: For each row, the view's row id in that version.
    own_ids: Ids


class ValueReuse:
    """Find the values of a scratch table's rows in earlier versions of the view. Blocks.

    Args:
        plan: The plan. The rows are computed from its source version.
        rows: Source row ids of the scratch table's rows.
    """

    def __init__(self, plan: RefreshPlan, rows: Ids) -> None:
        self._plan = plan
        self._rows = rows
        self._found: dict[tuple[int, ViewQuery, tuple[SourceChange, ...]], EarlierRows | None] = {}

    def store(self, scratch: ScratchTable, plan: Plan, stop: threading.Event) -> int:
        """Store known values of one column as checkpoints of the scratch table. The next plan finds them there.

        Values that cannot be read are left out, and are computed.

        Args:
            scratch: The scratch table.
            plan: The plan of the column's backfill.
            stop: If set, the call ends early.

        Returns:
            The number of values that were stored.
        """
        if not any(plan.header.output.name in earlier.columns for earlier in self._plan.earlier):
            return 0
        store = LanceCheckpointStore(checkpoint_root(scratch.uri))
        stored = 0
        starts = np.cumsum([0, *scratch.rows]).tolist()
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
            left &= ~isin_sorted(self._failed(earlier, column), self._rows)  # a failed row is computed again
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
                if view_side_files.read_failed_rows(self._plan.uri, earlier.definition.failed) is None:
                    raise KeyError("the list of its failed rows is lost")
                self._found[comparison] = earlier_rows(self._plan, earlier, self._rows)
            except _ERRORS as error:
                _log.warning("an earlier version cannot be read", uri=self._plan.uri, version=at, error=str(error))
                self._found[comparison] = None
        return self._found[comparison]

    def _equal_inputs(self, earlier: EarlierValues, column: str, ids: Ids, stop: threading.Event) -> Mask:
        """Return for each rewritten row whether the inputs of the function are equal."""
        function = next(f for f in self._plan.functions if f.column.name == column)
        if len(ids) and function.udf.kind is not UdfKind.SQL:  # evaluating an expression costs no more than comparing
            try:
                return equal_inputs(self._plan, earlier, function.column.inputs, ids, stop)
            except _ERRORS as error:
                _log.warning("rows cannot be compared", uri=self._plan.definition.source_uri, error=str(error))
        return np.zeros(len(ids), np.bool_)

    def _failed(self, earlier: EarlierValues, column: str) -> Ids:
        """Return the rows that failed in the earlier version, sorted."""
        known = view_side_files.read_failed_rows(self._plan.uri, earlier.definition.failed)
        return NO_IDS if known is None else known.of(column)

    def _batches(
        self, plan: Plan, task: FragmentTask, known: _Known, start: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the checkpoints of one fragment of the scratch table."""
        output = plan.header.output
        for missing in task.missing:
            for covered in split_range(missing, _CHUNK_ROWS):
                for piece in self._pieces(output.name, known, start, covered):
                    batch = to_checkpoint(task.fragment_id, output.name, [piece], piece.values.type)
                    yield _key(task, piece.offsets), batch

    def _pieces(self, column: str, known: _Known, start: int, covered: RowRange) -> Iterator[Piece]:
        """Yield the known rows of a range of a fragment. The fragment begins at row `start` of the scratch table."""
        chosen = known.chosen[start + covered.start : start + covered.end]
        for number in distinct(chosen[chosen >= 0]).tolist():
            offsets = covered.start + np.flatnonzero(chosen == number)
            columns = EarlierColumns(self._plan.uri, known.versions[number].view_version)
            at = 0
            for values in columns.values(column, known.own_ids[start + offsets], _CHUNK_ROWS, _MOST_BYTES):
                yield Piece(offsets[at : at + len(values)], values)
                at += len(values)


def _key(task: FragmentTask, offsets: Ids) -> str:
    """Return the key of a checkpoint with these rows.

    Only a checkpoint without gaps has results for its whole range.
    """
    covered = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
    whole = covered.rows == len(offsets)
    prefix = task.checkpoint_prefix if whole else keys.under_filter(task.checkpoint_prefix, _SOME)
    return keys.range_key(prefix, task.fragment_id, covered)
