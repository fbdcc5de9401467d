"""The ports of a job: what it needs of its surroundings, as small protocols. `executor.app` fills them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from core.domain.job import Job
from core.domain.plan import FragmentTask, Plan
from core.domain.work import RowFailure


class JobStore(Protocol):
    """The history of jobs, and the rows on which they failed."""

    async def save(self, job: Job) -> Job:
        """Write a state of a job down, and return the one that counts (see `JobHistory.save`).

        Where that is another executor's attempt, what runs here for the job is ended.
        """
        ...

    async def save_error(self, job: Job, row: RowFailure) -> None:
        """Store the row that ended a backfill."""
        ...

    def failed_in(self, job: Job) -> tuple[str, ...]:
        """Name a few earlier jobs in which rows of the same column and function version failed, newest first."""
        ...


class CheckpointMaintenance(Protocol):
    """The maintenance by which plans find stored work."""

    async def migrate(self, plan: Plan, stop: threading.Event) -> int:
        """Store anew what the plan says is stored elsewhere, until `stop` is set; return the number of checkpoints."""
        ...

    async def save_traced(self, plan: Plan) -> None:
        """Record what the plan found out about files that compaction wrote."""
        ...

    async def forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        """Delete the records of a column file of a fragment, so that no plan finds it."""
        ...


class ReservationKeeping(Protocol):
    """Reservations that outlive the workers which made them. Scopes are `fragment id:fingerprint`."""

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        """Renew a holder's reservations of the scopes."""
        ...

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        """Give a holder's reservations of the scopes back."""
        ...
