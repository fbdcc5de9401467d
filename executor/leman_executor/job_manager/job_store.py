"""The job store: it writes the states of jobs into their histories, and says which of them counts."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.job import Job, JobState, same_attempt
from leman_core.model.udf import FunctionVersion
from leman_core.model.work import RowFailure
from leman_core.server.blocking import BlockingPool
from leman_executor.coordination.leases import JobLeases
from leman_executor.history.job_filter import JobFilter
from leman_executor.history.job_record import JobRecord
from leman_executor.job_manager.job_databases import JobDatabase, JobDatabases
from leman_executor.job_manager.job_lineage import JobLineage
from leman_executor.job_manager.job_spans import ended
from leman_executor.job_manager.running_jobs import RunningJobs
from leman_executor.lineage.events import Lineage
from leman_executor.worker.error_store import JobErrors, errors_uri

_log = structlog.get_logger(__name__)

_SAVE_AGAIN_SECONDS = 3.0
#: Earlier jobs that are named as those in which rows failed.
_FAILED_IN = 5
#: Jobs of a table that are looked through for one that left it at a later version.
_LOOKED_AT = 64


class HistoryJobStore:
    """The `leman_executor.jobs.ports.JobStore` of job histories; `unsaved`: jobs whose end could not be written yet."""

    def __init__(self, databases: JobDatabases, running: RunningJobs, leases: JobLeases, pool: BlockingPool) -> None:
        self._databases = databases
        self._running = running
        self._leases = leases
        self._pool = pool
        self.unsaved: dict[str, asyncio.Task[None]] = {}
        #: None: nobody is told what jobs make of what.
        self.lineage: JobLineage | None = None

    async def save(self, job: Job) -> Job:
        """See the port; an end that cannot be written now is returned all the same, and written later.

        So is the end of a job that had nothing to do, which nobody wrote down before, where an append is dear and no
        other executor can be asked for the job.
        """
        database = self._databases.of(job)
        known = database.jobs.get(job.job_id)
        had_nothing_to_do = job.state is JobState.DONE and known is None and not job.progress.commits
        # an end, and an attempt, is in history before anybody is told
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
            self._running.lose(job.job_id)
        elif kept.state.terminal:
            if job.state.terminal:  # else it was saved with the end, or after it, which is told by whoever saved that
                self._tell_end(kept)
        elif kept.state is JobState.RUNNING and self.lineage is not None:
            self.lineage.runs(kept, self._lineage_of(kept))
        return kept

    def _tell_end(self, job: Job) -> None:
        """Tell measures, traces and, where it failed, the log of the end of a job that this executor has."""
        if job.state is JobState.FAILED:
            reason = job.error.reason if job.error is not None else ""
            _log.warning("a job failed", job_id=job.job_id, database=job.request.database, reason=reason)
        self._running.measured.end(job)
        run = self._running.runs.get(job.job_id)
        if run is not None and run.status.span is not None:
            ended(run.status.span, job)
        if self.lineage is not None:
            self.lineage.ends(job, self._lineage_of(job))

    def _lineage_of(self, job: Job) -> Lineage | None:
        run = self._running.runs.get(job.job_id)
        return None if run is None else run.status.lineage

    def _save_later(self, database: JobDatabase, job: Job, error: Exception) -> None:
        _log.error("the end of a job is not in its history yet", job_id=job.job_id, error=str(error))
        if job.job_id not in self.unsaved:
            self.unsaved[job.job_id] = asyncio.create_task(self._keep_saving(database, job))

    async def _keep_saving(self, database: JobDatabase, job: Job) -> None:
        """Write a job's end again and again until it is in history.

        The lease is held until then, so that nobody takes over a job that has ended.
        """
        kept = None
        try:
            async with self._leases.kept(job.job_id):
                while kept is None:
                    await asyncio.sleep(_SAVE_AGAIN_SECONDS)
                    with contextlib.suppress(LemanError):
                        kept = await database.save(job)
                database.jobs.put(kept)
        finally:
            del self.unsaved[job.job_id]
            await self._leases.release(job.job_id, ended=kept is not None and kept.state.terminal)

    async def save_error(self, job: Job, row: RowFailure) -> None:
        """See the port."""
        spec = job.backfill
        errors = JobErrors(errors_uri(spec.database), job.job_id, spec.column, job.udf_version)
        await self._pool.run(errors.store, [row])

    def failed_in(self, job: Job) -> tuple[str, ...]:
        """See the port; the jobs are those that history had when it was read last."""
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
        """See the port; only the jobs of the table that came last are looked at."""
        jobs = self._databases.of(job).jobs
        of_table = JobFilter(tables=frozenset({job.request.table}), matches=lambda its: its.table_version > version)
        found, _ = jobs.listed(of_table, looks=_LOOKED_AT)
        later = (record.job() for record in found)
        return next((other for other in later if other.incarnation and other.incarnation == job.incarnation), None)
