"""The one writer of a database's job history in this process; states that come while it writes go out together next.

Those of jobs that had nothing to do may wait for others: an append asks five requests of an object store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from leman_core.model.job import Job
from leman_core.server.blocking import BlockingPool, PoolOfPlace
from leman_executor.history.job_history import JobHistory

#: States of jobs in one version at the most.
_MOST = 500
#: How long a state that may wait does so, unless another one is written earlier.
REST_SECONDS = 30.0

_log = structlog.get_logger(__name__)


class HistoryWriter:
    """The writer of one job history, for one event loop; states of jobs are written in the order in which they come."""

    def __init__(
        self, history: JobHistory, pool: BlockingPool | PoolOfPlace, rest_seconds: float = REST_SECONDS
    ) -> None:
        self._history = history
        self._pool = pool
        self._rest_seconds = rest_seconds
        self._resting: list[Job] = []
        #: What could rest is not written any more.
        self._gone = False
        self._rest: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Job, asyncio.Future[Job]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None

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

    def save_with_others(self, job: Job) -> None:
        """Write a state of a job with the next one that `save` is given; after a while, or at the end, by itself.

        A process that is killed before has not written it.
        """
        if self._gone:
            return
        self._resting.append(job)
        if len(self._resting) >= _MOST:
            self._write_resting()
        else:
            self._begin_rest()

    def leave_unwritten(self) -> None:
        """Forget what waits for others, and what comes: the history is gone."""
        self._gone = True
        self._resting.clear()
        if self._rest is not None:
            self._rest.cancel()

    def _begin_rest(self) -> None:
        if self._rest is None or self._rest.done():
            self._rest = asyncio.create_task(self._end_rest())

    async def _end_rest(self) -> None:
        await asyncio.sleep(self._rest_seconds)
        self._rest = None
        self._write_resting()

    def _write_resting(self) -> None:
        if self._resting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Wait until nothing is to be written; what waits for others is written now."""
        self._write_resting()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._rest is not None:
            self._rest.cancel()
        if self._tidying is not None:
            await asyncio.wait([self._tidying])
        if not self._gone:
            await self._carefully(self._history.fold, "the tail of the job history was not folded")

    async def _write(self) -> None:
        written = True
        while self._waiting or (self._resting and written):
            rested, self._resting = self._resting, []
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            written = await self._write_batch(rested, batch)
        if self._history.untidy and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy())  # while others are written: it takes a second

    async def _tidy(self) -> None:
        await self._carefully(self._history.tidy, "the job history was not compacted")
        await self._carefully(self._history.forget_past, "versions of the job history were not removed")

    async def _write_batch(self, rested: Sequence[Job], batch: Sequence[tuple[Job, asyncio.Future[Job]]]) -> bool:
        """Tell whether it was written; where it was not, what rested does so again."""
        try:
            kept = await self._pool.run(self._history.save_all, [*rested, *(job for job, _ in batch)])
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must hear of it
            if rested and not self._gone:
                ids = [job.job_id for job in rested]
                _log.warning("jobs that had nothing to do are not in the history yet", job_ids=ids, error=str(error))
                self._resting = [*rested, *self._resting]
                self._begin_rest()
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return False
        for (_, answer), job in zip(batch, kept[len(rested) :], strict=True):
            if not answer.done():
                answer.set_result(job)
        return True

    async def _carefully(self, work: Callable[[], None], failed: str) -> None:
        try:
            await self._pool.run(work)
        except Exception:  # noqa: BLE001 - it is only untidy
            _log.warning(failed, exc_info=True)
