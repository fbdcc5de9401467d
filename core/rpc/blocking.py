"""Blocking work (Lance, files) beside an event loop: a bounded pool of threads with a bounded queue."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, cast

from core.errors import ResourceExhausted

#: An event loop that comes so many seconds after it was asked is late.
_LATE_SECONDS = 0.0005
#: Where no function ended for so long, one more may run: these wait for something, and do not compute.
_PATIENCE_SECONDS = 0.25

P = ParamSpec("P")
T = TypeVar("T")


class BlockingPool:
    """What runs functions in threads for one event loop.

    `workers` run at once; `max_queued` more may wait; what comes then is refused, so that a burst costs an error and
    not the memory of all its requests.

    Args:
        gives_way: Fewer run at once while the event loop is late, down to one. Python runs one thread at a time: those
            that compute get no more done together, but the loop, which takes and refuses calls, waits for each of them
            in every round.
    """

    def __init__(self, workers: int, *, max_queued: int = 256, name: str = "blocking", gives_way: bool = False) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._capacity = workers + max_queued
        self._pending = 0
        self._name = name
        self._workers = workers
        self._gives_way = gives_way
        self._at_once = workers
        self._at_work = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._patience: asyncio.TimerHandle | None = None

    @property
    def at_once(self) -> int:
        """Return how many may run at once now."""
        return self._at_once

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
        await self._turn(loop)
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: _tell(loop, functools.partial(self._done, time.perf_counter())))
        return await asyncio.wrap_future(future)

    async def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until one more may run, and count it."""
        if self._at_work < self._at_once:
            self._at_work += 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        self._have_patience(loop)
        try:
            await turn
        except asyncio.CancelledError:
            self._pending -= 1
            if not turn.cancelled():  # it had just been given, and goes to the next
                self._at_work -= 1
                self._give_turns()
            raise

    def _give_turns(self) -> None:
        while self._waiting and self._at_work < self._at_once:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self._at_work += 1
                turn.set_result(None)

    def _have_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let one more run after a while, unless all may already."""
        if self._patience is None and self._at_once < self._workers:
            self._patience = loop.call_later(_PATIENCE_SECONDS, self._lose_patience, loop)

    def _lose_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        self._patience = None
        if self._waiting:
            self._at_once = min(self._workers, self._at_once + 1)
            self._give_turns()
            self._have_patience(loop)

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
        for turn in self._waiting:
            turn.cancel()
        if self._patience is not None:
            self._patience.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _done(self, ended: float) -> None:
        """Note that a function has ended, when the event loop comes to it."""
        self._pending -= 1
        self._at_work -= 1
        if self._gives_way:
            late = time.perf_counter() - ended > _LATE_SECONDS
            self._at_once = max(1, self._at_once // 2) if late else min(self._workers, self._at_once + 1)
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        self._give_turns()
        if self._waiting:
            self._have_patience(asyncio.get_running_loop())


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
