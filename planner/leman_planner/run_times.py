"""How long computing a column will take about, from what a backfill took. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from leman_core.model.job import Job

_UNITS = (("second", 1.0, 90.0), ("minute", 60.0, 90.0 * 60), ("hour", 3600.0, 36.0 * 3600))
_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RunTime:
    """What a backfill took for each row, in seconds of wall time."""

    per_row: float

    def of(self, rows: int) -> float:
        """Return how long so many rows take."""
        return self.per_row * rows


def run_time(job: Job) -> RunTime | None:
    """Return what a job took; None: it has not ended, or called no function.

    What its workers did counts, shared among as many as were at work at once. The rest, such as starting Spark, is the
    same few seconds for any number of rows where it is needed, and is left out.
    """
    progress = job.progress
    wall = job.ended_at - job.started_at
    work = progress.udf_seconds + progress.read_seconds + progress.checkpoint_seconds + progress.write_seconds
    if not job.state.terminal or not job.started_at or not progress.rows_evaluated or wall <= 0 or work <= 0:
        return None
    at_once = max(1.0, work / wall)
    return RunTime(work / at_once / progress.rows_evaluated)


def in_words(seconds: float) -> str:
    """Say a time as an estimate: `about 12 minutes`."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return _counted(seconds / length, unit)
    return _counted(seconds / _DAY, "day")


def _counted(number: float, unit: str) -> str:
    whole = max(1, round(number))
    return f"about {whole:,} {unit}" + ("s" if whole != 1 else "")
