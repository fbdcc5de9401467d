"""Create, find, pause, resume, retry, cancel and delete the jobs of one executor.

A paused job keeps only what it has stored, until it is resumed or cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import structlog

from leman_core.model.databases import Registrations
from leman_core.model.job import OPEN, Job, JobRequest, JobState, deleted_job
from leman_core.model.keys import job_key
from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.server.database_locations import DatabaseLocations
from leman_executor.history.failed_row_pages import FailedRowGroupPage, FailedRowPage, PageKey
from leman_executor.history.job_index import JobFilter, JobListing
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.job_status import JobUpdate
from leman_executor.manager import job_databases
from leman_executor.manager.job_admission import DEFAULT_ATTRIBUTES, Admission, JobAttributes, RetryOptions
from leman_executor.manager.job_queries import JobQueries
from leman_executor.manager.job_store import RunningJobs
from leman_executor.manager.job_supervisor import ManagerDeps, Supervisor
from leman_executor.manager.job_telemetry import show_job_gauges
from leman_executor.manager.takeovers import AbandonedJobs, Takeovers

_log = structlog.get_logger(__name__)

_PAUSED = frozenset({JobState.PAUSING, JobState.PAUSED})


class Pauses:
    """Pause and resume the jobs of one executor, on one event loop."""

    def __init__(self, shared: ManagerDeps, supervisor: Supervisor, takeovers: Takeovers, queries: JobQueries) -> None:
        self._running = shared.running
        self._store = shared.store
        self._supervisor = supervisor
        self._takeovers = takeovers
        self._queries = queries

    async def pause(self, path: str, job_id: str) -> Job:
        """Stop a job once its computed rows are stored. Pause a queued job at once.

        A job that is paused or pausing stays unchanged.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
            FailedPrecondition: JOB_ENDED – the job has ended; JOB_CANCELLING – it is being cancelled.
            Unavailable: JOB_ELSEWHERE – another executor runs it.
        """
        run = await self._open_run(path, job_id, "paused")
        if run.status.job.state in _PAUSED:
            return run.status.snapshot()
        if self._supervisor.queue.waits(run.status.job.key):
            self._supervisor.leave_queue(run.status.job.key)
            await run.status.move(JobState.PAUSED)
        else:
            run.pause()
            await run.status.move(JobState.PAUSING)
        return await self._told(path, run)

    async def resume(self, path: str, job_id: str) -> Job:
        """Queue a paused job again, to continue where it stopped. A job that is not paused stays unchanged.

        Raises:
            NotFound, FailedPrecondition, Unavailable: see `pause`.
        """
        run = await self._open_run(path, job_id, "resumed")
        if run.status.job.state not in _PAUSED:
            return run.status.snapshot()
        await run.status.move(JobState.PENDING)
        return await self._told(path, run)

    async def _open_run(self, path: str, job_id: str, to_be: str) -> JobRun:
        await self._takeovers.finish(await self._queries.get(path, job_id))
        job = await self._queries.get(path, job_id)
        if job.state.terminal:
            raise FailedPrecondition("JOB_ENDED", f"Job {job_id} has ended and cannot be {to_be}", job_id=job_id)
        run = local_run(self._running, job)
        if run.status.job.state is JobState.CANCELLING:
            raise FailedPrecondition("JOB_CANCELLING", f"Job {job_id} is being cancelled", job_id=job_id)
        return run

    async def _told(self, path: str, run: JobRun) -> Job:
        """Write the job's state to the history, in case another executor takes the job over. Return the job.

        If the state cannot be written, it still applies until this executor ends.
        """
        job_id = run.status.job.job_id
        try:
            await self._store.save(run.status.job)
        except LemanError as error:
            _log.warning("a pause or resume could not be written to the history", job_id=job_id, error=str(error))
        if run.status.lost or run.status.job.state.terminal:
            return await self._queries.get(path, job_id)
        return run.status.snapshot()


def local_run(running: RunningJobs, job: Job) -> JobRun:
    """Return the run of a job, if this executor runs the job.

    Raises:
        Unavailable: JOB_ELSEWHERE – another executor runs it.
    """
    run = running.run_of(job)
    if run is None:
        raise Unavailable("JOB_ELSEWHERE", f"Job {job.job_id} is run by another executor: call that executor")
    return run


class JobManager:
    """The jobs of one executor. Call it from one event loop."""

    def __init__(self, shared: ManagerDeps) -> None:
        self._services = shared.services
        self._databases = shared.databases
        self._running = shared.running
        self._store = shared.store
        self._leases = shared.leases
        self._env_values = shared.env_values
        self._limits = shared.limits
        self._supervisor = Supervisor(shared)
        self._takeovers = Takeovers(shared, self._supervisor)
        self._queries = JobQueries(self._takeovers, shared.running)
        self._pauses = Pauses(shared, self._supervisor, self._takeovers, self._queries)
        self._admission = Admission(shared, self._supervisor, self._takeovers, self._queries)

    def busy(self) -> bool:
        """Return whether any job runs or is queued. Paused jobs do not count."""
        runs = self._running.runs
        return any(runs[key].status.job.state is not JobState.PAUSED for key in self._running.tasks)

    async def measure(self) -> None:
        """Update the gauges and counters of jobs, until cancelled."""
        running = self._running
        show_job_gauges(running.runs, self._leases.age, lambda: self._supervisor.queue.waiting)
        await running.measured.follow(running.runs, running.tasks)

    def columns(self) -> set[tuple[str, str, str]]:
        """Return (database, table, column) of all backfills in the open databases."""
        jobs = ((database.path, job) for database in self._databases for job in database.jobs)
        return {(path, job.table, column) for path, job in jobs for column in job.filled}

    async def open_database(self, path: str) -> None:
        """Open a database, and take over the jobs that a dead executor left there."""
        await self._takeovers.open(path)

    def forget_database(self, path: str) -> None:
        """Forget the jobs of a deleted database. A new database at its path has other jobs."""
        self._databases.forget(path)

    async def follow_limits(self, read: Callable[[], Registrations], seconds: float) -> None:
        """Read the limits of registered databases every `seconds` and apply them, until cancelled."""
        await job_databases.follow_limits(read, self._limits, seconds, self._limits_changed)

    async def follow_abandoned(self, locations: DatabaseLocations, seconds: float) -> None:
        """Search for abandoned jobs every `seconds` and take them over, until cancelled."""
        await AbandonedJobs(self._takeovers, self._leases, locations).follow(seconds)

    def _limits_changed(self) -> None:
        self._supervisor.queue.look_again()
        self._supervisor.tell_places()

    async def create(
        self, request: JobRequest, request_id: str, *, body: str = "", attributes: JobAttributes = DEFAULT_ATTRIBUTES
    ) -> Job:
        """Accept a job. Return the job while it runs or waits. If there is little or nothing to do, return it when it
        is done.

        Args:
            request: What to compute.
            request_id: Repeated calls with the same id and the same `body` return the same job. Without an id, each
                call creates a job.
            body: A digest of the whole request message.
            attributes: Labels, priority, initiator and environment.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – the request id was used with another body.
            ResourceExhausted: TOO_MANY_JOBS – the maximum number of jobs is running and waiting.
            LemanError: as planning raises.
        """
        return await self._admission.create(request, request_id, body, attributes)

    async def retry(
        self,
        database: str,
        retry: RetryOptions,
        request_id: str,
        *,
        body: str = "",
        attributes: JobAttributes = DEFAULT_ATTRIBUTES,
    ) -> tuple[Job, bytes]:
        """Accept a job that recomputes the failed rows of an ended job.

        Returns:
            The new job, and the outcome of setting another function for the column (`Planner.alter_column`).

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
            FailedPrecondition: NOTHING_TO_RETRY – the ended job has no failed rows to retry.
            LemanError: as `create` and `leman_executor.manager.job_admission.retry_spec` raise.
        """
        return await self._admission.retry(database, retry, request_id, body, attributes)

    async def get(self, database: str, job_id: str) -> Job:
        return await self._queries.get(database, job_id)

    def has(self, database: str, job_id: str) -> bool:
        """Return whether this executor runs the job, or ran it until it ended."""
        return self._running.here(job_key(database, job_id)) is not None

    async def list_jobs(self, database: str, listing: JobListing = JobListing()) -> list[Job]:  # noqa: B008 - frozen
        return await self._queries.list_jobs(database, listing)

    async def count_jobs(self, database: str, job_filter: JobFilter) -> int:
        return await self._queries.count_jobs(database, job_filter)

    async def warnings(self, database: str) -> list[str]:
        """Describe the damaged parts of a job history."""
        return await self._queries.warnings(database)

    def watch(self, database: str, job_id: str, after: int, heartbeat_seconds: float) -> AsyncGenerator[JobUpdate]:
        return self._queries.watch(database, job_id, after, heartbeat_seconds)

    async def errors(
        self, database: str, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool
    ) -> tuple[FailedRowPage, list[str]]:
        return await self._queries.errors(database, job_id, column, after, size, all_places=all_places)

    async def error_groups(
        self, database: str, job_id: str, column: str, begin: int, size: int, *, examples: int
    ) -> tuple[FailedRowGroupPage, list[str]]:
        return await self._queries.error_groups(database, job_id, column, begin, size, examples=examples)

    async def cancel(self, database: str, job_id: str) -> Job:
        """Cancel a job. An ended job stays unchanged.

        The new state is written to the history before this returns, so an executor that takes the job over also cancels
        it.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
            Unavailable: JOB_ELSEWHERE – another executor runs it.
        """
        await self._takeovers.finish(await self.get(database, job_id))
        job = await self.get(database, job_id)
        if job.state.terminal:
            return job
        run = local_run(self._running, job)
        if not run.cancelling:
            await run.status.move(JobState.CANCELLING)
            await self._save_cancelling(run.status.job)
            if run.status.lost or run.status.job.state.terminal:
                return await self.get(database, job_id)
            if self._supervisor.queue.waits(job.key):
                self._supervisor.leave_queue(job.key)
            else:
                # Give the tasks time to store computed rows: Spark kills them after two seconds.
                self._services.stop_units(job.key)
                await asyncio.to_thread(run.cancel)
        return run.status.snapshot()

    async def pause(self, database: str, job_id: str) -> Job:
        return await self._pauses.pause(database, job_id)

    async def resume(self, database: str, job_id: str) -> Job:
        return await self._pauses.resume(database, job_id)

    async def cancel_all(self, database: str, job_filter: JobFilter) -> tuple[list[Job], list[str]]:
        """Cancel all open jobs that match a filter.

        Returns:
            The cancelled jobs, newest first, and the ids of matching jobs that another executor runs.
        """
        asked: list[Job] = []
        elsewhere: list[str] = []
        states = job_filter.states & OPEN if job_filter.states else OPEN  # do not even read records of ended jobs
        found = await self.list_jobs(database, JobListing(filter=replace(job_filter, states=states))) if states else []
        for job in found:
            try:
                asked.append(await self.cancel(database, job.job_id))
            except Unavailable:
                elsewhere.append(job.job_id)
        return asked, elsewhere

    async def delete(self, path: str, job_id: str) -> None:
        """Delete an ended job and its failed rows from the history. Repeating this has no effect.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
            FailedPrecondition: JOB_RUNNING – it has not ended.
        """
        database = await self._takeovers.open(path)
        await database.reload()
        if not database.jobs.was_deleted(job_id):
            job = await self.get(path, job_id)
            if not job.state.terminal:
                message = f"Job {job_id} is {job.state.value}: cancel it or wait until it has ended, then delete it"
                raise FailedPrecondition("JOB_RUNNING", message, job_id=job_id)
            database.jobs.put(await database.save(deleted_job(job, time.time())))
        await database.forget_failed_rows(job_id)

    async def update(self, database: str, job_id: str, **changes: Any) -> Job:
        """Change `labels` or `priority` of an open job.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
            FailedPrecondition: JOB_ENDED – the job has ended.
            Unavailable: JOB_ELSEWHERE – another executor runs it.
        """
        job = await self.get(database, job_id)
        if job.state.terminal:
            raise FailedPrecondition("JOB_ENDED", f"Job {job_id} has ended and cannot be changed", job_id=job_id)
        run = local_run(self._running, job)
        run.status.update(**changes)
        await self._store.save(run.status.job)
        self._supervisor.queue.prioritise(job.key, run.status.job.priority)
        self._supervisor.tell_places()
        await run.status.publish()
        return run.status.snapshot()

    async def _save_cancelling(self, job: Job) -> None:
        """Write to the history that a job is being cancelled.

        If that fails, the job is stopped anyway, but an executor that takes the job over would continue it.
        """
        try:
            await self._store.save(job)
        except LemanError as error:
            _log.warning("a cancel could not be written to the history", job_id=job.job_id, error=str(error))

    async def stop(self) -> None:
        """Leave all jobs to other executors, which continue them from their checkpoints."""
        self._supervisor.queue.close()
        await self._admission.stop()
        running = list(self._running.tasks)
        for key in running:
            self._services.cancel_workers(key)
        tasks = [*self._takeovers.waiting.values(), *self._running.tasks.values(), *self._store.unsaved.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        runs = self._running.runs
        kept = [runs[key] for key in running if key in runs]  # other executors may have taken some jobs over meanwhile
        await asyncio.gather(*(self._takeovers.hand_back(run.status.job) for run in kept))
        for key in list(runs):
            await self._leases.release(key)
        await self._leases.close()
        await self._env_values.close()
        await self._databases.close()
