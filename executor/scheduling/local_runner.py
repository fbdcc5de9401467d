"""Runs the units of a job in threads of the executor: for work that has no user code, and so needs no Spark."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from core.domain.work import Hint, Sign, UnitOutcome, WorkContext, WorkUnit
from executor.scheduling.cancelled import Cancelled
from executor.scheduling.dispatcher import Feed
from executor.worker.worker_loop import Bench


class LocalRunner:
    """The twin of `SparkRunner`; call it on one event loop."""

    def __init__(self) -> None:
        self._cancelled: set[str] = set()
        self._running: dict[str, tuple[threading.Event, asyncio.Event]] = {}

    async def run_lanes(self, feed: Feed, context: WorkContext, count: int) -> None:
        """Returns when the feed has no more units. Raises Cancelled."""
        job_id = context.job_id
        if job_id in self._cancelled:
            raise Cancelled(job_id)
        stop, ended = threading.Event(), asyncio.Event()
        self._running[job_id] = stop, ended
        pool = ThreadPoolExecutor(count, thread_name_prefix=f"sql-{job_id}")
        try:
            lanes = [asyncio.ensure_future(_lane(f"thread {n}", feed, context, pool, stop)) for n in range(count)]
            try:
                await asyncio.gather(*lanes)
            finally:
                stop.set()
                await asyncio.gather(*lanes, return_exceptions=True)
        finally:
            await asyncio.to_thread(pool.shutdown)
            self._running.pop(job_id, None)
            ended.set()
        if job_id in self._cancelled:
            raise Cancelled(job_id)

    async def stop_job(self, job_id: str) -> None:
        """Stops what runs for the job and returns when nothing does any more."""
        running = self._running.get(job_id)
        if running is not None:
            running[0].set()
            await running[1].wait()

    def cancel(self, job_id: str) -> None:
        """Stops the units of a job at the next safe point and starts no more. From any thread."""
        self._cancelled.add(job_id)
        running = self._running.get(job_id)
        if running is not None:
            running[0].set()

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._cancelled.discard(job_id)


async def _lane(name: str, feed: Feed, context: WorkContext, pool: ThreadPoolExecutor, stop: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    bench = Bench(context)
    sink = _Sink(feed, loop)

    def run(unit: WorkUnit) -> UnitOutcome:
        return bench.run(unit, sink, stopped=stop.is_set)

    while not stop.is_set():
        unit = await feed.next_unit(name, beats=False)
        if unit is None:
            return
        feed.on_outcome(await loop.run_in_executor(pool, run, unit))


class _Sink:
    """Brings hints to the event loop, where they come before the outcome of their unit."""

    def __init__(self, feed: Feed, loop: asyncio.AbstractEventLoop) -> None:
        self._feed = feed
        self._loop = loop

    def send(self, hint: Hint) -> None:
        """See `core.ports.HintSink`."""
        self._loop.call_soon_threadsafe(self._feed.on_hint, hint)

    def sign(self, sign: Sign) -> None:
        """Nothing here can die without the executor."""
