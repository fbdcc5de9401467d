"""What watchers of a job are told, and how far each is. Pure.

A sequence has the job's attempt in its upper half, and counts there what is told of the attempt. The end of a job has
the last sequence of its attempt, so that every executor tells it under the same one, also when it knows the job from
history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leman_core.model.job import Job, JobEvent

_COUNT_BITS = 32


class JobNews(NamedTuple):
    """One message to a watcher."""

    sequence: int
    """How far the watcher is with it: it never falls."""
    job: Job
    events: Sequence[JobEvent] = ()
    """What happened since the sequence that the watcher saw last."""
    events_missing: bool = False
    """Some of it may be known to nobody any more."""

    @property
    def is_last(self) -> bool:
        """Tell whether the job has ended and nothing follows."""
        return self.job.state.terminal and self.sequence >= last_sequence(self.job.attempt)


def first_sequence(attempt: int) -> int:
    """Return the sequence before everything that is told of an attempt."""
    return attempt << _COUNT_BITS


def last_sequence(attempt: int) -> int:
    """Return the sequence of the end of a job, which an attempt reached."""
    return first_sequence(attempt + 1) - 1


def events_known_after(attempt: int) -> int:
    """Return the sequence after which who has the job has all events: those of earlier attempts were told elsewhere."""
    return first_sequence(attempt) if attempt > 1 else 0


def end_of(job: Job) -> JobEvent:
    """Return the last event of a job that has ended."""
    return JobEvent(last_sequence(job.attempt), job.ended_at or job.updated_at, "state", job.state.value)


def from_history(job: Job, seen: int) -> JobNews:
    """Return what a watcher is told who has seen so much of a job that this executor knows from history alone.

    Of a job that goes on elsewhere it gets no further than to the attempt's beginning: who has the job tells the rest.
    """
    if job.state.terminal:
        end = end_of(job)
        new = seen < end.sequence
        return JobNews(end.sequence, job, [end] if new else [], events_missing=new)
    return JobNews(max(seen, first_sequence(job.attempt)), job, events_missing=seen < events_known_after(job.attempt))
