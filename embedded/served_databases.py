"""The databases that an embedded system serves: in each it holds the lock, and a service file says how to reach it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import structlog

from embedded import leftovers
from embedded.announcement import Announcement
from embedded.service_file import Home, HomeLock, write_private

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
            if database not in self._served:
                await self._take(database)
            self._warm |= warm
            self._write()

    async def _take(self, database: Path) -> None:
        home = Home.of(database)
        home.folder.mkdir(parents=True, exist_ok=True)
        lock, announcement = HomeLock(home), Announcement(home)
        await asyncio.to_thread(lock.acquire, _LOCK_SECONDS)
        for path in leftovers.sweep(home.folder):
            _log.info("half-written file of a killed process deleted", file=str(path))
        if self._content is not None:
            announcement.write({**self._content, "database": str(database)})
        self._served[database] = lock, announcement
        _log.info("database is served", database=str(database))

    def announce(self, content: dict[str, Any]) -> None:
        """Say in each database how the system is reached; `content`: that of the service file."""
        self._content = content
        for database, (_, announcement) in self._served.items():
            announcement.write({**content, "database": str(database)})

    def look(self) -> None:
        """Mend service files, and let go of databases that were deleted."""
        for database in list(self._served):
            if Home.of(database).lock_file.exists():
                self._served[database][1].mend()
            else:
                _log.warning("database is gone", database=str(database))
                self._served.pop(database)[0].release()
                self._write()

    def release(self) -> None:
        """Let go of all."""
        for lock, announcement in self._served.values():
            announcement.remove()
            lock.release()
        self._served.clear()

    def _write(self) -> None:
        write_private(self.file, json.dumps({"databases": self.paths, "warm": self._warm}) + "\n")
