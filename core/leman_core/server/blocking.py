"""Run blocking work in a bounded pool of threads, and bound how many calls of a kind work at once.

Blocking work (Lance, files) of an event loop: a bounded pool of threads with a bounded queue.

A store that does not answer keeps threads for minutes, and nothing can end them. So a call of a store whose caller has
gone gives its turn to the next, and keeps its thread alone; a place of which nothing is at work gets a turn although
others take all; and calls of a store in which many are stuck so are refused.

How many calls of a kind may be at work at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, cast

from leman_core.model.service_errors import ResourceExhausted, Unavailable
from leman_core.storage.locations import store_of
from leman_core.storage.storage_errors import STORE_UNAVAILABLE

#: An event loop that comes so many seconds after it was asked is late.
_LATE_SECONDS = 0.0005
#: Where no function ended for so long, one more may run: these wait for something, and do not compute.
_PATIENCE_SECONDS = 0.25

#: Turns beyond all, for places of which nothing is at work.
_RESERVE = 2
#: A call without a caller counts as stuck after this many seconds.
_STUCK_SECONDS = 1.0
#: Calls of one store that may be stuck before further ones are refused, and of all together that give back their turns.
_MOST_STUCK, _MOST_STUCK_IN_ALL = 8, 48
_RETRY_SECONDS = 5.0
#: A call that holds little memory leaves its turn after so long, and what a job does with files.
SLOW_STORE_SECONDS, _SLOW_JOB_SECONDS = 10.0, 30.0
#: Calls that may wait where it is not callers who make them.
UNBOUNDED = 1 << 40

#: The store that the present call is about, such as `gs://bucket`; empty: none, it is about files of this machine.
STORE: contextvars.ContextVar[str] = contextvars.ContextVar("store", default="")

#: What the present call waits for, where someone asks that.
WAITS: contextvars.ContextVar[StoreWaits | None] = contextvars.ContextVar("waits", default=None)

P = ParamSpec("P")
T = TypeVar("T")


def store_unavailable(store: str, what: str) -> Unavailable:
    """Return the error of a store that does not answer in time."""
    return Unavailable(
        STORE_UNAVAILABLE,
        f"The store of {store} {what}: see whether its endpoint can be reached from the services, and whether they "
        "have credentials for it, and send the request again",
        retry_after_seconds=_RETRY_SECONDS,
        uri=store,
    )


class StoreWaits:
    """For how long the functions of one call have been waiting for its store."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}

    def longest(self) -> float:
        """Return seconds since the earliest began of those that have not ended; 0: there is none."""
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a function while inside."""
        one = object()
        self._since[one] = time.monotonic()
        try:
            yield
        finally:
            del self._since[one]


class _Turn:
    """The turn of one call, which a store may not give back."""

    __slots__ = ("ended", "future", "given_back", "store", "timer")

    def __init__(self, store: str) -> None:
        self.store = store
        self.future: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.given_back = self.ended = False


class BlockingPool:
    """What runs functions in threads for one event loop.

    `workers` run at once; `max_queued` more may wait; what comes then is refused, so that a burst costs an error and
    not the memory of all its requests.

    Args:
        gives_way: Fewer run at once while the event loop is late, down to one. Python runs one thread at a time: those
            that compute get no more done together, but the loop, which takes and refuses calls, waits for each of them
            in every round.
        slow_seconds: A call that a store keeps for longer gives its turn to the next, also while its caller waits, or
            where it continues without one. 0: it does not, as the number of such calls is bounded for their memory.
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
        self._threads = ThreadPoolExecutor(workers + _RESERVE + _MOST_STUCK_IN_ALL, thread_name_prefix=name)
        self._capacity = workers + max_queued
        #: Calls with turns, by their stores.
        self._of_store: Counter[str] = Counter()
        #: Calls whose callers have gone, and since when, by their stores.
        self._stuck: dict[str, dict[_Turn, float]] = {}
        #: Calls that run on without a turn.
        self._without_turn = 0
        self._pending = 0
        self._name = name
        self._workers = workers
        self._gives_way = gives_way
        self._slow_seconds = slow_seconds
        self._at_once = workers
        self._at_work = 0
        self._waiting: deque[_Turn] = deque()
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
            Unavailable: STORE_UNAVAILABLE – many calls of the same store do not come back.
        """
        if self._pending >= self._capacity:
            raise ResourceExhausted("QUEUE_FULL", f"{self._pending} requests wait in {self._name}; try again later")
        store, waits = STORE.get(), WAITS.get()
        with waits.waiting() if store and waits is not None else contextlib.nullcontext():
            return await self._run(_Turn(store), functools.partial(function, *args, **kwargs))

    async def _run(self, turn: _Turn, function: Callable[[], T]) -> T:
        self._check_store(turn.store)
        call = functools.partial(contextvars.copy_context().run, function)
        loop = asyncio.get_running_loop()
        self._pending += 1
        await self._take(turn, loop)
        try:
            self._check_store(turn.store)  # others may be stuck since
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

    def _may_run(self, turn: _Turn) -> bool:
        room = self._at_once if self._of_store[turn.store] else self._at_once + _RESERVE
        return self._at_work < room

    async def _take(self, turn: _Turn, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until one more may run, and count it."""
        if self._may_run(turn):
            self._begin(turn)
            return
        turn.future = loop.create_future()
        self._waiting.append(turn)
        self._have_patience(loop)
        try:
            await turn.future
        except asyncio.CancelledError:
            if turn.future.cancelled():
                self._pending -= 1
            else:  # it had just been given, and goes to the next
                self._end(turn)
            raise

    def _begin(self, turn: _Turn) -> None:
        self._at_work += 1
        self._of_store[turn.store] += 1

    def _leave(self, turn: _Turn) -> None:
        self._at_work -= 1
        self._of_store[turn.store] -= 1
        if not self._of_store[turn.store]:
            del self._of_store[turn.store]

    def _give_back(self, turn: _Turn) -> None:
        """Let others have the turn of a call whose caller has gone, or whose store has kept it for long."""
        if turn.ended or turn.given_back or self._without_turn >= _MOST_STUCK_IN_ALL:
            return
        turn.given_back = True
        self._without_turn += 1
        self._leave(turn)
        self._give_turns()

    def _end(self, turn: _Turn) -> None:
        """Note that a call is over, whether or not it still had its turn."""
        turn.ended = True
        self._pending -= 1
        if turn.timer is not None:
            turn.timer.cancel()
        if turn.given_back:
            self._without_turn -= 1
        else:
            self._leave(turn)
        stuck = self._stuck.get(turn.store)
        if stuck is not None and stuck.pop(turn, None) is not None and not stuck:
            del self._stuck[turn.store]
        self._give_turns()

    def _give_turns(self) -> None:
        left: deque[_Turn] = deque()
        while self._waiting and self._at_work < self._at_once + _RESERVE:
            turn = self._waiting.popleft()
            assert turn.future is not None
            if turn.future.cancelled():
                continue
            if self._may_run(turn):
                self._begin(turn)
                turn.future.set_result(None)
            else:
                left.append(turn)
        self._waiting.extendleft(reversed(left))

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
        """Note that a function has ended, when the event loop comes to it."""
        if self._gives_way:
            late = time.perf_counter() - ended > _LATE_SECONDS
            self._at_once = max(1, self._at_once // 2) if late else min(self._workers, self._at_once + 1)
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        self._end(turn)
        if self._waiting:
            self._have_patience(asyncio.get_running_loop())


class PoolOfPlace:
    """A pool as calls about one place use it, whichever call or job makes them.

    Args:
        place: canonical.
    """

    def __init__(self, pool: BlockingPool, place: str) -> None:
        self._pool = pool
        self._store = store_of(place)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function as `BlockingPool.run` does, as a call of the place's store."""
        before = STORE.set(self._store)
        try:
            return await self._pool.run(function, *args, **kwargs)
        finally:
            STORE.reset(before)


_OF_JOBS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, BlockingPool] = weakref.WeakKeyDictionary()


