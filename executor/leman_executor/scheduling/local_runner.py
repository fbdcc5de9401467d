"""Run workers in threads of the executor, for work without user code, which needs no Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from leman_core.model.work import InFlightRows, ProgressReport, UnitOutcome, WorkContext, WorkUnit
from leman_core.server.blocking import run_in_job_thread
from leman_executor.scheduling.dispatcher import Cancelled, UnitSource
from leman_executor.worker.worker_loop import WorkerState


class LocalRunner:
    """Run workers in threads, with the interface of `SparkRunner`. Call it from one event loop."""

    def __init__(self) -> None:
        self._cancelled: set[str] = set()
        self._running: dict[str, tuple[threading.Event, asyncio.Event]] = {}

    async def run_workers(self, unit_source: UnitSource, context: WorkContext, count: int) -> None:
        """Run `count` threads, and return when no units are left.

        Raises:
            Cancelled: The job was asked to stop.
        """
        job_key = context.key
        if job_key in self._cancelled:
            raise Cancelled(job_key)
        stop, ended = threading.Event(), asyncio.Event()
        self._running[job_key] = stop, ended
        pool = ThreadPoolExecutor(count, thread_name_prefix=f"sql-{job_key}")
        try:
            workers = [
                asyncio.ensure_future(_worker(f"thread {n}", unit_source, context, pool, stop)) for n in range(count)
            ]
            try:
                await asyncio.gather(*workers)
            finally:
                stop.set()
                await asyncio.gather(*workers, return_exceptions=True)
        finally:
            await run_in_job_thread(pool.shutdown)
            self._running.pop(job_key, None)
            ended.set()
        if job_key in self._cancelled:
            raise Cancelled(job_key)

    async def stop_job(self, job_key: str) -> None:
        """Stop the job's threads, and wait until they have ended."""
        running = self._running.get(job_key)
        if running is not None:
            running[0].set()
            await running[1].wait()

    def stop_units(self, job_key: str) -> None:
        """Ask a job's threads to store what they have computed, return their current units, and end."""
        running = self._running.get(job_key)
        if running is not None:
            running[0].set()

    def cancel(self, job_key: str) -> None:
        """Stop a job's units at the next safe point, and start no further ones. Callable from any thread."""
        self._cancelled.add(job_key)
        running = self._running.get(job_key)
        if running is not None:
            running[0].set()

    def forget(self, job_key: str) -> None:
        """Forget that a job was cancelled, once the job is over."""
        self._cancelled.discard(job_key)


async def _worker(
    name: str, unit_source: UnitSource, context: WorkContext, pool: ThreadPoolExecutor, stop: threading.Event
) -> None:
    loop = asyncio.get_running_loop()
    worker_state = WorkerState(context)
    sink = LoopSink(unit_source.on_report, loop)

    def run(unit: WorkUnit) -> UnitOutcome:
        return worker_state.run(unit, sink, stopped=stop.is_set)

    while not stop.is_set():
        unit = await unit_source.next_unit(name, heartbeats=False)
        if unit is None:
            return
        unit_source.on_outcome(await loop.run_in_executor(pool, run, unit))


class LoopSink:
    """Deliver progress reports to the event loop before the unit's outcome.

    Args:
        report: Called with each report on the event loop.
    """

    def __init__(self, report: Callable[[ProgressReport], object], loop: asyncio.AbstractEventLoop) -> None:
        self._report = report
        self._loop = loop

    def send(self, report: ProgressReport) -> None:
        """Send a report; see `leman_core.model.work.ProgressSink`."""
        self._loop.call_soon_threadsafe(self._report, report)

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Ignore rows in flight: a thread cannot die without the executor."""
