"""Hand out the units of one plan to workers, and take units back when workers report them, fail or die."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from leman_core.model.databases import StoreOptions
from leman_core.model.plan import CheckpointRef, FragmentTask, Plan
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import count_offsets, subtract_ranges
from leman_core.model.service_errors import LemanError
from leman_core.model.work import (
    FragmentResult,
    InFlightRows,
    ProgressReport,
    RowError,
    UnitOutcome,
    WorkUnit,
)
from leman_core.storage.storage_errors import DENIED, STORE_UNAVAILABLE
from leman_core.telemetry import instruments, tracing
from leman_core.telemetry.tracing import Span, SpanAttributes
from leman_executor.jobs import job_run
from leman_executor.jobs.async_helpers import ignore_result
from leman_executor.jobs.committer import Committer, RetainedReservations
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.work_context import RenewedStores
from leman_executor.scheduling.crash_tracker import (
    Crash,
    CrashTracker,
    ReassignedUnits,
    ServerBreaks,
    decide_after_crash,
    describe_rows,
    give_back_outcome,
    rows_in_flight,
)
from leman_executor.scheduling.stalls import ReservationWaits, WorkerWatch
from leman_executor.scheduling.work_queue import WorkQueue


class UnitSpans:
    """The trace spans of units, from the hand-out of a unit to its outcome or the death of its worker."""

    def __init__(self, job: Span | None) -> None:
        self._job = job if job is not None and job.traceparent else None
        self._open: dict[str, Span] = {}

    def begin(self, unit: WorkUnit, worker: str) -> WorkUnit:
        """Begin the span of a unit. Return the unit with its trace context for the worker."""
        if self._job is None:
            return unit
        attributes: SpanAttributes = {
            "leman.unit.id": unit.unit_id,
            "leman.worker": worker,
            "leman.fragments": len(unit.works),
        }
        span = tracing.start_span("unit", self._job, attributes)
        if span is None:
            return unit
        self._open[unit.unit_id] = span
        return replace(unit, traceparent=span.traceparent)

    def end(self, outcome: UnitOutcome) -> None:
        """End the span of a unit with its outcome."""
        span = self._open.pop(outcome.unit_id, None)
        if span is None:
            return
        for done in outcome.spans:
            about = {"leman.seconds": done.seconds, "leman.times": done.times}
            tracing.record_span(done.name, span, done.begin, done.end, about)
        span.note({"leman.rows": sum(result.rows_evaluated for result in outcome.results)})
        span.end(outcome.failure.reason if outcome.failure is not None else "")

    def lost(self, unit_id: str) -> None:
        """End the span of a unit whose worker has died or is silent."""
        span = self._open.pop(unit_id, None)
        if span is not None:
            span.end("WorkerLost")


#: The reason of the error if another writer committed a version, and the planned version was then cleaned up.
_CLEANED_UP = "VERSION_NOT_FOUND"
#: Reasons for a unit's failure after which a new plan may help.
_REPLANNED = frozenset(
    {STORE_UNAVAILABLE, "FILE_MISSING", "FILE_DAMAGED", "FRAGMENT_GONE", "TABLE_NOT_FOUND", _CLEANED_UP}
)


class PlanUnits:
    """The `UnitSource` (see `leman_executor.scheduling.dispatcher`) of one plan.

    The code that runs the workers waits for `changed` and `failure`.
    """

    def __init__(
        self,
        status: JobStatus,
        plan: Plan,
        *,
        work_queue: WorkQueue,
        committer: Committer,
        left: RetainedReservations,
        waits: ReservationWaits,
        watch: WorkerWatch,
        crashes: CrashTracker,
    ) -> None:
        self._status = status
        self._udf = plan.header.udf
        #: Whether a range may contain rows that are not requested.
        self._some_rows = bool(plan.header.where) or plan.header.failed_only
        #: How often servers of a remote function break the connections of workers.
        self.server_breaks = ServerBreaks(f"{self._udf.name}@{self._udf.version}")
        self._servers_left_out: set[str] = set()
        self._told_of_split = False
        self._tasks = planned_tasks(plan.tasks)
        self._work_queue = work_queue
        self._committer = committer
        self._left = left
        self._waits = waits
        self._watch = watch
        self._crashes = crashes
        #: The options for object stores. After credentials are renewed, they replace `stores` in the work context.
        self.stores = RenewedStores((), ())
        self._first: list[WorkUnit] = work_queue.first_units()
        self._spans = UnitSpans(status.span)
        self._reassigned = ReassignedUnits()
        self._freed = asyncio.Event()
        #: While this is not set, new workers wait.
        self._open = asyncio.Event()
        self._open.set()
        self._pause = 0.0
        self._over = False
        #: Whether the job was asked to stop. No more units are then handed out.
        self.stopping = False
        #: Why files could not be used. A new plan may help.
        self.trouble: list[str] = []
        #: Whether the only such problem is that the planned version was cleaned up.
        self.cleaned_up = True
        #: Number of bytes of values in checkpoints of this plan's units.
        self.stored_bytes = 0
        #: Number of units that were handed out.
        self.handed_out = 0
        #: Number of silent workers that must be replaced.
        self.silent_workers = 0
        #: Set when work may have run out, or a worker should be started.
        self.changed = asyncio.Event()
        #: Ends with the failure of a unit that ends the job.
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure.add_done_callback(ignore_result)

    @property
    def with_workers(self) -> int:
        """The number of units that workers have at present."""
        return self._work_queue.outstanding - len(self._first)

    @property
    def worked_off(self) -> bool:
        """Return whether all units were handed out and returned."""
        return not self.with_workers and self.ended

    @property
    def ended(self) -> bool:
        """Return whether the plan needs no more computation."""
        return self.stopping or self._work_queue.empty or bool(self.trouble)

    def hold(self) -> None:
        """Let new workers wait until `begin`."""
        self._open.clear()

    def begin(self) -> None:
        self._open.set()

    def stop(self) -> None:
        """Hand out no more units. Workers store what they have computed, and return their units."""
        self.stopping = True
        self._freed.set()
        self.changed.set()

    def close(self) -> None:
        """Hand out no more units, and end the waiting workers."""
        self._over = True
        self._freed.set()
        self._open.set()

    def fail(self, error: LemanError) -> None:
        """End the job with an error. Ignore the error if the job already has one."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def reassign_silent(self) -> None:
        """Hand out the units of silent workers again, except those with rows that were already reassigned."""
        for unit in self._watch.silent:
            if not self._reassigned.had_rows_of(unit):
                self.reassign(unit)

    def reassign(self, unit: WorkUnit) -> None:
        """Hand out the unit of a silent worker again, to the worker that replaces it.

        The unit's rows do not become suspects. If the silent worker continues after all, the first complete file
        counts.
        """
        self._reassigned.add(unit, self._watch.worker_of(unit.unit_id))
        self._status.note("stall", f"handed out again: the worker is silent: {describe_rows(rows_in_flight(unit))}")
        self._status.metrics.lost(unit.unit_id)
        self._spans.lost(unit.unit_id)
        self._work_queue.give_back(unit, (), self._crashes.stored_by(unit))
        self.silent_workers += 1
        self.changed.set()
        self._wake()

    @property
    def _no_more(self) -> bool:
        return self._over or self.stopping or bool(self.trouble)

    async def next_unit(self, worker: str, *, heartbeats: bool) -> WorkUnit | None:
        """Wait for the next unit and return it. Return None if no unit is left or can come back, or if the worker was
        replaced.
        """
        await self._open.wait()
        while not (self._no_more or self.failure.done() or self._reassigned.has_worker(worker)):
            unit = self._first.pop() if self._first else self._work_queue.take()
            if unit is not None:
                self.handed_out += 1
                if unit.slice_rows:
                    await self._rest()
                self._watch.took(worker, unit, heartbeats=heartbeats)
                stores = self.renewed_stores()
                return self._spans.begin(replace(unit, stores=stores) if stores else unit, worker)
            if not self._work_queue.outstanding:
                break
            self._freed.clear()
            await self._freed.wait()
        self._freed.set()
        return None

    def renewed_stores(self) -> tuple[StoreOptions, ...]:
        """Return the current options for object stores. Empty if they have not changed."""
        return self.stores.now()

    async def _rest(self) -> None:
        """Before a suspect row is retried, wait as long as the error policy says."""
        pause, self._pause = self._pause, 0.0
        if pause:
            await asyncio.wait((self.failure,), timeout=pause)

    def on_in_flight(self, unit: WorkUnit, in_flight: InFlightRows) -> None:
        """Remember which rows a worker computes, in case the worker dies."""
        self._watch.moved(unit.unit_id)
        self.stored_bytes += in_flight.stored_bytes
        instruments.STORED.add(in_flight.stored_bytes, {instruments.FILE_KIND: "checkpoint"})
        self._crashes.heard(unit.unit_id, in_flight)

    def stored(self) -> dict[int, tuple[FragmentTask, list[CheckpointRef]]]:
        """Return the fragments that are being computed, each with the checkpoints of its stored rows."""
        found = {f.fragment_id: (f.task, list(f.checkpoints)) for f in self._work_queue.begun}
        for fragment_id, refs in self._crashes.stored_now:
            if fragment_id in found:
                found[fragment_id][1].extend(refs)
        return found

    def on_alive(self, unit: WorkUnit) -> None:
        """Note that a worker is alive, although it has nothing to report."""
        self._watch.lives(unit.unit_id)

    def on_report(self, report: ProgressReport) -> None:
        """Count progress. The finished file of a fragment is committed even if its unit has not ended."""
        self._watch.moved(report.unit_id)
        no_server = self.server_breaks.heard(report)
        if no_server is not None:
            self.fail(no_server)
        for refusal in report.servers.refusals:
            if refusal not in self._servers_left_out:
                self._servers_left_out.add(refusal)
                self._status.note("error", f"a server of the function is not used: {refusal}")
        if report.split and not self._told_of_split:
            self._told_of_split = True
            self._status.note(
                "error",
                f"a batch failed and is retried in smaller parts, to find the rows that fail: {report.split}",
            )
        if report.unit_id not in self._reassigned:
            self._status.metrics.report(report)
        if report.result is not None:
            self._crashes.passed(report.unit_id, report.result)
            self._note_staged(report.result)

    def _note_staged(self, result: FragmentResult) -> None:
        if result.staged is None:
            return
        task = self._tasks.of_fragment(result.fragment_id)
        self._crashes.settled(result.fragment_id)
        self._left.note_staged(task)
        if result.fragment_id not in self._committer.files:
            instruments.STORED.add(result.staged.size_bytes, {instruments.FILE_KIND: "column"})
        self._committer.add(task, result.staged, result.failed_before)

    def on_lost(self, unit: WorkUnit) -> None:
        """Hand out a dead worker's unit again. If a single row is known to be the cause, record that row as failed or
        end the job (see `decide_after_crash`).
        """
        self._spans.lost(unit.unit_id)
        self._watch.ended(unit.unit_id)
        self.server_breaks.ended(unit.unit_id)
        if self._over or unit.unit_id in self._reassigned:
            return
        crash = self._crashes.lost(unit)
        self._status.metrics.lost(unit.unit_id, self._rows_stored(unit, crash))
        self._work_queue.give_back(unit, crash.held, crash.stored)
        decision = decide_after_crash(crash, self._crashes, self._udf)
        what = "a worker died while it loaded the function" if crash.loading else "a worker died"
        what = "a call took too long, its worker ended" if crash.overran_seconds else what
        if decision.quarantined is not None:
            self._work_queue.quarantine(decision.quarantined)
            self._status.note("error", f"{what}; recorded as failed: {describe_rows(crash.held)}")
        else:
            self._status.note("error", f"{what}; handed out again: {describe_rows(crash.held or rows_in_flight(unit))}")
        self._pause = decision.pause
        if decision.error is not None:
            self._blame(decision.error, decision.row)
            self.fail(decision.error)
        self._wake()

    def _rows_stored(self, unit: WorkUnit, crash: Crash) -> int | None:
        """Return the number of rows that a dead worker had stored, or None if its checkpoints also have other rows."""
        if self._some_rows or any(work.task.deleted_rows for work in unit.works):
            return None
        stored = ((w, [ref.range for ref in crash.stored.get(w.fragment_id, ())]) for w in unit.works)
        return sum(
            count_offsets(work.ranges) - count_offsets(subtract_ranges(work.ranges, ranges)) for work, ranges in stored
        )

    def _blame(self, error: LemanError, row: RowError | None) -> None:
        if row is not None and self._status.blamed is None:
            self._status.blamed = row
            error.facts.update(job_run.failed_row_facts(row))

    def _wake(self) -> None:
        """Wake waiting workers, because there is new work or none is left."""
        self._freed.set()
        if self.worked_off:
            self.changed.set()

    def on_outcome(self, outcome: UnitOutcome) -> None:
        """Record the outcome of a unit that is done, entirely or in part."""
        self._spans.end(outcome)
        outcome = self._without_server(outcome)
        unit = self._watch.unit_of(outcome.unit_id)
        self._crashes.ended(outcome.unit_id)
        self.server_breaks.ended(outcome.unit_id)
        self._watch.ended(outcome.unit_id)
        if outcome.unit_id in self._reassigned:
            self._heard_again(outcome)
            return
        self._work_queue.note(outcome)
        for result in outcome.results:
            self._waits.seen(result)
        self._status.metrics.outcome(outcome)
        for result in outcome.results:
            self._note_staged(result)
        error = self._too_many_errors() or self._failed(outcome, unit)
        self._wake()
        if error is not None:
            self.fail(error)

    def _without_server(self, outcome: UnitOutcome) -> UnitOutcome:
        """If no server answered this unit but servers answered other units, return an outcome that puts the rows back
        into the queue. Otherwise return the outcome unchanged.
        """
        unit, failure = self._watch.unit_of(outcome.unit_id), outcome.failure
        if unit is None or failure is None or not failure.elsewhere:
            return outcome
        if not self.server_breaks.answer_others(outcome.unit_id):
            return outcome
        worker = self._watch.worker_of(outcome.unit_id)
        self._status.note("error", f"{worker} returns its rows because servers answer other workers: {failure.message}")
        return give_back_outcome(outcome, unit, self._crashes.stored_by(unit))

    def _heard_again(self, outcome: UnitOutcome) -> None:
        """Record the outcome of a silent worker that finished after all.

        The outcome counts unless another worker was faster.
        """
        self._status.note("stall", f"a silent worker finished unit {outcome.unit_id}, which another worker has now")
        self._status.metrics.outcome(outcome)
        for result in outcome.results:
            self._note_staged(result)

    def _failed(self, outcome: UnitOutcome, unit: WorkUnit | None) -> LemanError | None:
        failure = outcome.failure
        if failure is None:
            return None
        outdated = failure.reason == DENIED and unit is not None and self.stores.since(unit)
        if failure.reason in _REPLANNED or outdated:
            self.trouble.append(failure.message)
            self.cleaned_up = self.cleaned_up and failure.reason == _CLEANED_UP
            return None
        if failure.row is not None:
            self._status.blamed = failure.row
        return job_run.unit_error(failure)

    def _too_many_errors(self) -> LemanError | None:
        metrics = self._status.metrics
        return job_run.too_many_failed_rows(self._udf, metrics.budget_rows, metrics.budget_failed)
