"""The pauses of jobs: a paused job keeps what it has computed and nothing else, until it is resumed or cancelled."""

from __future__ import annotations

import structlog

from leman_core.model.errors import FailedPrecondition, LemanError, Unavailable
from leman_core.model.job import Job, JobState
from leman_executor.job_manager.queries import JobQueries
from leman_executor.job_manager.running_jobs import RunningJobs
from leman_executor.job_manager.shared import Shared
from leman_executor.job_manager.supervisor import Supervisor
from leman_executor.job_manager.takeovers import Takeovers
from leman_executor.jobs.job_run import JobRun

_log = structlog.get_logger(__name__)

_PAUSED = frozenset({JobState.PAUSING, JobState.PAUSED})


class Pauses:
    """The pauses of one executor's jobs, for one event loop."""

    def __init__(self, shared: Shared, supervisor: Supervisor, takeovers: Takeovers, queries: JobQueries) -> None:
        self._running = shared.running
        self._store = shared.store
        self._supervisor = supervisor
        self._takeovers = takeovers
        self._queries = queries

    async def pause(self, path: str, job_id: str) -> Job:
        """Have a job stop once what its workers computed is stored; one that waits for its turn is paused at once.

        A job that is paused, or is about to be, stays so.

        Raises:
            NotFound: JOB_NOT_FOUND – there is no such job.
            FailedPrecondition: JOB_ENDED – it has ended; JOB_CANCELLING – it is about to.
            Unavailable: JOB_ELSEWHERE – another executor runs it.
        """
        run = await self._open_run(path, job_id)
        if run.status.job.state in _PAUSED:
            return run.status.snapshot()
        if self._supervisor.queue.waits(job_id):
            self._supervisor.leave_queue(job_id)
            await run.status.move(JobState.PAUSED)
        else:
            run.pause()
            await run.status.move(JobState.PAUSING)
        return await self._told(path, run)

    async def resume(self, path: str, job_id: str) -> Job:
        """Have a job wait for its turn again, which goes on where it stopped; one that is not paused stays as it is.

        Raises:
            NotFound, FailedPrecondition, Unavailable: as `pause`.
        """
        run = await self._open_run(path, job_id)
        if run.status.job.state not in _PAUSED:
            return run.status.snapshot()
        await run.status.move(JobState.PENDING)
        return await self._told(path, run)

    async def _open_run(self, path: str, job_id: str) -> JobRun:
        await self._takeovers.finish(await self._queries.get(path, job_id))
        job = await self._queries.get(path, job_id)
        if job.state.terminal:
            raise FailedPrecondition("JOB_ENDED", f"Job {job_id} has ended, and stays as it is", job_id=job_id)
        run = run_here(self._running, job)
        if run.status.job.state is JobState.CANCELLING:
            raise FailedPrecondition("JOB_CANCELLING", f"Job {job_id} is being cancelled", job_id=job_id)
        return run

    async def _told(self, path: str, run: JobRun) -> Job:
        """Write down what became of a job, so that whoever takes it over knows, and return the job.

        Where that cannot be written, it holds all the same as long as this executor lives.
        """
        job_id = run.status.job.job_id
        try:
            await self._store.save(run.status.job)
        except LemanError as error:
            _log.warning("a pause, or its end, is not in history yet", job_id=job_id, error=str(error))
        if run.status.lost or run.status.job.state.terminal:
            return await self._queries.get(path, job_id)
        return run.status.snapshot()


def run_here(running: RunningJobs, job: Job) -> JobRun:
    """Return the run of a job that this executor has.

    Raises:
        Unavailable: JOB_ELSEWHERE – it has none.
    """
    run = running.run_of(job)
    if run is None:
        raise Unavailable("JOB_ELSEWHERE", f"Job {job.job_id} is run by another executor: ask that one")
    return run
