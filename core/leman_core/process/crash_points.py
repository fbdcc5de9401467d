"""Named points at which a test can kill a process, to see what a crash there leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_ARMED = os.environ.get("LEMAN_CRASH", "")


def crash_point(name: str) -> None:
    """Kill this process if the crash point `name` is armed in the folder LEMAN_CRASH (an environment variable).

    Files `<name>:<n>` … `<name>:1` in the folder (n up to 9) arm a point. Each time that a process passes the point, it
    deletes one file. It dies when it deletes the last file. So the point kills once, however often the process
    restarts.
    """
    if not _ARMED:
        return
    for token in sorted(Path(_ARMED).glob(f"{name}:*"), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            token.unlink()
            if token.name.endswith(":1"):
                os.kill(os.getpid(), signal.SIGKILL)
            return
