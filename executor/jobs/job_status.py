"""The status of a running job as watchers see it: its record, its counts, its events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import structlog

from core.domain.job import Job, JobError, JobEvent, JobState, Progress
from core.domain.work import RowFailure
from core.errors import LemanError
from executor.jobs.job_metrics import JobMetrics
from executor.jobs.ports import JobStore

_log = structlog.get_logger(__name__)

_TICK_SECONDS = 0.25
_EVENTS_KEPT = 1000
_VIEWED_SECONDS = 1.0


def _nothing_expected(_job_id: str) -> tuple[int, float]:
    """Return what is said of a job that does not wait."""
    return 0, 0.0


class JobStatus:
    """The status of one job that runs here."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.metrics = JobMetrics()
        #: The row on which the job failed.
        self.blamed: RowFailure | None = None
        #: Says of a job that waits its place in the queue, and when it will have its turn: see `JobQueue.expected`.
        self.expected: Callable[[str], tuple[int, float]] = _nothing_expected
        self._lost = False
        self.sequence = job.attempt << 32
        self._events: list[JobEvent] = []
        self._changed = asyncio.Condition()
        self._viewed: tuple[int, float, Job] | None = None

    @property
    def lost(self) -> bool:
        """Whether another executor has the job now, so that nothing here counts."""
        return self._lost

    def lose(self) -> None:
        """Note that another executor has the job: from now on nothing here is its state."""
        self._lost = True

    def snapshot(self) -> Job:
        """Return the job as it stands."""
        if self.job.state.terminal:
            return self.job
        place, start_at = self.expected(self.job.job_id)
        return replace(self.job, progress=self.progress, queue_position=place, expected_start_at=start_at)

    def update(self, **changes: Any) -> None:
        """Change fields of the job; watchers see it with the next tick."""
        self.job = replace(self.job, **changes)

    def note(self, kind: str, message: str) -> None:
        """Record an event; watchers see it with the next tick."""
        self.sequence += 1
        self._events.append(JobEvent(self.sequence, time.time(), kind, message))
        del self._events[:-_EVENTS_KEPT]
        say = _log.warning if kind == "stall" else _log.info
        say(message, job_id=self.job.job_id, event_kind=kind)

    async def move(self, state: JobState, **changes: Any) -> None:
        """Change the state, and tell the watchers."""
        await self._enter(self._in(state, **changes))

    async def end(self, state: JobState, error: JobError | None, jobs: JobStore) -> None:
        """End the job, first in history, then for the watchers.

        An end that history has already stays, and a job that another executor has is left to it.
        """
        if not self.lost:
            kept = await jobs.save(self._in(state, error=error))
            if kept.state.terminal:
                await self._enter(kept)
                return
        await self.leave()

    async def publish(self) -> None:
        """Tell the watchers."""
        async with self._changed:
            self.sequence += 1
            self._changed.notify_all()

    async def leave(self) -> None:
        """Leave the job to the executor that has it, and tell the watchers to look there."""
        self.lose()
        self.note("state", "left to the executor that has taken the job over")
        await self.publish()

    async def rest(self, jobs: JobStore) -> None:
        """Say that the job has stopped as it was asked to, first in history, then to the watchers.

        Nothing is said of a job that was resumed or cancelled before it had stopped. Where history cannot be written,
        it says that the job was asked to stop, which whoever takes it over reads as the same.
        """
        if self.lost:
            await self.leave()
        elif self.job.state is JobState.PAUSING:
            job = self._in(JobState.PAUSED)
            try:
                await jobs.save(job)
            except LemanError as error:
                _log.warning("a pause is not in history yet", job_id=job.job_id, error=str(error))
            now = self.job
            if now.state is JobState.PAUSING and not self.lost:
                await self._enter(replace(now, state=job.state, updated_at=job.updated_at, progress=job.progress))

    async def until_resumed(self) -> None:
        """Wait until a paused job is resumed, cancelled or lost."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.lost or self.job.state is not JobState.PAUSED)

    @property
    def progress(self) -> Progress:
        """Return how far the job is; before an executor that took it over has planned it, what the one before said."""
        taken_over = self.job.attempt > 1 and not self.metrics.rows_total
        return self.job.progress if taken_over else self.metrics.progress()

    def _in(self, state: JobState, **changes: Any) -> Job:
        now = time.time()
        if state.terminal:
            changes["ended_at"] = now
        return replace(self.job, state=state, updated_at=now, progress=self.progress, **changes)

    def has_its_turn(self) -> None:
        """Note when the job first had its turn."""
        if not self.job.started_at:
            self.update(started_at=time.time())

    async def _enter(self, job: Job) -> None:
        self.job = job
        self.note("state", job.state.value)
        await self.publish()

    async def watch(self, after: int, heartbeat_seconds: float) -> AsyncGenerator[tuple[int, Job, list[JobEvent]]]:
        """Yield a watcher's view: the state now, then every change, the last one terminal unless the job is lost.

        Each message has its sequence, the job, and the events since the message before.

        Args:
            after: Events with a sequence up to this one are left out; at most the last thousand events are kept.
            heartbeat_seconds: So long after a message the next one comes, also where nothing changed.
        """
        seen = after
        while not self.lost:
            sequence, job = self.sequence, self._view()
            yield sequence, job, [e for e in self._events if e.sequence > seen]
            if job.state.terminal:
                return
            seen = sequence
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(heartbeat_seconds), self._changed:
                    await self._changed.wait_for(lambda: self.sequence > seen)  # noqa: B023 called before it changes

    def _view(self) -> Job:
        """Return the job as it stands: one object for all watchers until there is news, or for a second."""
        now = time.monotonic()
        if self._viewed is None or self._viewed[0] != self.sequence or now - self._viewed[1] >= _VIEWED_SECONDS:
            self._viewed = self.sequence, now, self.snapshot()
        return self._viewed[2]

    async def tick(self) -> None:
        """Tell the watchers what changed, a few times a second, until cancelled."""
        last: Progress | None = None
        seen = self.sequence
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            progress = self.metrics.progress()
            now = replace(progress, elapsed_seconds=0.0, rows_per_second=0.0, eta_seconds=0.0)
            if now != last or self.sequence != seen:
                last = now
                await self.publish()
                seen = self.sequence
