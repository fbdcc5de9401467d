"""The embedded systems of a user: their folders, which of them run, and commands to them. Does not import grpc.

All databases that a user opens from one Python environment with the same settings share one system. `leman.connect`
starts it, and has it serve each database. Its folder is `$XDG_STATE_HOME/leman` or `~/.local/state/leman`, or, if that
cannot be written, a folder in the system's temporary folder. `leman up` and `leman.session` start systems of their own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leman.errors import LemanError, StartFailed

#: Supervisors that this process has started, by process id.
child_processes: dict[int, subprocess.Popen[bytes]] = {}


#: The module that runs a service.
MODULES = {"planner": "leman_planner", "executor": "leman_executor", "commit_coordinator": "leman_coordinator"}


def services_installed() -> bool:
    return importlib.util.find_spec("leman_core") is not None


def require_services(error: type[LemanError]) -> None:
    """Raise `error` with SERVICES_NOT_INSTALLED unless this Python environment has the services."""
    if not services_installed():
        raise error(
            "The services are not installed in this Python environment: install leman[local] for local databases, or"
            " name running ones with leman.connect(..., endpoint='host:port')",
            reason="SERVICES_NOT_INSTALLED",
        )


def services_checkout() -> Path:
    """Return the root of the checkout from which the services are installed."""
    spec = importlib.util.find_spec("leman_core")
    return Path(str(spec.origin)).resolve().parents[2] if spec is not None else Path()


def services_command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """The service file in a system's own folder, or in the folder `_leman` of a database that the system serves."""

    folder: Path

    @property
    def path(self) -> Path:
        """The path of the file, which exists while the system accepts calls."""
        return self.folder / "service.json"

    @property
    def lock(self) -> Path:
        """The path of the file that the supervisor keeps locked."""
        return self.folder / "supervisor.lock"

    def said(self) -> dict[str, Any]:
        """Return the file's content, or {} if it cannot be read."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def running(self) -> dict[str, Any] | None:
        """Return the file's content if its writer lives and it has all addresses, or else None.

        A service may still be unreachable for a moment, while the supervisor restarts it at the same address.
        """
        said = self.said()
        names = ("planner", "executor", "commit_coordinator")
        if not isinstance(said.get("pid"), int) or not all(isinstance(said.get(name), str) for name in names):
            return None
        return said if is_alive(said["pid"]) and not self._is_free() else None

    def pid(self) -> int:
        """Return the supervisor's process id in the file, or 0."""
        pid = self.said().get("pid")
        return pid if isinstance(pid, int) else 0

    def is_held(self) -> bool:
        return self.lock.exists() and not self._is_free()

    def holder(self) -> int:
        """Return the process id of the supervisor that holds the lock, or 0 if it is unknown."""
        with suppress(OSError, ValueError, IndexError):
            inode = str(self.lock.stat().st_ino)
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return int(fields[4])
        return 0

    def _is_free(self) -> bool:
        """Return whether the lock file exists and is unlocked. If so, the process id in the service file was reused."""
        try:
            import fcntl  # noqa: PLC0415 - not on Windows, where services run elsewhere

            with self.lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (ImportError, OSError):  # no lock file, or held
            return False
        return True


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is a supervisor."""
    if pid in child_processes:
        return child_processes[pid].poll() is None  # `poll` also reaps it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user, which may have the id of an ended supervisor
    with suppress(OSError):  # where /proc exists, it shows whether another program has the id now
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"leman_local" in command or b"embedded" in command  # "embedded" in releases before 0.2
    return True


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process, or False if that is unknown."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False


#: Environment variables that change what services do: their settings, and where functions find modules.
_SETTING = re.compile(r"(?i:LEMAN_[A-Z0-9]+__\w+)|PYTHONPATH|SPARK_\w+|JAVA_HOME")
#: A section of settings as JSON, such as LEMAN_SPARK={"driver_memory": "2g"}.
_SECTION = re.compile(r"(?i:LEMAN_[A-Z0-9]+)=\s*\{.*", re.DOTALL)
_POLL = 0.02
_DOWN_SECONDS = 2.0
_KILL_SECONDS = 0.7  # a system that has not ended by then is killed
_ANSWER_SECONDS = 20.0


def state_folder() -> Path:
    """Return the folder for all systems of this user. No other user can read it. Raises StartFailed."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - may stay unexpanded
    user = _user()
    shared = Path(tempfile.gettempdir(), f"leman-{user}")
    for folder in (Path(base, "leman"), shared):
        if not folder.is_absolute():
            continue
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == user and os.access(folder, os.W_OK):
                folder.chmod(0o700)
                return folder
    raise StartFailed(f"Embedded services keep their files in {base}/leman or {shared}: make one of them writable")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def environment_key(environment: Mapping[str, str] = os.environ) -> str:
    """Return the key of the system for an environment: a digest of the machine, the interpreter and the settings.

    The machine is included because several machines may mount the same home. The interpreter is included by its real
    path, because it has several names.
    """
    settings = sorted(
        (name, value)
        for name, value in environment.items()
        if _SETTING.fullmatch(name) or _SECTION.fullmatch(f"{name}={value}")
    )
    python = [*_interpreter(sys.executable), os.path.realpath(sys.prefix)]
    return hashlib.sha256(json.dumps([platform.node(), *python, settings]).encode()).hexdigest()[:16]


