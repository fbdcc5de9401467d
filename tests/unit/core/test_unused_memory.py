"""Memory that a process has freed goes back to the system, once in each time in which nothing is needed."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterator

import psutil
import pytest

from leman_core.process.memory import release_free_memory, release_memory_when_idle

_LIBC = ctypes.CDLL(None)


@pytest.mark.skipif(not hasattr(_LIBC, "malloc_trim"), reason="there is no glibc")
def test_freed_memory_goes_back_to_the_system():
    process = psutil.Process()
    _LIBC.malloc.restype = ctypes.c_void_p
    blocks = [_LIBC.malloc(ctypes.c_size_t(64 << 10)) for _ in range(1600)]
    for block in blocks:
        ctypes.memset(block, 1, 64 << 10)
    for block in blocks[:-1]:  # the last one keeps the top of the heap from being given back by itself
        _LIBC.free(ctypes.c_void_p(block))
    before = process.memory_info().rss
    release_free_memory()
    assert process.memory_info().rss < before - (50 << 20)
    _LIBC.free(ctypes.c_void_p(blocks[-1]))


def test_it_is_given_back_once_in_each_idle_time():
    given = threading.Event()
    times = 0

    def give() -> None:
        nonlocal times
        times += 1
        given.set()

    def idle_times() -> Iterator[float]:
        yield from (0.0, 0.0, 0.3, 0.4, 0.5, 0.0, 0.3)
        while True:
            ended.set()
            yield 0.4

    async def scenario() -> None:
        looks = idle_times()
        task = asyncio.ensure_future(release_memory_when_idle(lambda: next(looks), 0.02, give))
        await asyncio.wait_for(ended.wait(), 20)
        task.cancel()

    ended = asyncio.Event()
    asyncio.run(scenario())
    assert given.is_set()
    assert times == 2
