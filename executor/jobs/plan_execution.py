"""One round of a job: works through one plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass

from core.domain.plan import FragmentTask, Plan
from core.domain.work import (
    FragmentResult,
    InFlightRows,
    ProgressReport,
    RowFailure,
    UnitOutcome,
    WorkContext,
    WorkUnit,
)
from core.errors import LemanError
from core.storage_errors import STORE_UNAVAILABLE
from executor.jobs import job_errors
from executor.jobs.awaiting import all_or_first
from executor.jobs.committer import Committer
from executor.jobs.job_status import JobStatus
from executor.jobs.services import Services, slots_of
from executor.jobs.work_context import work_context
from executor.jobs.worker_fleet import WorkerFleet
from executor.scheduling.crash_tracker import CrashTracker, rows_in_flight
from executor.scheduling.poison_rows import decide, describe
from executor.scheduling.reassigned import ReassignedUnits
from executor.scheduling.reservation_waits import ReservationWaits
from executor.scheduling.stalls import WorkerWatch
from executor.scheduling.work_queue import WorkQueue

#: Reason of a refusal where another writer of the column came first.
_FASTER = "FRAGMENT_CHANGED"
#: Times that Spark may give up before a worker has asked for a unit.
_FRUITLESS = 3
#: Reasons of a unit's failure after which a new plan may help.
_REPLANNED = frozenset({STORE_UNAVAILABLE, "FILE_MISSING", "FILE_DAMAGED", "FRAGMENT_GONE", "TABLE_NOT_FOUND"})


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Why a plan was not worked off: fragments that another job has, and what was refused. `unusable`: of the files
    that were refused some would have been as wrong on a table that nobody changed. `overtaken`: whatever was refused,
    another writer of the same column was faster. `failing`: files could not be used."""

    waiting: int
    why: str
    unusable: bool = False
    overtaken: bool = False
    failing: bool = False


