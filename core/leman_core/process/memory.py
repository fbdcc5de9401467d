"""Memory of a process: return free memory to the system, and keep long-lived objects out of garbage collections.

glibc and Arrow keep freed memory for reuse. `release_free_memory` returns this memory to the system.

A garbage collection stops all threads, and a full one visits every object: 0.25 s for the history of a hundred thousand
jobs, every few seconds under load. So objects that survive a long collection are set aside (`gc.freeze`), and later
collections visit only newer objects. Python still frees a set-aside object that has no references left. Only cycles of
such objects stay in memory. When the number of set-aside objects has grown by half, the next collection visits all.
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

#: After this much idle time, the next call may take some milliseconds more.
IDLE_SECONDS = 20.0


def release_free_memory() -> None:
    """Return free memory to the system. This blocks the caller, and threads that allocate memory, for milliseconds."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)


async def release_memory_when_idle(
    idle_seconds: Callable[[], float], after: float = IDLE_SECONDS, give: Callable[[], None] = release_free_memory
) -> None:
    """Release memory once in each idle period of at least `after` seconds; never return.

    Args:
        idle_seconds: Returns how long the process has been idle.
        give: Releases memory, in a thread.
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
    """Set aside the objects that survive a long collection, from `watch` to `forget`."""

    def __init__(self, long_seconds: float = _LONG_SECONDS) -> None:
        self._long_seconds = long_seconds
        self._begun = 0.0
        #: Objects that are set aside, and their number after the last collection that visited everything.
        self._aside = 0
        self._looked_through = 0
        self._looks_at_all = True

    def watch(self) -> None:
        """Watch the collections of this process."""
        gc.callbacks.append(self._collecting)

    def forget(self) -> None:
        """Return all objects to the collector."""
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
