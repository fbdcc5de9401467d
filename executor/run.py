"""One running job: plan, work through it on Spark, commit, plan again where something was refused."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import msgspec
import structlog
import tenacity

from core import keys
from core.config import Settings
from core.coordination import EventReader
from core.domain.job import Job, JobError, JobEvent, JobState, Progress, StoredRowError
from core.domain.plan import FragmentTask, Plan
from core.domain.work import Hint, RowFailure, UnitOutcome, WorkContext, WorkUnit
from core.errors import Aborted, FailedPrecondition, LemanError, Unavailable
from core.rpc.peers import CommitClient, PlannerClient
from executor.backlog import Backlog
from executor.committer import Committer
from executor.context import work_context
from executor.spark_runner import Cancelled, SparkRunner
from executor.tally import Tally
from executor.unit import STORAGE_ERROR

_log = structlog.get_logger(__name__)

_ROUNDS_WITHOUT_PROGRESS = 5
_TICK_SECONDS = 0.25
_EVENTS_KEPT = 1000
_ERRORS_KEPT = 1000
#: Reasons of a unit's failure after which a new plan may help.
_REPLANNED = frozenset({STORAGE_ERROR, "FRAGMENT_GONE", "TABLE_NOT_FOUND"})


@dataclass(frozen=True, slots=True)
class Services:
    """What a run needs of the outside."""

    settings: Settings
    spark: SparkRunner
    planner: PlannerClient
    commits: CommitClient
    lanes: int
    forget_record: Callable[[str, str], Awaitable[None]]
    save_errors: Callable[[str, list[StoredRowError]], Awaitable[None]]


class JobRun:
    """A job while it runs, and what its watchers see."""

    def __init__(self, job: Job, services: Services) -> None:
        self.job = job
        self._services = services
        self._cost: float | None = None
        self._tally = Tally()
        self._sequence = job.attempt << 32
        self._events: list[JobEvent] = []
        self._changed = asyncio.Condition()
        self._cancelling = False
        self._stream_task: asyncio.Task[None] | None = None
        self._failures: list[RowFailure] = []
        self._header_done = False
        self._listeners: dict[str, Callable[[Hint], None]] = {}

    # what watchers see

    @property
    def sequence(self) -> int:
        """Of the latest change."""
        return self._sequence

    @property
    def seconds_per_row(self) -> float | None:
        """What a row cost, once rows were evaluated."""
        return self._tally.seconds_per_row

    def snapshot(self) -> Job:
        """The job as it stands."""
        if self.job.state.terminal:
            return self.job
        return replace(self.job, progress=self._tally.progress())

    def events_after(self, sequence: int) -> list[JobEvent]:
        """Events with a higher sequence; at most the last thousand are kept."""
        return [e for e in self._events if e.sequence > sequence]

    async def wait_beyond(self, sequence: int, timeout_seconds: float) -> None:
        """Returns when something changed after `sequence`, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(lambda: self._sequence > sequence)

    def note(self, kind: str, message: str) -> None:
        """Records an event; watchers see it with the next tick."""
        self._sequence += 1
        self._events.append(JobEvent(self._sequence, time.time(), kind, message))
        del self._events[:-_EVENTS_KEPT]
        _log.info(message, job_id=self.job.job_id, event_kind=kind)

    async def _publish(self) -> None:
        async with self._changed:
            self._sequence += 1
            self._changed.notify_all()

    async def move(self, state: JobState, **changes: object) -> None:
        """Changes the state."""
        progress = self._tally.progress() if self._tally.rows_total else self.job.progress
        self.job = replace(
            self.job,
            state=state,
            updated_at=time.time(),
            progress=progress,
            **changes,  # type: ignore[arg-type]
        )
        self.note("state", state.value)
        await self._publish()

    # the run

    async def plan(self) -> Plan:
        """Asks the planner, again while it cannot be reached."""
        begin = time.monotonic()
        plan = await self._ask_planner()
        self._tally.planned(plan, time.monotonic() - begin)
        if not self._header_done:
            self._header_done = True
            header = plan.header
            self.job = replace(
                self.job,
                udf_name=header.udf.name,
                udf_version=header.udf.version,
                reasons=header.reasons,
                plan_summary=summary(plan),
                # the filter with its relative times pinned holds for the whole job, restarts included
                spec=replace(self.job.spec, where=header.where),
                progress=self._tally.progress(),
            )
            self.note("plan", self.job.plan_summary)
        return plan

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=tenacity.stop_after_delay(120),
        wait=tenacity.wait_exponential_jitter(initial=0.2, max=3),
        reraise=True,
    )
    async def _ask_planner(self) -> Plan:
        return await self._services.planner.create_plan(self.job.spec)

    async def run(self, plan: Plan) -> None:
        """Works until nothing is left, and leaves the job in a terminal state. Raises only for bugs."""
        ticker = asyncio.create_task(self._tick())
        self._stream_task = asyncio.create_task(self._listen())
        try:
            await self._rounds(plan)
            failed = self._tally.rows_failed + self._tally.rows_failed_before
            await self._end(JobState.DONE_WITH_ERRORS if failed else JobState.DONE)
        except Cancelled:
            await self._end(JobState.CANCELLED)
        except LemanError as error:
            if self._cancelling:
                await self._end(JobState.CANCELLED)
            else:
                await self._end(JobState.FAILED, error=_job_error(error))
        finally:
            ticker.cancel()
            self._stream_task.cancel()
            self._services.spark.forget(self.job.job_id)

    async def replan_and_run(self) -> None:
        """A job that was taken over: from the plan on."""
        try:
            plan = await self.plan()
        except LemanError as error:
            await self._end(JobState.FAILED, error=_job_error(error))
            return
        await self.move(JobState.RUNNING)
        await self.run(plan)

    def know_cost(self, seconds_per_row: float | None) -> None:
        """What a row cost in an earlier job of the same function version."""
        self._cost = seconds_per_row

    async def finish_at_once(self) -> None:
        """The plan left nothing to do."""
        await self._end(JobState.DONE_WITH_ERRORS if self._tally.rows_failed_before else JobState.DONE)

    def cancel(self) -> None:
        """Stops the tasks; `run` then ends the job as CANCELLED."""
        self._cancelling = True
        self._services.spark.cancel(self.job.job_id)

    async def _end(self, state: JobState, **changes: object) -> None:
        await self._store_failures()
        await self.move(state, **changes)

    async def _rounds(self, plan: Plan) -> None:
        idle = 0
        while plan.tasks:
            before = (self._tally.rows_evaluated, self._tally.fragments_committed)
            unsettled = await _Round(self, plan, self._services, self._cost).work()
            self._cost = self._tally.seconds_per_row or self._cost
            if not unsettled:
                return
            idle = 0 if (self._tally.rows_evaluated, self._tally.fragments_committed) != before else idle + 1
            if unsettled.waiting:
                # another job is computing these rows: look again soon, for as long as it lives
                self.note("wait", f"{unsettled.waiting} fragments are being computed by another job")
                await asyncio.sleep(min(0.1 * 2**idle, 1.0))
            elif idle >= _ROUNDS_WITHOUT_PROGRESS:
                raise Aborted(
                    "NO_PROGRESS",
                    f"The table keeps changing under the job, or its storage fails: {unsettled.why}. "
                    "What was finished is kept; run the backfill again.",
                )
            else:
                self.note("replan", f"planning again: {unsettled.why}")
                await asyncio.sleep(min(0.05 * 2**idle, 1.0) if idle else 0)
            plan = await self.plan()

    async def _store_failures(self) -> None:
        failures, self._failures = self._failures, []
        if not failures:
            return
        job = self.job
        await self._services.save_errors(
            job.spec.database,
            [
                StoredRowError(
                    job.job_id, job.spec.column, job.udf_version, f.row_address, f.row_id,
                    f.error_type, f.message, f.traceback, f.attempt,
                )
                for f in failures
            ]
        )  # fmt: skip

    async def keep_failures(self, failures: tuple[RowFailure, ...]) -> None:
        """Failed rows on their way to the error store."""
        self._failures.extend(failures)
        if len(self._failures) >= _ERRORS_KEPT:
            await self._store_failures()

    @property
    def tally(self) -> Tally:
        return self._tally

    @property
    def cancelling(self) -> bool:
        return self._cancelling

    # progress while it runs

    async def _tick(self) -> None:
        last: Progress | None = None
        seen = self._sequence
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = replace(self._tally.progress(), elapsed_seconds=0.0, rows_per_second=0.0, eta_seconds=0.0)
            if now != last or self._sequence != seen:
                last = now
                await self._publish()
                seen = self._sequence

    def on_hint(self, key: str, listener: Callable[[Hint], None]) -> None:
        """Calls `listener` for each hint, until `key` is set again or removed."""
        self._listeners[key] = listener

    async def _listen(self) -> None:
        url = self._services.settings.redis.url.get_secret_value()
        if not url:
            return
        while True:
            reader = EventReader(url, self.job.job_id)
            try:
                async for payloads in reader.batches():
                    for payload in payloads:
                        hint = msgspec.json.decode(payload, type=Hint)
                        self._tally.hint(hint)
                        for listener in self._listeners.values():
                            listener(hint)
            finally:
                await reader.close()
            await asyncio.sleep(1.0)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Why a plan was not worked off: fragments that another job has, and what was refused."""

    waiting: int
    why: str


class _Round:
    """Works through one plan."""

    def __init__(self, run: JobRun, plan: Plan, services: Services, cost: float | None) -> None:
        self._run = run
        self._plan = plan
        self._services = services
        spec = run.job.spec
        self._tasks: dict[int, FragmentTask] = {t.fragment_id: t for t in plan.tasks}
        self._lanes = spec.concurrency or services.lanes
        self._backlog = Backlog(
            plan.tasks,
            self._lanes,
            seconds_per_row=cost,
            task_size=spec.task_size,
            first_unit=run.tally.units,
        )
        self._context: WorkContext = work_context(run.job, plan.header, services.settings)
        self._committer = Committer(
            services.commits,
            plan.header,
            run.tally,
            run.job.job_id,
            fragments=len(plan.tasks),
            granularity=spec.commit_granularity,
            interval_seconds=services.settings.executor.commit_interval_seconds,
            note=run.note,
        )
        self._freed = asyncio.Event()
        self._trouble: list[str] = []

    async def work(self) -> Unsettled | None:
        """None when everything is committed."""
        self._collect_staged()
        self._run.on_hint("round", self._on_hint)
        committing = asyncio.create_task(self._committer.run())
        try:
            await all_or_first(self._compute(), asyncio.shield(committing))
        except BaseException:
            # what is finished stays finished, also where the job ends early
            await self._services.spark.stop_job(self._run.job.job_id)
            self._committer.close()
            with contextlib.suppress(LemanError):
                await committing
            raise
        finally:
            self._run.tally.units = self._backlog.units_made
            if self._committer.version:
                self._run.job = replace(self._run.job, table_version=self._committer.version)
        await self._forget_refused()
        rejected = [f"{v.reason}: {v.message}" for v in self._committer.rejected]
        waiting = self._backlog.busy_fragments
        if not rejected and not waiting and not self._trouble:
            return None
        return Unsettled(0 if rejected or self._trouble else waiting, "; ".join([*self._trouble, *rejected][:3]))

    def _collect_staged(self) -> None:
        staged = [t for t in self._plan.tasks if t.staged is not None]
        reused = [t for t in self._plan.tasks if t.staged is None and t.checkpoints]
        if staged or reused:
            rows = sum(t.physical_rows - t.deleted_rows for t in staged)
            self._run.note(
                "collected",
                f"Collected {len(staged)} checkpointed fragments with {rows} rows"
                + (f", and checkpoints of {len(reused)} more" if reused else ""),
            )
        for task in staged:
            if task.staged is not None:
                self._committer.add(task, task.staged)

    def _on_hint(self, hint: Hint) -> None:
        if hint.result is not None and hint.result.staged is not None:
            task = self._tasks.get(hint.result.fragment_id)
            if task is not None:
                self._committer.add(task, hint.result.staged)

    async def _compute(self) -> None:
        first = self._backlog.first_units()
        if first:
            await self._run_units(first)
        await all_or_first(*(self._lane() for _ in range(self._lanes)))
        self._committer.close()

    async def _lane(self) -> None:
        """Takes units until there are none and none can come back."""
        while True:
            unit = None if self._trouble else self._backlog.take()
            if unit is not None:
                await self._run_units([unit])
            elif self._backlog.outstanding:
                self._freed.clear()
                await self._freed.wait()
            else:
                self._freed.set()
                return

    async def _run_units(self, units: list[WorkUnit]) -> None:
        self._run.tally.spark_jobs += 1
        outcomes = await self._services.spark.run(self._run.job.job_id, self._context, units)
        for outcome in outcomes:
            await self._note(outcome)
        self._freed.set()

    async def _note(self, outcome: UnitOutcome) -> None:
        self._backlog.note(outcome)
        self._run.tally.outcome(outcome)
        for result in outcome.results:
            if result.staged is not None:
                self._committer.add(self._tasks[result.fragment_id], result.staged)
        if self._plan.header.udf.error_policy.store_errors:
            await self._run.keep_failures(outcome.errors)
        self._check_budget()
        failure = outcome.failure
        if failure is None:
            return
        if failure.reason in _REPLANNED:
            self._trouble.append(failure.message)
            return
        if failure.row is not None:
            await self._run.keep_failures((failure.row,))
        facts = {} if failure.row is None else _row_facts(failure.row)
        raise FailedPrecondition(failure.reason, failure.message, **facts)

    def _check_budget(self) -> None:
        policy = self._plan.header.udf.error_policy
        failed, planned = self._run.tally.rows_failed, self._plan.header.rows_to_compute
        allowed = [n for n in (policy.max_errors, int(policy.max_error_fraction * planned)) if n]
        if allowed and failed > min(allowed):
            raise FailedPrecondition(
                "TOO_MANY_ERRORS",
                f"UDF '{self._plan.header.udf.name}' failed on {failed} rows, {min(allowed)} are allowed. "
                f"See them with `leman errors`, fix the function or raise max_errors.",
                rows_failed=failed,
            )

    async def _forget_refused(self) -> None:
        """A file that was refused as damaged or missing must not be found staged again."""
        for verdict in self._committer.rejected:
            if verdict.reason.startswith(("FILE_", "ROW_COUNT", "TYPE_")):
                task = self._tasks[verdict.fragment_id]
                key = keys.record_key(task.checkpoint_prefix, task.fragment_id)
                await self._services.forget_record(self._plan.header.uri, key)


async def all_or_first(*work: Awaitable[None]) -> None:
    """Runs all to the end; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _job_error(error: LemanError) -> JobError:
    return JobError(type(error).__name__, error.reason, error.message, error.facts)


