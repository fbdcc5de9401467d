"""Metrics and trace spans of the jobs of one executor. Their cost does not depend on how many rows a job has.

A job's span lasts from its acceptance, or takeover, until its end here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.telemetry import instruments, tracing
from leman_core.telemetry.instruments import Attributes
from leman_core.telemetry.tracing import TRACEPARENT, Parent, Span, SpanAttributes
from leman_executor.jobs.job_status import JobStatus

_LOOK_SECONDS = 1.0
#: The metric label under which rows are counted → the field of the progress with their number.
_ROWS = {
    "evaluated": "rows_evaluated",
    "computed": "rows_computed",
    "failed": "rows_failed",
    "committed": "rows_committed",
}
_PHASES = ("udf", "read", "checkpoint", "write", "load", "commit")
_KINDS = ("backfill", "refresh")


class MeasuredRun(Protocol):
    """A run of a job."""

    @property
    def status(self) -> JobStatus: ...


class MeasuredJobs:
    """Turn the counts of jobs into metrics: add each increase since the last report.

    A count of a job may fall, for example when a worker dies before storing rows; metrics never fall. All counters
    exist from the start, at 0, because a rate over a new counter would miss its first event.
    """

    def __init__(self) -> None:
        self._told: dict[str, dict[str, float]] = {}
        for kind in _KINDS:
            for name in _counts(Progress()):
                _add(name, 0, kind)
            for state in JobState:
                if state.terminal:
                    instruments.JOB_ENDS.add(0, {instruments.JOB_KIND: kind, instruments.JOB_STATE: state.value})

    def begin(self, job: Job) -> None:
        """Begin to measure a job from its current counts, because earlier executors have reported these."""
        if instruments.JOB_ROWS.is_bound:
            self._told[job.key] = _counts(job.progress if job.attempt > 1 else Progress())

    def look(self, job: Job, progress: Progress) -> None:
        """Add the increase of a job's counts since the last call."""
        told = self._told.get(job.key)
        if told is None:
            return
        kind = job_kind(job)
        for name, count in _counts(progress).items():
            more = count - told[name]
            if more > 0:
                told[name] = count
                _add(name, more, kind)

    def end(self, job: Job) -> None:
        """Report, only once, that a job has ended here."""
        if job.key not in self._told:
            return
        self.look(job, job.progress)
        self.forget(job.key)
        took = max(0.0, (job.ended_at or job.updated_at) - (job.started_at or job.created_at))
        instruments.JOB_DURATION.record(took, _state(job))
        instruments.JOB_ENDS.add(1, _state(job))

    def forget(self, key: str) -> None:
        """Forget a job that another executor has taken over."""
        self._told.pop(key, None)

    async def follow(self, runs: Mapping[str, MeasuredRun], at_work: Collection[str]) -> None:
        """Update the metrics of all jobs in `at_work` once a second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for key in list(at_work):
                run = runs.get(key)
                if run is not None and not run.status.job.state.terminal:
                    self.look(run.status.job, run.status.metrics.progress())


def show_job_gauges(
    runs: Mapping[str, MeasuredRun], lease_age: Callable[[], float], waiting: Callable[[], int]
) -> None:
    """Bind the gauges of jobs to these runs. The gauges are read in another thread.

    Args:
        runs: All runs, including ended ones.
        lease_age: Returns the longest time, in seconds, since the lease of a job was renewed.
        waiting: Returns the number of jobs in the queue.
    """

    def running() -> list[JobStatus]:
        statuses = (run.status for run in list(runs.values()))
        return [status for status in statuses if not (status.job.state.terminal or status.lost)]

    def jobs() -> list[tuple[float, Attributes]]:
        states = [(job_kind(status.job), status.job.state) for status in running()]
        every = [(kind, state) for kind in _KINDS for state in JobState if not state.terminal]
        return [
            (float(states.count(one)), {instruments.JOB_KIND: one[0], instruments.JOB_STATE: one[1].value})
            for one in every
        ]

    instruments.JOBS.show(jobs)
    instruments.JOB_QUEUE.show(lambda: [(float(waiting()), {})])
    instruments.STALLS.show(lambda: [(float(sum(len(status.job.stalls) for status in running())), {})])
    instruments.LEASE_AGE.show(lambda: [(lease_age(), {})])
    instruments.ERROR_BUDGET.show(lambda: [(max((s.metrics.budget_used for s in running()), default=0.0), {})])


def job_kind(job: Job) -> str:
    """Return the kind of a job as a metric label."""
    return "backfill" if isinstance(job.request, BackfillSpec) else "refresh"


def _counts(progress: Progress) -> dict[str, float]:
    counts: dict[str, float] = {name: getattr(progress, field) for name, field in _ROWS.items()}
    counts |= {phase: getattr(progress, f"{phase}_seconds") for phase in _PHASES}
    return counts | {"fragments": progress.fragments_committed}


def _add(name: str, more: float, kind: str) -> None:
    if name in _ROWS:
        instruments.JOB_ROWS.add(more, {instruments.JOB_KIND: kind, instruments.ROWS: name})
    elif name in _PHASES:
        instruments.WORK_TIME.add(more, {instruments.JOB_KIND: kind, instruments.PHASE: name})
    else:
        instruments.JOB_FRAGMENTS.add(more, {instruments.JOB_KIND: kind})


def _state(job: Job) -> Attributes:
    return {instruments.JOB_KIND: job_kind(job), instruments.JOB_STATE: job.state.value}


def start_job_span(job: Job) -> tuple[Job, Span | None]:
    """Return the job with its trace context, and its span, or None if tracing is off.

    The span belongs to the trace of the call that created the job, even if another executor received that call.
    """
    if not tracing.is_tracing():
        return job, None
    asked = tracing.current_span()
    parent = Parent({TRACEPARENT: job.traceparent}) if job.traceparent else asked
    request = job.request
    attributes: SpanAttributes = {
        "leman.job.id": job.job_id,
        "leman.attempt": job.attempt,
        "leman.database": request.database,
        "leman.table": request.table,
        "leman.column": job.column or "",
    }
    span = tracing.start_span(job_kind(job), parent, attributes)
    if span is None or job.traceparent:
        return job, span
    return replace(job, traceparent=(asked and asked.traceparent) or span.traceparent), span


def end_job_span(span: Span, job: Job) -> None:
    """End the span of an ended job."""
    span.note({"leman.job.state": job.state.value, "leman.rows": job.progress.rows_evaluated})
    failed = job.state is JobState.FAILED
    span.end((job.error.reason if job.error is not None else job.state.value) if failed else "")


@contextlib.contextmanager
def end_span_if_refused(span: Span | None) -> Iterator[None]:
    """End the job's span if the block raises because the job is refused."""
    if span is None:
        yield
        return
    token = tracing.enter(span)
    try:
        yield
    except BaseException as error:
        span.end(tracing.failure_of(error))
        raise
    finally:
        tracing.leave(token)
