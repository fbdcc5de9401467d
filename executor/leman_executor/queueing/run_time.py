"""How long jobs take: what is known of it. Pure."""

from __future__ import annotations

from leman_core.model.job import Job, JobState
from leman_executor.jobs.job_metrics import JobMetrics

#: States of jobs that are about to end, or to give their turn back.
_STOPPING = frozenset({JobState.CANCELLING, JobState.PAUSING})


def seconds_left(
    job: Job, metrics: JobMetrics, seconds_per_row: float | None, workers: float, now: float
) -> float | None:
    """Return how long a job still takes; None: not known.

    A job whose rate is measured takes what its rows left take at that rate. Any other backfill takes its planned rows
    times what a row costs one worker, shared among its workers, less the time that it has had. Of a refresh nothing is
    known before it runs.

    Args:
        job: The job.
        metrics: Its counts.
        seconds_per_row: What a row of its function cost, in this job or in earlier ones; None: not known.
        workers: Workers that it has, or will have; jobs that run at once share the task slots.
        now: Seconds since the epoch.
    """
    if job.state in _STOPPING:
        return 0.0
    waits = job.state is JobState.PENDING
    measured = 0.0 if waits else metrics.progress().eta_seconds
    if measured:
        return measured
    rows = metrics.rows_planned or job.progress.rows_planned
    if job.column is None or seconds_per_row is None or not rows:
        return None
    spent = 0.0 if waits or not job.started_at else max(0.0, now - job.started_at)
    return max(0.0, rows * seconds_per_row / workers - spent)
