"""Cores of their own for services and their callers: a flood is not to take the cores of what answers it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable

import psutil


def keep_apart(services: Iterable[int]) -> None:
    """Leave the lower half of this machine's cores to the services, and the others to this process and what it starts.

    Args:
        services: Their process ids; what they have started goes with them.

    Raises:
        SystemExit: There is but one core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("--apart needs two cores")
    theirs, ours = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    for pid in services:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            _move(process, theirs)
    _move(psutil.Process(), ours)


def _move(process: psutil.Process, cores: Collection[int]) -> None:
    for thread in process.threads():  # threads and processes that come later inherit it
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, cores)
