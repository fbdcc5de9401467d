"""Which jobs have their turn and which wait for it, in the order in which they were accepted."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterator

from core.errors import ResourceExhausted

_RETRY_SECONDS = 5.0


class JobQueue:
    """For one event loop. `most_running` jobs have their turn at once, `most_waiting` more may wait for it."""

    def __init__(self, most_running: int, most_waiting: int) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._running: set[str] = set()
        self._order: list[tuple[float, str]] = []
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._closed = False

    def check_capacity(self) -> None:
        """Raises ResourceExhausted (TOO_MANY_JOBS) where neither a turn nor a place in the queue is free."""
        if len(self._running) >= self._most_running and len(self._order) >= self._most_waiting:
            raise ResourceExhausted(
                "TOO_MANY_JOBS",
                f"{len(self._running)} jobs run and {len(self._order)} wait: wait for some to end, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )

    def join(self, job_id: str, accepted_at: float, *, always: bool = False) -> asyncio.Future[bool]:
        """The job's turn: True once it has come, which may be at once; False: the job left the queue before. Raises
        what `check_capacity` raises, unless the job is to be taken `always`."""
        if not always:
            self.check_capacity()
        turn = self._turns[job_id] = asyncio.get_running_loop().create_future()
        bisect.insort(self._order, (accepted_at, job_id))
        self._next()
        return turn

    def leave(self, job_id: str) -> None:
        """The job is over, or is not to run after all: whoever comes next has its turn."""
        self._running.discard(job_id)
        turn = self._turns.pop(job_id, None)
        if turn is not None:
            self._order = [entry for entry in self._order if entry[1] != job_id]
            if not turn.done():
                turn.set_result(False)
        self._next()

    def waits(self, job_id: str) -> bool:
        """Whether the job waits for its turn."""
        return job_id in self._turns

    def places(self) -> Iterator[tuple[str, int]]:
        """The jobs that wait, with their places; 1 is next."""
        return ((job_id, place) for place, (_, job_id) in enumerate(self._order, start=1))

    def close(self) -> None:
        """No turn comes any more."""
        self._closed = True

    def _next(self) -> None:
        while self._order and len(self._running) < self._most_running and not self._closed:
            _, job_id = self._order.pop(0)
            self._running.add(job_id)
            turn = self._turns.pop(job_id)
            if not turn.done():
                turn.set_result(True)
