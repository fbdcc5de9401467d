"""The jobs of a database, as methods of `leman.Database`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leman import _local_database, _local_jobs, _wire
from leman._channel import Services
from leman._column_changes import ColumnChange
from leman._future import JobFuture, retry_job, wait
from leman._job_attributes import is_wanted, job_filter
from leman._job_model import Job, Jobs, JobState, Progress
from leman._paging import list_errors, pages
from leman._registration import Registration
from leman._table_model import RowErrors
from leman._tracebacks import boundary, warn
from leman._udf import UDF
from leman.v1 import jobs_pb2


class DatabaseJobs:
    """What can be done with the jobs of a database."""

    uri: str
    _services: Services
    _registration: Registration

    @boundary
    def jobs(
        self,
        table: str | None = None,
        limit: int | None = 100,
        *,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Jobs, running and ended, newest first: those of `table`, in one of `states` (none: in any), with all of
        `labels`; at most `limit` (None: all). A UserWarning tells what of the job history was damaged and set aside, if
        anything was: such jobs may be missing.

        Where pylance is installed and no services of a local database run, their history is read, and none are started:
        a UserWarning then tells of jobs that have not ended, as they go on once services run (`start`).

        Raises InvalidArgument, NotFound (DATABASE_NOT_FOUND)."""
        wanted = job_filter(table, states, labels)
        known = self._jobs_alone()
        if known is not None:
            chosen = [job for job in known if is_wanted(job, wanted)][: None if limit is None else max(limit, 0)]
            self._tell_of_waiting(chosen)
            return Jobs(chosen)
        requests = pages(
            lambda token, size: self._services.jobs.ListJobs(
                jobs_pb2.ListJobsRequest(database=self.uri, filter=wanted, page_size=size, page_token=token),
            ),
            limit,
        )
        found, damage = Jobs(), dict[str, None]()
        for page in requests:
            found += [_wire.job(item) for item in page.jobs]
            damage |= dict.fromkeys(page.warnings)
        for text in damage:
            warn(text)
        return found

    @boundary
    def cancel_jobs(
        self,
        table: str | None = None,
        *,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Ask the jobs to stop that `jobs` would list and that have not ended; without arguments all of them. What they
        have finished is kept. Returns them as they stand after that; a UserWarning names those that could not be asked,
        as another executor runs them. Raises InvalidArgument."""
        request = jobs_pb2.CancelJobsRequest(database=self.uri, filter=job_filter(table, states, labels))
        answer = self._services.jobs.CancelJobs(request)
        if answer.jobs_elsewhere:
            warn(f"not cancelled, as another executor runs them: {', '.join(answer.jobs_elsewhere)}")
        return [_wire.job(job) for job in answer.jobs]

    @boundary
    def job(self, job_id: str) -> Job:
        """A job as it stands now; where no services run, as with `jobs`. Raises JobNotFound."""
        for job in self._jobs_alone() or ():
            if job.job_id == job_id:
                self._tell_of_waiting([job])
                return job
        return self.job_future(job_id).job()

    def _jobs_alone(self) -> list[Job] | None:
        """All jobs as history has them, where services would have to be started; None: they are to be asked."""
        if not self._services.reads_alone():
            return None
        _local_database.check_there(self.uri)
        return _local_jobs.jobs(self.uri)

    def _tell_of_waiting(self, jobs: Iterable[Job]) -> None:
        waiting = [job.job_id for job in jobs if not job.state.terminal and job.state is not JobState.PAUSED]
        if waiting:
            what = f"{waiting[0]} has" if len(waiting) == 1 else f"{len(waiting):,} jobs have"
            goes = "goes" if len(waiting) == 1 else "go"
            warn(f"{what} not ended and {goes} on once services run: `leman up {self.uri}`, or Database.start()")

    @boundary
    def get_errors(self, job_id: str, column_name: str | None = None, limit: int | None = None) -> RowErrors:
        """As `Table.get_errors`, for whoever has no more than a job's id."""
        return list_errors(self._services, self.uri, job_id, column_name, limit)

    @boundary
    def retry_job(
        self,
        job_id: str,
        *,
        udf: UDF | str | None = None,
        keep_others: bool = False,
        progress: bool | Callable[[Progress], object] | None = None,
        env: Mapping[str, str] | None = None,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> str:
        """As `retry_job_async`, but waits and returns the new job's id. `progress` and errors: as `Table.backfill`."""
        future = self.retry_job_async(
            job_id, udf=udf, keep_others=keep_others, env=env, report=report, request_id=request_id
        )
        return wait(future, f"retry of {job_id}", progress=progress).job_id

    @boundary
    def retry_job_async(
        self,
        job_id: str,
        *,
        udf: UDF | str | None = None,
        keep_others: bool = False,
        env: Mapping[str, str] | None = None,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> JobFuture:
        """Call the function again for the rows of an ended job's columns that are marked as failed, and for no others;
        also for those that failed in other jobs.
        They are found by their state, wherever updates and compaction have moved them; a row whose inputs changed
        since counts as not computed: a plain backfill computes it. The job's `where` holds for its retry.

        `udf`: another function, or another version, which is the column's from then on. `keep_others`: then the other
        rows keep their values and count as current; the version is recorded per row, `plan_backfill` names the rows
        that keep an earlier one's, and `alter_columns` to the same function makes those stale. Without `keep_others`
        all of them are stale, as after `alter_columns`, and the job computes them too. `report`: as for
        `Table.alter_columns`. `env` and `request_id`: as for `Table.backfill`; the retried job's own variables are not
        known any more.

        Raises JobNotFound, UdfNotFound, TypeMismatch, InvalidArgument, and FailedPrecondition: the job has not ended
        (JOB_RUNNING), it ended early and no row is marked as failed (NOTHING_TO_RETRY: run the backfill again),
        it refreshed a view (NOT_A_BACKFILL), keep_others with a function of other inputs (KEPT_INPUTS_DIFFER), or
        after a job that computed with a function that is not the column's (KEEP_OTHERS_FUNCTION).
        """
        return retry_job(
            *(self._services, self._registration, self.uri, job_id, udf),
            keep_others=keep_others,
            env=env,
            report=report,
            request_id=request_id,
        )

    def job_future(self, job_id: str) -> JobFuture:
        """To watch, cancel or wait for a job that someone started. Does not ask whether it exists."""
        return JobFuture(self._services, self.uri, job_id)
