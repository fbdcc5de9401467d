"""Run each job when it leaves the queue, under a lease, until it ends. Estimate how long jobs take.

An estimate uses the cost of a row in earlier jobs of the same function version. This cost also determines the size of
the first units of a plan.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from leman_core.model.job import Job, JobError, JobState, same_attempt
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import LemanError
from leman_core.server.blocking import STORE
from leman_core.storage.locations import store_of
from leman_core.telemetry import tracing
from leman_executor.coordination.env_values import EnvValues
from leman_executor.coordination.leases import JobLeases
from leman_executor.history.job_index import JobRecord
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.columns_run import ColumnsRun
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.job_status import WatcherPace
from leman_executor.manager.job_databases import JobDatabases, RegisteredLimits
from leman_executor.manager.job_queue import JobQueue, QueuedJob, TurnLimits
from leman_executor.manager.job_store import HistoryJobStore, RunningJobs
from leman_executor.manager.job_telemetry import start_job_span
from leman_executor.refresh.refresh_run import RefreshRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerDeps:
    """The objects that the parts of a job manager share. `store` is also the `JobStore` in `services`."""

    services: JobEnvironment
    databases: JobDatabases
    running: RunningJobs
    store: HistoryJobStore
    leases: JobLeases
    env_values: EnvValues = field(default_factory=lambda: EnvValues(""))
    limits: RegisteredLimits = field(default_factory=RegisteredLimits)


#: States of jobs that are about to end or to pause.
_STOPPING = frozenset({JobState.CANCELLING, JobState.PAUSING})


def job_seconds_left(
    job: Job, metrics: JobMetrics, seconds_per_row: float | None, workers: float, now: float
) -> float | None:
    """Return how many more seconds a job will take, or None if unknown.

    A job with a measured rate computes its remaining rows at that rate. For any other backfill, the total time is its
    planned rows times the cost of a row, divided by its workers; the time that it has run is subtracted. A refresh has
    no estimate before it runs.

    Args:
        metrics: The job's counts.
        seconds_per_row: The cost of a row of its function, in this job or in earlier jobs; None if unknown.
        workers: The number of workers that the job has or will have. Concurrent jobs share the task slots.
        now: Seconds since the epoch.
    """
    if job.state in _STOPPING:
        return 0.0
    waits = job.state is JobState.PENDING
    measured = 0.0 if waits else metrics.progress().eta_seconds
    if measured:
        return measured
    rows = metrics.rows_planned or job.progress.rows_planned
    if job.column is None or seconds_per_row is None or not rows:
        return None
    spent = 0.0 if waits or not job.started_at else max(0.0, now - job.started_at)
    return max(0.0, rows * seconds_per_row / workers - spent)


class CostEstimates:
    """The cost estimates of one executor, in seconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}

    def of(self, job: Job) -> float | None:
        """Return the expected cost of a row of the job, or None if unknown."""
        return self._known.get((job.udf_name, job.udf_version))

    def learn(self, job: Job | JobRecord, seconds_per_row: float | None) -> None:
        """Record the cost of a row in a job that ended here or is in the history.

        It is None if the job called no function.
        """
        if seconds_per_row is not None:
            self._known[job.udf_name, job.udf_version] = seconds_per_row


_log = structlog.get_logger(__name__)

_RUNS_KEPT = 200
#: States of stopped jobs that may continue.
_STOPPED = frozenset({JobState.PAUSED, JobState.PENDING, JobState.CANCELLING})


def _run_of(job: Job, services: JobEnvironment) -> JobRun:
    if not isinstance(job.request, BackfillSpec):
        return RefreshRun(job, services)
    return ColumnsRun(job, services) if job.request.columns else BackfillRun(job, services)


