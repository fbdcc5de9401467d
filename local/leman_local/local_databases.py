"""Serve the databases of a local system: their locks, service files and half-written files, and the control port.

Through the control port, a client asks the system to serve another database, or to end. The client sends one line of
JSON and gets one line:

    {"token": "…", "do": "serve", "database": "/data/lake", "warm": true}     {"done": true}
    {"token": "…", "do": "stop", "within": 2.0, "if_idle": true}             {"done": true}

or `{"done": false, "error": "…"}`. The token is in the system's service file, which only its owner can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import structlog

from leman_core.model.garbage import DAY, UNFINISHED_NAME
from leman_local.service_file import (
    AlreadyRunning,
    Home,
    HomeLock,
    remove_service_file,
    write_private,
    write_service_file,
)
from leman_local.tcp_ports import HOST

#: Temporary names of the service file and, in earlier releases, of function definitions.
_OURS = re.compile(r"\.[0-9a-f]{32}\.tmp|\.service\.json\.\d+")
_OF_OTHERS = frozenset({"redis", "logs"})


def sweep_leftovers(folder: Path, older_than: float = DAY) -> list[Path]:
    """Delete half-written files that have not changed for `older_than` seconds. Return them.

    Younger files stay, because another executor may be using the database.
    """
    now = time.time()
    gone = []
    for path in _files(folder):
        if not (UNFINISHED_NAME.fullmatch(path.name) or _OURS.fullmatch(path.name)):
            continue
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > older_than:
                path.unlink()
                gone.append(path)
    return gone


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        if Path(root) == folder:
            folders[:] = [name for name in folders if name not in _OF_OTHERS]
        yield from (Path(root, name) for name in names)


_log = structlog.get_logger(__name__)


class Announcement:
    """The service file of a supervisor. The caller must hold the folder's lock while it uses this object."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._content: dict[str, Any] | None = None
        self._lock = 0

    def write(self, content: dict[str, Any]) -> None:
        """Write the service file. From now on, `mend` restores this content."""
        self._lock = self._home.lock_file.stat().st_ino if self._home.lock_file.exists() else 0
        self._content = content
        write_service_file(self._home, content)

    def mend(self) -> None:
        """Rewrite the file if it is damaged or missing, because clients could otherwise not find the system.

        This does nothing before the first `write`, nor in a database that was deleted and recreated, which belongs to
        another system.
        """
        if self._content is None or self._home.said() == self._content:
            return
        try:
            if self._home.lock_file.stat().st_ino == self._lock:
                write_service_file(self._home, self._content)
                _log.error("the service file was damaged and is rewritten", file=str(self._home.service_file))
        except OSError as error:  # the next check retries
            _log.error("the service file is damaged", file=str(self._home.service_file), message=str(error))

    def remove(self) -> None:
        self._content = None
        remove_service_file(self._home)


#: Seconds to wait for another supervisor that is ending.
_LOCK_SECONDS = 15.0


