"""The one writer of a database's job history in this process; states that come while it writes go out together next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from core.domain.job import Job
from core.rpc.blocking import BlockingPool
from executor.history.job_history import JobHistory

#: States of jobs in one version at the most.
_MOST = 500

_log = structlog.get_logger(__name__)


class HistoryWriter:
    """The writer of one job history, for one event loop; states of jobs are written in the order in which they come."""

    def __init__(self, history: JobHistory, pool: BlockingPool) -> None:
        self._history = history
        self._pool = pool
        self._waiting: list[tuple[Job, asyncio.Future[Job]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._forgetting: asyncio.Task[None] | None = None

    async def save(self, job: Job) -> Job:
        """Write a state of a job, also where the caller goes away; see `JobHistory.save`.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        answer: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, answer))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await answer

    async def written(self) -> None:
        """Wait until nothing is to be written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            await self._write_batch(batch)
        if self._history.untidy:
            await self._carefully(self._history.tidy, "the job history was not compacted")
            if self._forgetting is None or self._forgetting.done():  # beside what is written next: it takes longest
                forget = self._carefully(self._history.forget_past, "versions of the job history were not removed")
                self._forgetting = asyncio.create_task(forget)
            if self._waiting:
                await self._write()

    async def _write_batch(self, batch: Sequence[tuple[Job, asyncio.Future[Job]]]) -> None:
        try:
            kept = await self._pool.run(self._history.save_all, [job for job, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must hear of it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), job in zip(batch, kept, strict=True):
            if not answer.done():
                answer.set_result(job)

    async def _carefully(self, work: Callable[[], None], failed: str) -> None:
        try:
            await self._pool.run(work)
        except Exception:  # noqa: BLE001 - it is only untidy
            _log.warning(failed, exc_info=True)
