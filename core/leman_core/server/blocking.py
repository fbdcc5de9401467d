"""Run the blocking work of an event loop (Lance, files) in a bounded pool of threads with a bounded queue.

A store that does not answer keeps threads for minutes, and nothing can end them. So a call keeps only its thread, not
its turn, once its caller has gone; some turns are reserved for calls about stores that hold none; and if many calls
about a store are stuck, further ones are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, cast

from leman_core.model.service_errors import Unavailable
from leman_core.server.admission import RESERVE, Limiter, Slots
from leman_core.storage.locations import store_of
from leman_core.storage.storage_errors import STORE_UNAVAILABLE

#: An event loop that runs a callback later than this is late.
_LATE_SECONDS = 0.0005
#: If no function ended for this long, one more may run: the running ones wait for something and do not compute.
_PATIENCE_SECONDS = 0.25

#: A call without a caller counts as stuck after this many seconds.
_STUCK_SECONDS = 1.0
#: Stuck calls about one store beyond which further ones are refused, and of all stores that may give back their turns.
_MOST_STUCK, _MOST_STUCK_IN_ALL = 8, 48
_RETRY_SECONDS = 5.0
#: A call that holds little memory gives back its turn after this long; a job's work with files.
SLOW_STORE_SECONDS, _SLOW_JOB_SECONDS = 10.0, 30.0
#: The bound of waiting calls in a pool that no callers fill.
UNBOUNDED = 1 << 40

#: The store of the current call, such as `gs://bucket`; empty: it is about files of this machine.
STORE: contextvars.ContextVar[str] = contextvars.ContextVar("store", default="")

#: The waits of the current call, if they are counted.
WAITS: contextvars.ContextVar[StoreWaits | None] = contextvars.ContextVar("waits", default=None)

P = ParamSpec("P")
T = TypeVar("T")


def store_unavailable(store: str, what: str) -> Unavailable:
    """Return the error of a store that does not answer in time."""
    return Unavailable(
        STORE_UNAVAILABLE,
        f"The store of {store} {what}: check that the services can reach its endpoint and have credentials for it, and "
        "send the request again",
        retry_after_seconds=_RETRY_SECONDS,
        uri=store,
    )


class StoreWaits:
    """How long the functions of one call have been waiting for its store."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}

    def longest(self) -> float:
        """Return the age of the oldest function that still runs, in seconds; 0 if none runs."""
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a function for the duration of the block."""
        one = object()
        self._since[one] = time.monotonic()
        try:
            yield
        finally:
            del self._since[one]


class _Turn:
    """The turn of one call."""

    __slots__ = ("ended", "future", "given_back", "store", "timer")

    def __init__(self, store: str) -> None:
        self.store = store
        self.future: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.given_back = self.ended = False


class BlockingPool:
    """Run functions in threads for one event loop.

    At most `workers` run concurrently and `max_queued` more wait. Further ones are refused, so that a burst costs
    errors and not the memory of all its requests.

    Args:
        gives_way: While the event loop is late, fewer functions run concurrently, down to one. Python runs one thread
            at a time: more threads that compute get no more done, but the loop waits for each of them in every round.
        slow_seconds: A call that waits longer for its store gives its turn to the next, even while its caller waits.
            0: it keeps its turn, because the number of such calls bounds their memory.
    """

    def __init__(
        self,
        workers: int,
        *,
        max_queued: int = 256,
        name: str = "blocking",
        gives_way: bool = False,
        slow_seconds: float = 0.0,
    ) -> None:
        self._threads = ThreadPoolExecutor(workers + RESERVE + _MOST_STUCK_IN_ALL, thread_name_prefix=name)
        self._pending = Limiter(
            workers + max_queued, "QUEUE_FULL", lambda used: f"{used} requests wait in {name}; try again later"
        )
        self._turns = Slots(workers, reserve=RESERVE)
        #: Calls whose callers have gone, and since when, by their stores.
        self._stuck: dict[str, dict[_Turn, float]] = {}
        #: Calls that run on without a turn.
        self._without_turn = 0
        self._workers = workers
        self._gives_way = gives_way
        self._slow_seconds = slow_seconds
        self._waiting: deque[_Turn] = deque()
        self._patience: asyncio.TimerHandle | None = None

    @property
    def at_once(self) -> int:
        """Return how many functions may run concurrently now."""
        return self._turns.most

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise the function's result; the function sees the caller's context variables.

        Cancelling the caller does not stop a running function.

        Raises:
            ResourceExhausted: QUEUE_FULL.
            Unavailable: STORE_UNAVAILABLE – many calls about the same store are stuck.
        """
        self._pending.check()
        store, waits = STORE.get(), WAITS.get()
        with waits.waiting() if store and waits is not None else contextlib.nullcontext():
            return await self._run(_Turn(store), functools.partial(function, *args, **kwargs))

    async def _run(self, turn: _Turn, function: Callable[[], T]) -> T:
        self._check_store(turn.store)
        call = functools.partial(contextvars.copy_context().run, function)
        loop = asyncio.get_running_loop()
        self._pending.take()
        await self._take(turn, loop)
        try:
            self._check_store(turn.store)  # others may have got stuck meanwhile
        except Unavailable:
            self._end(turn)
            raise
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: _tell(loop, functools.partial(self._done, turn, time.perf_counter())))
        if turn.store and self._slow_seconds:
            turn.timer = loop.call_later(self._slow_seconds, self._give_back, turn)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if turn.store and not (future.cancelled() or turn.ended):
                self._stuck.setdefault(turn.store, {})[turn] = time.monotonic()
                self._give_back(turn)
            raise

    def _check_store(self, store: str) -> None:
        if len(self._stuck.get(store, ())) < _MOST_STUCK:
            return
        now = time.monotonic()
        stuck = sum(now - since >= _STUCK_SECONDS for since in self._stuck[store].values())
        if stuck >= _MOST_STUCK:
            raise store_unavailable(store, f"has not answered {stuck} earlier calls")

    async def _take(self, turn: _Turn, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for a turn."""
        if not self._turns.is_full(turn.store):
            self._turns.take(turn.store)
            return
        turn.future = loop.create_future()
        self._waiting.append(turn)
        self._have_patience(loop)
        try:
            await turn.future
        except asyncio.CancelledError:
            if turn.future.cancelled():
                self._pending.release()
            else:  # the turn was just given, and goes to the next
                self._end(turn)
            raise

    def _give_back(self, turn: _Turn) -> None:
        """Free the turn of a call whose caller has gone, or that has waited long for its store."""
        if turn.ended or turn.given_back or self._without_turn >= _MOST_STUCK_IN_ALL:
            return
        turn.given_back = True
        self._without_turn += 1
        self._turns.release(turn.store)
        self._give_turns()

    def _end(self, turn: _Turn) -> None:
        """Note that a call is over, with or without its turn."""
        turn.ended = True
        self._pending.release()
        if turn.timer is not None:
            turn.timer.cancel()
        if turn.given_back:
            self._without_turn -= 1
        else:
            self._turns.release(turn.store)
        stuck = self._stuck.get(turn.store)
        if stuck is not None and stuck.pop(turn, None) is not None and not stuck:
            del self._stuck[turn.store]
        self._give_turns()

    def _give_turns(self) -> None:
        left: deque[_Turn] = deque()
        while self._waiting and not self._turns.is_exhausted():
            turn = self._waiting.popleft()
            assert turn.future is not None
            if turn.future.cancelled():
                continue
            if self._turns.is_full(turn.store):
                left.append(turn)
            else:
                self._turns.take(turn.store)
                turn.future.set_result(None)
        self._waiting.extendleft(reversed(left))

    def _have_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        """Allow one more function after a while, unless all workers are allowed already."""
        if self._patience is None and self._turns.most < self._workers:
            self._patience = loop.call_later(_PATIENCE_SECONDS, self._lose_patience, loop)

    def _lose_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        self._patience = None
        if self._waiting:
            self._turns.most = min(self._workers, self._turns.most + 1)
            self._give_turns()
            self._have_patience(loop)

    async def each(self, items: Iterator[T]) -> AsyncGenerator[T, None]:
        """Yield the items, and make the next one in a thread meanwhile; raises as `run`."""
        end = object()
        coming = asyncio.ensure_future(self.run(next, items, end))
        try:
            while (item := await coming) is not end:
                coming = asyncio.ensure_future(self.run(next, items, end))
                yield cast("T", item)
        finally:
            coming.cancel()

    def close(self) -> None:
        """Refuse further work and drop what waits, without waiting for running functions."""
        for turn in self._waiting:
            if turn.future is not None:
                turn.future.cancel()
        if self._patience is not None:
            self._patience.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _done(self, turn: _Turn, ended: float) -> None:
        """Note on the event loop that a function has ended."""
        if self._gives_way:
            late = time.perf_counter() - ended > _LATE_SECONDS
            at_once = self._turns.most
            self._turns.most = max(1, at_once // 2) if late else min(self._workers, at_once + 1)
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        self._end(turn)
        if self._waiting:
            self._have_patience(asyncio.get_running_loop())


class PoolOfPlace:
    """A pool whose calls are about one canonical place, whichever call or job makes them."""

    def __init__(self, pool: BlockingPool, place: str) -> None:
        self._pool = pool
        self._store = store_of(place)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function as `BlockingPool.run` does, as a call about the place's store."""
        before = STORE.set(self._store)
        try:
            return await self._pool.run(function, *args, **kwargs)
        finally:
            STORE.reset(before)


_OF_JOBS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, BlockingPool] = weakref.WeakKeyDictionary()


async def run_in_job_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a job's work with files in a thread; raises as `BlockingPool.run`.

    Jobs over a store that does not answer leave threads to other jobs. Each event loop has as many of these threads as
    asyncio has for `to_thread`.
    """
    loop = asyncio.get_running_loop()
    if loop not in _OF_JOBS:
        threads = min(32, (os.cpu_count() or 1) + 4)
        _OF_JOBS[loop] = BlockingPool(threads, max_queued=UNBOUNDED, name="jobs", slow_seconds=_SLOW_JOB_SECONDS)
    return await _OF_JOBS[loop].run(function, *args, **kwargs)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
