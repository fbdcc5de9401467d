"""Named points at which a test lets a process die, to see what a crash exactly there leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_ARMED = os.environ.get("LEMAN_CRASH", "")


def crash_point(name: str) -> None:
    """Kill this process where `name` is armed; do nothing unless the environment has LEMAN_CRASH.

    That is a folder. A point is armed by files `<name>:<n>` … `<name>:1` in it (n up to 9): each pass takes one away,
    and the pass that takes the last one away dies. So it dies once, however often processes are restarted.
    """
    if not _ARMED:
        return
    for token in sorted(Path(_ARMED).glob(f"{name}:*"), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            token.unlink()
            if token.name.endswith(":1"):
                os.kill(os.getpid(), signal.SIGKILL)
            return