async def run_in_job_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what a job does with files in a thread: jobs over a store that does not answer leave threads to the others.

    Each event loop has as many threads for that as asyncio has for `to_thread`. Raises what `BlockingPool.run` raises.
    """
    loop = asyncio.get_running_loop()
    if loop not in _OF_JOBS:
        threads = min(32, (os.cpu_count() or 1) + 4)
        _OF_JOBS[loop] = BlockingPool(threads, max_queued=UNBOUNDED, name="jobs", slow_seconds=_SLOW_JOB_SECONDS)
    return await _OF_JOBS[loop].run(function, *args, **kwargs)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)


#: Places beyond all, for calls about a store of which nothing is at work: another one may not answer any of its calls.


class ConcurrencyLimiter:
    """A number of places on one event loop. Who finds none is refused at once: waiting would hold a call open."""

    def __init__(self, most: int, reason: str, what: str) -> None:
        """Offer `most` places.

        Args:
            reason: of the refusal.
            what: the calls, for people: "calls of ReadRows".
        """
        self._most = most
        self._taken = 0
        self._of_store: Counter[str] = Counter()
        self._reason = reason
        self._what = what

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Take a place until the context ends.

        Raises:
            ResourceExhausted: all are taken.
        """
        store = STORE.get()
        if self._taken >= (self._most if self._of_store[store] else self._most + _RESERVE):
            raise ResourceExhausted(self._reason, f"{self._taken} {self._what} are at work already: try again later")
        self._taken += 1
        self._of_store[store] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._of_store[store] -= 1
