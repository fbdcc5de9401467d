"""Keeps workers running for one round: starts them, and stand-ins for those that went silent, until there is an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from core.domain.udf import UdfKind
from core.domain.work import WorkContext
from core.errors import LemanError, Unavailable
from executor.jobs.job_status import JobStatus
from executor.jobs.services import Services
from executor.scheduling.dispatcher import ExecutorEndpoint, UnitSource
from executor.scheduling.resources import TaskSlots


class WorkerFleet:
    """The workers of one round. `unit_source` gives them work; `worked_off` tells that no worker has a unit and there
    is none to give out."""

    def __init__(
        self,
        status: JobStatus,
        services: Services,
        context: WorkContext,
        asked: TaskSlots,
        unit_source: UnitSource,
        worked_off: Callable[[], bool],
    ) -> None:
        self._status = status
        self._services = services
        self._context = context
        self._asked = asked
        self._unit_source = unit_source
        self._worked_off = worked_off
        self._changed = asyncio.Event()
        self._count = asked.count
        self._more = 0
        self._forsaken = False
        #: The failure of a unit that ends the job.
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure.add_done_callback(_may_be_unheard)

    def look(self) -> None:
        """There may be no more work at all."""
        self._changed.set()

    def fail(self, error: LemanError) -> None:
        """Ends all workers; the first error is the one that counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def start_replacement(self) -> None:
        """A worker went silent: another one is started, and in the end the silent one is not waited for."""
        self._forsaken = True
        self._more += 1
        self._changed.set()

    def grow(self, count: int) -> None:
        """So many workers there are to be from now on."""
        more, self._count = max(0, count - self._count), max(self._count, count)
        self._more += more
        self._changed.set()

    async def until_end(self, address: ExecutorEndpoint) -> Unavailable | None:
        """Until there is nothing left to hand out, the workers end by themselves, or a unit's failure ends the job.
        Returns that Spark gave up on a worker: it is no failure by itself, as the feed counts losses, unless it does so
        before a worker has asked for a unit."""
        workers = {self._start(address, self._count)}
        self._more = 0
        refused: Unavailable | None = None
        while workers:
            await self._something(workers)
            if self.failure.done():
                for worker in workers:
                    worker.cancel()
                self.failure.result()
            if self._worked_off() and self._context.udf.kind is not UdfKind.SQL:
                await self._leave(workers)
                return None
            if self._more:
                workers.add(self._start(address, self._more))
                self._more = 0
            for worker in {worker for worker in workers if worker.done()}:
                workers.remove(worker)
                refused = self._refusal(worker) or refused
        return refused

    def _start(self, address: ExecutorEndpoint, count: int) -> asyncio.Future[None]:
        """Workers in this process where no user code is to run, else on Spark."""
        work: Awaitable[None]
        if self._context.udf.kind is UdfKind.SQL:
            work = self._services.local.run_workers(self._unit_source, self._context, count)
        else:
            self._status.metrics.spark_jobs += 1
            work = self._services.spark.run_workers(address, self._context, count, self._asked.profile)
        workers = asyncio.ensure_future(work)
        workers.add_done_callback(_may_be_unheard)
        return workers

    async def _something(self, workers: set[asyncio.Future[None]]) -> None:
        """Waits until a worker ends, one is to be started, all is done, or a unit's failure ends the job."""
        changed = asyncio.ensure_future(self._changed.wait())
        either: list[asyncio.Future[Any]] = [*workers, self.failure, changed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self._changed.clear()

    async def _leave(self, workers: set[asyncio.Future[None]]) -> None:
        if self._forsaken:
            await self._services.spark.stop_job(self._status.job.job_id)
        for worker in workers:
            worker.cancel()  # nobody has a unit: the Spark job ends by itself, whatever it may still say
        await asyncio.gather(*workers, return_exceptions=True)

    def _refusal(self, worker: asyncio.Future[None]) -> Unavailable | None:
        try:
            worker.result()
        except Unavailable as error:
            self._status.note("error", error.message)
            return error
        return None


def _may_be_unheard(ended: asyncio.Future[None]) -> None:
    """The job may have ended by something else, or by another worker, so that nobody asks how these did."""
    _ = ended.cancelled() or ended.exception()
