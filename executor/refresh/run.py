"""One running refresh: plan, fill what was never filled, compare rows, compute them in a stage, splice."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import replace

import tenacity

from core import view_metadata
from core.domain.job import Job, JobError, JobState
from core.domain.view import (
    RefreshMode,
    RefreshPlan,
    RefreshResult,
)
from core.errors import Aborted, LemanError, NotFound, Unavailable
from core.lance_io import view_drop
from executor.cancelled import Cancelled
from executor.refresh.first_fill import FirstFill
from executor.refresh.splice import Splice
from executor.refresh.work import RefreshWork
from executor.run import job_error
from executor.services import Services, lanes_of

_ROUNDS_WITHOUT_END = 6
_PATIENCE_SECONDS = 120.0


class RefreshRun:
    """A refresh while it runs; for the job manager the same as a `JobRun`."""

    def __init__(self, job: Job, services: Services) -> None:
        self._work = RefreshWork(job, services)
        self.board = self._work.board
        self._planned = False

    @property
    def cancelling(self) -> bool:
        """Whether it was asked to stop."""
        return self._work.cancelling

    def know_cost(self, seconds_per_row: float | None) -> None:
        """A refresh has several functions: each backfill of its stage measures its own."""

    async def plan(self) -> RefreshPlan:
        """Asks the planner, again while it cannot be reached."""
        begin = time.monotonic()
        plan = await self._ask_planner()
        self._work.tally.planning_seconds += time.monotonic() - begin
        if not self._planned:
            self._planned = True
            # "latest" is decided once: who takes the job over goes on with the same stage
            spec = replace(self._work.spec, src_version=plan.target_version)
            self._work.result = RefreshResult(
                mode=plan.mode, reason=plan.reason, source_version_before=plan.definition.base_version
            )
            self._work.tally.rows_total = plan.rows
            self.board.update(refresh=spec, plan_summary=plan.message)
            self.board.note("plan", plan.message)
        return plan

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    )
    async def _ask_planner(self) -> RefreshPlan:
        return await self._work.services.planner.plan_refresh(self._work.spec)

    def nothing_to_do(self, plan: RefreshPlan) -> bool:
        """Whether the plan leaves the view as it is."""
        return plan.mode is RefreshMode.NO_OP

    def check_resources(self, plan: RefreshPlan) -> None:
        """Raises FailedPrecondition (RESOURCES_NOT_AVAILABLE) where a function asks for what no worker has."""
        for function in plan.functions:
            lanes_of(function.udf, self._work.spec.concurrency, self._work.services)

    async def finish_at_once(self, plan: RefreshPlan) -> None:
        """The plan left nothing to do."""
        self._work.say(rows_reused=plan.rows, source_version=plan.target_version, view_version=plan.version)
        await self._end(JobState.DONE)

    async def replan_and_run(self) -> None:
        """A job that was taken over: from the plan on."""
        try:
            plan = await self.plan()
        except LemanError as error:
            await self._end(JobState.FAILED, job_error(error))
            return
        await self.board.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: RefreshPlan) -> None:
        """Works until the view is right, and leaves the job in a terminal state. Raises only for bugs."""
        ticking = asyncio.create_task(self.board.tick())
        try:
            await self._rounds(plan)
            await self._drop_stages()
            await self._end(JobState.DONE_WITH_ERRORS if self._work.tally.all_failed else JobState.DONE)
        except Cancelled:
            await self._end(JobState.CANCELLED)
        except LemanError as error:
            if self._work.cancelling:
                await self._end(JobState.CANCELLED)
            else:
                await self._end(JobState.FAILED, job_error(error))
        finally:
            ticking.cancel()
            self._work.services.spark.forget(self.board.job.job_id)
            self._work.services.local.forget(self.board.job.job_id)

    def cancel(self) -> None:
        """Ends what runs; `run` then ends the job as CANCELLED. Blocks for a moment."""
        self._work.cancelling = True
        self._work.filler.cancel()

    async def _drop_stages(self) -> None:
        """Those of refreshes that were cut short: the view has moved on, and nobody else would find them."""
        with contextlib.suppress(Unavailable):
            await asyncio.to_thread(view_drop.drop_stages, self._work.spec.database, self._work.spec.view)

    async def _end(self, state: JobState, error: JobError | None = None) -> None:
        self._work.say(rows_evaluated=self._work.tally.all_evaluated)
        await self.board.end(state, error, self._work.services.save_job)

    # rounds

    async def _rounds(self, plan: RefreshPlan) -> None:
        for _ in range(_ROUNDS_WITHOUT_END):
            self._work.check()
            try:
                if await self._round(plan):
                    return
            except (Aborted, NotFound) as error:
                # the view or the source moved on, or another refresh was faster: look again
                self.board.note("replan", f"planning again: {error.message}")
            plan = await self.plan()
            if self.nothing_to_do(plan):
                self._work.say(source_version=plan.target_version, view_version=plan.version)
                return
        raise Aborted(
            "VIEW_CHANGED",
            "The view or its source keeps changing under the refresh. What was computed is kept: run it again.",
        )

    async def _round(self, plan: RefreshPlan) -> bool:
        """One step towards the target; True when it is reached."""
        if plan.lay_again:
            await self._lay_again(plan)
            return False
        if plan.unset:
            await FirstFill(self._work).run(plan)
            return False
        if plan.stale and plan.mode is not RefreshMode.FULL:
            await Splice(self._work).columns(plan)
            return False
        await Splice(self._work).rows(plan)
        return True

    async def _lay_again(self, plan: RefreshPlan) -> None:
        definition = replace(
            plan.definition, base_version=plan.target_version, base_incarnation=plan.target_incarnation
        )
        most = self._work.spec.max_rows_per_fragment
        version = await self._work.services.commits.lay_placeholders(
            plan, view_metadata.write(plan.schema, definition), most, request_id=uuid.uuid4().hex
        )
        self.board.note("commit", f"placeholders were laid for version {plan.target_version} of the source: {version}")
