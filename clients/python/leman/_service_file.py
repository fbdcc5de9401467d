"""What an embedded system says of itself in a folder, and whether it is still there to keep its word."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Supervisors that this process has started, by process id.
children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """The service file of a folder: a system's own, or `_leman` of a database that it serves."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file; it is there as long as the system can be called."""
        return self.folder / "service.json"

    @property
    def lock(self) -> Path:
        """The lock that the supervisor holds."""
        return self.folder / "supervisor.lock"

    def said(self) -> dict[str, Any]:
        """Its content; empty where there is none that can be read."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def running(self) -> dict[str, Any] | None:
        """Its content, if the process that wrote it lives and says how to reach everything; one of the services may be
        away for a moment: its supervisor starts it again at the same address."""
        said = self.said()
        names = ("planner", "executor", "commit_coordinator")
        if not isinstance(said.get("pid"), int) or not all(isinstance(said.get(name), str) for name in names):
            return None
        return said if is_alive(said["pid"]) and not self._is_free() else None

    def pid(self) -> int:
        """Process id of the supervisor as it is said; 0: it is not."""
        pid = self.said().get("pid")
        return pid if isinstance(pid, int) else 0

    def is_held(self) -> bool:
        """Whether a supervisor holds the lock."""
        return self.lock.exists() and not self._is_free()

    def holder(self) -> int:
        """Process id of the supervisor by its lock; 0 where the system does not tell."""
        with suppress(OSError, ValueError, IndexError):
            inode = str(self.lock.stat().st_ino)
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return int(fields[4])
        return 0

    def _is_free(self) -> bool:
        """Whether the lock is there and nobody holds it: then whoever has the supervisor's process id now is not it."""
        try:
            import fcntl  # noqa: PLC0415 - not on Windows, where services run elsewhere

            with self.lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (ImportError, OSError):  # no lock file, or held
            return False
        return True


def is_alive(pid: int) -> bool:
    """Whether a process is there, and a supervisor."""
    if pid in children:
        return children[pid].poll() is None  # which also buries it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, which may have the id of a supervisor that is gone
    with suppress(OSError):  # where /proc exists it tells whether the id was given to another program since
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"leman_local" in command or b"embedded" in command  # as releases before 0.2 call it
    return True


def is_stopped(pid: int) -> bool:
    """Whether a process is there and held by a signal; where that can be told."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False
