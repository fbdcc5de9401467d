"""The queue of jobs: some have their turn, others wait for it, in the order of `leman_executor.queueing.fair_order`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leman_core.model.errors import ResourceExhausted
from leman_executor.queueing.fair_order import Duration, FairOrder, QueuedJob, TurnLimits

_RETRY_SECONDS = 5.0
#: For so long it holds when jobs will have their turn.
_FORECAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The turns to come, as they were at one moment."""

    made_at: float
    """Seconds since the epoch."""
    places: Mapping[str, int]
    """Of the jobs that wait, in their order; 1 is next."""
    starts: Mapping[str, float]
    """In seconds since the epoch, where that is known: none comes before that of a job in a place before."""


class JobQueue:
    """The jobs of one executor, for one event loop.

    Args:
        limits: How many have their turn at once.
        most_waiting: So many more may wait for it.
        most_waiting_per_caller: So many of one caller; 0: no limit of its own.
        most_waiting_in: So many of a database; None: no limit of its own.
        duration: What is known of how long a job takes.
    """

    def __init__(
        self,
        limits: TurnLimits,
        most_waiting: int,
        most_waiting_per_caller: int = 0,
        duration: Duration = lambda _: None,
        most_waiting_in: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._order = FairOrder(limits)
        self._most_waiting = most_waiting
        self._most_waiting_per_caller = most_waiting_per_caller
        self._most_waiting_in = most_waiting_in
        self._duration = duration
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._closed = False
        self._forecast: _Forecast | None = None

    def check_capacity(self, job: QueuedJob) -> None:
        """Check that a job can be accepted.

        Raises:
            ResourceExhausted: TOO_MANY_JOBS – neither a turn nor a place in the queue is free;
                TOO_MANY_WAITING_JOBS – as many jobs of this caller, or of this database, wait as may.
        """
        if self._order.may_run(job):
            return
        running, waiting = len(self._order.running), len(self._order.waiting)
        own = self._order.waiting_of(job.caller)
        if self._most_waiting_per_caller and own >= self._most_waiting_per_caller:
            whose = f"'{job.caller}'" if job.caller else "callers without a name"
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{own} jobs of {whose} wait, as many as may: wait until some have had their turn, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )
        most, of_database = self._most_waiting_in(job.database), self._order.waiting_in(job.database)
        if most is not None and of_database >= most:
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{of_database} jobs of {job.database} wait, as many as its registration allows: wait until some have "
                "had their turn, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )
        if waiting >= self._most_waiting:
            raise ResourceExhausted(
                "TOO_MANY_JOBS",
                f"{running} jobs run and {waiting} wait: wait for some to end, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )

    def join(self, job: QueuedJob, *, always: bool = False) -> asyncio.Future[bool]:
        """Put a job into the queue.

        Args:
            job: The job.
            always: Accept it also where the queue is full.

        Returns:
            The job's turn: True once it has come, which may be at once; False: the job left the queue before.

        Raises:
            ResourceExhausted: as `check_capacity`, unless `always`.
        """
        if not always:
            self.check_capacity(job)
        turn = self._turns[job.job_id] = asyncio.get_running_loop().create_future()
        self._order.join(job)
        self._give_turns()
        return turn

    def leave(self, job_id: str) -> None:
        """Take out a job that is over, or is not to run after all; the next one has its turn."""
        self._order.leave(job_id)
        turn = self._turns.pop(job_id, None)
        if turn is not None and not turn.done():
            turn.set_result(False)
        self._give_turns()

    def look_again(self) -> None:
        """Give turns to jobs that may run by now, as limits are others than they were."""
        self._give_turns()

    def prioritise(self, job_id: str, priority: int) -> None:
        """Give a job that waits another priority; nothing is done for one that does not wait."""
        self._order.prioritise(job_id, priority)
        self._forecast = None

    def waits(self, job_id: str) -> bool:
        """Tell whether the job waits for its turn."""
        return job_id in self._order.waiting

    @property
    def waiting(self) -> int:
        """Return how many jobs wait now."""
        return len(self._order.waiting)

    @property
    def together(self) -> int:
        """Return how many jobs run at once now."""
        return len(self._order.running)

    def places(self) -> Mapping[str, int]:
        """Return the places of the jobs that wait, in their order; 1 is next."""
        return self._forecast_at(time.time()).places

    def expected(self, job_id: str) -> tuple[int, float]:
        """Return a waiting job's place, and when it will have its turn, in seconds since the epoch: not in the past.

        The time is 0 where it is not known; both are where the job does not wait.
        """
        if not self.waits(job_id):
            return 0, 0.0
        now = time.time()
        forecast = self._forecast_at(now)
        start = forecast.starts.get(job_id)
        # what is overdue is so within the second: then all who ask meanwhile are told the same
        return forecast.places[job_id], 0.0 if start is None else max(start, math.ceil(now))

    def _forecast_at(self, now: float) -> _Forecast:
        """Return the turns to come: made anew where jobs came or went, and each second while it is known how long some
        take."""
        forecast = self._forecast
        if forecast is None or (not 0.0 <= now - forecast.made_at < _FORECAST_SECONDS and self._something_is_known):
            turns = self._order.turns_to_come(self._duration)
            places = {job_id: place for place, (job_id, _) in enumerate(turns, start=1)}
            starts = {job_id: now + seconds for job_id, seconds in turns if not math.isinf(seconds)}
            forecast = self._forecast = _Forecast(now, places, starts)
        return forecast

    @property
    def _something_is_known(self) -> bool:
        return any(self._duration(job) is not None for job in self._order.running.values())

    def close(self) -> None:
        """Give nobody a turn any more."""
        self._closed = True

    def _give_turns(self) -> None:
        self._forecast = None
        while not self._closed and (job := self._order.start()) is not None:
            turn = self._turns.pop(job.job_id)
            if not turn.done():
                turn.set_result(True)
