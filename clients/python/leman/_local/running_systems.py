"""The embedded systems of a user: where their folders are, which run, and how to command them. Without grpc.

The databases of a user share one system, unless they are opened from another Python environment, or with other settings
in the environment of the program: `leman.connect` starts it, and tells it of each database. Its folder is in the user's
folder for state, `$XDG_STATE_HOME/leman` or `~/.local/state/leman`, or, if that cannot be written, in the system's
temporary folder. `leman up` and `leman.session` have systems of their own.
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
    """Return True if the services are installed in this Python environment."""
    return importlib.util.find_spec("leman_core") is not None


def require_services(error: type[LemanError]) -> None:
    """Raise `error` (SERVICES_NOT_INSTALLED) unless the services are installed in this Python environment."""
    if not services_installed():
        raise error(
            "The services are not installed in this Python environment: install leman[local] for local databases, or"
            " name running ones with leman.connect(..., endpoint='host:port')",
            reason="SERVICES_NOT_INSTALLED",
        )


def services_checkout() -> Path:
    """Return the folder with the source of the services, where they are installed from a checkout."""
    spec = importlib.util.find_spec("leman_core")
    return Path(str(spec.origin)).resolve().parents[2] if spec is not None else Path()


def services_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the services in this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """The service file of a folder: a system's own, or `_leman` of a database that it serves."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file, which exists as long as the system can be called."""
        return self.folder / "service.json"

    @property
    def lock(self) -> Path:
        """The lock that the supervisor holds."""
        return self.folder / "supervisor.lock"

    def said(self) -> dict[str, Any]:
        """Return its content; empty if it cannot be read."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def running(self) -> dict[str, Any] | None:
        """Return its content if the process that wrote it lives, and all addresses are in it; else None.

        One of the services may be away for a moment: its supervisor restarts it at the same address.
        """
        said = self.said()
        names = ("planner", "executor", "commit_coordinator")
        if not isinstance(said.get("pid"), int) or not all(isinstance(said.get(name), str) for name in names):
            return None
        return said if is_alive(said["pid"]) and not self._is_free() else None

    def pid(self) -> int:
        """Return the process id of the supervisor in the file; 0: there is none."""
        pid = self.said().get("pid")
        return pid if isinstance(pid, int) else 0

    def is_held(self) -> bool:
        """Return whether a supervisor holds the lock."""
        return self.lock.exists() and not self._is_free()

    def holder(self) -> int:
        """Return the process id of the supervisor that holds the lock; 0 if it is not known."""
        with suppress(OSError, ValueError, IndexError):
            inode = str(self.lock.stat().st_ino)
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return int(fields[4])
        return 0

    def _is_free(self) -> bool:
        """Return whether the lock exists and is free: then a process with the supervisor's id is another one."""
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
        return child_processes[pid].poll() is None  # which also buries it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, which may have the id of a supervisor that has ended
    with suppress(OSError):  # /proc, if it exists, shows whether another program has the id now
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"leman_local" in command or b"embedded" in command  # as releases before 0.2 call it
    return True


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal; False if that is not known."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False


#: Variables that change what services do: their settings, and where functions find modules.
_SETTING = re.compile(r"(?i:LEMAN_[A-Z0-9]+__\w+)|PYTHONPATH|SPARK_\w+|JAVA_HOME")
#: A section of settings as JSON, such as LEMAN_SPARK={"driver_memory": "2g"}.
_SECTION = re.compile(r"(?i:LEMAN_[A-Z0-9]+)=\s*\{.*", re.DOTALL)
_POLL = 0.02
_DOWN_SECONDS = 2.0
_KILL_SECONDS = 0.7  # after which one that does not end is killed
_ANSWER_SECONDS = 20.0


def state_folder() -> Path:
    """Return the folder of all systems of this user, which no other user can read. Raises StartFailed."""
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
    raise StartFailed(f"neither {base}/leman nor {shared} can be written, where embedded services keep their files")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def environment_key(environment: Mapping[str, str] = os.environ) -> str:
    """Return the key of an environment's system, made of the machine, the interpreter and the settings.

    Several machines may mount one home, and an interpreter has several names.
    """
    settings = sorted(
        (name, value)
        for name, value in environment.items()
        if _SETTING.fullmatch(name) or _SECTION.fullmatch(f"{name}={value}")
    )
    python = [*_interpreter(sys.executable), os.path.realpath(sys.prefix)]
    return hashlib.sha256(json.dumps([platform.node(), *python, settings]).encode()).hexdigest()[:16]


def is_this_python(program: str) -> bool:
    """Return whether a program is this environment's interpreter; `python` and `python3` in one folder are the same."""
    return _interpreter(program) == _interpreter(sys.executable)


def _interpreter(program: str) -> list[str]:
    """Return the folder in which an interpreter is called, which differs between environments, and its file."""
    return [os.path.realpath(os.path.dirname(program)), os.path.realpath(program)]  # noqa: PTH120


def shared_home() -> Path:
    """Return the folder of the system that databases opened from this environment share."""
    return state_folder() / "systems" / environment_key()


def register_system() -> Path:
    """Return the folder in which each system of this machine notes, by its process id, where its own folder is."""
    return state_folder() / "running" / hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class System:
    """An embedded system that runs."""

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
        """The log file of one of its processes."""
        return self.home / "logs" / f"{process}.log"

    def down(self, within: float = _DOWN_SECONDS) -> bool:
        """End it in so many seconds; False: it had to be killed. Jobs keep what they have finished."""
        with suppress(OSError, StartFailed):
            send_command(self.said, {"do": "stop", "within": within}, seconds=within)
        end = time.monotonic() + within + _KILL_SECONDS
        while is_alive(self.pid):  # not the lock: a successor may hold that
            if time.monotonic() > end:
                self._kill()
                return False
            time.sleep(_POLL)
        return True

    def _kill(self) -> None:
        """Kill it, and remove what says that it runs; all that it has started dies with it."""
        places = [Path(database, "_leman") for database in self.databases]
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for folder in (self.home, *places):
            if ServiceFile(folder).pid() == self.pid:
                ServiceFile(folder).path.unlink(missing_ok=True)
        (register_system() / f"{self.pid}.json").unlink(missing_ok=True)

    def end_if_idle(self) -> bool:
        """End it where no one has called it and no job has run for a while; whether that was done."""
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
            file.unlink(missing_ok=True)  # of a system that was killed
    return sorted(found, key=lambda system: str(system.said.get("started_at")))


def system_serving(database: str) -> System | None:
    """Return the system that serves a database; None: there is none."""
    said = ServiceFile(Path(database, "_leman")).running()
    return None if said is None else System(Path(said.get("home") or Path(database, "_leman")), said)


def send_command(said: Mapping[str, Any], request: dict[str, Any], seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
    """Send a request to the control port of a system, and return its answer. Raises StartFailed, OSError."""
    host, _, port = str(said.get("control") or "").rpartition(":")
    if not host:
        raise StartFailed(f"process {said.get('pid')} is of a release that has no control port: end it with `kill`")
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
