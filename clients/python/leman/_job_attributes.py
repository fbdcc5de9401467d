"""What callers say of jobs beside what these are to do: labels, priorities, environments, and filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from leman._job_model import Job, JobState
from leman.errors import FailedPrecondition, InvalidArgument
from leman.v1 import jobs_pb2

_HIGHEST_PRIORITY = 100
_Result = TypeVar("_Result")


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


def check_env(env: Any) -> dict[str, str]:
    """Environment variables on the wire; None: none. Raises InvalidArgument, which tells no value."""
    if env is None:
        return {}
    if not isinstance(env, Mapping) or not all(isinstance(name, str) for name in env):
        raise InvalidArgument("env maps names of environment variables to values", facts={"field": "env"})
    for name, value in env.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"env[{name!r}] is a str, not a {type(value).__name__}", facts={"field": "env"})
    return dict(env)


def with_usable_env(start: Callable[[Mapping[str, str] | None], _Result], env: Mapping[str, str] | None) -> _Result:
    """What starts one of several jobs with these variables, or without them where no function of it can have any (SQL,
    remote functions): of several columns or views some may be such."""
    try:
        return start(env)
    except FailedPrecondition as error:
        if env is None or error.reason != "ENV_NOT_USABLE":
            raise
    return start(None)


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


def is_wanted(job: Job, wanted: jobs_pb2.JobFilter) -> bool:
    """Whether a job is one that `job_filter` means."""
    return (
        (not wanted.tables or job.table in wanted.tables)
        and (not wanted.states or jobs_pb2.Job.State.Value(f"STATE_{job.state}") in wanted.states)
        and all(job.labels.get(key) == value for key, value in wanted.labels.items())
    )
