"""A backfill that is part of another job: that job is the one in the history, and the one that watchers know."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from leman_core.model.job import Job
from leman_core.model.work import RowFailure
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.ports import JobStore

#: Events of a part that are told as events of the whole job.
TOLD = frozenset({"error", "resources", "stall", "wait"})


class PartOfJob:
    """The job store of a backfill that is part of another job."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    async def save(self, job: Job) -> Job:
        """Return the job without storing it."""
        return job

    async def save_error(self, job: Job, row: RowFailure) -> None:
        """Store a failed row, as for any backfill."""
        await self._jobs.save_error(job, row)

    def failed_in(self, _job: Job) -> tuple[str, ...]:
        """Return nothing: what failed before the whole job is told of that."""
        return ()

    def lost_commit(self, _job: Job, _version: int) -> None:
        """Return None: the whole job looks for it."""


class PartStatus(JobStatus):
    """The status of a part; what its watchers would have to know is said of the whole job.

    Args:
        told: kinds of events that are told as the whole job's.
        name: stands before their messages; empty: nothing does.
    """

    def __init__(self, job: Job, whole: JobStatus, told: AbstractSet[str] = TOLD, name: str = "") -> None:
        super().__init__(job)
        self._whole = whole
        self.span = whole.span
        self._told = told
        self._name = name

    @property
    def lost(self) -> bool:
        """Tell whether the whole job is lost: both are one job."""
        return self._whole.lost

    def lose(self) -> None:
        """Mark the whole job as lost."""
        self._whole.lose()

    @property
    def env(self) -> Mapping[str, str]:
        """Return the environment of the whole job."""
        return self._whole.env

    def update(self, **changes: Any) -> None:
        """Change the status; stalls are passed on to the whole job, which waits for the same."""
        super().update(**changes)
        if "stalls" in changes:
            self._whole.update(stalls=changes["stalls"])

    def note(self, kind: str, message: str) -> None:
        """Note an event, as one of the whole job where its watchers have to know of it."""
        if kind in self._told:
            self._whole.note(kind, f"{self._name}: {message}" if self._name else message)
        else:
            super().note(kind, message)
