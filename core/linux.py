"""What Linux does for processes and their children; on other systems these functions do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make processes whose parent dies below this one its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def show_name(name: str) -> None:
    """Have `ps` and `top` show a name for this process; of a longer one its first 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send a signal when the parent dies; where it is dead already, end this process."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
