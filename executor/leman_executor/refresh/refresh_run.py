"""One running refresh: plan, fill what was never filled, compare rows, compute them in a scratch table, commit."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import replace

from leman._format import view_definitions
from leman_core.model import view_metadata
from leman_core.model.job import Job, JobError, JobState
from leman_core.model.plan import BackfillSpec, OnStaleInput
from leman_core.model.service_errors import Aborted, FailedPrecondition, LemanError, NotFound
from leman_core.model.udf import FunctionVersion
from leman_core.model.view import ChangeKind, FailedNote, RefreshMode, RefreshPlan, RefreshSpec
from leman_core.process.crash_points import crash_point
from leman_core.server.blocking import run_in_job_thread
from leman_executor.jobs import backfill_run
from leman_executor.jobs.async_helpers import retry_unavailable, wait_all
from leman_executor.jobs.backfill_run import BackfillRun, InputColumns
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.job_run import (
    TABLE_REPLACED,
    begin_attempt,
    begin_attempt_at,
    end_stopped,
    end_with_error,
    explain_replaced_table,
    give_incarnation,
    incarnation_of,
    note_lost_commit,
    run_to_completion,
)
from leman_executor.jobs.lineage import LineageFacts
from leman_executor.jobs.work_context import check_env_usable, check_functions_unchanged
from leman_executor.refresh import refresh_work
from leman_executor.refresh.first_fill import FirstFill
from leman_executor.refresh.incremental_refresh import IncrementalRefresh
from leman_executor.refresh.refresh_work import RefreshWork
from leman_executor.scheduling.dispatcher import Cancelled

_MOST_PLANS = 6
#: Changes of the source for which no function is called, but where deleted rows are back.
_EVICTING = frozenset({ChangeKind.GONE, ChangeKind.DELETIONS})


class RefreshRun:
    """A refresh while it runs; see `JobRun`."""

    def __init__(self, job: Job, services: JobEnvironment) -> None:
        self._work = RefreshWork(job, services)
        self.status = self._work.status
        self._inputs = InputColumns(self.status, services, BackfillRun)
        self._planned = False
        #: Whether the last plan was made before inputs were computed, or may have been by another executor.
        self._waits_for_inputs = job.refresh_result is not None and job.refresh_result.mode is RefreshMode.NO_OP
        #: Whether the plan that it has turned out not to be right any more.
        self._refused = False
        #: Of the first plan here, by column.
        self._functions: dict[str, FunctionVersion] = {}

    @property
    def cancelling(self) -> bool:
        """Return whether it was asked to stop for good."""
        return self._work.cancelling

    @property
    def workers(self) -> int:
        """Return 0: each backfill of its scratch table has its own."""
        return 0

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Do nothing: a refresh has several functions, and each backfill of its scratch table measures its own."""

    async def plan(self) -> RefreshPlan:
        """Ask the planner, again and again while it cannot be reached.

        Raises:
            Aborted: TABLE_REPLACED – the view, or the source of which the caller named a version, was dropped, and
                another one has its name by now.
            LemanError: what the planner answers.
        """
        begin = time.monotonic()
        plan = await self._ask_planner()
        functions = {f.column.name: FunctionVersion(f.udf.name, f.udf.version) for f in plan.functions}
        check_functions_unchanged(self.status.env, self._functions or functions, functions)
        self._functions = self._functions or functions
        self._work.failed = plan.definition.failed
        self._work.metrics.planning_seconds += time.monotonic() - begin
        self._decide_version(plan)
        if not self._planned:
            self._planned = True
            self.status.lineage = _lineage_of(plan)
            if self.status.job.refresh_result is None:
                before = plan.definition.base_version
                self._work.journal.say(mode=plan.mode, reason=plan.reason, source_version_before=before)
            self._work.metrics.rows_total = plan.rows
            self.status.update(plan_summary=plan.message)
            self.status.note("plan", plan.message)
            note_lost_commit(self.status, self._work.services.jobs, plan.version)
        elif plan.mode is RefreshMode.FULL:
            self._work.journal.say(mode=plan.mode, reason=plan.reason)
        self._say_what_inputs_changed(plan)
        await self._work.journal.look_back()
        return plan

    def _say_what_inputs_changed(self, plan: RefreshPlan) -> None:
        """Go by the plan that comes after inputs were computed: the one before it did not know what they change."""
        if not self._waits_for_inputs:
            self._waits_for_inputs = self._computes_inputs(plan)
        elif not self._computes_inputs(plan):
            self._waits_for_inputs = False
            self.status.update(plan_summary=plan.message)
            if plan.mode is not RefreshMode.NO_OP:
                self._work.journal.say(mode=plan.mode, reason=plan.reason)

    def _decide_version(self, plan: RefreshPlan) -> None:
        """Keep the version that "latest" means, for an executor that takes the job over.

        While inputs are to be computed it is not decided yet: they make another version.

        Raises:
            FailedPrecondition: INPUT_COLUMN_STALE – the caller named a version, of which no column can be computed.
        """
        spec, incarnation = self._work.spec, incarnation_of(self.status.job, plan.incarnation)
        latest = spec.latest or not spec.src_version
        if not self._computes_inputs(plan):
            request = replace(spec, src_version=plan.target_version, latest=latest)
            self.status.update(request=request, incarnation=incarnation, source_incarnation=plan.target_incarnation)
            return
        columns = ", ".join(stale.column for stale in plan.stale_inputs)
        if not latest:
            raise FailedPrecondition(
                "INPUT_COLUMN_STALE",
                f"Version {plan.target_version} of the source has {columns} stale or not computed, and computing makes "
                "another version. Leave src_version out, or set on_stale_input to 'warn' to use what that version has",
                column=spec.view,
                inputs=columns,
            )
        self.status.update(request=replace(spec, src_version=0, latest=True), incarnation=incarnation)

    def _computes_inputs(self, plan: RefreshPlan) -> bool:
        return bool(plan.stale_inputs) and self._work.spec.on_stale_input is OnStaleInput.FIRST

    async def _after_inputs(self, plan: RefreshPlan) -> RefreshPlan:
        """Compute columns of the source that are not current, where the job is to; return a plan made after that."""
        for _ in range(_MOST_PLANS):
            if not self._computes_inputs(plan):
                return plan
            query, job = plan.definition.query, self.status.job
            await begin_attempt_at(self._work.services.commits, job, plan.definition.source_uri)
            table = BackfillSpec(query.database, query.table, "", concurrency=self._work.spec.concurrency)
            await self._inputs.compute(plan.stale_inputs, table, self._work.check)
            plan = await self.plan()
        columns = ", ".join(stale.column for stale in plan.stale_inputs)
        raise Aborted(
            "NO_PROGRESS",
            f"What the view rests on ({columns}) becomes stale again as soon as it is computed, as others write to its "
            "source. What was finished is kept; run the refresh again.",
        )

    async def _ask_planner(self) -> RefreshPlan:
        """Return a plan for the source version that the refresh began with; where that is gone, for the latest.

        It is gone where it was cleaned away, and where the source was dropped: the version that has its number in
        another source of that name is not the one that was asked for.

        Raises:
            Aborted: TABLE_REPLACED – the view is another one; or the source is, and the caller named a version of it.
            LemanError: what the planner answers.
        """
        spec, job = self._work.spec, self.status.job
        try:
            plan = await self._plan_of(spec)
        except LemanError as error:
            other_source = error.reason != TABLE_REPLACED and await run_in_job_thread(
                refresh_work.is_source_replaced, job
            )
            if not (other_source or (spec.latest and error.reason == "VERSION_NOT_FOUND")):
                raise
        else:
            other_source = refresh_work.plans_another_source(job, plan)
            if not other_source:
                return plan
        if other_source:
            if not spec.latest:
                raise refresh_work.source_replaced_error()
            self.status.note("replan", "the source was dropped, and another table has its name: for its latest version")
        return await self._plan_of(replace(spec, src_version=0))

    async def _plan_of(self, spec: RefreshSpec) -> RefreshPlan:
        """Return a plan of a view that has an incarnation: where there is something to do, it gets one."""
        plan_refresh, job = self._work.services.planner.plan_refresh, self.status.job
        try:
            plan = await retry_unavailable(plan_refresh, spec)
            if plan.mode is not RefreshMode.NO_OP and not (plan.incarnation or job.incarnation):
                begun = await give_incarnation(self._work.services.commits, job, plan.version, plan.identity)
                if begun is not None and begun.version == plan.version + 1:  # no other writer came between
                    plan = replace(plan, version=begun.version, incarnation=begun.incarnation)
                else:
                    plan = await retry_unavailable(plan_refresh, spec)
        except LemanError as error:
            raise await explain_replaced_table(job, error) from None
        incarnation_of(job, plan.incarnation)
        return plan

    def check_env(self, plan: RefreshPlan) -> None:
        """Check that a function can have the job's environment, see `JobRun`."""
        if not self._computes_inputs(plan):  # inputs may have one
            check_env_usable(self.status.env, [function.udf for function in plan.functions])

    def check_resources(self, plan: RefreshPlan) -> None:
        """Check that workers have what the functions ask for, and may run them.

        Raises:
            FailedPrecondition: RESOURCES_NOT_AVAILABLE, where no worker has it.
            PermissionDenied: UDF_NOT_ALLOWED.
            LemanError: Why Spark's workers run no function at present, where the view has one and rows have changed.
        """
        if plan.mode is not RefreshMode.NO_OP:
            self._work.services.check_can_run(function.udf for function in plan.functions)
        for function in plan.functions:
            task_slots_for(function.udf, self._work.spec.concurrency, self._work.services)

    def prefetch(self, plan: RefreshPlan) -> None:
        """Begin to compare rows, which only reads, while the job is not in the job history yet."""
        if not self._computes_inputs(plan):
            self._work.prefetch(plan)

    async def abandon(self) -> None:
        """Do nothing, see `JobRun`: what only reads may go on."""

    async def _finish_at_once(self, plan: RefreshPlan) -> None:
        """End the job: the plan left nothing to do, or an earlier attempt did it."""
        await self._look_for_done_at_once(plan)
        if not self._work.journal.result.view_version:
            self._work.journal.say(rows_reused=plan.rows)
        if self._work.spec.optimize_indices:
            await self._see_to_indexes(plan)
        self._work.journal.say(source_version=plan.target_version, view_version=plan.version)
        await self.end(self._done)

    async def _look_for_done_at_once(self, plan: RefreshPlan) -> None:
        """Say what another executor has done for the same request, which died before it said so, or has not yet."""
        before = view_metadata.done_at_once(plan.schema.metadata or {}, self.status.job.job_id)
        if before is None or self._work.journal.result.view_version:
            return
        gains = before.gains
        self._work.journal.say(mode=gains.mode, reason=gains.reason, source_version_before=gains.source_version_before)
        self._work.journal.expect(before)
        await self._work.journal.look_back()

    async def ended_at_once(self, plan: RefreshPlan) -> bool:
        """End the job where no row of the view changes; False: it has to run.

        No file is written for that, so the job need not be in the job history beforehand.
        """
        if self._computes_inputs(plan):
            return False
        if plan.mode is RefreshMode.NO_OP:
            await self._finish_at_once(plan)
            return True
        if not plan.only_version:
            return False
        try:
            await IncrementalRefresh(self._work).version(plan)
        except LemanError as error:
            self.status.note("replan", f"the source version is not recorded yet: {error.message}")
            return False
        if plan.functions:
            await self._work.drop_leftovers(plan)
        await self.end(self._done)
        return True

    async def ended_soon(self, plan: RefreshPlan) -> bool:
        """End the job where it appends or evicts few rows and calls no function, see `JobRun`.

        Its commit says that it was this job's, for anyone who is given the same request where this executor dies.
        """
        if not self._may_end_soon(plan):
            return False
        try:
            if not await IncrementalRefresh(self._work).few_rows(plan):
                return False
        except LemanError as error:
            self.status.replans(error.message)
            self._refused = True
            return False
        if plan.functions:
            await self._work.drop_leftovers(plan)
        await self._see_to_indexes(plan)
        await self.end(self._done)
        return True

    def _may_end_soon(self, plan: RefreshPlan) -> bool:
        query = plan.definition.query
        unbounded = query.limit is None and not query.offset
        only_gone = unbounded and {change.kind for change in plan.changes} <= _EVICTING
        return (
            plan.mode is RefreshMode.INCREMENTAL
            and not self._computes_inputs(plan)
            and not (plan.unset or plan.stale or plan.only_version or self._work.spec.optimize_indices)
            and (not plan.functions or only_gone)
        )

    async def replan_and_run(self) -> None:
        """Plan and run a job that was taken over, or had to wait for its turn."""
        try:
            await begin_attempt(self._work.services.commits, self.status.job)
            plan = await self.plan()
        except LemanError as error:
            await end_with_error(self, error)
            return
        if self._work.cancelling or self._work.pausing:
            await end_stopped(self, self._work.services)
            return
        # all was done except recording the job's end
        if plan.mode is RefreshMode.NO_OP and not self._computes_inputs(plan):
            await self._work.drop_leftovers(plan)
            await self._finish_at_once(plan)
            return
        await self.status.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: RefreshPlan) -> None:
        """Work until the view is right, and leave the job in a terminal state. Raises only for bugs."""
        await run_to_completion(self, self._work.services, self._refreshed(plan))

    async def _refreshed(self, plan: RefreshPlan) -> bool:
        await self._bring_up_to_date(plan)
        await self._ended(plan)
        return self._done is JobState.DONE_WITH_ERRORS

    async def _ended(self, plan: RefreshPlan) -> None:
        dropping = asyncio.ensure_future(self._work.drop_leftovers(plan))
        await wait_all(dropping, asyncio.ensure_future(self._see_to_indexes(plan)))

    @property
    def _done(self) -> JobState:
        """Return the state of a refresh that did its work: rows that an earlier one left without a value count too."""
        failed = self._work.metrics.rows_failed or self._work.failed.total
        return JobState.DONE_WITH_ERRORS if failed else JobState.DONE

    async def _see_to_indexes(self, plan: RefreshPlan) -> None:
        optimize = self._work.spec.optimize_indices
        if self.status.without_indexes and not optimize:
            return
        await backfill_run.update_or_report_indices(self.status, self._work.services, plan.uri, [], optimize=optimize)

    def cancel(self) -> None:
        """Stop what runs; `run` then ends the job as CANCELLED. Blocks for a moment."""
        self._work.cancelling = True
        self._inputs.cancel()
        self._work.filler.cancel()

    def pause(self) -> None:
        """Stop as soon as the rows at hand are stored; `run` then leaves the job as PAUSED."""
        self._work.pausing = True
        self._inputs.pause()
        self._work.filler.pause()

    def resume(self) -> None:
        """Let the refresh run again after a pause, see `JobRun`."""
        self._work.pausing = False
        self._work.filler.resume()

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """Leave the job in a terminal state, with what it did."""
        with contextlib.suppress(LemanError):  # the view may be gone
            await self._work.journal.look_back()
        self._work.close()
        if state in (JobState.FAILED, JobState.CANCELLED):
            await self._work.drop_of_dropped_view()
        self._work.journal.say(rows_evaluated=self._work.journal.evaluated)
        others = {job: rows for job, rows in self._work.failed.jobs.items() if job != self.status.job.job_id}
        self._work.metrics.left_failed(sum(others.values()))
        if others:
            self.status.update(failed_in=tuple(others))
        await self.status.end(state, error, self._work.services.jobs)

    async def _bring_up_to_date(self, plan: RefreshPlan) -> None:
        why = ""
        for _ in range(_MOST_PLANS):
            self._work.check()
            plan = await self._after_inputs(plan)
            if plan.mode is RefreshMode.NO_OP:
                await self._say_nothing_left(plan)
                return
            refused, self._refused = self._refused, False
            try:
                if not refused and await self._step(plan):
                    return
            except (Aborted, NotFound) as error:
                # the view or the source moved on, or another refresh was faster: look again
                why = f": {error.message}"
                self.status.replans(error.message)
            except Cancelled:
                raise
            except Exception as error:
                told = await self._passing(error)
                if told is None:
                    if isinstance(error, LemanError):
                        raise await explain_replaced_table(self.status.job, error) from None
                    raise
                why = f": {told}"
                self.status.replans(told)
            plan = await self.plan()
            if plan.mode is RefreshMode.NO_OP and not self._computes_inputs(plan):
                await self._say_nothing_left(plan)
                return
        raise Aborted(
            "VIEW_CHANGED",
            f"The view or its source keeps changing under the refresh{why}. What was computed is kept: run it again.",
        )

    async def _say_nothing_left(self, plan: RefreshPlan) -> None:
        """Record that the view is right, by a plan that leaves nothing to do."""
        await self._look_for_done_at_once(plan)
        self._work.journal.say(source_version=plan.target_version, view_version=plan.version)
        await self._work.drop_scratch()

    async def _passing(self, error: Exception) -> str | None:
        """Return why a step failed that a new plan may help; None: it may not."""
        if await self._work.scratch_is_lost():  # another refresh was faster and dropped what both used
            return f"the scratch table is gone: {error}"
        if await run_in_job_thread(refresh_work.is_source_replaced, self.status.job):
            return f"the source is another table now: {error}"
        return None

    async def _step(self, plan: RefreshPlan) -> bool:
        """Take one step towards the target; return True when it is reached."""
        if plan.create_placeholders_again:
            await self._create_placeholders_again(plan)
            return False
        if plan.unset:
            await FirstFill(self._work).run(plan)
            return not (plan.stale or plan.changes) and plan.definition.base_version == plan.target_version
        delta = IncrementalRefresh(self._work)
        only_columns = plan.stale and not plan.changes and plan.mode is not RefreshMode.FULL
        await (delta.columns(plan) if only_columns else delta.rows(plan))
        return True

    async def _create_placeholders_again(self, plan: RefreshPlan) -> None:
        definition = replace(
            plan.definition,
            base_version=plan.target_version,
            base_incarnation=plan.target_incarnation,
            failed=FailedNote(),
        )
        most = self._work.spec.max_rows_per_fragment
        version = await retry_unavailable(
            self._work.services.commits.create_placeholders,
            plan,
            view_definitions.write(plan.schema, definition),
            most,
            attempt=self.status.job.this_attempt,
            request_id=uuid.uuid4().hex,
        )
        crash_point("executor.placeholders_created")
        self.status.note(
            "commit", f"placeholders were created for version {plan.target_version} of the source: {version}"
        )


def _lineage_of(plan: RefreshPlan) -> LineageFacts:
    """Return what a plan makes of what; of columns by SQL it is not known which others they read."""
    query = plan.definition.query
    columns: dict[str, tuple[str, ...]] = {
        column.name: (column.source_column,) for column in query.columns if column.source_column
    }
    columns |= {function.name: function.inputs for function in query.functions}
    return LineageFacts(plan.definition.source_uri, plan.target_version, plan.uri, columns)
