"""The databases that an embedded system serves: in each it holds the lock, and a service file says how to reach it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import structlog

from leman_local import leftovers
from leman_local.announcement import Announcement
from leman_local.service_file import Home, HomeLock, write_private

_log = structlog.get_logger(__name__)

#: So long it waits for another supervisor that is ending.
_LOCK_SECONDS = 15.0


class ServedDatabases:
    """The databases of one system, for one event loop.

    The executor reads `file`, takes over the jobs that are left in the databases named there, and starts Spark when it
    is to be warm.
    """

    def __init__(self, home: Home) -> None:
        self.file = home.folder / "databases.json"
        self._served: dict[Path, tuple[HomeLock, Announcement]] = {}
        self._content: dict[str, Any] | None = None
        #: How often a database was taken: one that was deleted and made anew is another one.
        self._taken: dict[str, int] = {}
        self._unwritten = False
        self._warm = False
        self._changing = asyncio.Lock()
        self._write()

    @property
    def paths(self) -> list[str]:
        return sorted(str(path) for path in self._served)

    def warm(self) -> None:
        """Have Spark started before a job needs it."""
        self._warm = True
        self._write()

    async def add(self, database: Path, *, warm: bool) -> None:
        """Serve a database; its folder is made where it is missing.

        Raises:
            AlreadyRunning: Another system serves it.
            OSError: Its folder cannot be written.
        """
        async with self._changing:
            database = await asyncio.to_thread(database.resolve)
            if database in self._served and not self._served[database][0].is_in_force():
                self._let_go(database)
            if database not in self._served:
                await self._take(database)
            self._warm |= warm
            self._write()

    async def _take(self, database: Path) -> None:
        home = Home.of(database)
        home.folder.mkdir(parents=True, exist_ok=True)
        lock, announcement = HomeLock(home), Announcement(home)
        await _locked(lock)
        try:
            for path in leftovers.sweep(home.folder):
                _log.info("half-written file of a killed process deleted", file=str(path))
            if self._content is not None:
                announcement.write({**self._content, "database": str(database)})
        except BaseException:
            lock.release()
            raise
        self._taken[str(database)] = self._taken.get(str(database), 0) + 1
        self._served[database] = lock, announcement
        _log.info("database is served", database=str(database))

    def announce(self, content: dict[str, Any]) -> None:
        """Say in each database how the system is reached; `content`: that of the service file."""
        self._content = content
        for database, (_, announcement) in self._served.items():
            try:
                announcement.write({**content, "database": str(database)})
            except OSError as error:  # such as one that was just deleted: the others are served all the same
                _log.warning("service file not written", database=str(database), error=str(error))

    def look(self) -> None:
        """Mend service files, and let go of databases that were deleted."""
        for database, (lock, announcement) in list(self._served.items()):
            if not lock.is_in_force():
                self._let_go(database)
                self._unwritten = True
                continue
            try:
                announcement.mend()
            except OSError as error:
                _log.warning("service file not mended", database=str(database), error=str(error))
        if self._unwritten:
            try:
                self._write()
                self._unwritten = False
            except OSError as error:
                _log.warning("list of databases not written", file=str(self.file), error=str(error))

    def _let_go(self, database: Path) -> None:
        _log.warning("database is gone", database=str(database))
        self._served.pop(database)[0].release()

    def release(self) -> None:
        """Let go of all."""
        for lock, announcement in self._served.values():
            announcement.remove()
            lock.release()
        self._served.clear()

    def _write(self) -> None:
        said = {"databases": self.paths, "taken": self._taken, "warm": self._warm}
        write_private(self.file, json.dumps(said) + "\n")


async def _locked(lock: HomeLock) -> None:
    """Take a lock in a thread; whoever does not wait for it any more does not get it later.

    Raises:
        AlreadyRunning: what `HomeLock.acquire` raises.
    """
    taking = asyncio.ensure_future(asyncio.to_thread(lock.acquire, _LOCK_SECONDS))
    try:
        await asyncio.shield(taking)
    except asyncio.CancelledError:
        lock.give_up()
        taking.add_done_callback(lambda done: None if done.cancelled() or done.exception() else lock.release())
        raise
