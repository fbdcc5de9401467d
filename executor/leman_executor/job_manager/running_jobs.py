"""The jobs that run on this executor, and the last ones that ended here."""

from __future__ import annotations

import asyncio

import structlog

from leman_core.model.job import Job
from leman_executor.job_manager.measured_jobs import MeasuredJobs
from leman_executor.jobs.job_run import JobRun

_log = structlog.get_logger(__name__)


class RunningJobs:
    """The runs and tasks of jobs by job id, for one event loop; a job without a task has ended, or is being made."""

    def __init__(self) -> None:
        self.runs: dict[str, JobRun] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.measured = MeasuredJobs()
        self._lost: set[str] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    def here(self, job_id: str) -> JobRun | None:
        """Return the run of a job that this executor has, or had when the job ended; else None."""
        run = self.runs.get(job_id)
        return None if run is None or run.status.lost else run

    def run_of(self, job: Job) -> JobRun | None:
        """Return the run of a job of this very database, as `here` does: a copy of a database has the same job ids."""
        run = self.here(job.job_id)
        return run if run is not None and run.status.job.request.database == job.request.database else None

    def current(self, job: Job) -> Job:
        """Return the live state of a job that runs here, else the one given."""
        run = self.run_of(job)
        return run.status.snapshot() if run is not None else job

    def lose(self, job_id: str) -> None:
        """End what runs here for a job that another executor has, and say nothing more about the job."""
        self.measured.forget(job_id)
        run = self.here(job_id)
        if run is None:
            return
        _log.warning("a job is left to the executor that has taken it over", job_id=job_id)
        run.status.lose()
        if run.status.span is not None:
            run.status.span.end("LeftToOther")
        self._lost.add(job_id)
        stopping = asyncio.create_task(_end(run))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def drop(self, job_id: str) -> None:
        """Forget a job that was lost: its run and its task at once, as whoever finds a task looks for its run."""
        self.runs.pop(job_id, None)
        self.tasks.pop(job_id, None)

    def was_lost(self, job_id: str) -> bool:
        """Tell whether this executor has lost the job to another one before."""
        return job_id in self._lost

    async def stopped(self) -> None:
        """Wait until nothing runs any more for jobs that were lost."""
        await asyncio.gather(*self._stopping)


async def _end(run: JobRun) -> None:
    await run.status.publish()  # wakes a job that is paused
    await asyncio.to_thread(run.cancel)
