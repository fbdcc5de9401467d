"""Keep the status of a running job, or of a part of a job, and send it to watchers.

Every message has a sequence number: the upper half is the job's attempt, the lower half a counter within the attempt.
The end of a job has the highest number of its attempt. Every executor therefore reports the end with the same number,
even an executor that only reads the history.

Progress messages are paced, so that many watchers leave the executor time for other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from leman_core.model.job import Job, JobError, JobEvent, JobState, Progress
from leman_core.model.service_errors import LemanError
from leman_core.model.work import RowError
from leman_core.telemetry import instruments
from leman_core.telemetry.tracing import Span
from leman_executor.jobs.job_environment import JobStore
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.lineage import LineageFacts
from leman_executor.jobs.work_context import NO_ENV

_COUNT_BITS = 32


class JobUpdate(NamedTuple):
    """One message to a watcher."""

    sequence: int
    """The watcher's position, which never decreases."""
    job: Job
    events: Sequence[JobEvent] = ()
    """Events since the watcher's previous position."""
    events_missing: bool = False
    """Whether events may be missing."""

    @property
    def is_last(self) -> bool:
        """Return whether the job has ended, so that no more messages follow."""
        return self.job.state.terminal and self.sequence >= last_sequence(self.job.attempt)


def first_sequence(attempt: int) -> int:
    """Return the sequence number before all messages of an attempt."""
    return attempt << _COUNT_BITS


def last_sequence(attempt: int) -> int:
    """Return the sequence number of a job's end in an attempt."""
    return first_sequence(attempt + 1) - 1


def events_known_after(attempt: int) -> int:
    """Return the sequence number after which this executor has all events, because earlier attempts ran elsewhere."""
    return first_sequence(attempt) if attempt > 1 else 0


def last_event(job: Job) -> JobEvent:
    """Return the last event of an ended job."""
    return JobEvent(last_sequence(job.attempt), job.ended_at or job.updated_at, "state", job.state.value)


def update_from_history(job: Job, seen: int) -> JobUpdate:
    """Return the update for a watcher at position `seen`, for a job of which only the history is known.

    If another executor runs the job, that executor reports the events of the attempt. The watcher's new position is
    therefore at most the beginning of the attempt.
    """
    if job.state.terminal:
        end = last_event(job)
        new = seen < end.sequence
        return JobUpdate(end.sequence, job, [end] if new else [], events_missing=new)
    return JobUpdate(max(seen, first_sequence(job.attempt)), job, events_missing=seen < events_known_after(job.attempt))


#: Maximum number of progress messages per second to all watchers of an executor together. Messages with events are sent
#: at once and do not count.
_MESSAGES_PER_SECOND = 500


class WatcherPace:
    """The pace of progress messages to the watchers of one executor."""

    def __init__(self) -> None:
        self._watchers = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count one more watcher inside this block."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def seconds(self) -> float:
        """Return the seconds between two progress messages to one watcher."""
        return self._watchers / _MESSAGES_PER_SECOND


_log = structlog.get_logger(__name__)

_TICK_SECONDS = 0.25
_EVENTS_KEPT = 1000
#: Maximum length of the reason for planning again. An error of storage may repeat long paths.
_LONGEST_WHY = 300
_VIEWED_SECONDS = 1.0


def _nothing_expected(_key: str) -> tuple[int, float]:
    """Return place 0 and start 0.0, for a job that is not queued."""
    return 0, 0.0