class ServedDatabases:
    """The databases of one system, on one event loop.

    The executor reads `file`. It takes over abandoned jobs in the databases listed there, and starts Spark if the file
    says so.
    """

    def __init__(self, home: Home) -> None:
        self.file = home.folder / "databases.json"
        self._served: dict[Path, tuple[HomeLock, Announcement]] = {}
        self._content: dict[str, Any] | None = None
        #: By path, how many times a database was added. A database that is deleted and recreated counts as another
        #: database.
        self._taken: dict[str, int] = {}
        self._unwritten = False
        self._warm = False
        self._changing = asyncio.Lock()
        self._write()

    @property
    def paths(self) -> list[str]:
        return sorted(str(path) for path in self._served)

    def warm(self) -> None:
        """Start Spark before any job needs it."""
        self._warm = True
        self._write()

    async def add(self, database: Path, *, warm: bool) -> None:
        """Serve a database. Create its folder if it is missing.

        Raises:
            AlreadyRunning: Another system serves the database.
            OSError: The database's folder cannot be written.
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
            for path in sweep_leftovers(home.folder):
                _log.info("deleted a half-written file of a killed process", file=str(path))
            if self._content is not None:
                announcement.write({**self._content, "database": str(database)})
        except BaseException:
            lock.release()
            raise
        self._taken[str(database)] = self._taken.get(str(database), 0) + 1
        self._served[database] = lock, announcement
        _log.info("a database is served", database=str(database))

    def announce(self, content: dict[str, Any]) -> None:
        """Write the service file into each database. `content` is that of the system's own service file."""
        self._content = content
        for database, (_, announcement) in self._served.items():
            try:
                announcement.write({**content, "database": str(database)})
            except OSError as error:  # such as a deleted database: all others are still served
                _log.warning("the service file could not be written", database=str(database), error=str(error))

    def look(self) -> None:
        """Repair service files, and stop serving databases that were deleted."""
        for database, (lock, announcement) in list(self._served.items()):
            if not lock.is_in_force():
                self._let_go(database)
                self._unwritten = True
                continue
            try:
                announcement.mend()
            except OSError as error:
                _log.warning("the service file could not be repaired", database=str(database), error=str(error))
        if self._unwritten:
            try:
                self._write()
                self._unwritten = False
            except OSError as error:
                _log.warning("the list of databases could not be written", file=str(self.file), error=str(error))

    def _let_go(self, database: Path) -> None:
        _log.warning("a database was deleted", database=str(database))
        self._served.pop(database)[0].release()

    def release(self) -> None:
        """Stop serving all databases."""
        for lock, announcement in self._served.values():
            announcement.remove()
            lock.release()
        self._served.clear()

    def _write(self) -> None:
        said = {"databases": self.paths, "taken": self._taken, "warm": self._warm}
        write_private(self.file, json.dumps(said) + "\n")


async def _locked(lock: HomeLock) -> None:
    """Acquire a lock in a thread. If the caller is cancelled, the lock is not acquired later.

    Raises:
        AlreadyRunning: As `HomeLock.acquire` raises.
    """
    taking = asyncio.ensure_future(asyncio.to_thread(lock.acquire, _LOCK_SECONDS))
    try:
        await asyncio.shield(taking)
    except asyncio.CancelledError:
        lock.give_up()
        taking.add_done_callback(lambda done: None if done.cancelled() or done.exception() else lock.release())
        raise


_LONGEST_LINE = 1 << 16
_SECONDS = 60.0


class Stop(Protocol):
    """Ends the system."""

    def __call__(self, within: float | None = None) -> None:
        """Ask the system to end. If `within` is given, it ends within this many seconds, even if it is busy."""
        ...


class Control:
    """The control port of one system."""

    def __init__(self, databases: ServedDatabases, stop: Stop, is_idle: Callable[[], bool]) -> None:
        self.token = secrets.token_urlsafe(24)
        self.address = ""
        self._databases = databases
        self._does: dict[str, Callable[[dict[str, Any]], Any]] = {"serve": self._serve, "stop": self._stop}
        self._end = stop
        self._is_idle = is_idle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, HOST, 0, limit=_LONGEST_LINE)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                asked = json.loads(await reader.readline())
                answer = await self._do(asked if isinstance(asked, dict) else {})
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _do(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not secrets.compare_digest(str(asked.get("token", "")).encode(), self.token.encode()):
            _log.warning("control request with a wrong token")
            return {"done": False, "error": "the token is wrong"}
        does = self._does.get(str(asked.get("do")))
        if does is None:
            return {"done": False, "error": "unknown request: only serve and stop are supported"}
        try:
            await does(asked)
        except AlreadyRunning as error:
            return {"done": False, "error": str(error), "elsewhere": True}
        except (OSError, ValueError) as error:
            return {"done": False, "error": str(error)}
        return {"done": True}

    async def _serve(self, asked: dict[str, Any]) -> None:
        database = Path(str(asked.get("database", "")))
        if not database.is_absolute():
            raise ValueError(f"{database} is not an absolute path")
        await self._databases.add(database, warm=bool(asked.get("warm")))

    async def _stop(self, asked: dict[str, Any]) -> None:
        if asked.get("if_idle") and not self._is_idle():
            raise ValueError("it is not idle")
        within = asked.get("within")
        self._end(float(within) if within is not None else None)
