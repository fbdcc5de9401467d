"""Run a backfill of several columns: one job, with one run for each column."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import UdfKind
from leman_core.model.job import Job, JobError, JobState, Progress
from leman_core.model.plan import BackfillSpec, FragmentTask, OnStaleInput, Plan, ReasonCount, summarize_plan
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.service_errors import Aborted, FailedPrecondition, LemanError
from leman_core.storage.locations import table_uri
from leman_executor.jobs import job_run
from leman_executor.jobs.async_helpers import gather_limited
from leman_executor.jobs.backfill_run import BackfillRun, lineage_of
from leman_executor.jobs.column_sharing import CommitsTogether, SharedColumn, SharedReads
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.job_run import begin_attempt, end_stopped, end_with_error, note_lost_commit, run_to_completion
from leman_executor.jobs.job_status import ChildJobStatus, ChildJobStore, JobStatus
from leman_executor.jobs.work_context import check_functions_unchanged, work_context
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.scheduling.local_runner import LocalRunner

_Result = TypeVar("_Result")

#: Maximum number of columns that are read and committed together. Each needs a writer, with some MB of buffers, for
#: each worker.
_MOST_TOGETHER = 32
_PLANS_AT_ONCE = 8
_SHOWN = 5
#: Errors of one column after which the job continues with its other columns.
_OF_A_COLUMN = frozenset(
    {
        "COLUMN_NOT_DEFINED",
        "ENV_NOT_ALLOWED",
        "FILTER_FAILED",
        "INPUT_COLUMN_MISSING",
        "INPUT_COLUMN_STALE",
        "NO_PROGRESS",
        "RESOURCES_NOT_AVAILABLE",
        "TOO_MANY_ERRORS",
        "TYPE_MISMATCH",
        "TYPE_NOT_STORABLE",
        "UDF_DIGEST_MISMATCH",
        "UDF_FAILED",
        "UDF_NOT_ALLOWED",
        "UDF_NOT_FOUND",
        "UDF_NOT_LOADABLE",
        "UDF_PYTHON_MISMATCH",
        "UDF_TIMEOUT",
        "WORKER_LOST",
    }
)
_ADDED = (
    *("rows_total", "rows_reused", "rows_planned", "rows_checkpointed", "rows_ready_to_commit", "rows_committed"),
    *("rows_skipped", "rows_failed", "rows_evaluated", "rows_computed", "rows_failed_before", "fragments_planned"),
    *("fragments_committed", "udf_seconds", "read_seconds", "checkpoint_seconds", "write_seconds", "load_seconds"),
    *("commit_seconds", "spark_jobs", "rows_per_second", "rows_partly_committed", "input_rows_evaluated"),
)
#: Counts of earlier executors that cannot be derived from plans.
_OF_EARLIER = (
    *("rows_skipped", "rows_evaluated", "rows_computed", "udf_seconds", "read_seconds", "checkpoint_seconds"),
    *("write_seconds", "load_seconds", "commit_seconds", "spark_jobs", "commits", "input_rows_evaluated"),
)


def _is_own(error: LemanError) -> bool:
    return error.reason in _OF_A_COLUMN or error.reason.startswith("FUNCTION_")


def _stale_inputs(error: LemanError) -> frozenset[str]:
    """Return the columns that must be computed first, according to an error."""
    if error.reason != "INPUT_COLUMN_STALE":
        return frozenset()
    return frozenset(error.facts.get("inputs", "").split(", "))


def _set_on_stale_input(run: BackfillRun, on_stale_input: OnStaleInput) -> None:
    run.status.update(request=replace(run.status.job.backfill, on_stale_input=on_stale_input))


def _divides_fragments(spec: BackfillSpec) -> bool:
    """Return whether the request sets how fragments are divided or committed. If so, columns are read separately."""
    return bool(spec.task_size or spec.task_shuffle_diversity or spec.commit_granularity or spec.commit_rows)


class ColumnsMetrics(JobMetrics):
    """The metrics of several columns together."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, JobMetrics] = {}
        self.versions: set[int] = set()
        #: Maximum numbers of rows for columns that cannot be planned yet.
        self.expected: dict[str, int] = {}
        self._done_before = self._committed_before = 0

    def taken_over(self, plans: Mapping[str, Plan]) -> None:
        """Count the work of earlier executors of the job: what their plans list and the new plans do not."""
        before, done, stored = self._attempts, 0, 0
        if not before.rows_planned:
            return
        done = before.rows_planned - sum(self.expected.values())
        shown, self._shown_before = self._shown_before, 0
        for name, plan in plans.items():
            shown = self.parts[name].show(plan, shown)
            rows = planned_tasks(plan.tasks).live_rows
            done -= plan.header.rows_to_compute
            stored += 0 if plan.header.where else rows - plan.header.rows_to_compute
        self._done_before = max(0, done)
        self._committed_before = max(before.rows_committed + shown, self._done_before - stored)

    def add(self, column: str, part: JobMetrics) -> None:
        """Add the metrics of a column."""
        self.parts[column] = part
        self.rows_total = sum(known.rows_total for known in self.parts.values())

    @property
    def budget_used(self) -> float:
        """The largest share of an error budget that any column has used."""
        return max((part.budget_used for part in self.parts.values()), default=0.0)

    @property
    def seconds_per_row(self) -> float | None:
        """None, because the cost of a row differs between columns."""
        return None

    @property
    def rows_failed(self) -> int:
        return sum(part.rows_failed for part in self.parts.values())

    @property
    def rows_failed_before(self) -> int:
        return sum(part.rows_failed_before for part in self.parts.values())

    @property
    def rows_evaluated(self) -> int:
        return sum(part.rows_evaluated for part in self.parts.values())

    def progress(self) -> Progress:
        """Return the sums over all columns, and the bottleneck of the slowest column."""
        parts = [part.progress() for part in self.parts.values()]
        sums = {name: sum(getattr(part, name) for part in parts) for name in _ADDED}
        before = self._attempts
        sums |= {name: sums.get(name, 0) + getattr(before, name) for name in _OF_EARLIER}
        sums["rows_committed"] += self._committed_before
        sums["rows_checkpointed"] += self._done_before
        expected = sum(self.expected.values())
        sums["rows_total"] += expected
        sums["rows_planned"] += self._done_before + expected
        sums["rows_reused"] = max(0, sums["rows_reused"] - self._done_before)
        sums["fragments_planned"] += before.fragments_committed
        sums["fragments_committed"] += before.fragments_committed
        sums["commits"] = before.commits + len(self.versions)
        slowest = max(parts, key=lambda part: part.udf_seconds + part.read_seconds, default=Progress())
        rate, left = sums["rows_per_second"], sums["rows_planned"] - sums["rows_checkpointed"]
        elapsed = max((part.elapsed_seconds for part in parts), default=0.0)
        eta = max(0.0, left / rate) if rate else 0.0
        return Progress(**sums, bottleneck=slowest.bottleneck, elapsed_seconds=elapsed, eta_seconds=eta)


