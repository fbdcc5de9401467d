"""The workers of one plan: they are started, and silent ones replaced, until the plan's work ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from leman_core.model.errors import Unavailable
from leman_core.model.udf import UdfKind
from leman_core.model.work import WorkContext
from leman_executor.jobs.async_helpers import may_be_unheard
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.unit_source import PlanUnits
from leman_executor.scheduling.dispatcher import ExecutorEndpoint
from leman_executor.scheduling.resources import TaskSlots


class WorkerFleet:
    """The workers of one plan; they get their work from `units`."""

    def __init__(
        self,
        status: JobStatus,
        services: JobEnvironment,
        context: WorkContext,
        slots: TaskSlots,
        units: PlanUnits,
    ) -> None:
        self._status = status
        self._services = services
        self._context = context
        self._profile = slots.profile
        self._units = units
        self._count = slots.count
        self._missing = 0
        self._replaced = 0
        self._begun: asyncio.Future[None] | None = None

    def begin(self, address: ExecutorEndpoint) -> None:
        """Start the workers that `until_end` is going to wait for."""
        self._begun = self._start(address, self._count)

    def grow(self, count: int) -> None:
        """Have so many workers from now on."""
        self._missing += max(0, count - self._count)
        self._count = max(self._count, count)
        self._units.changed.set()

    async def until_end(self, address: ExecutorEndpoint) -> Unavailable | None:
        """Run workers until no unit is left, they end by themselves, or a unit's failure ends the job.

        Returns:
            The error where Spark gave up on a worker, else None. It is a failure only where it happens before a worker
            has asked for a unit: the units of dead workers are counted.
        """
        begun, self._begun = self._begun, None
        workers = {begun or self._start(address, self._count)}
        self._missing, self._replaced = 0, self._units.silent_workers
        refused: Unavailable | None = None
        while workers:
            await self._something(workers)
            if self._units.failure.done():
                for worker in workers:
                    worker.cancel()
                self._units.failure.result()
            if self._units.worked_off and self._context.udf.kind is not UdfKind.SQL:
                await self._leave(workers)
                return None
            if more := self._to_start():
                workers.add(self._start(address, more))
            for worker in {worker for worker in workers if worker.done()}:
                workers.remove(worker)
                refused = self._refusal(worker) or refused
        return refused

    def _to_start(self) -> int:
        """Return how many workers to start: those for a cluster that grew, and replacements of silent ones."""
        silent = self._units.silent_workers
        more = self._missing + silent - self._replaced
        self._missing, self._replaced = 0, silent
        return more

    def _start(self, address: ExecutorEndpoint, count: int) -> asyncio.Future[None]:
        """Start workers, in this process where no user code is to run, else on Spark."""
        work: Awaitable[None]
        if self._context.udf.kind is UdfKind.SQL:
            work = self._services.local.run_workers(self._units, self._context, count)
        else:
            self._status.metrics.spark_jobs += 1
            additional = bool(self._units.handed_out)
            work = self._services.spark.run_workers(address, self._context, count, self._profile, additional=additional)
        workers = asyncio.ensure_future(work)
        workers.add_done_callback(may_be_unheard)
        return workers

    async def _something(self, workers: set[asyncio.Future[None]]) -> None:
        """Wait until a worker ends, one is to be started, all is done, or a unit's failure ends the job."""
        changed = asyncio.ensure_future(self._units.changed.wait())
        either: list[asyncio.Future[Any]] = [*workers, self._units.failure, changed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self._units.changed.clear()

    async def _leave(self, workers: set[asyncio.Future[None]]) -> None:
        if self._units.silent_workers:  # nobody waits for these
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
