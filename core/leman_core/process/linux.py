"""What Linux does for processes and their children; on other systems most of these functions do nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
#: Open files that a service and what it starts may need: Spark alone opens some 400, a table one for each data file.
_OPEN_FILES = 65_536


def adopt_orphans() -> None:
    """Make processes whose parent dies below this one its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def show_name(name: str) -> None:
    """Have `ps` and `top` show a name for this process; of a longer one its first 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def allow_dumps(*, allowed: bool) -> None:
    """Say whether this process leaves core dumps, and others of its user may look at its memory and descriptors.

    It holds for what it forks, too, but not for programs that it starts. `faulthandler` works in either case.
    """
    _prctl(_PR_SET_DUMPABLE, int(allowed))


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send a signal when the parent dies; where it is dead already, end this process."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def raise_open_files_limit() -> None:
    """Let this process, and those that it starts, open as many files as the hard limit allows, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
