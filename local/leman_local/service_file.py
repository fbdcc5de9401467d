"""Manage the lock and the service file of a local system, in its own folder and in each database that it serves.

`service.json`, which only its owner can read, exists while the system can be called:

    {"pid": 12, "token": "…", "planner": "127.0.0.1:4001", "executor": "127.0.0.1:4002",
     "commit_coordinator": "127.0.0.1:4003", "http": null, "redis_pid": 13, "pids": {"planner": 14, …},
     "started_at": "2026-01-01T00:00:00+00:00", "version": "0.1.0", "database": "/data/lake",
     "home": "/home/me/.local/state/leman/systems/3f…", "python": "/data/.venv/bin/python",
     "control": "127.0.0.1:4004", "control_token": "…"}

`database` is the database that contains the file. In the system's own folder, `database` is empty, unless that folder
belongs to a database. `home` is the system's own folder, with its logs and its Redis. `control` is the control port
(`local/leman_local/local_databases.py`). `http` is the address of JSON over HTTP, if that is enabled
(`LEMAN_SERVER__HTTP_PORT`). `redis_pid` is null if Redis is external. A killed supervisor leaves the file behind, so
readers check that its `pid` is alive and that a service answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Home:
    """A folder with these files: a system's own folder, or the `_leman` folder of a local database."""

    folder: Path

    @classmethod
    def of(cls, database: Path) -> Home:
        """Return the folder for a database."""
        return cls(database / "_leman")

    @property
    def service_file(self) -> Path:
        return self.folder / "service.json"

    @property
    def lock_file(self) -> Path:
        return self.folder / "supervisor.lock"

    @property
    def redis(self) -> Path:
        return self.folder / "redis"

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.folder / "logs" / f"{name}.log"

    def create(self) -> None:
        """Create the folders that are missing."""
        for folder in (self.folder, self.folder / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        self.redis.mkdir(mode=0o700, exist_ok=True)

    def said(self) -> dict[str, Any]:
        """Return the content of the service file. Return {} if it is missing or unreadable."""
        try:
            content = json.loads(self.service_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


class AlreadyRunning(Exception):
    """Another supervisor has this folder and serves its database."""


class HomeLock:
    """A lock of the operating system on a folder, for at most one supervisor.

    The lock ends with the supervisor's process.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._fd = -1
        self._given_up = False

    def is_in_force(self) -> bool:
        """Return whether the folder still has the file that this process has locked. A lock on a deleted file does not
        exclude other supervisors.

        If the file cannot be read, return the previous result.
        """
        try:
            there = self._home.lock_file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        held = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

    def give_up(self) -> None:
        """Stop the wait of another thread that waits for the lock."""
        self._given_up = True

    def acquire(self, timeout_seconds: float) -> None:
        """Acquire the lock. Wait for another holder that is starting or ending.

        Raises:
            AlreadyRunning: The other holder can be called, or the time limit has passed.
        """
        self._fd = os.open(self._home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout_seconds
        try:
            while not self._try():
                if self._given_up or self._home.service_file.exists() or time.monotonic() > deadline:
                    raise AlreadyRunning(self._who())
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self.release()
            raise
        # Nothing else holds the lock, so a killed supervisor left this file.
        self._home.service_file.unlink(missing_ok=True)

    def _who(self) -> str:
        said = self._home.said()
        place = said.get("database") or str(self._home.folder.parent)
        process = f"process {said.get('pid', '?')}, since {said.get('started_at', '?')}"
        return f"an embedded system runs for {place} already: {process}; `leman down {place}` ends it"

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def write_private(path: Path, text: str) -> None:
    """Write a file atomically. Only its owner can read it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as out:
            out.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_service_file(home: Home, content: dict[str, Any]) -> None:
    """Write the service file."""
    write_private(home.service_file, json.dumps(content, indent=2) + "\n")


def remove_service_file(home: Home) -> None:
    """Remove the service file of this system.

    If a database was deleted and recreated, do not remove a successor's file.
    """
    with contextlib.suppress(OSError, ValueError):
        if json.loads(home.service_file.read_text())["pid"] == os.getpid():
            home.service_file.unlink()
