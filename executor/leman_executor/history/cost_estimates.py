"""Cost estimates: what a row of a function version cost in earlier jobs. A plan's first units are cut by it."""

from __future__ import annotations

from leman_core.model.job import Job
from leman_executor.history.job_record import JobRecord


class CostEstimates:
    """The cost estimates that one executor has, in seconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}

    def of(self, job: Job) -> float | None:
        """Return what a row of the job will cost; None where that is not known."""
        return self._known.get((job.udf_name, job.udf_version))

    def learn(self, job: Job | JobRecord, seconds_per_row: float | None) -> None:
        """Learn from a job that ended here, or that history has; None: it called no function."""
        if seconds_per_row is not None:
            self._known[job.udf_name, job.udf_version] = seconds_per_row