def is_this_python(program: str) -> bool:
    """Return whether a path is this environment's interpreter; `python` and `python3` in one folder are the same."""
    return _interpreter(program) == _interpreter(sys.executable)


def _interpreter(program: str) -> list[str]:
    """Return an interpreter's folder, which tells environments apart, and the file that it links to."""
    return [os.path.realpath(os.path.dirname(program)), os.path.realpath(program)]  # noqa: PTH120


def shared_home() -> Path:
    """Return the folder of the system that all databases opened from this environment share."""
    return state_folder() / "systems" / environment_key()


def register_system() -> Path:
    """Return the folder in which each running system of this machine has a file with the path of its own folder."""
    return state_folder() / "running" / hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class System:
    """A running embedded system."""

    home: Path
    said: dict[str, Any]

    @property
    def pid(self) -> int:
        """Process id of its supervisor."""
        return int(self.said["pid"])

    @property
    def databases(self) -> list[str]:
        """Paths of the databases that it serves."""
        if self.kind == "up":
            return [str(self.home.parent)]
        with suppress(OSError, ValueError):
            return [str(path) for path in json.loads((self.home / "databases.json").read_text())["databases"]]
        return []

    @property
    def processes(self) -> dict[str, int]:
        """The process ids of its processes by name."""
        return {"supervisor": self.pid, **{str(name): int(pid) for name, pid in self.said.get("pids", {}).items()}}

    @property
    def kind(self) -> str:
        """`up` for one database, `shared`, or `session`."""
        if self.home.name == "_leman":
            return "up"
        return "shared" if self.home.resolve().parent == (state_folder() / "systems").resolve() else "session"

    def log(self, process: str) -> Path:
        return self.home / "logs" / f"{process}.log"

    def down(self, within: float = _DOWN_SECONDS) -> bool:
        """Stop the system within some seconds, or kill it. Return False if it was killed. Finished work is kept."""
        with suppress(OSError, StartFailed):
            send_command(self.said, {"do": "stop", "within": within}, seconds=within)
        end = time.monotonic() + within + _KILL_SECONDS
        while is_alive(self.pid):  # the lock does not show this, because the next system may hold it
            if time.monotonic() > end:
                self._kill()
                return False
            time.sleep(_POLL)
        return True

    def _kill(self) -> None:
        """Kill it with all its processes, and remove the files that announce it."""
        places = [Path(database, "_leman") for database in self.databases]
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for folder in (self.home, *places):
            if ServiceFile(folder).pid() == self.pid:
                ServiceFile(folder).path.unlink(missing_ok=True)
        (register_system() / f"{self.pid}.json").unlink(missing_ok=True)

    def end_if_idle(self) -> bool:
        """End the system if it has had no call and no job for a while. Return whether it ended."""
        with suppress(OSError, StartFailed):
            return bool(send_command(self.said, {"do": "stop", "within": _DOWN_SECONDS, "if_idle": True}).get("done"))
        return False


def list_systems() -> list[System]:
    """Return all systems that this user runs, the oldest first."""
    found = []
    for file in register_system().glob("*.json"):
        try:
            home = Path(json.loads(file.read_text())["home"])
        except (OSError, ValueError, KeyError):
            continue
        said = ServiceFile(home).running()
        if said is not None and str(said["pid"]) == file.stem:
            found.append(System(home, said))
        elif not Path(f"/proc/{file.stem}").exists() and Path("/proc/self").exists():
            file.unlink(missing_ok=True)  # its system was killed
    return sorted(found, key=lambda system: str(system.said.get("started_at")))


def system_serving(database: str) -> System | None:
    """Return the system that serves a database, or None."""
    said = ServiceFile(Path(database, "_leman")).running()
    return None if said is None else System(Path(said.get("home") or Path(database, "_leman")), said)


def send_command(said: Mapping[str, Any], request: dict[str, Any], seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
    """Send a request to a system's control port and return the answer. Raises StartFailed, OSError."""
    host, _, port = str(said.get("control") or "").rpartition(":")
    if not host:
        raise StartFailed(f"Process {said.get('pid')} is of an old release without a control port: end it with `kill`")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        asked = {"token": said.get("control_token"), **request}
        connection.sendall(json.dumps(asked).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    try:
        answer = json.loads(line)
    except ValueError:
        raise ConnectionError("the system has ended") from None
    return answer if isinstance(answer, dict) else {}
