"""One running job: plan, a round of work, and again where something was refused or another job was at it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from core.domain.job import Job, JobError, JobState
from core.domain.plan import Plan
from core.domain.plan_summary import summarise
from core.errors import ATTEMPT_FENCED, Aborted, LemanError
from executor.jobs import job_errors, stale_indices
from executor.jobs.awaiting import patiently
from executor.jobs.job_status import JobStatus
from executor.jobs.plan_execution import PlanExecution, Unsettled
from executor.jobs.services import Services, slots_of
from executor.jobs.takeover import begin_attempt
from executor.scheduling.cancelled import Cancelled
from executor.scheduling.reservation_waits import ReservationWaits

_ROUNDS_WITHOUT_PROGRESS = 5
#: In a row, in which another writer of the column was faster: of so many jobs on one fragment each is through once.
_ROUNDS_OVERTAKEN = 500


class BackfillRun:
    """A job while it runs. `status` is what watchers see. `failed_in(job)`: earlier jobs that recorded failures of the
    job's column and function version, newest first."""

    def __init__(
        self, job: Job, services: Services, failed_in: Callable[[Job], tuple[str, ...]] = lambda _job: ()
    ) -> None:
        self.status = JobStatus(job)
        self.cancelling = False
        self._services = services
        self._failed_in = failed_in
        self._cost: float | None = None
        self._planned = False
        writer = services.settings.writer
        self._holds = ReservationWaits(
            services.settings.executor.reservation_ttl_seconds, writer.stall_idle_rounds * writer.stall_round_seconds
        )
        if job.attempt > 1:
            self.status.metrics.go_on(job.progress)

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """What a row cost in an earlier job of the same function version."""
        self._cost = seconds_per_row

    async def plan(self) -> Plan:
        """Asks the planner, again while it cannot be reached."""
        begin = time.monotonic()
        plan = await patiently(self._services.planner.create_plan, self.status.job.backfill)
        status, spec = self.status, self.status.job.backfill
        if plan.traced:
            await self._services.save_traced(plan)
        status.metrics.planned(plan, time.monotonic() - begin)
        if not self._planned:
            self._planned = True
            header = plan.header
            status.update(
                udf_name=header.udf.name,
                udf_version=header.udf.version,
                reasons=header.reasons,
                plan_summary=summarise(plan),
                # the filter with its relative times pinned holds for the whole job, restarts included; so does the
                # version that a tag stood for
                request=replace(spec, where=header.where, read_version=header.inputs_version, read_tag=""),
            )
            status.note("plan", status.job.plan_summary)
        return plan

    def check_resources(self, plan: Plan) -> None:
        """Raises FailedPrecondition (RESOURCES_NOT_AVAILABLE) where the function asks for what no worker has."""
        slots_of(plan.header.udf, self.status.job.backfill.concurrency, self._services)

    def prefetch(self, _plan: Plan) -> None:
        """Workers read what they need."""

    async def ended_at_once(self, plan: Plan) -> bool:
        """Ends the job where nothing is to be done; False: it has to run."""
        if plan.tasks:
            return False
        if self.status.job.backfill.optimize_indices:
            await self._see_to_indexes(plan)
        metrics = self.status.metrics
        await self.end(JobState.DONE_WITH_ERRORS if metrics.rows_failed + metrics.rows_failed_before else JobState.DONE)
        return True

    async def replan_and_run(self) -> None:
        """A job that was taken over, or had to wait for its turn: from the plan on."""
        try:
            await begin_attempt(self._services.commits, self.status.job)
            plan = await self.plan()
        except LemanError as error:
            await end_by(self, error)
            return
        if self.cancelling:
            await self.end(JobState.CANCELLED)
            return
        await self.status.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: Plan) -> None:
        """Works until nothing is left, and leaves the job in a terminal state. Raises only for bugs."""
        await run_to_completion(self, self._services, self._work(plan))

    async def _work(self, plan: Plan) -> bool:
        await self._rounds(plan)
        if self.status.job.table_version or self.status.job.backfill.optimize_indices:
            await self._see_to_indexes(plan)
        return bool(self.status.metrics.rows_failed + self.status.metrics.rows_failed_before)

    async def _see_to_indexes(self, plan: Plan) -> None:
        optimize = self.status.job.backfill.optimize_indices
        header = plan.header
        await stale_indices.see_to(self.status, self._services, header.uri, [header.output.name], optimize=optimize)

    def cancel(self) -> None:
        """Stops the tasks; `run` then ends the job as CANCELLED. Blocks for a moment."""
        self.cancelling = True
        self._services.local.cancel(self.status.job.job_id)
        self._services.spark.cancel(self.status.job.job_id)

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """Leaves the job in a terminal state; the row that is to blame is kept first."""
        if self.status.blamed is not None:
            await save_blamed(self.status, self._services)
        if self.status.metrics.failed_elsewhere:
            self.status.update(failed_in=self._failed_in(self.status.job))
        await self.status.end(state, error, self._services.save_job)

    async def _rounds(self, plan: Plan) -> None:
        metrics = self.status.metrics
        idle = overtaken = 0
        while plan.tasks:
            plan = await self._migrate_checkpoints(plan)
            evaluated, committed = metrics.rows_evaluated, metrics.fragments_committed
            unsettled = await PlanExecution(self.status, plan, self._services, self._cost, self._holds).work()
            self._tell_waits()
            if unsettled is None:
                return
            self._cost = metrics.seconds_per_row or self._cost
            # rows of a file that is refused again and again are computed again and again
            moved = metrics.rows_evaluated != evaluated and not unsettled.unusable
            if moved or metrics.fragments_committed != committed:
                idle = overtaken = 0
            elif unsettled.overtaken and overtaken < _ROUNDS_OVERTAKEN:
                overtaken += 1  # who was faster has got on, and is through one day
            elif not unsettled.waiting:
                idle += 1
            await self._pause(unsettled, idle, overtaken)
            plan = await self.plan()

    def _tell_waits(self) -> None:
        """What other jobs have reserved and this one waits for, since when."""
        stalls, news = self._holds.turn()
        for stall in news:
            self.status.note("stall", stall.message)
        self.status.update(stalls=tuple(stalls))

    async def _migrate_checkpoints(self, plan: Plan) -> Plan:
        """Has what is stored elsewhere stored where the next plan finds it: through one compaction after the other."""
        while plan.migrated:
            stored = await self._services.migrate_checkpoints(plan, lambda: self.cancelling)
            if self.cancelling:
                raise Cancelled(self.status.job.job_id)
            if not stored:
                break
            self.status.note("migrated", f"{stored} checkpoints of rows that had moved were stored anew")
            plan = await self.plan()
            self.status.metrics.migrated(plan)
        return plan

    async def _pause(self, unsettled: Unsettled, idle: int, overtaken: int) -> None:
        if self.cancelling:
            raise Cancelled(self.status.job.job_id)
        if unsettled.waiting:
            # another job is computing these rows: look again soon, for as long as it renews its reservations
            if self._holds.turns <= 1:
                self.status.note("wait", f"{unsettled.waiting} fragments are being computed by another job")
            await asyncio.sleep(min(0.1 * 2 ** min(self._holds.turns, 4), 1.0))
            return
        if idle >= _ROUNDS_WITHOUT_PROGRESS:
            what = "Files of the table cannot be read or written" if unsettled.failing else "The table keeps changing"
            raise Aborted(
                "NO_PROGRESS",
                f"{what} under the job: {unsettled.why}. What was finished is kept; run the backfill again.",
            )
        self.status.note("replan", f"planning again: {unsettled.why}")
        if idle or overtaken:
            longest = min(0.05 * 2 ** min(max(idle, overtaken), 5), 1.0)
            await asyncio.sleep(random.uniform(longest / 2, longest))


