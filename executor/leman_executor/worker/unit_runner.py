"""Run one unit of work on a worker: reserve its rows, look for newer results, compute each fragment, and report.

Runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from leman._format.stored_functions import UdfKind
from leman_core.model import keys
from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowRange, subtract_ranges
from leman_core.model.service_errors import INTERNAL_BUG, LemanError
from leman_core.model.work import (
    CheckpointStore,
    ErrorSink,
    FragmentResult,
    FragmentWork,
    ProgressSink,
    Reservations,
    RowError,
    UnitFailure,
    UnitOutcome,
    WorkContext,
    WorkUnit,
)
from leman_core.storage.checkpoint_records import read_record
from leman_core.storage.lance_tables import current_file
from leman_core.storage.scan import CHUNK_ROWS, FragmentReader
from leman_core.storage.source_rows import PastReader
from leman_executor.worker import user_errors
from leman_executor.worker.call_guards import Watchdog
from leman_executor.worker.evaluator import JobFailing, OutputError
from leman_executor.worker.fragment_pass import FragmentPass
from leman_executor.worker.function_loading import load_evaluator
from leman_executor.worker.row_source import SourcedReader
from leman_executor.worker.unit_runtime import Evaluates, Slices, SliceSizer, SpanRecorder, UnitMetrics, UnitRuntime
from leman_executor.worker.user_errors import WAITED_FOR

if TYPE_CHECKING:
    from leman_executor.worker.remote_calls import RemoteFunction

_log = structlog.get_logger(__name__)

#: After a worker's death, checkpoints are frequent at first, so that another death loses little work.
_LOST_INTERVAL = 0.25
#: Number of inputs of a failed row that an error shows, and the maximum number of characters of each.
_INPUTS_SHOWN, _INPUT_CHARS = 4, 60


def never_stopped() -> bool:
    """Return False, for a unit that is never asked to stop."""
    return False


class UnitRunner:
    """Run one unit. Once `stopped` returns True, stop and return the remaining rows.

    Args:
        reader: Reads the table. If None, the unit opens its own reader.
    """

    def __init__(  # noqa: PLR0913 - its surroundings, all by name
        self,
        context: WorkContext,
        unit: WorkUnit,
        *,
        store: CheckpointStore,
        reservations: Reservations,
        sink: ProgressSink,
        errors: ErrorSink,
        clock: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = never_stopped,
        reader: FragmentReader | None = None,
    ) -> None:
        self._context = context
        self._given_reader = reader
        self._unit = unit
        self._store = store
        self._reservations = reservations
        self._errors = errors
        self._spans = SpanRecorder() if unit.traceparent else None
        self._meter = UnitMetrics(unit.unit_id, sink, self._spans)
        self._clock = clock
        self._keeper = _ReservationKeeper(reservations, context.holder, context.reservation_ttl)
        self._asked_to_stop = stopped
        self._began = time.monotonic()
        self._deadline: float | None = None
        self._evaluator: Evaluates | None = None
        kind = context.udf.kind
        fixed = CHUNK_ROWS if kind is UdfKind.SQL else context.udf.batch_size or unit.slice_rows  # Lance sizes SQL's
        most = min(CHUNK_ROWS, unit.slice_rows or CHUNK_ROWS)
        self._sizer = SliceSizer(scalar=kind is UdfKind.SCALAR, most=most, fixed=fixed)
        self._slices = Slices(1 if unit.slice_rows or kind is UdfKind.SQL else context.threads)
        self._connections = contextlib.ExitStack()
        self._remote: RemoteFunction | None = None
        self._watchdog = Watchdog(context.udf.timeout_seconds, self._meter.overran)

    def run(self) -> UnitOutcome:
        """Run the unit and return its outcome.

        Errors of the function and of the storage are part of the outcome; they are not raised.
        """
        results: list[FragmentResult] = []
        failure = None
        with self._keeper as keeper, self._connections, self._slices, self._watchdog:
            try:
                with self._meter.opening():
                    reader = self._reader()
                for work in self._unit.works:
                    if self._out_of_time() and work.ranges:
                        results.append(FragmentResult(work.fragment_id, left=work.ranges))
                    else:
                        results.append(self._fragment(work, reader, keeper))
                        self._begin_budget()  # the budget starts even if no row needs evaluation
                if self._remote is not None:
                    self._remote.finish()
            except JobFailing as error:
                failure = self._blame(error, reader)
            except LemanError as error:
                if self._remote is not None and self._remote.is_doubted:
                    results.clear()
                if error.reason in WAITED_FOR and self._stopped():  # if the job is pausing, do not wait for servers
                    left = self._unit.works[len(results) :]
                    results += [FragmentResult(work.fragment_id, left=work.ranges) for work in left]
                else:
                    no_server = self._remote is not None and self._remote.had_no_server
                    failure = UnitFailure(error.reason, error.message, elsewhere=no_server)
            except Exception as error:  # noqa: BLE001 the bug ends the job
                _log.exception("a unit failed on a bug", unit_id=self._unit.unit_id)
                failure = UnitFailure(INTERNAL_BUG, user_errors.describe_error(error))
        spans = () if self._spans is None else self._spans.spans
        return UnitOutcome(self._unit.unit_id, tuple(results), failure, self._meter.timings, spans)

    def _reader(self) -> FragmentReader:
        context = self._context
        if self._given_reader is not None:
            return self._given_reader
        if context.input_source is not None:
            return SourcedReader(context.uri, context.read_version, context.input_source)
        if context.inputs_version:
            return PastReader(context.uri, context.read_version, context.inputs_version)
        return FragmentReader(context.uri, context.read_version, context.manifest)

    def _fragment(self, work: FragmentWork, reader: FragmentReader, keeper: _ReservationKeeper) -> FragmentResult:
        scope = self._context.scope(work.scope)
        busy: tuple[RowRange, ...] = ()
        holds: tuple[str, ...] = ()
        found: tuple[CheckpointRef, ...] = ()
        if work.ranges:
            with self._meter.opening():
                grant = self._reservations.reserve(
                    scope, work.ranges, self._context.holder, self._context.ignored_holds
                )
            keeper.add(scope, grant.granted)
            if grant.overtaken:
                keeper.overtaken = True
                return FragmentResult(work.fragment_id, left=work.ranges)
            busy, holds = grant.busy, grant.holds
            if grant.others_finished and self._was_replaced(work):
                # A new plan will know which rows the other file has.
                keeper.drop(scope, finished=False)
                return FragmentResult(work.fragment_id, busy=work.ranges)
            if grant.others_finished or self._unit.look_first:
                staged = self._staged_meanwhile(work)
                if staged is not None:
                    keeper.drop(scope, finished=False)
                    return staged
                found = self._new_checkpoints(work)
                left = subtract_ranges(work.ranges, [r.range for r in found])
                work = replace(work, ranges=tuple(left), checkpoints=(*work.checkpoints, *found))
            if busy:
                work = replace(work, finish=False, ranges=tuple(subtract_ranges(work.ranges, busy)))
        self._meter.begin_fragment(work.fragment_id)
        result = FragmentPass(self._context, work, self._runtime(reader)).run()
        if self._context.where and result.staged is not None:
            keeper.leave(scope)
        keeper.drop(scope, finished=True)
        # Report the checkpoints found, because another unit may finish the fragment.
        result = replace(result, busy=busy, holds=holds, checkpoints=(*found, *result.checkpoints))
        self._meter.report(result)
        return result

    def _stopped(self) -> bool:
        """Return whether the unit was asked to stop, or a later attempt at the job has started.

        If a later attempt has started, the unit's own executor may be suspended and unable to ask the unit to stop.
        """
        return self._keeper.overtaken or self._asked_to_stop()

    def _runtime(self, reader: FragmentReader) -> UnitRuntime:
        return UnitRuntime(
            reader=reader,
            store=self._store,
            errors=self._errors,
            evaluator=self._loaded,
            sizer=self._sizer,
            meter=self._meter,
            out_of_time=self._out_of_time,
            stopped=self._stopped,
            clock=self._clock,
            interval=self._interval,
            slices=self._slices,
        )

    def _begin_budget(self) -> None:
        """Start the unit's time budget at the first call of the function.

        Therefore even a unit that spends its time on storage, or on loading the function, computes some rows.
        """
        if self._deadline is None and self._unit.budget_seconds:
            self._deadline = self._clock() + self._unit.budget_seconds

    def _out_of_time(self) -> bool:
        return self._stopped() or (self._deadline is not None and self._clock() >= self._deadline)

    def _interval(self) -> float:
        seconds = self._context.checkpoint_seconds
        return min(seconds, _LOST_INTERVAL * (time.monotonic() - self._began)) if self._unit.look_first else seconds

    def _loaded(self) -> Evaluates:
        """Return the function. Load it when the first row needs it."""
        if self._evaluator is None:
            with self._meter.loading():
                self._evaluator = self._load()
            self._begin_budget()
        return self._evaluator

    def _load(self) -> Evaluates:
        loaded = load_evaluator(
            self._context,
            self._watchdog,
            self._connections,
            stopped=self._stopped,
            notes=self._meter,
        )
        self._remote = loaded.remote
        return loaded.evaluator

    def _was_replaced(self, work: FragmentWork) -> bool:
        """Return whether a job with another filter has installed a file for the column since the plan was made."""
        if not (self._context.where and self._context.of_latest):
            return False
        return (
            current_file(self._context.uri, work.fragment_id, self._context.output_field_ids) != work.task.current_file
        )

    def _staged_meanwhile(self, work: FragmentWork) -> FragmentResult | None:
        """Return a complete column file that another job or dead attempt finished since the plan was made, or None."""
        record = read_record(self._store, keys.record_key(work.task.checkpoint_prefix, work.fragment_id))
        if record is None or record.fingerprint != work.task.fingerprint:
            return None
        if not record.may_replace(work.task.current_file):
            return None
        if record.column_id != self._context.column_id or record.physical_rows != work.task.physical_rows:
            return None
        return FragmentResult(work.fragment_id, staged=record.staged)

    def _new_checkpoints(self, work: FragmentWork) -> tuple[CheckpointRef, ...]:
        """Return checkpoints for the same request that overlap the work and were stored since the plan was made."""
        known = {r.key for r in work.checkpoints}
        found = []
        for key in self._store.list_keys(work.task.checkpoint_prefix + f"_frag-{work.fragment_id}_range-"):
            parsed = keys.parse_range_key(key)
            if parsed is None or parsed.prefix != work.task.checkpoint_prefix or key in known:
                continue
            if any(parsed.range.intersect(r) for r in work.ranges):
                found.append(CheckpointRef(key, parsed.range))
        return tuple(found)

    def _blame(self, error: JobFailing, reader: FragmentReader) -> UnitFailure:
        failed = error.failure
        row = failed.moved_to(*reader.located(failed.fragment_id, [failed.offset])[0])
        start, end = error.rows
        place = f"row {start}" if end - start == 1 else f"rows {start} to {end - 1}"
        place += f" of fragment {row.fragment_id}"
        if self._context.input_source is not None:  # neighbours in the scratch table may be far apart in the source
            place = f"row {row.offset} of fragment {row.fragment_id} of the view's source"
            place = place if end - start == 1 else f"{end - start:,} rows, the first of them {place}"
        elif end - start == 1:
            place += self._inputs_of(failed, reader)
        who = f"UDF '{self._context.udf.name}'"
        message = f"{who} failed on {place}: {row.error_type}: {row.error_message.removeprefix(f'{who} ')}"
        if end - start > 1 and row.error_type != OutputError.__name__:  # the failing row was not isolated
            together = f"This is the first of {end - start:,} rows that the function was given together."
            row = replace(row, error_message=f"{row.error_message}\n{together} Any of them may be the cause.")
        return UnitFailure("UDF_FAILED", message, row)

    def _inputs_of(self, row: RowError, reader: FragmentReader) -> str:
        """Return the input values of a row, formatted for display; empty if they cannot be read."""
        names, rows = self._context.input_columns, RowRange(row.offset, row.offset + 1)
        with contextlib.suppress(LemanError, pa.ArrowException, ValueError, OverflowError):
            for chunk in reader.read(row.fragment_id, rows, names, deletions=True):
                values = {name: _brief(chunk.rows.column(name)[0]) for name in names[:_INPUTS_SHOWN]}
                more = ["…"] if len(names) > _INPUTS_SHOWN else []
                return f" ({', '.join([*(f'{name} = {value}' for name, value in values.items()), *more])})"
        return ""


def _brief(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    if pa.types.is_binary(value.type) or pa.types.is_large_binary(value.type) or pa.types.is_binary_view(value.type):
        return f"{len(value.as_py()):,} bytes"
    text = user_errors.format_value(value.as_py())
    return text if len(text) <= _INPUT_CHARS else f"{text[: _INPUT_CHARS - 1]}…"


class _ReservationKeeper:
    """Renew a unit's reservations every third of their lifetime, until they are released."""

    def __init__(self, reservations: Reservations, holder: str, ttl_seconds: float) -> None:
        self._reservations = reservations
        self._holder = holder
        self._pause = ttl_seconds / 3
        self._held: dict[str, tuple[RowRange, ...]] = {}
        #: Whether a later attempt at the job has taken over the reservations.
        self.overtaken = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _ReservationKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()  # no join needed: renewing a released reservation does nothing
        for scope in list(self._held):
            self.drop(scope, finished=False)

    def add(self, scope: str, ranges: tuple[RowRange, ...]) -> None:
        self._held[scope] = ranges
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="reservations", daemon=True)
            self._thread.start()

    def drop(self, scope: str, *, finished: bool) -> None:
        ranges = self._held.pop(scope, ())
        if ranges:
            self._reservations.release(scope, ranges, self._holder, finished=finished)

    def leave(self, scope: str) -> None:
        """Stop renewing a scope, but do not release its reservation.

        The executor releases the reservation when the unit's file is committed. Jobs with other filters wait until
        then, because they cannot use the file before its commit.
        """
        if self._held.pop(scope, ()):
            self._reservations.release(scope, (), self._holder, finished=True)

    def _renew(self) -> None:
        while not self._stop.wait(self._pause):
            if not self._reservations.renew(list(self._held), self._holder):
                self.overtaken = True
