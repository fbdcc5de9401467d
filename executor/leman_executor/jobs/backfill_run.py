"""Run one backfill: compute stale inputs, execute one plan after another until no work is left, then update indexes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import UdfKind
from leman_core.model.job import Job, JobError, JobState
from leman_core.model.plan import BackfillSpec, OnStaleInput, Plan, PlanHeader, StaleInput, summarize_plan
from leman_core.model.service_errors import Aborted, FailedPrecondition, LemanError
from leman_core.model.work import RowError
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage import lance_tables
from leman_core.storage.locations import table_uri
from leman_executor.jobs import job_run
from leman_executor.jobs.async_helpers import retry_unavailable
from leman_executor.jobs.incarnation_check import check_incarnation, explain_replaced_table
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.job_run import (
    JobRun,
    begin_attempt,
    end_stopped,
    end_with_error,
    give_incarnation,
    note_lost_commit,
    run_to_completion,
)
from leman_executor.jobs.job_status import PARENT_EVENT_KINDS, ChildJobStatus, ChildJobStore, JobStatus
from leman_executor.jobs.lineage import LineageFacts
from leman_executor.jobs.plan_execution import PlanExecution, UnsettledReasons
from leman_executor.jobs.work_context import check_env_usable, check_functions_unchanged
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.scheduling.stalls import ReservationWaits


async def update_or_report_indices(
    status: JobStatus, services: JobEnvironment, uri: str, columns: Sequence[str], *, optimize: bool
) -> None:
    """Update or check indexes. Note on the status which indexes lack rows, because a search that uses only the index
    does not find them.

    Args:
        columns: The columns whose indexes to update or check; all, if empty.
        optimize: Whether the coordinator updates the indexes.

    Raises:
        LemanError: The coordinator cannot update the indexes.
    """
    if optimize:
        found = await retry_unavailable(services.commits.optimize_indices, uri, columns)
    else:
        try:
            _, found = await run_in_job_thread(lance_tables.index_coverage, uri, columns)
        except LemanError as error:  # the requested work is done anyway
            status.note("index", f"the indexes of the table cannot be checked: {error.message}")
            return
    stale = tuple(index for index in found if index.is_stale)
    status.update(stale_indices=stale)
    for index in stale:
        status.note("index", f"index {index.name} lacks {index.rows_left_out} rows, which a fast search does not find")


#: Creates the backfill of an input.
RunOf = Callable[[Job, JobEnvironment, JobStatus], JobRun]


class InputColumns:
    """Backfill the stale inputs of one job, one column after another.

    An input is a computed column that the backfill or refresh reads.
    """

    def __init__(self, status: JobStatus, services: JobEnvironment, run_of: RunOf) -> None:
        self._status = status
        self._services = services
        self._run_of = run_of
        self._running: JobRun | None = None

    async def compute(
        self, inputs: Sequence[StaleInput], table: BackfillSpec, check_stop: Callable[[], None], incarnation: str = ""
    ) -> None:
        """Compute the stale and missing rows of the inputs.

        If other writers change what an input is computed from meanwhile, this ends early. The next plan then lists the
        columns that became stale.

        Args:
            inputs: The columns. Each comes before the columns that read it.
            table: A specification with the table and the number of workers; its column is empty.
            check_stop: Raises Cancelled if the job was asked to stop.
            incarnation: The expected incarnation of the table (its unique id, which a new table of the same name does
                not share). If empty, it is not checked.

        Raises:
            Cancelled: The job was asked to stop, or another executor has taken it over.
            LemanError: The error that ended the backfill of an input.
        """
        for stale in inputs:
            check_stop()
            try:
                await self._column(replace(table, column=stale.column), incarnation)
            except FailedPrecondition as error:
                if error.reason != "INPUT_COLUMN_STALE":
                    raise
                break
        check_stop()

    async def _column(self, spec: BackfillSpec, incarnation: str) -> None:
        whole, column = self._status.job, spec.column
        now = time.time()
        job = Job(
            whole.job_id,
            "",
            JobState.PLANNING,
            spec,
            now,
            now,
            attempt=whole.attempt,
            incarnation=incarnation,
        )
        services = replace(self._services, jobs=ChildJobStore(self._services.jobs))
        part = self._run_of(
            job, services, ChildJobStatus(job, self._status, PARENT_EVENT_KINDS | {"plan", "commit"}, column)
        )
        self._running = part
        try:
            plan = await part.plan()
            if not await part.ended_at_once(plan):
                part.check_resources(plan)
                await part.run(plan)
        finally:
            self._running = None
            self._status.metrics.input_rows_evaluated += part.status.metrics.rows_evaluated
        ended = part.status.job
        if part.status.lost or ended.state is JobState.CANCELLED:
            raise Cancelled(whole.job_id)
        if ended.error is not None:
            raise job_run.from_job_error(ended.error)

    def cancel(self) -> None:
        """Cancel the running backfill. Blocks for a moment."""
        if self._running is not None:
            self._running.cancel()

    def pause(self) -> None:
        """Stop the running backfill as soon as its computed rows are stored."""
        if self._running is not None:
            self._running.pause()


_PLANS_WITHOUT_PROGRESS = 5
#: If computing a row takes less than this many seconds, large numbers of rows are computed without a comparison, which
#: would take as long.
_CHEAP_SECONDS = 1e-6
_CHEAP_ROWS = 100_000
#: Maximum number of consecutive plans that fail because other writers of the column commit first. Even if this many
#: jobs work on one fragment, each succeeds.
_PLANS_OVERTAKEN = 500


def lineage_of(header: PlanHeader) -> LineageFacts:
    """Return which column a plan computes, from which inputs and with which function."""
    version = header.inputs_version or header.read_version
    return LineageFacts(header.uri, version, header.uri, {header.output.name: header.input_columns})


class BackfillRun:
    """A running backfill; see `JobRun`.

    Args:
        services: The interfaces to other parts of the executor, and the settings.
        status: The status that watchers of the job see. If None, the run creates a status.
        is_scratch: Whether the table is a scratch table, which has no indexes and, while the job runs, no readers.
    """

    def __init__(
        self, job: Job, services: JobEnvironment, status: JobStatus | None = None, *, is_scratch: bool = False
    ) -> None:
        #: The status that watchers of the job see.
        self.status = status or JobStatus(job)
        #: Set when the job was asked to stop or to pause.
        self._stop = threading.Event()
        self._cancelled = False
        self._execution: PlanExecution | None = None
        #: The execution that `prefetch` started, before the job was in the history.
        self._ahead: PlanExecution | None = None
        self._services = services
        self._inputs = InputColumns(self.status, services, BackfillRun)
        self._is_scratch = is_scratch
        self._cost: float | None = None
        self._planned = False
        self._workers = 0
        writer = services.settings.writer
        self._waits = ReservationWaits(
            services.settings.executor.reservation_ttl_seconds, writer.stall_idle_checks * writer.stall_check_seconds
        )
        if job.attempt > 1:
            self.status.metrics.go_on(job.progress)

    @property
    def cancelling(self) -> bool:
        return self._cancelled

    @property
    def workers(self) -> int:
        return self._workers

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Set the expected cost of a row, which determines the size of the first units; see `JobRun`."""
        self._cost = seconds_per_row

    async def plan(self) -> Plan:
        """Ask the planner for a plan. Retry while the planner is unreachable.

        Raises:
            Aborted: TABLE_REPLACED – the table was dropped, and a new table has its name.
            LemanError: The planner's error.
        """
        begin = time.monotonic()
        try:
            plan = await self._ask_planner()
        except LemanError as error:
            raise await explain_replaced_table(self.status.job, error) from None
        incarnation = check_incarnation(self.status.job, plan.header.incarnation)
        status, spec = self.status, self.status.job.backfill
        self._check_function(plan)
        if plan.traced:
            await self._services.checkpoints.save_traced(plan)
        status.metrics.planned(plan, time.monotonic() - begin)
        if not self._planned:
            self._planned = True
            header = plan.header
            status.lineage = lineage_of(header)
            status.update(
                udf_name=header.udf.name,
                udf_version=header.udf.version,
                reasons=header.reasons,
                plan_summary=summarize_plan(plan, spec.on_stale_input),
                incarnation=incarnation,
                # For the whole job, even after a restart, relative times in the filter and the version of the tag stay
                # the same.
                request=replace(spec, where=header.where, read_version=header.inputs_version, read_tag=""),
            )
            status.note("plan", status.job.plan_summary)
            note_lost_commit(status, self._services.jobs, header.read_version)
        return plan

    async def _ask_planner(self) -> Plan:
        """Return a plan.

        If the plan has work but the table has no incarnation, give the table an incarnation and plan again.
        """
        create_plan, job = self._services.planner.create_plan, self.status.job
        plan = await retry_unavailable(create_plan, job.backfill)
        header = plan.header
        if not plan.tasks or header.incarnation or job.incarnation:
            return plan
        begun = await give_incarnation(self._services.commits, job, header.read_version, header.identity)
        if begun is None:
            return await retry_unavailable(create_plan, job.backfill)
        return replace(plan, header=replace(header, incarnation=begun.incarnation))

    def _check_function(self, plan: Plan) -> None:
        """If a function gets environment variables, check that the first plan had the same function."""
        job, udf = self.status.job, plan.header.udf
        if job.udf_name:
            before, now = FunctionVersion(job.udf_name, job.udf_version), FunctionVersion(udf.name, udf.version)
            column = job.backfill.column
            check_functions_unchanged(self.status.env, {column: before}, {column: now})

    def check_env(self, plan: Plan) -> None:
        """Check that functions of the column and its inputs can use the job's environment variables; see `JobRun`."""
        if not self._computes_inputs(plan):
            check_env_usable(self.status.env, [plan.header.udf])

    def check_resources(self, plan: Plan) -> None:
        """Check that workers have the resources that the function asks for.

        Raises:
            FailedPrecondition: RESOURCES_NOT_AVAILABLE – no worker has the resources.
            LemanError: The plan calls a function, and Spark's workers cannot run functions now.
        """
        if plan.tasks:
            self._services.check_can_run([plan.header.udf])
        self._workers = task_slots_for(plan.header.udf, self.status.job.backfill.concurrency, self._services).count

    def prefetch(self, plan: Plan) -> None:
        """Start workers early; they get no work before `run`. See `JobRun`."""
        is_another = plan.migrated or plan.compared or self._computes_inputs(plan)
        if plan.tasks and not (is_another or plan.header.udf.kind is UdfKind.SQL):
            with contextlib.suppress(LemanError):  # raised again when the job runs
                self._ahead = self._execution_of(plan)
                self._ahead.begin()

    async def abandon(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await ahead.abandon()

    async def ended_at_once(self, plan: Plan) -> bool:
        if plan.tasks or self._computes_inputs(plan):
            return False
        if self.status.job.backfill.optimize_indices:
            await self._see_to_indexes(plan)
        metrics = self.status.metrics
        await self.end(JobState.DONE_WITH_ERRORS if metrics.rows_failed + metrics.rows_failed_before else JobState.DONE)
        return True

    async def ended_soon(self, plan: Plan) -> bool:  # noqa: ARG002
        """Return False: a job with workers must be visible, so that users can cancel it; see `JobRun`."""
        return False

    async def replan_and_run(self) -> None:
        try:
            await begin_attempt(self._services.commits, self.status.job)
            plan = await self.plan()
        except LemanError as error:
            await end_with_error(self, error)
            return
        if self._stop.is_set():
            await end_stopped(self, self._services)
            return
        await self.status.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: Plan) -> None:
        await run_to_completion(self, self._services, self._work(plan))

    async def _work(self, plan: Plan) -> bool:
        try:
            await self._execute_plans(plan)
        finally:
            await self.abandon()
        written = not self._is_scratch and self.status.job.table_version and not self.status.without_indexes
        if written or self.status.job.backfill.optimize_indices:
            await self._see_to_indexes(plan)
        return bool(self.status.metrics.rows_failed + self.status.metrics.rows_failed_before)

    async def _see_to_indexes(self, plan: Plan) -> None:
        optimize = self.status.job.backfill.optimize_indices
        header = plan.header
        await update_or_report_indices(self.status, self._services, header.uri, [header.output.name], optimize=optimize)

    def cancel(self) -> None:
        """Stop the workers. `run` then ends the job as CANCELLED. Blocks for a moment."""
        self._cancelled = True
        self._stop.set()
        self._inputs.cancel()
        self._services.cancel_workers(self.status.job.key)

    def pause(self) -> None:
        self._stop.set()
        self._inputs.pause()
        if self._execution is not None:
            self._execution.stop()

    def resume(self) -> None:
        self._stop.clear()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Cancelled(self.status.job.job_id)

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """Store the row that caused the job to fail, if any, and end the job."""
        if self.status.blamed is not None:
            await self._save_blamed(self.status.blamed)
        if self.status.metrics.failed_elsewhere:
            self.status.update(failed_in=self._services.jobs.failed_in(self.status.job))
        if state in (JobState.FAILED, JobState.CANCELLED):
            job = self.status.job.backfill
            await self._services.checkpoints.remove_leftovers(table_uri(job.database, job.table))
        await self.status.end(state, error, self._services.jobs)

    async def _save_blamed(self, row: RowError) -> None:
        """Store the row that caused the job to fail. If that fails, the job ends anyway."""
        try:
            await self._services.jobs.save_error(self.status.job, row)
        except LemanError as error:
            self.status.note("error", f"the failed row could not be stored: {error}")

    async def _execute_plans(self, plan: Plan) -> None:
        """Execute one plan after another, until no work is left or several consecutive plans have made no progress."""
        metrics = self.status.metrics
        idle = overtaken = 0
        plan = await self._after_inputs(plan)
        while plan.tasks:
            plan = await self._migrate_checkpoints(await self._compare_inputs(plan))
            if not plan.tasks:
                return
            evaluated, committed = metrics.rows_evaluated, metrics.fragments_committed
            self._check_stop()
            unsettled = await self._execute(plan)
            self._tell_waits()
            if unsettled is None:
                return
            self._cost = metrics.seconds_per_row or self._cost
            # If a file is refused every time, computing its rows again is no progress.
            moved = metrics.rows_evaluated != evaluated and not unsettled.unusable
            if moved or metrics.fragments_committed != committed:
                idle = overtaken = 0
            elif unsettled.overtaken and overtaken < _PLANS_OVERTAKEN:
                overtaken += 1  # the other writer makes progress and will finish
            elif not unsettled.waiting:
                idle += 1
            await self._wait(unsettled, idle, overtaken)
            plan = await self._after_inputs(await self.plan())

    def _computes_inputs(self, plan: Plan) -> bool:
        return bool(plan.header.stale_inputs) and self.status.job.backfill.on_stale_input is OnStaleInput.FIRST

    async def _after_inputs(self, plan: Plan) -> Plan:
        """If the request asks for it, compute stale inputs and plan again. Return the plan to execute."""
        for _ in range(_PLANS_WITHOUT_PROGRESS):
            if not self._computes_inputs(plan):
                return plan
            job = self.status.job
            asked = job.backfill
            table = BackfillSpec(asked.database, asked.table, "", concurrency=asked.concurrency)
            await self._inputs.compute(plan.header.stale_inputs, table, self._check_stop, job.incarnation)
            plan = await self.plan()
            self.status.metrics.inputs_computed(plan)
        if not self._computes_inputs(plan):
            return plan
        stale = ", ".join(found.column for found in plan.header.stale_inputs)
        raise Aborted(
            "NO_PROGRESS",
            f"The inputs of the column ({stale}) become stale again as soon as they are computed, because other jobs "
            "write to the table. Finished work is kept; run the backfill again.",
        )

    async def install(self, plan: Plan) -> bool:
        """Commit the finished files of a plan without computing more. Return whether all of them were committed.

        A job of several columns uses this, and then continues with `run`.

        Args:
            plan: A plan in which each fragment has a finished file.
        """
        self._check_stop()
        return await self._execute(plan) is None

    def computes_inputs(self, plan: Plan) -> bool:
        """Return whether stale inputs must be computed before this column."""
        return self._computes_inputs(plan)

    async def _execute(self, plan: Plan) -> UnsettledReasons | None:
        if self._ahead is not None and self._ahead.plan is plan:
            self._execution, self._ahead = self._ahead, None
        else:
            await self.abandon()
            self._execution = self._execution_of(plan)
        try:
            return await self._execution.work()
        except LemanError as error:
            raise await explain_replaced_table(self.status.job, error) from None
        finally:
            self._execution = None

    def _execution_of(self, plan: Plan) -> PlanExecution:
        status, scratch = self.status, self._is_scratch
        return PlanExecution(status, plan, self._services, self._cost, self._waits, is_scratch=scratch)

    def _tell_waits(self) -> None:
        """Publish which reservations of other jobs this job waits for, and since when."""
        stalls, news = self._waits.turn()
        for stall in news:
            self.status.note("stall", stall.message)
        self.status.update(stalls=tuple(stalls))

    async def _compare_inputs(self, plan: Plan) -> Plan:
        """Compare current and earlier inputs of rewritten rows. Return a plan without the unchanged rows."""
        while plan.compared:
            rows = sum(compared.rows for compared in plan.compared)
            if self._cost is not None and self._cost < _CHEAP_SECONDS and rows > _CHEAP_ROWS:
                break
            found = await self._services.checkpoints.compare(plan, self._stop)
            self._check_stop()
            if not found.files:
                break
            kept = found.kept + found.restored
            told = f"Rows compared with earlier versions: {rows:,}, of which {kept:,} have the same inputs"
            self.status.note("collected", told)
            plan = await self.plan()
            self.status.metrics.migrated(plan)
            self.status.metrics.known(found.restored)
        return plan

    async def _migrate_checkpoints(self, plan: Plan) -> Plan:
        """Store the checkpoints of moved rows for the next plan. Repeat this for each compaction that moved them."""
        while plan.migrated:
            stored = await self._services.checkpoints.migrate(plan, self._stop)
            self._check_stop()
            if not stored:
                break
            self.status.note("migrated", f"Checkpoints of moved rows stored again: {stored}")
            plan = await self.plan()
            self.status.metrics.migrated(plan)
        return plan

    async def _wait(self, unsettled: UnsettledReasons, idle: int, overtaken: int) -> None:
        """If a later plan may find more work, wait before making the next plan."""
        self._check_stop()
        if unsettled.waiting:
            # Another job computes these rows. As long as it renews its reservations, poll.
            if self._waits.turns <= 1:
                self.status.note("wait", f"Waiting for fragments that another job computes: {unsettled.waiting}")
            await asyncio.sleep(min(0.1 * 2 ** min(self._waits.turns, 4), 1.0))
            return
        if idle >= _PLANS_WITHOUT_PROGRESS:
            what = "Files of the table cannot be read or written" if unsettled.failing else "The table keeps changing"
            raise Aborted(
                "NO_PROGRESS",
                f"{what} during the job: {unsettled.why}. Finished work is kept; run the backfill again.",
            )
        self.status.replans(unsettled.why)
        if idle or overtaken:
            longest = min(0.05 * 2 ** min(max(idle, overtaken), 5), 1.0)
            await asyncio.sleep(random.uniform(longest / 2, longest))
