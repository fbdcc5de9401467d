"""Track which jobs run here and the current state of each. Write each state to the job history and to lineage."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import structlog

from leman._format.column_bindings import FunctionVersion
from leman_core.model.job import Job, JobState, same_attempt
from leman_core.model.service_errors import LemanError
from leman_core.model.work import RowError
from leman_core.server.blocking import BlockingPool
from leman_core.storage.locations import table_uri
from leman_executor.coordination.leases import JobLeases
from leman_executor.history.job_index import JobFilter, JobRecord
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.lineage import LineageFacts, run_ended_event, run_started_event
from leman_executor.manager.job_databases import JobDatabase, JobDatabases
from leman_executor.manager.job_telemetry import MeasuredJobs, end_job_span
from leman_executor.worker.error_store import JobErrors, errors_uri


class LineageReporter:
    """Report the starts and ends of one executor's jobs as lineage events."""

    def __init__(self, send: Callable[[dict[str, Any]], None], namespace: str) -> None:
        self._send = send
        self._namespace = namespace
        self._begun: set[str] = set()

    def runs(self, job: Job, lineage: LineageFacts | None) -> None:
        """Report that a job has begun to run here. Repeated calls report it once.

        Args:
            lineage: The tables that the job reads and writes. None if no plan shows them.
        """
        if job.key not in self._begun:
            self._begun.add(job.key)
            self._send(run_started_event(job, lineage or _unknown(job), self._namespace, time.time()))

    def ends(self, job: Job, lineage: LineageFacts | None) -> None:
        """Report that a job has ended. If the job had nothing to do, also report its start."""
        self.runs(job, lineage)
        self._begun.discard(job.key)
        self._send(run_ended_event(job, lineage or _unknown(job), self._namespace))


def _unknown(job: Job) -> LineageFacts:
    return LineageFacts("", 0, table_uri(job.request.database, job.request.table), {})


_log = structlog.get_logger(__name__)


class RunningJobs:
    """The runs and tasks of jobs by key, on one event loop. A job without a task has ended or is being created."""

    def __init__(self) -> None:
        self.runs: dict[str, JobRun] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.measured = MeasuredJobs()
        self._lost: set[str] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    def here(self, key: str) -> JobRun | None:
        """Return the run of a job that this executor runs, or ran until it ended. Return None for any other job."""
        run = self.runs.get(key)
        return None if run is None or run.status.lost else run

    def run_of(self, job: Job) -> JobRun | None:
        """Return the run of a job; see `here`."""
        return self.here(job.key)

    def current(self, job: Job) -> Job:
        """Return the live state of a job if it runs here, else the given state."""
        run = self.run_of(job)
        return run.status.snapshot() if run is not None else job

    def lose(self, key: str) -> None:
        """Stop the local run of a job that another executor has taken over. Report nothing more about the job."""
        self.measured.forget(key)
        run = self.here(key)
        if run is None:
            return
        _log.warning("another executor has taken a job over, so it stops here", job_id=run.status.job.job_id)
        run.status.lose()
        if run.status.span is not None:
            run.status.span.end("LeftToOther")
        self._lost.add(key)
        stopping = asyncio.create_task(_end(run))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def drop(self, key: str) -> None:
        """Drop both the run and the task of a lost job."""
        self.runs.pop(key, None)
        self.tasks.pop(key, None)

    def was_lost(self, key: str) -> bool:
        """Return whether another executor has taken the job over from this one."""
        return key in self._lost

    async def stopped(self) -> None:
        """Wait until all lost jobs have stopped."""
        await asyncio.gather(*self._stopping)


async def _end(run: JobRun) -> None:
    await run.status.publish()  # wakes a paused job
    await asyncio.to_thread(run.cancel)


_SAVE_AGAIN_SECONDS = 3.0
#: Maximum number of earlier jobs with failed rows that are named.
_FAILED_IN = 5
#: Number of a table's jobs to search for a job that committed a later version.
_LOOKED_AT = 64


