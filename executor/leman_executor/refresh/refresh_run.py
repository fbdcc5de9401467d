"""Run one refresh: make a plan, take the step that it requires, and repeat until the view is current.

    PLAN -> INPUTS         compute columns of the source that are not current    -> PLAN
         -> PLACEHOLDERS   recreate the placeholders of an unfilled view         -> PLAN
         -> FILL           fill placeholders, each fragment as it is computed    -> PLAN, or END
         -> DELTA          compare rows, compute them, install all in one commit -> END
         -> NOTHING                                                              -> END

If another writer committed first, a step fails, and PLAN follows. A small delta is committed before the job is in the
job history.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
import uuid
from dataclasses import replace

from leman._format import view_definitions
from leman._format.column_bindings import FunctionVersion
from leman._format.view_definitions import FailedNote
from leman_core.model import view_metadata
from leman_core.model.job import Job, JobError, JobState
from leman_core.model.plan import BackfillSpec, OnStaleInput
from leman_core.model.service_errors import Aborted, FailedPrecondition, LemanError, NotFound
from leman_core.model.view import ChangeKind, RefreshMode, RefreshPlan, RefreshSpec
from leman_core.process.crash_points import crash_point
from leman_executor.jobs import backfill_run
from leman_executor.jobs.async_helpers import retry_unavailable, wait_all
from leman_executor.jobs.backfill_run import BackfillRun, InputColumns
from leman_executor.jobs.incarnation_check import (
    Replaced,
    check_incarnation,
    explain_replaced_table,
    find_replaced,
    plans_other_source,
    replaced_error,
)
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.job_run import (
    begin_attempt,
    begin_attempt_at,
    end_stopped,
    end_with_error,
    give_incarnation,
    note_lost_commit,
    run_to_completion,
)
from leman_executor.jobs.lineage import LineageFacts
from leman_executor.jobs.work_context import check_env_usable, check_functions_unchanged
from leman_executor.refresh.refresh_steps import FirstFill, apply_delta
from leman_executor.refresh.refresh_work import RefreshWork
from leman_executor.scheduling.dispatcher import Cancelled

#: Maximum number of steps in one job, each with a new plan. If no one else writes, a view needs at most four.
_MOST_STEPS = 8
#: Kinds of source changes that need no function call, unless deleted rows were restored.
_EVICTING = frozenset({ChangeKind.GONE, ChangeKind.DELETIONS})


class Step(enum.Enum):
    """The next step of a refresh."""

    INPUTS = enum.auto()
    NOTHING = enum.auto()
    PLACEHOLDERS = enum.auto()
    FILL = enum.auto()
    DELTA = enum.auto()


def next_step(plan: RefreshPlan, on_stale_input: OnStaleInput) -> Step:
    """Return the step that a plan requires."""
    if plan.stale_inputs and on_stale_input is OnStaleInput.FIRST:
        return Step.INPUTS
    if plan.mode is RefreshMode.NO_OP:
        return Step.NOTHING
    if plan.create_placeholders_again:
        return Step.PLACEHOLDERS
    return Step.FILL if plan.unset else Step.DELTA


class RefreshRun:
    """A running refresh; see `JobRun`."""

    def __init__(self, job: Job, services: JobEnvironment) -> None:
        self._work = RefreshWork(job, services)
        self.status = self._work.status
        self._inputs = InputColumns(self.status, services, BackfillRun)
        self._planned = False
        #: Whether inputs were computed after the last plan, or may have been computed by another executor.
        self._waits_for_inputs = job.refresh_result is not None and job.refresh_result.mode is RefreshMode.NO_OP
        #: Whether a step failed before the job was in the job history, so that its plan cannot be used.
        self._refused = False
        #: By column, the functions in the first plan of this executor.
        self._functions: dict[str, FunctionVersion] = {}

    @property
    def cancelling(self) -> bool:
        """Return whether the refresh is being cancelled."""
        return self._work.cancelling

    @property
    def workers(self) -> int:
        """Return 0: only the backfills of the scratch table have workers."""
        return 0

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Ignore the estimate. Each backfill of the scratch table measures the cost of its own function."""

    async def plan(self) -> RefreshPlan:
        """Ask the planner for a plan. Retry while the planner is unreachable.

        Raises:
            Aborted: TABLE_REPLACED – the view was dropped, and a new table has its name. If the caller set a version of
                the source, this is also raised for the source.
            LemanError: The planner's error.
        """
        begin = time.monotonic()
        try:
            plan = await self._ask_planner()
            incarnation = check_incarnation(self.status.job, plan.incarnation)
        except LemanError as error:
            raise await explain_replaced_table(self.status.job, error) from None
        functions = {f.column.name: FunctionVersion(f.udf.name, f.udf.version) for f in plan.functions}
        check_functions_unchanged(self.status.env, self._functions or functions, functions)
        self._functions = self._functions or functions
        self._work.failed = plan.definition.failed
        self._work.metrics.planning_seconds += time.monotonic() - begin
        self._keep_version(plan, incarnation)
        self._report_plan(plan)
        await self._work.journal.look_back()
        return plan

    async def _ask_planner(self) -> RefreshPlan:
        """Return a plan for the source version with which the refresh began or, if that no longer exists, for the
        latest version.

        A version no longer exists if it was cleaned up, or if the source was dropped. A new source with the same name
        may have a version with the same number, but that has other rows.
        """
        spec, job = self._work.spec, self.status.job
        try:
            plan = await self._plan_of(spec)
            replaced = plans_other_source(job, plan)
            if not replaced:
                return plan
        except LemanError as error:
            replaced = await find_replaced(job) is Replaced.SOURCE
            if not (replaced or (spec.latest and error.reason == "VERSION_NOT_FOUND")):
                raise
        if replaced:
            if not spec.latest:
                raise replaced_error(job, Replaced.SOURCE)
            self.status.note(
                "replan",
                "the source was dropped, and a new table has its name: the refresh uses that table's latest version",
            )
        return await self._plan_of(replace(spec, src_version=0))

    async def _plan_of(self, spec: RefreshSpec) -> RefreshPlan:
        """Return a plan. If the plan has work but the view has no incarnation, give the view an incarnation."""
        plan_refresh, job = self._work.services.planner.plan_refresh, self.status.job
        plan = await retry_unavailable(plan_refresh, spec)
        if plan.mode is RefreshMode.NO_OP or plan.incarnation or job.incarnation:
            return plan
        begun = await give_incarnation(self._work.services.commits, job, plan.version, plan.identity)
        if begun is not None and begun.version == plan.version + 1:  # no other writer committed in between
            return replace(plan, version=begun.version, incarnation=begun.incarnation)
        return await retry_unavailable(plan_refresh, spec)

    def _keep_version(self, plan: RefreshPlan, incarnation: str) -> None:
        """Store in the job which version "latest" stands for, in case another executor takes the job over.

        While inputs have to be computed, the version is not fixed yet, because computing them makes a new version.

        Raises:
            FailedPrecondition: INPUT_COLUMN_STALE – the caller set a version whose columns are stale, and computing
                them would make another version.
        """
        spec = self._work.spec
        latest = spec.latest or not spec.src_version
        if self._step_of(plan) is not Step.INPUTS:
            request = replace(spec, src_version=plan.target_version, latest=latest)
            self.status.update(request=request, incarnation=incarnation, source_incarnation=plan.target_incarnation)
            return
        if not latest:
            columns = _stale_columns(plan)
            raise FailedPrecondition(
                "INPUT_COLUMN_STALE",
                f"Version {plan.target_version} of the source has {columns} stale or not computed, and computing them "
                "makes another version. Leave src_version out, or set on_stale_input to 'warn' to use the values of "
                "that version",
                column=spec.view,
                inputs=columns,
            )
        self.status.update(request=replace(spec, src_version=0, latest=True), incarnation=incarnation)

    def _report_plan(self, plan: RefreshPlan) -> None:
        """Store a summary of the plan in the job. This is done for the first plan, for a full one, and for the first
        plan after inputs were computed.
        """
        work, computes_inputs = self._work, self._step_of(plan) is Step.INPUTS
        if not self._planned:
            self._planned = True
            self.status.lineage = _lineage_of(plan)
            if self.status.job.refresh_result is None:
                before = plan.definition.base_version
                work.journal.update(mode=plan.mode, reason=plan.reason, source_version_before=before)
            work.metrics.rows_total = plan.rows
            self.status.update(plan_summary=plan.message)
            self.status.note("plan", plan.message)
            note_lost_commit(self.status, work.services.jobs, plan.version)
        elif plan.mode is RefreshMode.FULL:
            work.journal.update(mode=plan.mode, reason=plan.reason)
        if self._waits_for_inputs and not computes_inputs:  # the previous plan did not know what they would change
            self.status.update(plan_summary=plan.message)
            if plan.mode is not RefreshMode.NO_OP:
                work.journal.update(mode=plan.mode, reason=plan.reason)
        self._waits_for_inputs = computes_inputs

    def _step_of(self, plan: RefreshPlan) -> Step:
        return next_step(plan, self._work.spec.on_stale_input)

    def check_env(self, plan: RefreshPlan) -> None:
        """Check that the functions can use the job's environment variables; see `JobRun`."""
        if self._step_of(plan) is not Step.INPUTS:  # the functions of inputs may use them
            check_env_usable(self.status.env, [function.udf for function in plan.functions])

    def check_resources(self, plan: RefreshPlan) -> None:
        """Check that workers may run the functions, and have the resources that the functions ask for.

        Raises:
            FailedPrecondition: RESOURCES_NOT_AVAILABLE – no worker has the resources.
            PermissionDenied: UDF_NOT_ALLOWED.
            LemanError: The refresh calls a function, and Spark's workers cannot run functions now.
        """
        if plan.mode is not RefreshMode.NO_OP:
            self._work.services.check_can_run(function.udf for function in plan.functions)
        for function in plan.functions:
            task_slots_for(function.udf, self._work.spec.concurrency, self._work.services)

    async def ended_at_once(self, plan: RefreshPlan) -> bool:
        """If no row of the view changes, end the job and return True. Otherwise return False."""
        step = self._step_of(plan)
        return (step is Step.NOTHING or (step is Step.DELTA and plan.only_version)) and await self._ended(plan)

    async def ended_soon(self, plan: RefreshPlan) -> bool:
        """If the refresh appends or evicts few rows and calls no function, do its work, end the job and return True;
        see `JobRun`.

        The commit names the job, so that a retry of the request after a crash gets the same response.
        """
        if self._refused or self._step_of(plan) is not Step.DELTA or plan.mode is RefreshMode.FULL:
            return False
        query = plan.definition.query
        unbounded = query.limit is None and not query.offset
        only_gone = unbounded and {change.kind for change in plan.changes} <= _EVICTING
        calls_none = not plan.stale and (not plan.functions or only_gone)
        return calls_none and not self._work.spec.optimize_indices and await self._ended(plan)

    async def _ended(self, plan: RefreshPlan) -> bool:
        """Take the step of a plan. If no work is left, end the job and return True."""
        try:
            if not await self._step(plan):
                return False
        except LemanError as error:
            self.status.replans(error.message)
            self._refused = True
            return False
        await self._finish(plan)
        await self.end(self._done)
        return True

    def prefetch(self, plan: RefreshPlan) -> None:
        """Start to compare rows, which writes nothing."""
        if self._step_of(plan) is Step.DELTA:
            self._work.comparison(plan)

    async def abandon(self) -> None:
        """Do nothing. The comparison only reads, so it may continue; see `JobRun`."""

    async def replan_and_run(self) -> None:
        """Make a plan and run it, for a job that was taken over or queued."""
        try:
            await begin_attempt(self._work.services.commits, self.status.job)
            plan = await self.plan()
        except LemanError as error:
            await end_with_error(self, error)
            return
        if self._work.cancelling or self._work.pausing:
            await end_stopped(self, self._work.services)
            return
        await self.status.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: RefreshPlan) -> None:
        """Work until the view is current, and end the job or leave it paused. Only a bug raises."""
        await run_to_completion(self, self._work.services, self._refreshed(plan))

    async def _refreshed(self, plan: RefreshPlan) -> bool:
        """Make plans and take their steps until the view is current. Return whether rows failed."""
        self._work.in_history = True
        why = ""
        for _ in range(_MOST_STEPS):
            self._work.check()
            if self._refused:
                self._refused = False
            elif self._step_of(plan) is Step.INPUTS:
                await self._compute_inputs(plan)
            else:
                try:
                    if await self._step(plan):
                        await self._finish(plan)
                        return self._done is JobState.DONE_WITH_ERRORS
                except Cancelled:
                    raise
                except Exception as error:
                    told = await self._why_replan(error)
                    if told is None:
                        raise
                    why = f": {told}"
                    self.status.replans(told)
            plan = await self.plan()
        if self._step_of(plan) is Step.INPUTS:
            raise Aborted(
                "NO_PROGRESS",
                f"What the view reads ({_stale_columns(plan)}) becomes stale again as soon as it is computed, as "
                "others write to its source. Finished work is kept; run the refresh again.",
            )
        raise Aborted(
            "VIEW_CHANGED",
            f"The view or its source keeps changing under the refresh{why}. Finished work is kept: run it again.",
        )

    async def _why_replan(self, error: Exception) -> str | None:
        """Return why a step failed, if a new plan may help. Otherwise return None, or raise a clearer error."""
        if isinstance(error, Aborted | NotFound):  # the view or the source changed, or another refresh was faster
            return error.message
        if await self._work.scratch.is_lost():  # another refresh has dropped the scratch table of both
            return f"the scratch table is gone: {error}"
        if await find_replaced(self.status.job) is Replaced.SOURCE:
            return f"the source was replaced by another table: {error}"
        if isinstance(error, LemanError):
            raise await explain_replaced_table(self.status.job, error) from None
        return None

    async def _step(self, plan: RefreshPlan) -> bool:
        """Take the step that a plan requires. Return whether the view is then current."""
        step = self._step_of(plan)
        if step is Step.NOTHING:
            await self._record_nothing_left(plan)
            return True
        if step is Step.PLACEHOLDERS:
            await self._create_placeholders_again(plan)
            return False
        if step is Step.FILL:
            await FirstFill(self._work, plan).run()
            return not (plan.stale or plan.changes) and plan.definition.base_version == plan.target_version
        return await apply_delta(self._work, plan)

    async def _compute_inputs(self, plan: RefreshPlan) -> None:
        query, job = plan.definition.query, self.status.job
        await begin_attempt_at(self._work.services.commits, job, plan.definition.source_uri)
        table = BackfillSpec(query.database, query.table, "", concurrency=self._work.spec.concurrency)
        await self._inputs.compute(plan.stale_inputs, table, self._work.check)

    async def _create_placeholders_again(self, plan: RefreshPlan) -> None:
        definition = replace(
            plan.definition,
            base_version=plan.target_version,
            base_incarnation=plan.target_incarnation,
            failed=FailedNote(),
        )
        version = await retry_unavailable(
            self._work.services.commits.create_placeholders,
            plan,
            view_definitions.write(plan.schema, definition),
            self._work.spec.max_rows_per_fragment,
            attempt=self.status.job.this_attempt,
            request_id=uuid.uuid4().hex,
        )
        crash_point("executor.placeholders_created")
        self.status.note(
            "commit", f"placeholders were created for version {plan.target_version} of the source: {version}"
        )

    async def _record_nothing_left(self, plan: RefreshPlan) -> None:
        """Record in the job that the view is current. Also record commits that a dead executor did not record."""
        journal = self._work.journal
        before = view_metadata.done_at_once(plan.schema.metadata or {}, self.status.job.job_id)
        if before is not None and not journal.result.view_version:
            gains = before.gains
            journal.update(mode=gains.mode, reason=gains.reason, source_version_before=gains.source_version_before)
            journal.note_request(before)
            await journal.look_back()
        if not journal.result.view_version:
            journal.update(rows_reused=plan.rows)
        journal.update(source_version=plan.target_version, view_version=plan.version)

    async def _finish(self, plan: RefreshPlan) -> None:
        """Delete the scratch data of the refresh. Update or check the indexes."""
        work, optimize = self._work, self._work.spec.optimize_indices
        wrote = bool(self.status.job.table_version)
        tasks = []
        if plan.definition.query.functions and (wrote or work.in_history):
            tasks.append(asyncio.ensure_future(work.scratch.drop_leftovers(plan)))
        if optimize or (wrote and not self.status.without_indexes):
            indices = backfill_run.update_or_report_indices(self.status, work.services, plan.uri, [], optimize=optimize)
            tasks.append(asyncio.ensure_future(indices))
        if tasks:
            await wait_all(*tasks)

    @property
    def _done(self) -> JobState:
        """Return the final state of a finished refresh.

        Rows that an earlier refresh left without a value count as failed.
        """
        failed = self._work.metrics.rows_failed or self._work.failed.total
        return JobState.DONE_WITH_ERRORS if failed else JobState.DONE

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """End the job in a state, with its final counts."""
        work = self._work
        with contextlib.suppress(LemanError):  # the view may have been dropped
            await work.journal.look_back()
        work.close()
        if state in (JobState.FAILED, JobState.CANCELLED):
            await work.scratch.drop_of_dropped_view()
        work.journal.update(rows_evaluated=work.journal.evaluated)
        others = {job: rows for job, rows in work.failed.jobs.items() if job != self.status.job.job_id}
        work.metrics.left_failed(sum(others.values()))
        if others:
            self.status.update(failed_in=tuple(others))
        await self.status.end(state, error, work.services.jobs)

    def cancel(self) -> None:
        """Stop the workers. `run` then ends the job as CANCELLED. Blocks for a moment."""
        self._work.cancelling = True
        self._inputs.cancel()
        self._work.scratch.cancel()

    def pause(self) -> None:
        """Stop as soon as the computed rows are stored. `run` then leaves the job as PAUSED."""
        self._work.pausing = True
        self._inputs.pause()
        self._work.scratch.pause()

    def resume(self) -> None:
        """Allow a paused refresh to run again; see `JobRun`."""
        self._work.pausing = False
        self._work.scratch.resume()


def _stale_columns(plan: RefreshPlan) -> str:
    return ", ".join(stale.column for stale in plan.stale_inputs)


def _lineage_of(plan: RefreshPlan) -> LineageFacts:
    """Return which columns a plan computes, each with its inputs. The inputs of SQL columns are unknown."""
    query = plan.definition.query
    columns: dict[str, tuple[str, ...]] = {
        column.name: (column.source_column,) for column in query.columns if column.source_column
    }
    columns |= {function.name: function.inputs for function in query.functions}
    return LineageFacts(plan.definition.source_uri, plan.target_version, plan.uri, columns)
