"""Blocking work (Lance, files) beside an event loop: a bounded pool of threads with a bounded queue."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, cast

from core.errors import ResourceExhausted

P = ParamSpec("P")
T = TypeVar("T")


class BlockingPool:
    """What runs functions in threads for one event loop.

    `workers` run at once; `max_queued` more may wait; what comes then is refused, so that a burst costs an error and
    not the memory of all its requests.
    """

    def __init__(self, workers: int, *, max_queued: int = 256, name: str = "blocking") -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._capacity = workers + max_queued
        self._pending = 0
        self._name = name

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns or raises; it sees the caller's context variables.

        Cancelling the caller does not stop a function that runs already.

        Raises:
            ResourceExhausted: QUEUE_FULL.
        """
        if self._pending >= self._capacity:
            raise ResourceExhausted("QUEUE_FULL", f"{self._pending} requests wait in {self._name}; try again later")
        context = contextvars.copy_context()
        call = functools.partial(context.run, function, *args, **kwargs)
        loop = asyncio.get_running_loop()
        self._pending += 1
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: _tell(loop, self._done))
        return await asyncio.wrap_future(future)

    async def each(self, items: Iterator[T]) -> AsyncGenerator[T, None]:
        """Yield the items, made in threads: the next one while the caller works with one.

        Raises what `run` raises.
        """
        end = object()
        coming = asyncio.ensure_future(self.run(next, items, end))
        try:
            while (item := await coming) is not end:
                coming = asyncio.ensure_future(self.run(next, items, end))
                yield cast("T", item)
        finally:
            coming.cancel()

    def close(self) -> None:
        """Refuse further work and drop what waits; what runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _done(self) -> None:
        self._pending -= 1


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
