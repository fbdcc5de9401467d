"""What callers say of jobs beside what these are to do: labels, priorities, and filters by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leman._job_model import JobState
from leman.errors import InvalidArgument
from leman.v1 import jobs_pb2

_HIGHEST_PRIORITY = 100


def check_labels(labels: Any) -> dict[str, str]:
    """Labels on the wire; None: none. Raises InvalidArgument."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for item in labels.items() for text in item):
        raise InvalidArgument(f"labels map names to values, all of them str, not {labels!r}", facts={"field": "labels"})
    return dict(labels)


def check_priority(priority: Any) -> int:
    """A priority on the wire. Raises InvalidArgument."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST_PRIORITY:
        raise InvalidArgument(
            f"priority is a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}, not {priority!r}",
            facts={"field": "priority"},
        )
    return priority


def job_filter(
    table: str | None, states: Iterable[JobState | str], labels: Mapping[str, str] | None
) -> jobs_pb2.JobFilter:
    """Which jobs are meant. Raises InvalidArgument."""
    if isinstance(states, str):
        states = [states]
    try:
        wanted = [JobState(state) for state in states]
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidArgument(f"states are some of {known}, not {list(states)!r}", facts={"field": "states"}) from None
    return jobs_pb2.JobFilter(
        tables=[table] if table else [],
        states=[jobs_pb2.Job.State.Value(f"STATE_{state}") for state in wanted],
        labels=check_labels(labels),
    )
