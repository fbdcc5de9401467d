"""The databases of one executor: their jobs, the limits of their registrations, and which are served.

What registrations of databases say of their jobs: read now and then, and told to the queue.

The databases that an embedded system serves: jobs that were left in them are taken over.

The databases that someone asked this executor for, each with its jobs as history and memory have them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog

from leman_core.model.databases import NO_LIMITS, DatabaseLimits, Registrations
from leman_core.model.job import Job
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.server.blocking import SLOW_STORE_SECONDS, UNBOUNDED, BlockingPool, PoolOfPlace
from leman_core.storage.locations import in_object_store
from leman_executor.history.failed_row_pages import FailedRowGroupPage, FailedRowPage, FailedRowPages, PageKey
from leman_executor.history.job_history import HistoryWriter, JobHistory
from leman_executor.history.job_index import KnownJobs
from leman_executor.jobs.async_helpers import SharedRead

_log = structlog.get_logger(__name__)


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations.

        Raises:
            LemanError: they cannot be read.
        """
        ...


class RegisteredLimits:
    """The limits of registered databases, by place, as they were read last; a database without any has none."""

    def __init__(self) -> None:
        self._by_place: Mapping[str, DatabaseLimits] = {}

    def of(self, database: str) -> DatabaseLimits:
        """Return the limits of the database at a place."""
        return self._by_place.get(database, NO_LIMITS)

    def running(self, database: str) -> int | None:
        """Return how many jobs of a database may run at once; None: it has no limit of its own."""
        return self.of(database).max_running_jobs

    def waiting(self, database: str) -> int | None:
        """Return how many jobs of a database may wait; None: it has no limit of its own."""
        return self.of(database).max_waiting_jobs

    def set(self, registrations: Registrations) -> bool:
        """Go by these registrations from now on; False: they say what was known."""
        found = {each.root: each.limits for each in registrations.by_name.values() if each.limits != NO_LIMITS}
        changed = found != self._by_place
        self._by_place = found
        return changed


async def follow_limits(
    registry: Registry, limits: RegisteredLimits, seconds: float, changed: Callable[[], None]
) -> None:
    """Read the registrations every so many seconds, until it is cancelled.

    Where they cannot be read, what is known holds.

    Args:
        changed: called when limits are others than before: jobs that waited for them may have their turn.
    """
    while True:
        try:
            if limits.set(await asyncio.to_thread(registry.read)):
                changed()
        except LemanError as error:
            _log.warning("limits of databases cannot be read", reason=error.reason, error=error.message)
        await asyncio.sleep(seconds)


_LOOK_SECONDS = 0.2


class OpensDatabases(Protocol):
    """What takes jobs over: the job manager."""

    async def open_database(self, path: str) -> None:
        """Open a database, and take over the jobs that a dead executor left in it."""
        ...

    def forget_database(self, path: str) -> None:
        """Forget the jobs of a database that is gone."""
        ...


async def open_served(manager: OpensDatabases, database: str) -> None:
    """Open a database; return the error to callers that ask for its jobs."""
    try:
        await manager.open_database(database)
    except LemanError as error:
        _log.error("jobs that were left are not taken over yet", reason=error.reason, error=error.message)


async def follow_served(file: Path, manager: OpensDatabases, warm: Callable[[], object]) -> None:
    """Open each database that the supervisor names in its file, and call `warm` when Spark is to be up, until it is
    cancelled. One that was deleted is forgotten: at its path there may be another one, with other jobs."""
    seen, known, is_warm = 0, dict[str, int](), False
    while True:
        seen, said = await asyncio.to_thread(_news, file, seen)
        if said is not None:
            if said["warm"] and not is_warm:
                is_warm = True
                warm()
            now = {database: said["taken"].get(database, 0) for database in said["databases"]}
            for database in [path for path, taken in known.items() if now.get(path) != taken]:
                del known[database]
                manager.forget_database(database)
            for database in now.keys() - known.keys():
                known[database] = now[database]
                await open_served(manager, database)
        await asyncio.sleep(_LOOK_SECONDS)


def _news(file: Path, seen: int) -> tuple[int, dict[str, Any] | None]:
    """Return when a file was written, and its content where that is not when it was seen."""
    try:
        written = file.stat().st_mtime_ns
        return written, json.loads(file.read_bytes()) if written != seen else None
    except (OSError, ValueError):  # the next look finds it
        return seen, None


#: Databases whose history is written at once.
_WRITERS = 4
#: Pages of failed rows that are read at once. They have threads of their own: many of them hold up nothing else.
_PAGES = 2
#: Jobs that are taken in at once: then other calls have their turn.
_TAKEN_IN = 500


