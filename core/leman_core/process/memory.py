"""Memory: what Python's garbage collector looks at, and what is given back to the system.

Gives memory back to the system that a process has freed: glibc and Arrow keep what they may need again.

Keep Python's garbage collector from looking again and again through objects that stay.

A collection stops all threads, and a full one looks at every object there is: a quarter of a second for the history of
a hundred thousand jobs, every few seconds under load. What outlives such a collection is set aside (`gc.freeze`), so
that the next ones look at what has come since. Python still frees set-aside objects that no one refers to; only cycles
among them stay, until half as much again has been set aside: then all is looked at again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

#: Who has needed nothing for so long may take some milliseconds more for what comes next.
IDLE_SECONDS = 20.0


def release_free_memory() -> None:
    """Give back what is free. It blocks for milliseconds; other threads go on, unless they ask for memory."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # there is no glibc
        ctypes.CDLL(None).malloc_trim(0)


async def release_memory_when_idle(
    idle_seconds: Callable[[], float], after: float = IDLE_SECONDS, give: Callable[[], None] = release_free_memory
) -> None:
    """Give memory back once in each time of `after` seconds or more in which nothing was needed; never returns.

    Args:
        idle_seconds: Returns for how long nothing was needed.
        after: When memory is given back.
        give: What does so, in a thread.
    """
    given, pause = False, after
    while True:
        await asyncio.sleep(pause)
        idle = idle_seconds()
        if idle < after:
            given = False
        elif not given:
            await asyncio.to_thread(give)
            given = True
        pause = max(after - idle, after / 4)


_FULL = 2
_LONG_SECONDS = 0.02


class LongLivedObjects:
    """Sets aside what outlives a long collection, from `watch` to `forget`."""

    def __init__(self, long_seconds: float = _LONG_SECONDS) -> None:
        self._long_seconds = long_seconds
        self._begun = 0.0
        #: Objects that are set aside, and how many there were when all had been looked at.
        self._aside = 0
        self._looked_through = 0
        self._looks_at_all = True

    def watch(self) -> None:
        """Watch the collections of this process."""
        gc.callbacks.append(self._collecting)

    def forget(self) -> None:
        """Leave all objects to the collector again."""
        gc.callbacks.remove(self._collecting)
        gc.unfreeze()

    def _collecting(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._begin()
        elif time.thread_time() - self._begun >= self._long_seconds:
            self._set_aside()
        elif self._looks_at_all:
            self._aside = self._looked_through = 0

    def _begin(self) -> None:
        self._looks_at_all = self._aside >= 1.5 * self._looked_through
        if self._looks_at_all:
            gc.unfreeze()
        self._begun = time.thread_time()

    def _set_aside(self) -> None:
        gc.freeze()
        self._aside = gc.get_freeze_count()
        if self._looks_at_all:
            self._looked_through = self._aside