class JobStatus:
    """The status of one job that runs here."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.metrics = JobMetrics()
        #: The trace span; None if the job is not traced.
        self.span: Span | None = None
        #: What the job reads and writes; None if there is no plan yet.
        self.lineage: LineageFacts | None = None
        #: Whether the table had no index at the job's last commit.
        self.without_indexes = False
        #: The row that caused the job to fail.
        self.blamed: RowError | None = None
        #: Returns a queued job's place and expected start; see `JobQueue.expected`.
        self.expected: Callable[[str], tuple[int, float]] = _nothing_expected
        #: The pace that all jobs of the executor share.
        self.pace = WatcherPace()
        self._lost = False
        self._env: Mapping[str, str] = NO_ENV
        self.sequence = first_sequence(job.attempt)
        self._events: list[JobEvent] = []
        #: The sequence number after which no event has been dropped.
        self._kept_after = events_known_after(job.attempt)
        #: Notified after each change that is sent at once, and by `tick` after other changes.
        self._changed = asyncio.Condition()
        self._happened = asyncio.Condition()
        self._viewed: tuple[tuple[int, int, float], float, Job] | None = None

    @property
    def lost(self) -> bool:
        """Whether another executor has taken the job over, so that this status is no longer current."""
        return self._lost

    def lose(self) -> None:
        """Record that another executor has taken the job over, so that this status is no longer current."""
        self._lost = True

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables of the job's functions, which are never shown; empty after the job has ended."""
        return self._env

    def take_env(self, env: Mapping[str, str]) -> None:
        """Keep the job's environment variables until it ends."""
        self._env = env

    def snapshot(self) -> Job:
        """Return the current job."""
        if self.job.state.terminal:
            return self.job
        place, start_at = self.expected(self.job.key)
        return replace(self.job, progress=self.progress, queue_position=place, expected_start_at=start_at)

    def update(self, **changes: Any) -> None:
        """Change fields of the job. Watchers see this after the next tick."""
        self.job = replace(self.job, **changes)

    def replans(self, why: str) -> None:
        """Record that the job plans again. A long reason is shortened."""
        self.note("replan", f"planning again: {textwrap.shorten(why, _LONGEST_WHY, placeholder=' …')}")

    def note(self, kind: str, message: str) -> None:
        """Record an event. Watchers see it after the next tick."""
        self.sequence += 1
        self._keep(JobEvent(self.sequence, time.time(), kind, message))
        instruments.JOB_EVENTS.add(1, {instruments.EVENT: kind})
        say = _log.warning if kind == "stall" else _log.info
        say(message, job_id=self.job.job_id, database=self.job.request.database, event_kind=kind)

    def _keep(self, event: JobEvent) -> None:
        self._events.append(event)
        if len(self._events) > _EVENTS_KEPT:
            self._kept_after = self._events.pop(0).sequence

    async def move(self, state: JobState, **changes: Any) -> None:
        """Change the job's state, and notify the watchers."""
        await self._enter(self._in(state, **changes))

    async def end(self, state: JobState, error: JobError | None, jobs: JobStore) -> None:
        """End the job: write its end to the history, then notify the watchers.

        If the history already has an end of the job, keep that end. If another executor has taken the job over, leave
        the job to that executor.
        """
        if not self.lost:
            kept = await jobs.save(self._in(state, error=error))
            if kept.state.terminal:
                await self._enter(kept)
                return
        await self.leave()

    async def publish(self) -> None:
        """Notify the watchers."""
        if not self.job.state.terminal:  # no message may follow the end
            self.sequence += 1
        for condition in (self._happened, self._changed):
            async with condition:
                condition.notify_all()

    async def leave(self) -> None:
        """Leave the job to the executor that has taken it over. Watchers then continue at that executor."""
        self.lose()
        self.note("state", "left to the executor that has taken the job over")
        await self.publish()

    async def rest(self, jobs: JobStore) -> None:
        """Write to the history that the job has paused, then notify the watchers.

        If the job was resumed or cancelled before it stopped, do nothing. If writing fails, the history still has the
        request to pause, and an executor that takes the job over pauses it.
        """
        if self.lost:
            await self.leave()
        elif self.job.state is JobState.PAUSING:
            job = self._in(JobState.PAUSED)
            try:
                await jobs.save(job)
            except LemanError as error:
                _log.warning("a pause could not be written to the history", job_id=job.job_id, error=str(error))
            now = self.job
            if now.state is JobState.PAUSING and not self.lost:
                await self._enter(replace(now, state=job.state, updated_at=job.updated_at, progress=job.progress))

    async def until_resumed(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.lost or self.job.state is not JobState.PAUSED)

    @property
    def progress(self) -> Progress:
        """Return the progress.

        After a takeover and before the first plan, return the previous executor's last report.
        """
        taken_over = self.job.attempt > 1 and not self.metrics.rows_total
        progress = self.job.progress if taken_over else self.metrics.progress()
        return replace(progress, elapsed_seconds=max(0.0, time.time() - self.job.created_at))

    def _in(self, state: JobState, **changes: Any) -> Job:
        now = time.time()
        if state.terminal:
            changes["ended_at"] = now
        return replace(self.job, state=state, updated_at=now, progress=self.progress, **changes)

    def has_its_turn(self) -> None:
        """Note when the job first left the queue."""
        if not self.job.started_at:
            self.update(started_at=time.time())

    async def _enter(self, job: Job) -> None:
        self.job = job
        if job.state.terminal:
            self._env = NO_ENV
            end = last_event(job)
            self.sequence = end.sequence
            self._keep(end)
            _log.info(end.message, job_id=job.job_id, database=job.request.database, event_kind=end.kind)
        else:
            self.note("state", job.state.value)
        await self.publish()

    async def watch(self, after: int, heartbeat_seconds: float) -> AsyncGenerator[JobUpdate]:
        """Yield the current state, then every change, until the job has ended or another executor has taken it over.

        If only counts have changed, the next message is delayed according to the pace.

        Args:
            after: Leave out events with a sequence number up to this one. Only the last thousand events are kept.
            heartbeat_seconds: The maximum time between two messages.
        """
        seen = after
        with self.pace.watching():
            while not self.lost:
                news = self._news_since(seen)
                yield news
                if news.job.state.terminal:
                    return
                seen = news.sequence
                await self._until_news(seen, heartbeat_seconds)

    async def _until_news(self, seen: int, heartbeat_seconds: float) -> None:
        """Wait for an event, for any other change (as the pace allows), or for the heartbeat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(heartbeat_seconds):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pace.seconds), self._happened:
                        await self._happened.wait_for(lambda: self._last_event > seen)
                async with self._changed:
                    await self._changed.wait_for(lambda: self.sequence > seen)

    @property
    def _last_event(self) -> int:
        return self._events[-1].sequence if self._events else 0

    def _news_since(self, seen: int) -> JobUpdate:
        events = [event for event in self._events if event.sequence > seen]
        return JobUpdate(self.sequence, self._view(), events, events_missing=seen < self._kept_after)

    def _view(self) -> Job:
        """Return the current job. All watchers share one object until something changes, or for at most a second."""
        now, key = time.monotonic(), (self.sequence, *self.expected(self.job.key))
        if self._viewed is None or self._viewed[0] != key or now - self._viewed[1] >= _VIEWED_SECONDS:
            self._viewed = key, now, self.snapshot()
        return self._viewed[2]

    async def tick(self) -> None:
        """Notify the watchers of changes several times per second, until cancelled."""
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


#: Kinds of events of a part that are also events of the whole job.
PARENT_EVENT_KINDS = frozenset({"error", "resources", "stall", "wait"})


class ChildJobStore:
    """The job store for a backfill that is a part of another job."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    async def save(self, job: Job) -> Job:
        """Return the job unchanged. Only the whole job is stored."""
        return job

    async def save_error(self, job: Job, row: RowError) -> None:
        await self._jobs.save_error(job, row)

    def failed_in(self, _job: Job) -> tuple[str, ...]:
        """Return an empty tuple, because the whole job reports the earlier jobs in which rows failed."""
        return ()

    def lost_commit(self, _job: Job, _version: int) -> None:
        """Return None: the whole job checks for lost commits."""


class ChildJobStatus(JobStatus):
    """The status of a part of a job. It passes some of its events on to the whole job.

    Args:
        told: The kinds of events that are passed on.
        name: A prefix for their messages; none if empty.
    """

    def __init__(self, job: Job, whole: JobStatus, told: AbstractSet[str] = PARENT_EVENT_KINDS, name: str = "") -> None:
        super().__init__(job)
        self._whole = whole
        self.span = whole.span
        self._told = told
        self._name = name

    @property
    def lost(self) -> bool:
        """Return whether another executor has taken the whole job over."""
        return self._whole.lost

    def lose(self) -> None:
        self._whole.lose()

    @property
    def env(self) -> Mapping[str, str]:
        return self._whole.env

    def update(self, **changes: Any) -> None:
        """Change the status. Stalls are also passed on to the whole job."""
        super().update(**changes)
        if "stalls" in changes:
            self._whole.update(stalls=changes["stalls"])

    def note(self, kind: str, message: str) -> None:
        """Record an event. If its kind is passed on, also record it for the whole job."""
        if kind in self._told:
            self._whole.note(kind, f"{self._name}: {message}" if self._name else message)
        else:
            super().note(kind, message)