def _row_facts(row: RowFailure) -> dict[str, object]:
    return {
        "error_type": row.error_type,
        "error_message": row.message[:500],
        "row_address": row.row_address,
        "fragment_id": row.fragment_id,
        "offset": row.offset,
        "attempt": row.attempt,
        "traceback": row.traceback[-2000:],
    }


def summary(plan: Plan) -> str:
    """The plan in one sentence."""
    header = plan.header
    counts = {c.reason.value: c.fragments for c in header.reasons}
    fragments = sum(counts.values())
    if not plan.tasks:
        failed = f", {header.rows_failed_before} rows failed before" if header.rows_failed_before else ""
        return f"nothing to do: {fragments} of {fragments} fragments are current{failed}"
    why = ", ".join(f"{n} {reason}" for reason, n in counts.items())
    return f"{len(plan.tasks)} of {fragments} fragments to do ({why}), {header.rows_to_compute:,} rows to compute"


async def follow(run: JobRun, after: int, heartbeat_seconds: float) -> AsyncIterator[tuple[int, Job, list[JobEvent]]]:
    """A watcher's view: the state now, then every change, the last one terminal."""
    seen = after
    while True:
        sequence, job = run.sequence, run.snapshot()
        yield sequence, job, run.events_after(seen)
        if job.state.terminal:
            return
        seen = sequence
        await run.wait_beyond(sequence, heartbeat_seconds)
