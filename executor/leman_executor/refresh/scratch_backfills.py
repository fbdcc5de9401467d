"""Scratch tables are filled: with values that the view had before, then by one backfill for each function column.

Values that an earlier version of a view has, for rows that are the same again.

A rewritten row may have the same inputs of a function: then the value of the function is still right.
That takes a look at the values in both versions of the source.

Reuses values that a view had before: stores them as checkpoints of a scratch table, whose backfill finds them.

Fills scratch tables: one backfill for each function column, run as part of the refresh.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import structlog

from leman._format import column_bindings
from leman_core.functions import arrow_types, column_checks
from leman_core.functions.arrow_values import equal_rows
from leman_core.model import keys
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, FragmentTask, Plan
from leman_core.model.row_ids import NO_IDS, Ids, Mask, distinct, isin_sorted, positions
from leman_core.model.row_positions import RowRange, split_range
from leman_core.model.service_errors import Aborted, LemanError
from leman_core.model.udf import ColumnBinding, ColumnInput, InputSource, UdfKind
from leman_core.model.view import SOURCE_ROW_ID, EarlierValues, RefreshPlan, ResolvedFunction, SourceChange, ViewQuery
from leman_core.model.work import CheckpointStore
from leman_core.process.crash_points import crash_point
from leman_core.storage import view_side_files as view_failed
from leman_core.storage.checkpoint_records import Piece, to_checkpoint
from leman_core.storage.error_translation import using_storage
from leman_core.storage.source_rows import SourceRows, plain_columns
from leman_executor.jobs import job_run
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import ChildJobStatus, ChildJobStore, JobStatus
from leman_executor.refresh.refresh_journal import JournalKeeper
from leman_executor.refresh.row_diff import BaseSourceVersion, diff_rows, view_rows_with_values
from leman_executor.refresh.view_writer import Ints, retry_in_thread
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.worker.row_source import rows_within

#: Rows read at first, when it is not known how wide values are.
_FIRST_ROWS = 64
#: Of more rows a sample of so many is compared first: where none has the inputs that it had, no others are read.
_SAMPLE = 1 << 16
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRows:
    """Rows of an earlier version of a view."""

    #: The source's row ids, sorted.
    ids: Ids
    #: The view's own row ids, in the same order as `ids`.
    own_ids: Ids

    #: Whether each row is as it was; of the others only their function's inputs may be.
    same: Mask

    def among(self, wanted: Ids, *, same: bool) -> Ids:
        """Return the view's row ids of those of the wanted rows that are the same, or not; -1 for all others."""
        at = positions(self.ids, wanted)
        chosen = at >= 0
        chosen[chosen] = self.same[at[chosen]] == same
        found = np.full(len(wanted), -1, np.int64)
        found[chosen] = self.own_ids[at[chosen]]
        return found


def earlier_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    """Return those of the wanted rows for which an earlier version of the view has values.

    These are rows that the source had then and has at the plan's version of it, too.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        LemanError: What `storage_errors.unusable` gives, where the view's version is gone.
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
    """Tell of rows whether their inputs are, bit for bit, what they were when the earlier values were computed.

    Both source versions have the rows. Memory is bounded. Those that were not compared when `stop` is set count as
    other ones.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        Aborted: SOURCE_ROW_GONE.
        LemanError: What `storage_errors.unusable` gives.
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
    """Yield which rows have the same inputs in both versions, in parts: where the part begins, and one bit a row."""
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
    """Values of columns of an earlier version, by the view's own row ids; blobs come as their bytes."""

    def __init__(self, uri: str, version: int) -> None:
        self._rows = SourceRows(uri, version)

    def values(self, column: str, own_ids: Ids, most_rows: int, most_bytes: int) -> Iterator[pa.Array]:
        """Yield values in order, in parts of at most so many rows, and of so many bytes as far as these are known."""
        at, step = 0, _FIRST_ROWS
        columns: dict[str, str] = plain_columns([column])
        while at < len(own_ids):
            part = own_ids[at : at + min(step, most_rows)]
            part = part[: self._rows.within(part, columns, most_bytes)]
            batch = self._rows.take_first(part, columns)
            step = rows_within(most_bytes, batch)
            at += batch.num_rows
            yield batch.column(column)


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
            left &= ~isin_sorted(self._failed(earlier, column), self._rows)  # a function may get another chance
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
                if view_failed.read_failed_rows(self._plan.uri, earlier.definition.failed) is None:
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
        known = view_failed.read_failed_rows(self._plan.uri, earlier.definition.failed)
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
        return await retry_in_thread(self._reuse.store, self._store, plan, self._rows, stop)


def _key(task: FragmentTask, offsets: Ints) -> str:
    """Return the key of a checkpoint with these rows: it settles its range only if they have no gap."""
    covered = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
    whole = covered.rows == len(offsets)
    prefix = task.checkpoint_prefix if whole else keys.under_filter(task.checkpoint_prefix, _SOME)
    return keys.range_key(prefix, task.fragment_id, covered)