class Run(Protocol):
    """A job while it runs."""

    @property
    def status(self) -> JobStatus: ...
    @property
    def cancelling(self) -> bool: ...

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """Leaves the job in a terminal state."""
        ...


async def save_blamed(status: JobStatus, services: Services) -> None:
    """Keeps the row that a job failed on. A job ends also where that cannot be stored."""
    if status.blamed is None:
        return
    try:
        await services.save_error(status.job, status.blamed)
    except LemanError as error:
        status.note("error", f"the row that is to blame is not stored: {error}")


async def run_to_completion(run: Run, services: Services, work: Awaitable[bool]) -> None:
    """Does a job's work, which says whether rows failed, and ends the job by how that went. Raises only for bugs."""
    ticking = asyncio.create_task(run.status.tick())
    try:
        await run.end(JobState.DONE_WITH_ERRORS if await work else JobState.DONE)
    except Cancelled:
        await run.end(JobState.CANCELLED)
    except LemanError as error:
        await end_by(run, error)
    finally:
        ticking.cancel()
        services.spark.forget(run.status.job.job_id)
        services.local.forget(run.status.job.job_id)


async def end_by(run: Run, error: LemanError) -> None:
    """Ends a job by an error; one that another executor has taken over is left to it."""
    if error.reason == ATTEMPT_FENCED:
        await run.status.leave()
        return
    if run.cancelling:
        await run.end(JobState.CANCELLED)
    else:
        await run.end(JobState.FAILED, job_errors.to_job(error))