@dataclass(slots=True, eq=False)
class _Column:
    name: str
    run: BackfillRun | None = None
    #: The plan; None if the column waits for others, or is not planned yet.
    plan: Plan | None = None
    waits: frozenset[str] = frozenset()
    ended: bool = False
    error: LemanError | None = None
    failed_rows: bool = False


@dataclass(frozen=True, slots=True)
class ColumnsPlan:
    """The plans of those columns that can be planned."""

    columns: Mapping[str, Plan] = field(repr=False)
    #: The columns that wait for other columns.
    waiting: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[FragmentTask]:
        """Return one task of each column that has tasks."""
        return [plan.tasks[0] for plan in self.columns.values() if plan.tasks]


class ColumnsRun:
    """A running backfill of several columns; see `JobRun`.

    A column comes after the columns of the job that it reads. SQL columns are computed together, all others one after
    another. Each column has a `BackfillRun` with the job's id, place in the queue, lease and attempt. The run therefore
    stores the same data as a job for this column alone. If a column fails, the job continues with the columns that do
    not depend on it. The job ends when no column is left.
    """

    def __init__(self, job: Job, services: JobEnvironment, status: JobStatus | None = None) -> None:
        self.status = status or JobStatus(job)
        self.status.metrics = self._metrics = ColumnsMetrics()
        self._services = services
        self._columns = {name: _Column(name) for name in job.backfill.columns}
        self._together = CommitsTogether(services.commits, self._committed)
        self._running: set[BackfillRun] = set()
        self._reading: SharedReads | None = None
        self._stop = threading.Event()
        self._cancelled = False
        self._planned = False
        #: The functions of the columns when the job was accepted; empty until then.
        self._accepted = job.functions
        if job.attempt > 1:
            self._metrics.go_on(job.progress)

    @property
    def cancelling(self) -> bool:
        return self._cancelled

    @property
    def workers(self) -> int:
        return max((column.run.workers for column in self._columns.values() if column.run is not None), default=0)

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Ignore the estimate, because the cost of a row differs between columns."""

    @property
    def _open(self) -> list[_Column]:
        return [column for column in self._columns.values() if not column.ended]

    async def plan(self) -> ColumnsPlan:
        """Plan each column. If planning fails for one of them, raise its error, so that the whole job is refused.

        Raises:
            LemanError: The planner's error.
        """
        return await self._plan(strict=True)

    async def _plan(self, *, strict: bool) -> ColumnsPlan:
        columns = self._open
        for at, column in enumerate(columns):  # the first plan fixes relative times, tags and the table
            await self._plan_column(column, strict=strict)
            if column.plan is not None:
                self._pin(column)
                rest = columns[at + 1 :]
                await gather_limited(
                    _PLANS_AT_ONCE, [functools.partial(self._plan_column, one, strict=strict) for one in rest]
                )
                break
        plans = {column.name: column.plan for column in columns if column.plan is not None}
        found = ColumnsPlan(plans, tuple(column.name for column in self._open if column.plan is None))
        if not self._planned and plans:
            self._planned = True
            header = next(iter(plans.values())).header
            if not (header.where or header.failed_only):
                self._metrics.expected = dict.fromkeys(found.waiting, header.rows_total)
            if self.status.job.attempt > 1:
                self._metrics.taken_over(plans)
            await self._describe(found)
            note_lost_commit(self.status, self._services.jobs, header.read_version)
        return found

    def _pin(self, column: _Column) -> None:
        header = column.plan.header if column.plan is not None else None
        if header is None or column.run is None:
            return
        spec = self.status.job.backfill
        self.status.update(
            incarnation=column.run.status.job.incarnation,
            request=replace(spec, where=header.where, read_version=header.inputs_version, read_tag=""),
        )

    async def _describe(self, found: ColumnsPlan) -> None:
        """Store a summary of the first plans in the job."""
        fragments, rows = Counter[str](), Counter[str]()
        reasons = {}
        for plan in found.columns.values():
            for count in plan.header.reasons:
                reasons[count.reason.value] = count.reason
                fragments[count.reason.value] += count.fragments
                rows[count.reason.value] += count.rows
        told = [f"{name}: {summarize_plan(plan)}" for name, plan in found.columns.items() if plan.tasks]
        shown = [*told[:_SHOWN], f"{len(told) - _SHOWN} more columns"] if len(told) > _SHOWN else told
        if found.waiting:
            shown.append(f"after them {', '.join(found.waiting[:_SHOWN])}")
        first, columns = next(iter(found.columns.values())), dict[str, tuple[str, ...]]()
        for plan in found.columns.values():
            columns |= lineage_of(plan.header).columns
        self.status.lineage = replace(lineage_of(first.header), columns=columns)
        functions = dict(self.status.job.functions)
        if self.status.env:
            for name in found.waiting:
                known = await self._services.planner.functions_of(self._spec(name))
                functions = {name: known[0], **functions} if known else functions
        self._accepted = functions
        self.status.update(
            functions=functions,
            reasons=tuple(ReasonCount(reasons[key], fragments[key], rows[key]) for key in reasons),
            plan_summary=f"{len(self._columns)} columns: " + ("; ".join(shown) if shown else "nothing to do"),
        )
        self.status.note("plan", self.status.job.plan_summary)

    def _spec(self, column: str) -> BackfillSpec:
        return replace(self.status.job.backfill, column=column, columns=())

    def _made(self, column: _Column) -> BackfillRun:
        if column.run is None:
            whole, now = self.status.job, time.time()
            job = Job(
                whole.job_id,
                "",
                JobState.PLANNING,
                self._spec(column.name),
                now,
                now,
                attempt=whole.attempt,
                incarnation=whole.incarnation,
            )
            services = replace(
                self._services, jobs=ChildJobStore(self._services.jobs), commits=self._together, local=LocalRunner()
            )
            column.run = BackfillRun(job, services, ChildJobStatus(job, self.status, name=column.name))
            self._metrics.add(column.name, column.run.status.metrics)
        return column.run

    async def _plan_column(self, column: _Column, *, strict: bool) -> None:
        """Plan a column. If planning fails, note the error, or the columns that must be computed first."""
        run = self._made(column)
        others = frozenset(one.name for one in self._open) - {column.name}
        column.plan, column.waits = None, frozenset()
        try:
            plan = await self._plan_with_inputs(run)
            self._note_function(column.name, plan)
        except LemanError as error:
            stale = _stale_inputs(error)
            if stale & others and stale <= others | self._computed:
                column.waits = stale & others
                return
            if strict or not _is_own(error):
                raise
            self._fail(column, error)
            return
        finally:
            self._metrics.add(column.name, run.status.metrics)
        column.waits = others & {stale.column for stale in plan.header.stale_inputs}
        column.plan = None if column.waits else plan
        if not column.waits:
            self._metrics.expected.pop(column.name, None)

    async def _plan_with_inputs(self, run: BackfillRun) -> Plan:
        """Compute the inputs of a column for rows that were added during the job, then plan the column."""
        try:
            plan = await run.plan()
        except LemanError as error:
            stale = _stale_inputs(error)
            if not stale or not stale <= self._computed:
                raise
            _set_on_stale_input(run, OnStaleInput.FIRST)
            plan = await run.plan()
        if run.status.job.backfill.on_stale_input is OnStaleInput.ERROR:
            if self._columns.keys() & set(plan.header.input_columns):
                _set_on_stale_input(run, OnStaleInput.FIRST)
        elif self.status.job.backfill.on_stale_input is OnStaleInput.ERROR and not (
            {stale.column for stale in plan.header.stale_inputs} <= self._columns.keys()
        ):
            _set_on_stale_input(run, OnStaleInput.ERROR)
            plan = await run.plan()
        return plan

    @property
    def _computed(self) -> frozenset[str]:
        return frozenset(column.name for column in self._columns.values() if column.ended and column.error is None)

    def _note_function(self, column: str, plan: Plan) -> None:
        """Note a column's function. If the function gets environment variables, check that it has not changed since the
        job was accepted.

        Raises:
            LemanError: The column has a different function now.
        """
        known = self.status.job.functions
        function = FunctionVersion(plan.header.udf.name, plan.header.udf.version)
        if self._accepted:
            before = {name: FunctionVersion(*text.rsplit("@", 1)) for name, text in self._accepted.items()}
            check_functions_unchanged(self.status.env, before, {column: function})
        if known.get(column) != str(function):
            self.status.update(functions={**known, column: str(function)})

    def _fail(self, column: _Column, error: LemanError) -> None:
        column.error, column.ended = error, True
        self._metrics.expected.pop(column.name, None)
        if len(self._columns) > 1:
            self.status.note("error", f"{column.name}: {error.message.splitlines()[0]}")

    def check_env(self, plan: ColumnsPlan) -> None:
        refused: FailedPrecondition | None = None
        for name, planned in plan.columns.items():
            try:
                self._made(self._columns[name]).check_env(planned)
            except FailedPrecondition as error:
                refused = error
            else:
                return
        if refused is not None and not plan.waiting:
            raise refused

    def check_resources(self, plan: ColumnsPlan) -> None:
        for name, planned in plan.columns.items():
            self._made(self._columns[name]).check_resources(planned)

    def prefetch(self, plan: ColumnsPlan) -> None:
        """Do nothing."""

    async def abandon(self) -> None:
        """Do nothing, because `prefetch` starts nothing."""

    async def ended_at_once(self, plan: ColumnsPlan) -> bool:
        if plan.waiting or plan.tasks or any(self._computes_inputs(name, p) for name, p in plan.columns.items()):
            return False
        for name, planned in plan.columns.items():
            await self._ended_at_once(self._columns[name], planned)
        await self.end(self._end_state)
        return True

    def _computes_inputs(self, name: str, plan: Plan) -> bool:
        return self._made(self._columns[name]).computes_inputs(plan)

    async def ended_soon(self, plan: ColumnsPlan) -> bool:  # noqa: ARG002
        return False

    async def replan_and_run(self) -> None:
        try:
            await begin_attempt(self._services.commits, self.status.job)
            await self._plan(strict=False)
        except LemanError as error:
            await end_with_error(self, error)
            return
        if self._stop.is_set():
            await end_stopped(self, self._services)
            return
        await self.status.move(JobState.RUNNING)
        await self._run()

    async def run(self, plan: ColumnsPlan) -> None:  # noqa: ARG002 - the columns have their plans
        await self._run()

    async def _run(self) -> None:
        await run_to_completion(self, self._services, self._work())

    def cancel(self) -> None:
        """Stop the workers. `run` then ends the job as CANCELLED. Blocks for a moment."""
        self._cancelled = True
        self._stop.set()
        self._stop_reading()
        for run in tuple(self._running):
            run.cancel()
        self._services.cancel_workers(self.status.job.key)

    def pause(self) -> None:
        self._stop.set()
        self._stop_reading()
        for run in tuple(self._running):
            run.pause()

    def _stop_reading(self) -> None:
        reading = self._reading
        if reading is not None:
            reading.stop()

    def resume(self) -> None:
        """Allow a paused job to run again. Ended columns stay ended."""
        self._stop.clear()
        for column in self._open:
            if column.run is not None:
                column.run.resume()

    def _check_stop(self) -> None:
        if self._stop.is_set() or self.status.lost:
            raise Cancelled(self.status.job.job_id)

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """End the job. Its failed rows are already stored, because each column stores its own."""
        if state in (JobState.FAILED, JobState.CANCELLED):
            spec = self.status.job.backfill
            await self._services.checkpoints.remove_leftovers(table_uri(spec.database, spec.table))
        await self.status.end(state, error, self._services.jobs)

    @property
    def _end_state(self) -> JobState:
        failed = any(column.failed_rows for column in self._columns.values())
        return JobState.DONE_WITH_ERRORS if failed else JobState.DONE

    async def _work(self) -> bool:
        """Compute the columns. Return whether rows failed."""
        while self._open:
            self._check_stop()
            names = {column.name for column in self._open}
            ready = [column for column in self._open if not column.waits & names]
            await self._plan_missing(ready)
            planned = [(column, column.plan) for column in ready if column.plan is not None]
            if not planned and all(not column.ended for column in ready):
                raise Aborted(
                    "NO_PROGRESS",
                    "Other writers changed the table, so that each column now waits for another one: run the job again",
                )
            left = [(column, plan) for column, plan in planned if not await self._ended_at_once(column, plan)]
            shared = [(column, plan) for column, plan in left if self._is_shared(column, plan)]
            for begin in range(0, len(shared), _MOST_TOGETHER):
                await self._compute_together(shared[begin : begin + _MOST_TOGETHER])
            others = [column for column, plan in left if not self._is_shared(column, plan)]
            for at, column in enumerate(others):
                self._check_stop()
                if at:  # the table may have changed while other columns were computed
                    await self._plan_column(column, strict=False)
                if column.plan is not None:
                    await self._compute(column, column.plan)
        self._raise_failures()
        return self._end_state is JobState.DONE_WITH_ERRORS

    def _is_shared(self, column: _Column, plan: Plan) -> bool:
        return plan.header.udf.kind is UdfKind.SQL and not self._computes_inputs(column.name, plan)

    async def _plan_missing(self, columns: Sequence[_Column]) -> None:
        missing = [column for column in columns if column.plan is None]
        calls = [functools.partial(self._plan_column, column, strict=False) for column in missing]
        await gather_limited(_PLANS_AT_ONCE, calls)

    async def _ended_at_once(self, column: _Column, plan: Plan) -> bool:
        run = self._made(column)
        if not await run.ended_at_once(plan):
            return False
        self._settle(column)
        return True

    async def _compute(self, column: _Column, plan: Plan) -> None:
        run = self._made(column)
        try:
            run.check_resources(plan)
        except LemanError as error:
            if not _is_own(error):
                raise
            self._fail(column, error)
            return
        self._running.add(run)
        try:
            self._check_stop()
            await run.run(plan)
        finally:
            self._running.discard(run)
        self._settle(column)

    async def _compute_together(self, columns: Sequence[tuple[_Column, Plan]]) -> None:
        """Compute SQL columns together: read each fragment once for all, and commit their files in one version."""
        self._check_stop()
        runs = await self._read_shared(columns)
        self._check_stop()
        self._together.expect(len(runs))
        results = await asyncio.gather(*(self._leaving(self._compute(*one)) for one in runs), return_exceptions=True)
        self._together.expect(0)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _leaving(self, work: Awaitable[_Result]) -> _Result:
        try:
            return await work
        finally:
            self._together.leave()

    async def _read_shared(self, columns: Sequence[tuple[_Column, Plan]]) -> list[tuple[_Column, Plan]]:
        """Compute and commit whole fragments for several columns.

        Return a plan of the remaining work for each column.
        """
        settings, status = self._services.settings, self.status
        if _divides_fragments(status.job.backfill):
            return list(columns)
        shared = {
            column: SharedColumn(
                plan,
                work_context(self._made(column).status.job, plan.header, settings, (), {}),
                self._made(column).status.metrics,
            )
            for column, plan in columns
        }
        slots = task_slots_for(columns[0][1].header.udf, status.job.backfill.concurrency, self._services)
        reading = self._reading = SharedReads(list(shared.values()), slots.count)
        done: dict[_Column, set[int]] = {column: set() for column in shared}
        again: set[_Column] = set()
        try:
            while reading.left:
                self._check_stop()
                await reading.run(settings.executor.commit_interval_seconds)
                finished = {column: part for column, one in shared.items() if (part := one.take_staged()) is not None}
                for column, part in finished.items():
                    done[column].update(task.fragment_id for task in part.tasks)
                again |= await self._install(finished)
        finally:
            self._reading = None
        left = []
        for column, plan in columns:
            if column in again:
                await self._plan_column(column, strict=False)
                plan = column.plan or plan  # noqa: PLW2901
            elif done[column]:
                plan = replace(plan, tasks=[task for task in plan.tasks if task.fragment_id not in done[column]])  # noqa: PLW2901
            left.append((column, plan))
        return [(column, plan) for column, plan in left if not column.ended]

    async def _install(self, finished: Mapping[_Column, Plan]) -> set[_Column]:
        """Commit finished files in one version. Return the columns for which the coordinator refused a file."""
        self._together.expect(len(finished))
        runs = {column: self._made(column) for column in finished}
        self._running.update(runs.values())
        try:
            results = await asyncio.gather(
                *(self._leaving(runs[column].install(plan)) for column, plan in finished.items()),
                return_exceptions=True,
            )
        finally:
            self._running.difference_update(runs.values())
            self._together.expect(0)
        refused = set()
        for column, result in zip(finished, results, strict=True):
            if isinstance(result, BaseException) and not (isinstance(result, LemanError) and _is_own(result)):
                raise result
            if result is not True:
                refused.add(column)
        return refused

    def _committed(self, version: int, columns: Sequence[str]) -> None:
        """Record in the job that a version with files of these columns was committed."""
        self._metrics.versions.add(version)
        shown = ", ".join(columns[:_SHOWN]) + (f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else "")
        self.status.update(table_version=max(version, self.status.job.table_version))
        self.status.note("commit", f"committed in version {version}: {shown}")

    def _settle(self, column: _Column) -> None:
        """Record the final state of a column. If no column can continue, raise the column's error.

        Raises:
            Cancelled: The job was asked to stop, or another executor has taken it over.
            LemanError: The error of this column, if no column can continue.
        """
        run = self._made(column)
        ended = run.status.job
        if run.status.lost or not ended.state.terminal or ended.state is JobState.CANCELLED:
            raise Cancelled(self.status.job.job_id)
        column.ended = True
        if ended.error is not None:
            error = job_run.from_job_error(ended.error)
            if not _is_own(error):
                raise error
            self._fail(column, error)
        column.failed_rows = ended.state is JobState.DONE_WITH_ERRORS
        whole = self.status.job
        elsewhere = self._services.jobs.failed_in(ended) if run.status.metrics.failed_elsewhere else ()
        self.status.update(
            stale_indices=tuple(dict.fromkeys((*whole.stale_indices, *ended.stale_indices))),
            failed_in=tuple(dict.fromkeys((*whole.failed_in, *elsewhere))),
        )

    def _raise_failures(self) -> None:
        failed = [(column.name, column.error) for column in self._columns.values() if column.error is not None]
        if not failed:
            return
        name, error = failed[0]
        others = len(self._columns) - len(failed)
        text = f"Column {name}: {error.message}"
        text += (
            "" if text.endswith((".", "!", "?")) or len(self._columns) == 1 else "."
        )  # texts of users may not end with a full stop
        if len(failed) > 1:
            text += f"\nAlso failed: {', '.join(other for other, _ in failed[1:])}."
        text += (
            f"\nThe other {others} columns are done." if others > 1 else "\nThe other column is done." if others else ""
        )
        raised = type(error)(error.reason, text)
        raised.facts = {**error.facts, "column": name}
        raise raised