class JobDatabase:
    """One database, with its jobs.

    `jobs`: as this executor knows them; `opened`: a lock that is held while the database is opened; `loaded`: its
    history has been read; `waited_for`: so are the leases of the jobs that were open then.
    """

    def __init__(
        self, path: str, pool: BlockingPool, writers: BlockingPool, pages: BlockingPool, *, alone: bool, has_tail: bool
    ) -> None:
        self.path = path
        self._alone = alone
        self.jobs = KnownJobs()
        self.opened = asyncio.Lock()
        self.loaded = False
        self.waited_for = False
        self._pool = PoolOfPlace(pool, path)
        self._pages = PoolOfPlace(pages, path)
        self._history = JobHistory(path, has_tail=has_tail)
        self._writer = HistoryWriter(self._history, PoolOfPlace(writers, path))
        self._row_errors = FailedRowPages(path)
        self._news = SharedRead(self._take_news)
        self._looked_at = 0.0
        self._warnings = SharedRead(lambda: self._pool.run(self._history.warnings))
        self._ahead: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Make the tables of jobs and failed rows where there are none."""
        if not self._history.prepared:  # it may have to wait for what is written just now
            await self._pool.run(self._history.prepare)

    async def save(self, job: Job) -> Job:
        """Save a state of a job, see `JobHistory.save`."""
        return await self._writer.save(job)

    @property
    def writes_are_dear(self) -> bool:
        """Whether each append waits for requests to an object store."""
        return in_object_store(self.path)

    @property
    def is_looked_at_rarely(self) -> bool:
        """Whether a look for what other executors wrote waits for an object store, and there is no other executor.

        Listings look all the same.
        """
        return self._alone and self.writes_are_dear

    def save_with_others(self, job: Job) -> None:
        """Save a state of a job when others are saved, see `HistoryWriter.save_with_others`."""
        self._writer.save_with_others(job)

    def leave_unwritten(self) -> None:
        """Write nothing more of jobs that had nothing to do: the database is gone."""
        self._writer.leave_unwritten()

    async def written(self) -> None:
        """Wait until nothing is to be written."""
        await self._writer.written()

    async def reload(self) -> None:
        """Take in what history has of other executors' jobs; one look at it serves all who asked before it began.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        await self._news()

    async def reload_after(self, seconds: float) -> None:
        """Take in what history has, unless that was done within so many seconds, or it `is_looked_at_rarely`.

        Raises:
            LemanError: as `reload`.
        """
        if not self.is_looked_at_rarely and time.monotonic() - self._looked_at >= seconds:
            await self._news()

    async def _take_news(self) -> None:
        self._looked_at = time.monotonic()
        news = await self._pool.run(self._history.news)
        for count, record in enumerate(news.values(), 1):
            self.jobs.put(record)
            if not count % _TAKEN_IN:
                await asyncio.sleep(0)

    async def find(self, job_id: str) -> Job | None:
        """Return the state of a job that counts, as history has it now; None: there is no such job.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        return await self._pool.run(self._history.find, job_id)

    async def warnings(self) -> list[str]:
        """Return what of the history was damaged and set aside."""
        return await self._warnings()

    def look_ahead(self) -> None:
        """Have it learnt where failed rows are stored, beside everything else."""
        self._ahead = asyncio.create_task(self._look_ahead())

    async def _look_ahead(self) -> None:
        with contextlib.suppress(LemanError):  # anyone who asks for failed rows is notified
            await self._pages.run(self._row_errors.look_ahead)

    def stop_looking(self) -> None:
        """Wait no longer for what `look_ahead` began."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def forget_failed_rows(self, job_id: str) -> None:
        """Delete what is stored of a job's failed rows.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        await self._pool.run(self._row_errors.remove, job_id)

    async def failed_rows(
        self, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool
    ) -> FailedRowPage:
        """Return a page of failed rows, see `FailedRowPages.page`."""
        return await self._pages.run(self._row_errors.page, job_id, column, after, size, all_places=all_places)

    async def failed_row_groups(
        self, job_id: str, column: str, begin: int, size: int, examples: int
    ) -> FailedRowGroupPage:
        """Return groups of failed rows, see `FailedRowPages.groups`."""
        return await self._pages.run(self._row_errors.groups, job_id, column, begin, size, examples)

    async def lost_failed_rows(self, job: Job) -> list[str]:
        """Return what is lost of failed rows, see `FailedRowPages.warnings`."""
        return await self._pages.run(self._row_errors.warnings, job)


class JobDatabases:
    """The databases by path, for one event loop.

    Args:
        alone: no other executor ever serves any of them.
        has_tail: see `JobHistory`.
    """

    def __init__(self, pool: BlockingPool, *, alone: bool = False, has_tail: bool = False) -> None:
        self._pool = pool
        self._alone = alone
        self._has_tail = has_tail
        self._writers = BlockingPool(
            _WRITERS, max_queued=UNBOUNDED, name="job-history", slow_seconds=SLOW_STORE_SECONDS
        )
        self._pages = BlockingPool(_PAGES, name="failed-rows", gives_way=True)
        self._databases: dict[str, JobDatabase] = {}

    def __iter__(self) -> Iterator[JobDatabase]:
        return iter(list(self._databases.values()))

    def at(self, path: str) -> JobDatabase:
        """Return the database of a path, whether or not someone asked for it before.

        Raises:
            InvalidArgument: BAD_DATABASE – the path is empty.
        """
        if not path:
            raise InvalidArgument("BAD_DATABASE", "database is empty; give a path, uri or name", field="database")
        database = self._databases.get(path)
        if database is None:
            database = self._databases[path] = JobDatabase(
                path, self._pool, self._writers, self._pages, alone=self._alone, has_tail=self._has_tail
            )
        return database

    def forget(self, path: str) -> None:
        """Forget what is known of a database that is gone."""
        gone = self._databases.pop(path, None)
        if gone is not None:
            gone.leave_unwritten()

    def of(self, job: Job) -> JobDatabase:
        """Return the database that a job is in."""
        return self.at(job.request.database)

    async def close(self) -> None:
        """Wait until everything is written, then close."""
        for database in self:
            database.stop_looking()
            await database.written()
        self._writers.close()
        self._pages.close()