class Supervisor:
    """Run the jobs of one executor, on one event loop. `executor_id` is the name of this executor in the history."""

    def __init__(self, shared: ManagerDeps) -> None:
        self._services = shared.services
        self._databases = shared.databases
        self._running = shared.running
        self._store = shared.store
        self._leases = shared.leases
        self._env_values = shared.env_values
        self._telling: asyncio.Task[None] | None = None
        self._news = False
        self._told: Mapping[str, int] = {}
        self.executor_id = uuid.uuid4().hex
        self.costs = CostEstimates()
        self._pace = WatcherPace()
        limits = shared.services.settings.executor
        turns = TurnLimits(
            running=limits.max_running_jobs,
            per_database=limits.max_running_jobs_per_database,
            per_caller=limits.max_running_jobs_per_caller,
            of_database=shared.limits.running,
        )
        waits = limits.max_waiting_jobs, limits.max_waiting_jobs_per_caller
        self.queue = JobQueue(turns, *waits, self._seconds_left, shared.limits.waiting)

    def run_of(self, job: Job, env: Mapping[str, str]) -> JobRun:
        """Make a run of the job on this executor. `env` has the values of its environment variables."""
        job = replace(job, executor=self.executor_id)
        job, span = start_job_span(job)
        run = _run_of(job, self._services)
        run.status.span = span
        self._running.measured.begin(job)
        run.status.expected = self.queue.expected
        run.status.pace = self._pace
        run.status.take_env(env)
        return run

    def _seconds_left(self, queued: QueuedJob) -> float | None:
        """Return the remaining seconds of a running job, or the expected duration of a waiting one, if known."""
        run = self._running.runs.get(queued.key)
        if run is None:
            return None
        costs = run.status.metrics.seconds_per_row or self.costs.of(run.status.job)
        share = self._services.slots / max(1, self.queue.together)
        workers = min(share, run.workers or share)
        return job_seconds_left(run.status.job, run.status.metrics, costs, workers, time.time())

    def join_queue(self, job: Job, *, always: bool = False) -> asyncio.Future[bool]:
        return self.queue.join(to_queued_job(job), always=always)

    def start(self, run: JobRun, work: Coroutine[Any, Any, None] | None) -> None:
        """Start a job's work in the background.

        For a paused job, `work` is None, because it has no work until it is resumed.
        """
        task = asyncio.create_task(self._supervise(run, work))
        self._running.tasks[run.status.job.key] = task
        task.add_done_callback(lambda _: self._running.tasks.pop(run.status.job.key, None))

    async def in_turn(self, run: JobRun, turn: asyncio.Future[bool]) -> None:
        """Wait until the job leaves the queue, then plan again, as the table may have changed, and run it."""
        job = run.status.job
        if not turn.done() and job.state is not JobState.PENDING:
            await run.status.move(JobState.PENDING)
            await self._store.save(run.status.job)
        self.tell_places()
        with tracing.span("queue", run.status.span):
            its_turn = await turn
        if not its_turn:
            if run.status.job.state is not JobState.PAUSED:
                await run.end(JobState.CANCELLED)
            return
        run.status.has_its_turn()
        if run.status.job.state is JobState.PENDING:  # from now on, a takeover counts as an attempt
            await run.status.move(JobState.PLANNING)
            await self._store.save(run.status.job)
        await run.replan_and_run()

    async def _rest(self, run: JobRun) -> None:
        """Release the resources of a paused job. Wait until it is resumed, cancelled or lost, then continue."""
        key = run.status.job.key
        self._services.forget_workers(key)
        self.leave_queue(key)
        await run.status.until_resumed()
        while run.status.job.state is JobState.PAUSING and not run.status.lost:  # paused again before it started
            await run.status.rest(self._store)
            await run.status.until_resumed()
        if run.status.lost:
            return
        if run.cancelling or run.status.job.state is JobState.CANCELLING:
            await run.end(JobState.CANCELLED)
            return
        run.resume()
        await self.in_turn(run, self.join_queue(run.status.job, always=True))

    def leave_queue(self, key: str) -> None:
        """Remove an ended or withdrawn job from the queue, and start the next one."""
        self.queue.leave(key)
        self.tell_places()

    def tell_places(self) -> None:
        """Send the watchers of waiting jobs their places in the queue. Quick successive changes are sent together."""
        self._news = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_places())

    async def _tell_places(self) -> None:
        while self._news:
            self._news = False
            before, self._told = self._told, self.queue.places()
            for key, place in self._told.items():
                run = self._running.runs.get(key)
                if run is not None and before.get(key) != place:
                    await run.status.publish()

    async def _supervise(self, run: JobRun, work: Coroutine[Any, Any, None] | None) -> None:
        STORE.set(store_of(run.status.job.request.database))  # after a takeover, another store is set here
        if run.status.span is not None:
            tracing.enter(run.status.span)  # never exited: the task ends with the job
        over = asyncio.Event()
        beat = asyncio.create_task(self._heartbeat(run, over))
        key = run.status.job.key
        try:
            if work is not None:
                await work
            while run.status.job.state in _STOPPED and not run.status.lost:
                await self._rest(run)
        except Exception:  # noqa: BLE001 a job must always end in some state
            _log.exception("job failed on a bug", job_id=run.status.job.job_id)
            message = "the executor failed on a bug; its log has the traceback. Finished work is kept."
            await run.status.end(
                JobState.FAILED, JobError(kind="Internal", reason="INTERNAL_BUG", message=message), self._store
            )
        finally:
            over.set()  # cancelling a call to Redis or the history could raise an error as if they failed
            beat.cancel()
            self._services.forget_workers(key)
            self.leave_queue(key)
        await asyncio.wait((beat,))  # otherwise it could acquire the lease again after its release
        if key not in self._store.unsaved:
            await self._leases.release(key, ended=self._has_ended(run))
            if self._has_ended(run):
                await self._env_values.forget(key)
        if run.status.lost:
            self._running.drop(key)
            return
        self.costs.learn(run.status.job, run.status.metrics.seconds_per_row)
        self.forget_old_runs()

    def _has_ended(self, run: JobRun) -> bool:
        """Return whether a job has ended, on this executor or on the one that took it over."""
        known: Job | None = run.status.job
        if run.status.lost:
            known = self._databases.of(run.status.job).jobs.get(run.status.job.job_id)
        return known is not None and known.state.terminal

    def forget_old_runs(self) -> None:
        """Drop old runs that have ended. Their jobs are in the history."""
        runs, tasks = self._running.runs, self._running.tasks
        if len(runs) - len(tasks) < 2 * _RUNS_KEPT:  # scanning all runs whenever a job ends would be slow
            return
        ended = [
            key
            for key, run in runs.items()
            if run.status.job.state.terminal and key not in tasks and key not in self._store.unsaved
        ]
        for key in ended[:-_RUNS_KEPT]:
            del runs[key]

    async def _heartbeat(self, run: JobRun, over: asyncio.Event) -> None:
        """Renew the lease until the run is over.

        If the lease had expired, check in the history that the job is still ours.
        """
        beaten = time.monotonic()
        while not over.is_set():
            await asyncio.sleep(self._leases.lease_seconds / 3)
            in_time = time.monotonic() - beaten < self._leases.lease_seconds
            beaten = time.monotonic()
            kept = await self._leases.renew(run.status.job.key)
            if not (kept and in_time):
                await self._check_ours(run)
            if not run.status.lost:  # otherwise the job may have ended elsewhere
                await self._env_values.renew(run.status.job.key, run.status.env)

    async def _check_ours(self, run: JobRun) -> None:
        job = run.status.job
        database = self._databases.of(job)
        try:
            stored = await database.find(job.job_id)
        except LemanError as error:
            _log.warning("the owner of a job cannot be read from the history", job_id=job.job_id, error=str(error))
            return
        if stored is not None and not same_attempt(stored, job):
            database.jobs.put(stored)
            self._running.lose(job.key)


def to_queued_job(job: Job) -> QueuedJob:
    """Return what the queue needs to know about a job."""
    return QueuedJob(
        key=job.key,
        accepted_at=job.created_at,
        database=job.request.database,
        caller=job.initiator,
        priority=job.priority,
    )
