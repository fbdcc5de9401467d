"""Keeps lanes running for one round: starts them, and stand-ins for those that went silent, until there is an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from core.domain.udf import UdfKind
from core.domain.work import WorkContext
from core.errors import LemanError, Unavailable
from executor.jobs.job_status import JobBoard
from executor.jobs.services import Services
from executor.scheduling.dispatcher import Feed, LaneAddress
from executor.scheduling.resources import Lanes


class LaneRuns:
    """The lanes of one round. `feed` gives them work; `worked_off` tells that no lane has a unit and there is none to
    give out."""

    def __init__(
        self,
        board: JobBoard,
        services: Services,
        context: WorkContext,
        asked: Lanes,
        feed: Feed,
        worked_off: Callable[[], bool],
    ) -> None:
        self._board = board
        self._services = services
        self._context = context
        self._asked = asked
        self._feed = feed
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
        """Ends all lanes; the first error is the one that counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def stand_in(self) -> None:
        """A lane went silent: another one is started, and in the end the silent one is not waited for."""
        self._forsaken = True
        self._more += 1
        self._changed.set()

    def grow(self, count: int) -> None:
        """So many lanes there are to be from now on."""
        more, self._count = max(0, count - self._count), max(self._count, count)
        self._more += more
        self._changed.set()

    async def until_end(self, address: LaneAddress) -> Unavailable | None:
        """Until there is nothing left to hand out, the lanes end by themselves, or a unit's failure ends the job.
        Returns that Spark gave up on a lane: it is no failure by itself, as the feed counts losses, unless it does so
        before a lane has asked for a unit."""
        lanes = {self._start(address, self._count)}
        self._more = 0
        refused: Unavailable | None = None
        while lanes:
            await self._something(lanes)
            if self.failure.done():
                for lane in lanes:
                    lane.cancel()
                self.failure.result()
            if self._worked_off() and self._context.udf.kind is not UdfKind.SQL:
                await self._leave(lanes)
                return None
            if self._more:
                lanes.add(self._start(address, self._more))
                self._more = 0
            for lane in {lane for lane in lanes if lane.done()}:
                lanes.remove(lane)
                refused = self._refusal(lane) or refused
        return refused

    def _start(self, address: LaneAddress, count: int) -> asyncio.Future[None]:
        """Lanes in this process where no user code is to run, else on Spark."""
        work: Awaitable[None]
        if self._context.udf.kind is UdfKind.SQL:
            work = self._services.local.run_lanes(self._feed, self._context, count)
        else:
            self._board.tally.spark_jobs += 1
            work = self._services.spark.run_lanes(address, self._context, count, self._asked.profile)
        lanes = asyncio.ensure_future(work)
        lanes.add_done_callback(_may_be_unheard)
        return lanes

    async def _something(self, lanes: set[asyncio.Future[None]]) -> None:
        """Waits until a lane ends, one is to be started, all is done, or a unit's failure ends the job."""
        changed = asyncio.ensure_future(self._changed.wait())
        either: list[asyncio.Future[Any]] = [*lanes, self.failure, changed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self._changed.clear()

    async def _leave(self, lanes: set[asyncio.Future[None]]) -> None:
        if self._forsaken:
            await self._services.spark.stop_job(self._board.job.job_id)
        for lane in lanes:
            lane.cancel()  # nobody has a unit: the Spark job ends by itself, whatever it may still say
        await asyncio.gather(*lanes, return_exceptions=True)

    def _refusal(self, lane: asyncio.Future[None]) -> Unavailable | None:
        try:
            lane.result()
        except Unavailable as error:
            self._board.note("error", error.message)
            return error
        return None


def _may_be_unheard(ended: asyncio.Future[None]) -> None:
    """The job may have ended by something else, or by another lane, so that nobody asks how these did."""
    _ = ended.cancelled() or ended.exception()
