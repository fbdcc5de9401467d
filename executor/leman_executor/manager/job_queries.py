"""Query jobs, including those of other executors: get one, list pages, count, watch, and read failed rows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from leman_core.model.job import Job
from leman_core.model.service_errors import NotFound
from leman_executor.history.failed_row_pages import FailedRowGroupPage, FailedRowPage, PageKey
from leman_executor.history.job_index import JobFilter, JobListing, JobRecord
from leman_executor.jobs import job_status
from leman_executor.jobs.job_status import JobUpdate
from leman_executor.manager.job_databases import JobDatabase
from leman_executor.manager.job_store import RunningJobs
from leman_executor.manager.takeovers import Takeovers

_POLL_SECONDS = 1.0
#: Seconds for which an executor may still return a job after another executor deleted it.
_DELETED_SECONDS = 2.0
#: Number of jobs that a listing examines before it lets the event loop serve other calls.
_LOOKS = 2000


class JobQueries:
    """The queries of one executor, on one event loop."""

    def __init__(self, takeovers: Takeovers, running: RunningJobs) -> None:
        self._takeovers = takeovers
        self._running = running

    async def get(self, path: str, job_id: str) -> Job:
        """Return a job's current state. If the lease of another executor's job is free, take the job over.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
        """
        database = await self._takeovers.open(path)
        job = database.jobs.get(job_id)
        if job is None or (self._running.run_of(job) is None and not job.state.terminal):
            await database.reload()
            job = database.jobs.get(job_id)
            if job is not None and not job.state.terminal:
                self._takeovers.take_over_when_free(database, job_id)
        else:
            await database.reload_after(_DELETED_SECONDS)  # another executor may have deleted it
            job = database.jobs.get(job_id)
        if job is None:
            raise NotFound(
                "JOB_NOT_FOUND", f"Job {job_id} does not exist: JobService.ListJobs lists all jobs", job_id=job_id
            )
        return self._running.current(job)

    async def list_jobs(self, path: str, listing: JobListing) -> list[Job]:
        database = await self._takeovers.open(path)
        await database.reload()
        found: list[JobRecord] = []
        go_on = listing.after
        while True:
            left = None if listing.most is None else listing.most - len(found)
            records, go_on = database.jobs.listed(
                listing.filter, go_on, left, _LOOKS, oldest_first=listing.oldest_first
            )
            found += records
            if go_on is None:  # all places in the queue must come from one snapshot
                return [self._running.current(record.job()) for record in found]
            await asyncio.sleep(0)

    async def count_jobs(self, path: str, wanted: JobFilter) -> int:
        """Count the jobs that match a filter.

        The history is not read again, so the count is as recent as the last listing.
        """
        jobs = (await self._takeovers.open(path)).jobs
        if wanted == JobFilter():
            return len(jobs)
        count, go_on = 0, None
        while True:
            records, go_on = jobs.listed(wanted, go_on, None, _LOOKS)
            count += len(records)
            if go_on is None:
                return count
            await asyncio.sleep(0)

    async def warnings(self, path: str) -> list[str]:
        """Describe the damaged parts of a database's job history that were set aside."""
        return await (await self._takeovers.open(path)).warnings()

    async def watch(self, path: str, job_id: str, after: int, heartbeat_seconds: float) -> AsyncGenerator[JobUpdate]:
        """Yield all changes of a job (see `JobStatus.watch`), from the history if another executor runs the job."""
        seen = after
        while True:
            job = await self.get(path, job_id)
            run = self._running.run_of(job)
            if run is not None:
                async with contextlib.aclosing(run.status.watch(seen, heartbeat_seconds)) as messages:
                    async for news in messages:
                        seen = news.sequence
                        yield news
                if not run.status.lost:
                    return
                continue
            news = job_status.update_from_history(job, seen)
            seen = news.sequence
            yield news
            if job.state.terminal:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def errors(
        self, path: str, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool
    ) -> tuple[FailedRowPage, list[str]]:
        """Return a page of failed rows, see `FailedRowPages.page`. The first page also says which rows are lost.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
        """
        job = await self.get(path, job_id)
        database = await self._takeovers.open(path)
        page = await database.failed_rows(job_id, column, after, size, all_places=all_places)
        return page, await self._lost(database, job) if after is None else []

    async def error_groups(
        self, path: str, job_id: str, column: str, begin: int, size: int, *, examples: int
    ) -> tuple[FailedRowGroupPage, list[str]]:
        """Return groups of failed rows, see `FailedRowPages.groups`. The first page also says which rows are lost.

        Raises:
            NotFound: JOB_NOT_FOUND – the job does not exist.
        """
        job = await self.get(path, job_id)
        database = await self._takeovers.open(path)
        page = await database.failed_row_groups(job_id, column, begin, size, examples)
        return page, [] if begin else await self._lost(database, job)

    async def _lost(self, database: JobDatabase, job: Job) -> list[str]:
        of_view = job.refresh_result.warnings if job.refresh_result is not None else ()
        return [*await database.lost_failed_rows(job), *of_view]