#: The source was cleaned up, or the scratch table is gone or being recreated by another refresh: plan again.
_PASSING = frozenset({"SOURCE_VERSION_NOT_FOUND", "SOURCE_ROW_GONE", "COLUMN_NOT_DEFINED"})
#: `__source_row_id` is a scratch table's first column.
_ROW_ID_FIELD = 0


class ScratchBackfills:
    """Runs the backfills of one refresh, one after the other; `journal` adds up what they do."""

    def __init__(self, status: JobStatus, journal: JournalKeeper, services: JobEnvironment, concurrency: int) -> None:
        self._status = status
        self._journal = journal
        self._services = replace(services, jobs=ChildJobStore(services.jobs))
        self._concurrency = concurrency
        self._running: BackfillRun | None = None
        self._stop = threading.Event()
        self._cancelled = False

    async def fill(
        self,
        database: str,
        table: str,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]],
        known: KnownValues | None,
    ) -> None:
        """Compute every function column of the scratch table.

        Args:
            database: The database.
            table: The scratch table.
            functions: The functions, one for each column.
            between: Called now and then while the last column is being computed, to install what is complete.
            known: Values that need no call of a function.

        Raises:
            Cancelled: The refresh was asked to stop, or lost its job.
            Aborted: With the reason of the error, where a new plan may help: SOURCE_VERSION_NOT_FOUND, SOURCE_ROW_GONE,
                COLUMN_NOT_DEFINED.
            LemanError: What else ended a backfill.
        """
        for at, function in enumerate(functions):
            run = asyncio.ensure_future(self._column(database, table, function, known))
            try:
                while not run.done() and at == len(functions) - 1:
                    await asyncio.wait((run,), timeout=self._services.settings.executor.commit_interval_seconds)
                    if not (run.done() or self._stop.is_set()):
                        await between()
                await run
            except Cancelled:
                if self._cancelled:
                    run.cancel()
                await asyncio.gather(run, return_exceptions=True)  # in a pause what is at hand is stored first
                raise
            except BaseException:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                raise

    async def _column(self, database: str, table: str, function: ResolvedFunction, known: KnownValues | None) -> None:
        now = time.time()
        parent = self._status.job
        spec = BackfillSpec(database, table, function.column.name, concurrency=self._concurrency)
        job = Job(parent.job_id, "", JobState.PLANNING, spec, now, now, attempt=parent.attempt)
        child = BackfillRun(job, self._services, ChildJobStatus(job, self._status), is_scratch=True)
        if self._stop.is_set():
            raise Cancelled(parent.job_id)
        self._running = child
        try:
            plan = await self._planned(child, known)
            child.prefetch(plan)
            await self._journal.column(table, function.column.name, child.status.metrics)
            if not await child.ended_at_once(plan):
                await child.run(plan)
        except LemanError as error:
            raise _passing(error) from None
        finally:
            self._running = None
            await child.abandon()
        ended = child.status.job
        if child.status.lost or ended.state is JobState.CANCELLED or self._stop.is_set():
            raise Cancelled(parent.job_id)
        if ended.error is not None:
            raise _passing(job_run.from_job_error(ended.error))

    async def _planned(self, child: BackfillRun, known: KnownValues | None) -> Plan:
        """Return a plan of what is left to compute, after storing the known values where a plan finds them."""
        plan = await child.plan()
        stored = await known.store(plan, self._stop) if known is not None and plan.tasks else 0
        if self._stop.is_set():
            raise Cancelled(self._status.job.job_id)
        if not stored:
            return plan
        crash_point("executor.earlier_stored")
        self._status.note("migrated", f"{stored:,} values of {plan.header.output.name} are those of earlier versions")
        before, plan = plan.header.rows_to_compute, await child.plan()
        child.status.metrics.migrated(plan)
        child.status.metrics.known(stored - (before - plan.header.rows_to_compute))
        return plan

    def cancel(self) -> None:
        """Stop what runs, and begin nothing any more. Blocks for a moment."""
        self._cancelled = True
        self._stop.set()
        running = self._running
        if running is not None:
            running.cancel()

    def pause(self) -> None:
        """Stop what runs as soon as what it computed is stored, and begin nothing any more until `resume`."""
        self._stop.set()
        running = self._running
        if running is not None:
            running.pause()

    def resume(self) -> None:
        """Begin again, after a pause."""
        self._stop.clear()


def _passing(error: LemanError) -> LemanError:
    """Return Aborted for an error that is neither the function's nor its table's, and any other error as it is."""
    return Aborted(error.reason, error.message) if error.reason in _PASSING else error


def scratch_columns(functions: Sequence[ResolvedFunction], source_uri: str, version: int, of: str) -> pa.Schema:
    """Return the function columns of a scratch table, bound to their functions and to the source that these read."""
    fields = []
    for function in functions:
        column = ColumnBinding(
            column_id=f"{of}-{function.column.name}",
            udf_name=function.udf.name,
            udf_version=function.udf.version,
            inputs=(ColumnInput(SOURCE_ROW_ID, _ROW_ID_FIELD),),
            source=InputSource(source_uri, version, function.column.inputs),
        )
        made = column_checks.output_field(function.column.name, function.udf, arrow_types.VIEW_FORMAT)
        fields.append(column_bindings.bind(made, column))
    return pa.schema(fields)