class HistoryJobStore:
    """The job states in job histories. `unsaved` has, by key, ended jobs whose end is not written yet."""

    def __init__(self, databases: JobDatabases, running: RunningJobs, leases: JobLeases, pool: BlockingPool) -> None:
        self._databases = databases
        self._running = running
        self._leases = leases
        self._pool = pool
        self.unsaved: dict[str, asyncio.Task[None]] = {}
        #: None if lineage is not reported.
        self.lineage: LineageReporter | None = None

    async def save(self, job: Job) -> Job:
        """See `JobStore.save`. If the end of a job cannot be written now, return that state anyway, and write it later.

        If an append is expensive and no other executor can receive requests for the job, a job that had nothing to do
        is written later, together with the next states of other jobs.
        """
        database = self._databases.of(job)
        known = database.jobs.get(job.job_id)
        had_nothing_to_do = job.state is JobState.DONE and known is None and not job.progress.commits
        # An end or a new attempt must be in the history before it is reported.
        if not job.state.terminal and (known is None or same_attempt(known, job)):
            database.jobs.put(job)
        if had_nothing_to_do and database.writes_are_dear and self._leases.is_alone:
            database.jobs.put(job)
            database.save_with_others(job)
            self._tell_end(job)
            return job
        try:
            kept = await database.save(job)
        except LemanError as error:
            if not job.state.terminal:
                raise
            database.jobs.put(job)
            self._save_later(database, job, error)
            self._tell_end(job)
            return job
        database.jobs.put(kept)
        if not same_attempt(kept, job):
            self._running.lose(job.key)
        elif kept.state.terminal:
            if job.state.terminal:  # otherwise the caller that saved the end reports it
                self._tell_end(kept)
        elif kept.state is JobState.RUNNING and self.lineage is not None:
            self.lineage.runs(kept, self._lineage_of(kept))
        return kept

    def _tell_end(self, job: Job) -> None:
        """Report the end of a job to metrics and traces, and a failure to the log."""
        if job.state is JobState.FAILED:
            reason = job.error.reason if job.error is not None else ""
            _log.warning("a job failed", job_id=job.job_id, database=job.request.database, reason=reason)
        self._running.measured.end(job)
        run = self._running.runs.get(job.key)
        if run is not None and run.status.span is not None:
            end_job_span(run.status.span, job)
        if self.lineage is not None:
            self.lineage.ends(job, self._lineage_of(job))

    def _lineage_of(self, job: Job) -> LineageFacts | None:
        run = self._running.runs.get(job.key)
        return None if run is None else run.status.lineage

    def _save_later(self, database: JobDatabase, job: Job, error: Exception) -> None:
        _log.error("the end of a job could not be written yet", job_id=job.job_id, error=str(error))
        if job.key not in self.unsaved:
            self.unsaved[job.key] = asyncio.create_task(self._keep_saving(database, job))

    async def _keep_saving(self, database: JobDatabase, job: Job) -> None:
        """Retry writing a job's end until the history has it.

        Hold the lease until then, so that no other executor takes over an ended job.
        """
        kept = None
        try:
            async with self._leases.kept(job.key):
                while kept is None:
                    await asyncio.sleep(_SAVE_AGAIN_SECONDS)
                    with contextlib.suppress(LemanError):
                        kept = await database.save(job)
                database.jobs.put(kept)
        finally:
            del self.unsaved[job.key]
            await self._leases.release(job.key, ended=kept is not None and kept.state.terminal)

    async def save_error(self, job: Job, row: RowError) -> None:
        spec = job.backfill
        errors = JobErrors(errors_uri(spec.database), job.job_id, spec.column, job.udf_version)
        await self._pool.run(errors.store, [row])

    def failed_in(self, job: Job) -> tuple[str, ...]:
        """See `JobStore.failed_in`. This searches only jobs that were in the history when it was last read."""
        column, function = job.column or "", FunctionVersion(job.udf_name, job.udf_version)

        def failed(other: JobRecord) -> bool:
            if not other.rows_failed or other.job_id == job.job_id or column not in other.filled:
                return False
            if other.columns:
                return other.job().functions.get(column) == str(function)
            return (other.udf_name, other.udf_version) == (function.name, function.version)

        jobs = self._databases.of(job).jobs
        found, _ = jobs.listed(JobFilter(tables=frozenset({job.request.table}), matches=failed), most=_FAILED_IN)
        return tuple(record.job_id for record in found)

    def lost_commit(self, job: Job, version: int) -> Job | None:
        """See `JobStore.lost_commit`. This searches only the latest jobs of the table."""
        jobs = self._databases.of(job).jobs
        of_table = JobFilter(tables=frozenset({job.request.table}), matches=lambda its: its.table_version > version)
        found, _ = jobs.listed(of_table, looks=_LOOKED_AT)
        later = (record.job() for record in found)
        return next((other for other in later if other.incarnation and other.incarnation == job.incarnation), None)
