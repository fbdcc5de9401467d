"""The span of a job: from the moment it is accepted, or taken over, until it ends here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from leman_core.model.job import Job, JobState
from leman_core.telemetry import tracing
from leman_core.telemetry.tracing import TRACEPARENT, Attributes, Parent, Span
from leman_executor.job_manager.measured_jobs import kind_of


def traced(job: Job) -> tuple[Job, Span | None]:
    """Return a job as it is kept from now on, and its span; None: nothing is traced.

    It is part of the trace of the call that asked for it, whichever executor has it by now.
    """
    if not tracing.is_on():
        return job, None
    asked = tracing.current()
    parent = Parent({TRACEPARENT: job.traceparent}) if job.traceparent else asked
    request = job.request
    attributes: Attributes = {
        "leman.job.id": job.job_id,
        "leman.attempt": job.attempt,
        "leman.database": request.database,
        "leman.table": request.table,
        "leman.column": job.column or "",
    }
    span = tracing.started(kind_of(job), parent, attributes)
    if span is None or job.traceparent:
        return job, span
    return replace(job, traceparent=(asked and asked.traceparent) or span.traceparent), span


def ended(span: Span, job: Job) -> None:
    """End the span of a job that has ended."""
    span.note({"leman.job.state": job.state.value, "leman.rows": job.progress.rows_evaluated})
    failed = job.state is JobState.FAILED
    span.end((job.error.reason if job.error is not None else job.state.value) if failed else "")


@contextlib.contextmanager
def until_refused(span: Span | None) -> Iterator[None]:
    """Work on a job's span inside of the block, and end it where the job is refused there."""
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
