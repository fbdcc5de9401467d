"""The queue of jobs: some have their turn, others wait for it, by priority and in the order of their acceptance."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterator

from core.errors import ResourceExhausted

_RETRY_SECONDS = 5.0


class JobQueue:
    """The jobs of one executor, for one event loop.

    `most_running` jobs have their turn at once, `most_waiting` more may wait for it.
    """

    def __init__(self, most_running: int, most_waiting: int) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._running: set[str] = set()
        #: The negative priority, the time of acceptance and the id of each job that waits.
        self._order: list[tuple[int, float, str]] = []
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._closed = False

    def check_capacity(self) -> None:
        """Check that a job can be accepted.

        Raises:
            ResourceExhausted: TOO_MANY_JOBS – neither a turn nor a place in the queue is free.
        """
        if len(self._running) >= self._most_running and len(self._order) >= self._most_waiting:
            raise ResourceExhausted(
                "TOO_MANY_JOBS",
                f"{len(self._running)} jobs run and {len(self._order)} wait: wait for some to end, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )

    def join(self, job_id: str, accepted_at: float, *, priority: int = 0, always: bool = False) -> asyncio.Future[bool]:
        """Put a job into the queue.

        Args:
            job_id: The job.
            accepted_at: When it was accepted: of two jobs with one priority, the earlier has its turn first.
            priority: Jobs with a higher one have their turn first.
            always: Accept the job also where the queue is full.

        Returns:
            The job's turn: True once it has come, which may be at once; False: the job left the queue before.

        Raises:
            ResourceExhausted: as `check_capacity`, unless `always`.
        """
        if not always:
            self.check_capacity()
        turn = self._turns[job_id] = asyncio.get_running_loop().create_future()
        bisect.insort(self._order, (-priority, accepted_at, job_id))
        self._next()
        return turn

    def leave(self, job_id: str) -> None:
        """Take out a job that is over, or is not to run after all; the next one has its turn."""
        self._running.discard(job_id)
        turn = self._turns.pop(job_id, None)
        if turn is not None:
            self._order = [entry for entry in self._order if entry[2] != job_id]
            if not turn.done():
                turn.set_result(False)
        self._next()

    def prioritise(self, job_id: str, priority: int) -> None:
        """Give a job that waits another priority; nothing is done for one that does not wait."""
        for at, (_, accepted_at, waiting) in enumerate(self._order):
            if waiting == job_id:
                del self._order[at]
                bisect.insort(self._order, (-priority, accepted_at, job_id))
                return

    def waits(self, job_id: str) -> bool:
        """Tell whether the job waits for its turn."""
        return job_id in self._turns

    def places(self) -> Iterator[tuple[str, int]]:
        """Yield the jobs that wait, with their places; 1 is next."""
        return ((job_id, place) for place, (_, _, job_id) in enumerate(self._order, start=1))

    def close(self) -> None:
        """Give nobody a turn any more."""
        self._closed = True

    def _next(self) -> None:
        while self._order and len(self._running) < self._most_running and not self._closed:
            _, _, job_id = self._order.pop(0)
            self._running.add(job_id)
            turn = self._turns.pop(job_id)
            if not turn.done():
                turn.set_result(True)
