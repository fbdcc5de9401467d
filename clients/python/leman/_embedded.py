"""Finds the embedded services of a local database, or starts them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from leman import _local_database, _services_here, local
from leman._channel import Endpoints
from leman._contact import ask
from leman.errors import StartFailed

START_DEADLINE = 120.0
"""Seconds in which the embedded services must come up: about ten, but for a machine that is very busy."""

_POLL = 0.05
_ANSWER_SECONDS = 2.0  # after which the supervisor is looked at again
_OTHER_THERE = (0, 4)  # exit codes of a supervisor that another one has made needless
_LOG_LINES = 15
_MEND_SECONDS = 8.0  # in which a supervisor that runs has long written a damaged service file anew


class Embedded:
    """Locator for the services of one local database, an absolute path.

    They write `<database>/_leman/service.json` when all of them are ready, and remove it when they end.
    """

    def __init__(self, database: str, deadline: float = START_DEADLINE) -> None:
        self._folder = Path(database) / "_leman"
        self._database = database
        self._deadline = deadline

    def check(self, *, reads: bool) -> None:
        """Raises NotFound (DATABASE_NOT_FOUND) for a call that reads where there is no database."""
        if reads:
            _local_database.check_there(self._database)

    def locate(self) -> Endpoints:
        """The running services, started first where there are none. Raises StartFailed."""
        found = self._running()
        return found if found is not None else self._start()

    def locate_first(self) -> Endpoints:
        """The running services, once the planner answers; a system that has died is not waited for but started anew.

        Raises StartFailed.
        """
        begun = time.monotonic()
        while True:
            found = self.locate()
            answer = ask(found.planner, found, timeout=_ANSWER_SECONDS)
            if not isinstance(answer, grpc.RpcError):
                return found
            seconds, stopped = time.monotonic() - begun, _is_stopped(self._pid())
            if answer.code() is grpc.StatusCode.UNAUTHENTICATED and seconds > _MEND_SECONDS:
                raise self._unreachable(f"has a token that is refused: {answer.details()}")
            if stopped or seconds > self._deadline:
                raise StartFailed(self._silence(found, answer, stopped=stopped))
            time.sleep(_POLL)

    def _silence(self, found: Endpoints, answer: grpc.RpcError, *, stopped: bool) -> str:
        pid = self._pid()
        what = f"process {pid} is stopped (as by SIGSTOP)" if stopped else f"process {pid} runs"
        return (
            f"The embedded services are there ({what}) but the planner at {found.planner} does not answer:"
            f" {answer.details()}. End them with `kill -9 {pid}` and connect again: nothing that is stored is lost"
        )

    def _unreachable(self, what: str) -> StartFailed:
        pid = _holder(self._lock)
        who = f"process {pid}" if pid else f"the process that holds {self._lock}"
        return StartFailed(
            f"The embedded services run ({who}), but {self._folder / 'service.json'}, which says how to reach them,"
            f" {what}. End them with `kill {pid or 'PID'}` and connect again: nothing that is stored is lost"
        )

    @property
    def _lock(self) -> Path:
        return self._folder / "supervisor.lock"

    def is_running(self) -> bool:
        """True when nothing would have to be started."""
        return self._running() is not None

    def _running(self) -> Endpoints | None:
        """What the service file says, if the process that wrote it lives. One of the services may be away
        for a moment: its supervisor starts it again at the same address."""
        content = self._said()
        try:
            pid = int(content["pid"])
            found = Endpoints(
                planner=content["planner"],
                executor=content["executor"],
                commit_coordinator=content["commit_coordinator"],
                token=content.get("token", ""),
            )
        except (ValueError, KeyError, TypeError):
            return None
        return found if _is_alive(pid) and not _is_free(self._lock) else None

    def _said(self) -> dict[str, Any]:
        """The service file's content; empty where there is none that can be read."""
        try:
            content = json.loads((self._folder / "service.json").read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _pid(self) -> int:
        """Process id of the supervisor; 0: none is known."""
        pid = self._said().get("pid")
        return pid if isinstance(pid, int) else 0

    def _start(self) -> Endpoints:
        log = self._folder / "logs" / "supervisor.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        except OSError as error:
            raise StartFailed(
                f"The embedded services keep their files in {self._folder}, which cannot be written: {error.strerror}"
            ) from None
        before = log.stat().st_size if log.exists() else 0
        child = _spawn(self._database, self._folder, log)
        meanwhile = threading.Thread(target=local.prepare, name="leman-local", daemon=True)
        meanwhile.start()
        try:
            return self._wait(child, log, before)
        finally:
            meanwhile.join()

    def _wait(self, child: subprocess.Popen[bytes], log: Path, before: int) -> Endpoints:
        end = time.monotonic() + self._deadline
        mended_by = 0.0  # when another one's file must be whole
        while time.monotonic() < end:
            found = self._running()
            if found is not None:
                return found
            code = child.poll()
            if code is not None and code not in _OTHER_THERE:
                raise _failure(f"ended at once with exit code {code}", log, before)
            if code is None or not (self._folder / "service.json").exists():
                mended_by = 0.0
            if code is not None and not _is_held(self._lock):  # that one was on its way out: ours is needed after all
                child, mended_by = _spawn(self._database, self._folder, log), 0.0
            elif code is not None:
                mended_by = mended_by or time.monotonic() + _MEND_SECONDS
                if time.monotonic() > mended_by:
                    raise self._unreachable("cannot be understood")
            time.sleep(_POLL)
        raise _failure(f"were not ready within {self._deadline:.0f} seconds", log, before)


_children: dict[int, subprocess.Popen[bytes]] = {}


def _spawn(database: str, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own: it outlives this process and ends when idle. Raises StartFailed."""
    found = _services_here.folder()
    if found is None:
        raise StartFailed(_services_here.NOT_INSTALLED, reason="SERVICES_NOT_INSTALLED")
    with log.open("ab") as output:
        child = subprocess.Popen(
            _services_here.command("embedded", "--database", database),
            env=_services_here.environment(found),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    return child


def _is_alive(pid: int) -> bool:
    if pid in _children:
        return _children[pid].poll() is None  # which also buries it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, which may have the id of a supervisor that is gone
    with suppress(OSError):  # where /proc exists it tells whether the id was given to another program since
        return b"embedded" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return True


def _is_free(lock: Path) -> bool:
    """Whether a supervisor's lock is there and nobody holds it: then whoever has its process id now is not it."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, where services run elsewhere

        with lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):  # no lock file, or held
        return False
    return True


def _is_held(lock: Path) -> bool:
    return lock.exists() and not _is_free(lock)


def _holder(lock: Path) -> int:
    """Process id of a supervisor by its lock; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        inode = str(lock.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return int(fields[4])
    return 0


def _is_stopped(pid: int) -> bool:
    """Whether a process is there and held by a signal; where that can be told."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False


def _failure(what: str, log: Path, before: int) -> StartFailed:
    with log.open("rb") as stream:
        stream.seek(before)
        text = stream.read().decode(errors="replace").strip()
    tail = "\n  ".join(text.splitlines()[-_LOG_LINES:])
    return StartFailed(f"The embedded services {what}; {log} ends with:\n  {tail}")
