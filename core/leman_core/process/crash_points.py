"""Named points at which a test can kill a process, to see what a crash there leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_ARMED = os.environ.get("LEMAN_CRASH", "")


def crash_point(name: str) -> None:
    """Kill this process if `name` is armed; do nothing unless the environment has LEMAN_CRASH, a folder.

    Files `<name>:<n>` … `<name>:1` in the folder (n up to 9) arm a point. Each pass deletes one file, and the pass that
    deletes the last one dies. So a process dies once, however often it restarts.
    """
    if not _ARMED:
        return
    for token in sorted(Path(_ARMED).glob(f"{name}:*"), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            token.unlink()
            if token.name.endswith(":1"):
                os.kill(os.getpid(), signal.SIGKILL)
            return