class PlanExecution:
    """Works through one plan: hands out units, collects what they did, has it committed."""

    def __init__(
        self, status: JobStatus, plan: Plan, services: Services, cost: float | None, holds: ReservationWaits
    ) -> None:
        self._status = status
        self._plan = plan
        self._services = services
        spec = status.job.backfill
        self._tasks: dict[int, FragmentTask] = {t.fragment_id: t for t in plan.tasks}
        self._asked = slots_of(plan.header.udf, spec.concurrency, services)
        self._work_queue = WorkQueue(
            plan.tasks,
            self._asked.count,
            seconds_per_row=cost,
            task_size=spec.task_size,
            diversity=spec.task_shuffle_diversity,
            first_unit=status.metrics.units,
        )
        self._holds = holds
        self._context: WorkContext = work_context(status.job, plan.header, services.settings, holds.dead)
        self._committer = Committer(
            services.commits,
            plan.header,
            status.metrics,
            status.job.this_attempt,
            fragments=len(plan.tasks),
            granularity=spec.commit_granularity,
            interval_seconds=services.settings.executor.commit_interval_seconds,
            note=status.note,
        )
        self._committer.settled = self._give_back
        self._left: dict[int, str] = {}
        self._first: list[WorkUnit] = self._work_queue.first_units()
        self._freed = asyncio.Event()
        self._trouble: list[str] = []
        self._crashes = CrashTracker()
        writer = services.settings.writer
        self._watch = WorkerWatch(writer.stall_idle_rounds, writer.stall_round_seconds, self._crashes)
        self._workers = WorkerFleet(status, services, self._context, self._asked, self, self._worked_off)
        self._reassigned = ReassignedUnits()
        self._pause = 0.0
        self._handed_out = 0
        self._over = False
        self._busy = ""

    async def work(self) -> Unsettled | None:
        """None when everything is committed."""
        if self._asked.note and not self._status.metrics.spark_jobs:
            self._status.note("resources", self._asked.note)
        self._collect_staged()
        committing = asyncio.create_task(self._committer.run())
        try:
            work = self._compute(), self._watching(committing), self._keeping(committing)
            await all_or_first(*work, asyncio.shield(committing))
        except BaseException:
            await self._services.spark.stop_job(self._status.job.job_id)
            await self._services.local.stop_job(self._status.job.job_id)
            await self._services.release(self._context.holder, [*self._work_queue.scopes_out, *self._left.values()])
            await self._end_commits(committing)
            raise
        finally:
            self._status.metrics.units = self._work_queue.units_made
            self._status.update(stalls=())
            if self._committer.version:
                self._status.update(table_version=self._committer.version)
        unusable = await self._forget_refused()
        rejected = [f"{v.reason}: {v.message}" for v in self._committer.rejected]
        waiting = self._work_queue.busy_fragments
        if not rejected and not waiting and not self._trouble:
            return None
        why = "; ".join(list(dict.fromkeys([*self._trouble, *rejected]))[:3])
        overtaken = not self._trouble and all(v.reason == _FASTER for v in self._committer.rejected)
        pending = 0 if rejected or self._trouble else waiting
        return Unsettled(pending, why, unusable=unusable, overtaken=overtaken, failing=bool(self._trouble))

    async def _end_commits(self, committing: asyncio.Future[None]) -> None:
        """Of a job that ends early: what is finished is committed, unless the job is another executor's by now."""
        if self._status.lost:
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            return
        self._committer.close()
        with contextlib.suppress(LemanError):
            await committing

    def _collect_staged(self) -> None:
        staged = [t for t in self._plan.tasks if t.staged is not None]
        reused = [t for t in self._plan.tasks if t.staged is None and t.checkpoints]
        if staged or reused:
            rows = sum(t.physical_rows - t.deleted_rows for t in staged)
            self._status.note(
                "collected",
                f"Collected {len(staged)} checkpointed fragments with {rows} rows"
                + (f", and checkpoints of {len(reused)} more" if reused else ""),
            )
        for task in staged:
            if task.staged is not None:
                self._committer.add(task, task.staged)

    async def _compute(self) -> None:
        """Runs workers until the work queue is empty. Spark restarts a worker whose worker died; when it gives up on
        one, all are started anew, a few times where none of them asks for work."""
        job_id = self._status.job.job_id
        address = self._services.dispatcher.open(job_id, self)
        try:
            fruitless = 0
            while not (self._work_queue.empty or self._trouble):
                handed_out = self._handed_out
                refused = await self._workers.until_end(address)
                fruitless = fruitless + 1 if self._handed_out == handed_out else 0
                if refused is not None and fruitless >= _FRUITLESS:
                    raise refused
        finally:
            self._over = True
            self._freed.set()
            await self._services.dispatcher.close(job_id)
        self._committer.close()

    # what workers left reserved

    async def _keeping(self, until: asyncio.Future[None]) -> None:
        """Other jobs wait for fragments whose files wait for their commit."""
        while not (await asyncio.wait((until,), timeout=self._context.lease_seconds / 3))[0]:
            if self._left:
                await self._services.keep(self._context.holder, list(self._left.values()))

    async def _give_back(self, fragment_ids: Collection[int]) -> None:
        """There is an answer for these fragments: whoever waits for them plans again."""
        scopes = [self._left.pop(i) for i in fragment_ids if i in self._left]
        if scopes:
            await self._services.release(self._context.holder, scopes)

    # workers that say nothing any more

    async def _watching(self, until: asyncio.Future[None]) -> None:
        """Looks once a round what does not move, until the job is done."""
        seconds = self._services.settings.writer.stall_round_seconds
        while not (await asyncio.wait((until,), timeout=seconds))[0]:
            await self._follow_cluster()
            self._tell_busy()
            told, news = self._watch.turn(self._waits_for())
            for stall in news:
                self._status.note("stall", stall.message)
            self._status.update(stalls=tuple(told))
            for unit in self._watch.silent:
                if not self._reassigned.had_rows_of(unit):
                    self._reassign(unit)

    async def _follow_cluster(self) -> None:
        """A cluster's executors come one after the other, some of them after the job."""
        spec = self._status.job.backfill
        asked = await asyncio.to_thread(slots_of, self._plan.header.udf, spec.concurrency, self._services)
        if asked.count > self._asked.count and not self._over:
            self._status.note("resources", f"{asked.count} workers from now on: the cluster has more cores than before")
            self._asked = asked
            self._work_queue.spread(asked.count)
            self._workers.grow(asked.count)

    def _tell_busy(self) -> None:
        busy = "" if self._with_workers or self._over else self._services.spark.busy
        if busy and busy != self._busy:
            self._status.note("wait", f"the job waits for workers: {busy}")
        self._busy = busy

    def _waits_for(self) -> dict[str, object]:
        """What the job waits for besides workers, in words, with marks that change when it moves."""
        waits = self._committer.waits_for
        if not (self._over or self._work_queue.empty or self._with_workers):
            why = self._services.spark.busy or "Spark may have no free slots"
            waits[f"no worker has asked for work: {why}"] = self._handed_out
        return waits

    def _reassign(self, unit: WorkUnit) -> None:
        """Its worker is silent: the work is handed out again, to a worker that stands in for it. Nobody is blamed, and
        if it comes back after all, whichever file is complete first counts."""
        self._reassigned.add(unit, self._watch.worker_of(unit.unit_id))
        self._status.note("stall", f"{describe(rows_in_flight(unit))} are handed out again, as their worker is silent")
        self._status.metrics.lost(unit.unit_id)
        self._work_queue.give_back(unit, (), self._crashes.stored_by(unit))
        self._workers.start_replacement()
        self._wake()

    # what workers ask and say (executor.scheduling.dispatcher.Feed)

    async def next_unit(self, worker: str, *, beats: bool) -> WorkUnit | None:
        """The next unit, or None when there are none and none can come back, or another worker stands in for this
        one."""
        while not (self._over or self._trouble or self._workers.failure.done() or self._reassigned.has_worker(worker)):
            unit = self._first.pop() if self._first else self._work_queue.take()
            if unit is not None:
                self._handed_out += 1
                if unit.slice_rows:
                    await self._rest()
                self._watch.took(worker, unit, beats=beats)
                return unit
            if not self._work_queue.outstanding:
                break
            self._freed.clear()
            await self._freed.wait()
        self._freed.set()
        return None

    async def _rest(self) -> None:
        """The pause that the error policy asks for before a suspect row is tried again."""
        pause, self._pause = self._pause, 0.0
        if pause:
            await asyncio.wait((self._workers.failure,), timeout=pause)

    def on_in_flight(self, unit: WorkUnit, in_flight: InFlightRows) -> None:
        """What a worker is at, should it die."""
        self._watch.moved(unit.unit_id)
        self._crashes.heard(unit.unit_id, in_flight)

    def on_alive(self, unit: WorkUnit) -> None:
        """A worker lives, although it has nothing to say."""
        self._watch.lives(unit.unit_id)

    def on_report(self, report: ProgressReport) -> None:
        """Progress; a fragment that is staged need not wait for the end of its unit."""
        self._watch.moved(report.unit_id)
        if report.unit_id not in self._reassigned:
            self._status.metrics.report(report)
        if report.result is not None:
            self._crashes.passed(report.unit_id, report.result)
            self._note_staged(report.result)

    def _note_staged(self, result: FragmentResult) -> None:
        if result.staged is not None:
            self._crashes.settled(result.fragment_id)
            if self._context.where:
                task = self._tasks[result.fragment_id]
                self._left[result.fragment_id] = f"{task.fragment_id}:{task.fingerprint}"
            self._committer.add(self._tasks[result.fragment_id], result.staged, result.failed_before)

    def on_lost(self, unit: WorkUnit) -> None:
        """A worker died. Its work is handed out again, until it is clear which row is to blame: see `decide`."""
        self._watch.ended(unit.unit_id)
        if self._over or unit.unit_id in self._reassigned:
            return
        self._status.metrics.lost(unit.unit_id)
        crash = self._crashes.lost(unit)
        self._work_queue.give_back(unit, crash.held, crash.stored)
        decision = decide(crash, self._crashes, self._plan.header.udf)
        what = "a call took too long, its worker ended" if crash.overran_seconds else "a worker died"
        if decision.quarantined is not None:
            self._work_queue.quarantine(decision.quarantined)
            self._status.note("error", f"{what}; {describe(crash.held)} are recorded as failed")
        else:
            self._status.note("error", f"{what}; {describe(crash.held or rows_in_flight(unit))} are handed out again")
        self._pause = decision.pause
        if decision.error is not None:
            self._fail(decision.error, decision.row)
        self._wake()

    @property
    def _with_workers(self) -> int:
        """Units that were given to workers and have not come back."""
        return self._work_queue.outstanding - len(self._first)

    def _worked_off(self) -> bool:
        """No worker has a unit, and there is none to give out."""
        return not self._with_workers and (self._work_queue.empty or bool(self._trouble))

    def _wake(self) -> None:
        """Something came back from a worker: there may be new work, or no more at all."""
        self._freed.set()
        if self._worked_off():
            self._workers.look()

    def _fail(self, error: LemanError, row: RowFailure | None) -> None:
        if row is not None and self._status.blamed is None:
            self._status.blamed = row
            error.facts.update(job_errors.facts_of(row))
        self._workers.fail(error)

    def on_outcome(self, outcome: UnitOutcome) -> None:
        """A unit is done, in whole or in part."""
        self._crashes.ended(outcome.unit_id)
        self._watch.ended(outcome.unit_id)
        if outcome.unit_id in self._reassigned:
            self._came_back(outcome)
            return
        self._work_queue.note(outcome)
        for result in outcome.results:
            self._holds.seen(result)
        self._status.metrics.outcome(outcome)
        for result in outcome.results:
            self._note_staged(result)
        error = self._too_many_errors() or self._failed(outcome)
        self._wake()
        if error is not None:
            self._workers.fail(error)

    def _came_back(self, outcome: UnitOutcome) -> None:
        """A worker that was silent is heard again. What it did counts where no other worker was quicker."""
        self._status.note(
            "stall", f"a silent worker came back with unit {outcome.unit_id}; another one stands in for it"
        )
        self._status.metrics.outcome(outcome)
        for result in outcome.results:
            self._note_staged(result)

    def _failed(self, outcome: UnitOutcome) -> LemanError | None:
        failure = outcome.failure
        if failure is None:
            return None
        if failure.reason in _REPLANNED:
            self._trouble.append(failure.message)
            return None
        if failure.row is not None:
            self._status.blamed = failure.row
        return job_errors.of_unit(failure)

    def _too_many_errors(self) -> LemanError | None:
        metrics = self._status.metrics
        return job_errors.too_many(self._plan.header.udf, metrics.budget_rows, metrics.budget_failed)

    async def _forget_refused(self) -> bool:
        """A file that was refused as damaged, missing or lacking rows must not be found staged again. Says whether one
        was."""
        unusable = [v for v in self._committer.rejected if v.reason.startswith(("FILE_", "ROW_COUNT", "TYPE_"))]
        for decision in unusable:
            task = self._tasks[decision.fragment_id]
            file = self._committer.files[decision.fragment_id]
            await self._services.forget_file(self._plan.header.uri, task, file)
        return bool(unusable)
