"""Keep the jobs of one executor's databases, in the history and in memory, and the limits of registered databases.

In a local system, `follow_served` opens the databases, so that their abandoned jobs are taken over.
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


class RegisteredLimits:
    """The limits of registered databases by location, as last read. A database that is not registered has no limits."""

    def __init__(self) -> None:
        self._by_place: Mapping[str, DatabaseLimits] = {}

    def of(self, database: str) -> DatabaseLimits:
        return self._by_place.get(database, NO_LIMITS)

    def running(self, database: str) -> int | None:
        """Return the maximum number of running jobs of a database, or None if it has no limit of its own."""
        return self.of(database).max_running_jobs

    def waiting(self, database: str) -> int | None:
        """Return the maximum number of waiting jobs of a database, or None if it has no limit of its own."""
        return self.of(database).max_waiting_jobs

    def set(self, registrations: Registrations) -> bool:
        """Replace all registrations. Return whether any limit changed."""
        found = {each.root: each.limits for each in registrations.by_name.values() if each.limits != NO_LIMITS}
        changed = found != self._by_place
        self._by_place = found
        return changed


async def follow_limits(
    read: Callable[[], Registrations], limits: RegisteredLimits, seconds: float, changed: Callable[[], None]
) -> None:
    """Read the registrations every `seconds`, until cancelled. If they cannot be read, the last known limits apply.

    Args:
        read: Returns all registrations. Called in a thread.
        changed: Called when limits change, because waiting jobs may then start.
    """
    while True:
        try:
            if limits.set(await asyncio.to_thread(read)):
                changed()
        except LemanError as error:
            _log.warning("limits of databases cannot be read", reason=error.reason, error=error.message)
        await asyncio.sleep(seconds)


_LOOK_SECONDS = 0.2


class OpensDatabases(Protocol):
    """The part of the job manager that opens databases."""

    async def open_database(self, path: str) -> None:
        """Open a database, and take over the jobs of a dead executor in it."""
        ...

    def forget_database(self, path: str) -> None:
        """Forget the jobs of a deleted database."""
        ...


async def open_served(manager: OpensDatabases, database: str) -> None:
    """Open a database. If that fails, only log the error, because callers that ask for the database's jobs get it."""
    try:
        await manager.open_database(database)
    except LemanError as error:
        _log.error("abandoned jobs of a database could not be taken over yet", reason=error.reason, error=error.message)


async def follow_served(file: Path, manager: OpensDatabases, warm: Callable[[], object]) -> None:
    """Open the databases that the supervisor lists in `file`, and call `warm` when Spark should start, until cancelled.

    A database that was deleted is forgotten, because a new database at its path has other jobs.
    """
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
    """Return the file's modification time, and its content if the time differs from `seen`."""
    try:
        written = file.stat().st_mtime_ns
        return written, json.loads(file.read_bytes()) if written != seen else None
    except (OSError, ValueError):  # retried at the next poll
        return seen, None


#: Number of histories that are written concurrently.
_WRITERS = 4
#: Number of pages of failed rows that are read concurrently, in threads of their own, so that other reads are not
#: delayed.
_PAGES = 2
#: Number of jobs that are loaded before the event loop serves other calls.
_TAKEN_IN = 500


class JobDatabase:
    """One database with its jobs.

    `jobs` are the jobs that this executor knows. `opened` is a lock that is held while the database is opened. `loaded`
    is set once the history has been read. `waited_for` is set once the executor has waited for the leases of all jobs
    that were open when it read the history.
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
        """Create the tables of jobs and of failed rows if they do not exist."""
        if not self._history.prepared:  # `prepare` may wait for a write in progress
            await self._pool.run(self._history.prepare)

    async def save(self, job: Job) -> Job:
        return await self._writer.save(job)

    @property
    def writes_are_dear(self) -> bool:
        """Whether each append to the history waits for requests to an object store."""
        return in_object_store(self.path)

    @property
    def is_looked_at_rarely(self) -> bool:
        """Whether the history is in an object store, whose reads are slow, and no other executor is known to write to
        it.

        If so, only listings read the history again.
        """
        return self._alone and self.writes_are_dear

    def save_with_others(self, job: Job) -> None:
        self._writer.save_with_others(job)

    def leave_unwritten(self) -> None:
        """Discard the unwritten jobs that had nothing to do, because the database was deleted."""
        self._writer.leave_unwritten()

    async def written(self) -> None:
        """Wait until all pending writes are done."""
        await self._writer.written()

    async def reload(self) -> None:
        """Load other executors' jobs from the history. One read answers all calls made before it began.

        Raises the errors of `storage_failed`.
        """
        await self._news()

    async def reload_after(self, seconds: float) -> None:
        """Call `reload`, unless it was called within the last `seconds`, or `is_looked_at_rarely` is True.

        Raises:
            LemanError: see `reload`.
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
        """Return the current state of a job from history, or None if the job does not exist.

        Raises the errors of `storage_failed`.
        """
        return await self._pool.run(self._history.find, job_id)

    async def warnings(self) -> list[str]:
        """Return a warning for each part of the history that was damaged and set aside."""
        return await self._warnings()

    def look_ahead(self) -> None:
        """Start to find out, in the background, where failed rows are stored."""
        self._ahead = asyncio.create_task(self._look_ahead())

    async def _look_ahead(self) -> None:
        with contextlib.suppress(LemanError):  # a request for failed rows reports it
            await self._pages.run(self._row_errors.look_ahead)

    def stop_looking(self) -> None:
        """Cancel the search that `look_ahead` started."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def forget_failed_rows(self, job_id: str) -> None:
        """Delete the stored failed rows of a job.

        Raises the errors of `storage_failed`.
        """
        await self._pool.run(self._row_errors.remove, job_id)

    async def failed_rows(
        self, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool
    ) -> FailedRowPage:
        return await self._pages.run(self._row_errors.page, job_id, column, after, size, all_places=all_places)

    async def failed_row_groups(
        self, job_id: str, column: str, begin: int, size: int, examples: int
    ) -> FailedRowGroupPage:
        return await self._pages.run(self._row_errors.groups, job_id, column, begin, size, examples)

    async def lost_failed_rows(self, job: Job) -> list[str]:
        return await self._pages.run(self._row_errors.warnings, job)


class JobDatabases:
    """The databases of an executor by path, on one event loop.

    Args:
        alone: Whether no other executor ever serves any of these databases.
        has_tail: See `JobHistory`.
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
        """Return the database at a path. Add it on first use.

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
        """Forget a deleted database."""
        gone = self._databases.pop(path, None)
        if gone is not None:
            gone.leave_unwritten()

    def of(self, job: Job) -> JobDatabase:
        """Return the database of a job."""
        return self.at(job.request.database)

    async def close(self) -> None:
        for database in self:
            database.stop_looking()
            await database.written()
        self._writers.close()
        self._pages.close()
