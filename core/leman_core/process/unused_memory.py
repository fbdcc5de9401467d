"""Gives memory back to the system that a process has freed: glibc and Arrow keep what they may need again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Callable

#: Who has needed nothing for so long may take some milliseconds more for what comes next.
IDLE_SECONDS = 20.0


def give_back() -> None:
    """Give back what is free. It blocks for milliseconds; other threads go on, unless they ask for memory."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # there is no glibc
        ctypes.CDLL(None).malloc_trim(0)


async def give_back_when_idle(
    idle_seconds: Callable[[], float], after: float = IDLE_SECONDS, give: Callable[[], None] = give_back
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
