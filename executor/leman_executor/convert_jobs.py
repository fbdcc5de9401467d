"""Jobs, their events and failed rows → protobuf. See `leman_core.wire.convert` for what that promises."""
# ruff: noqa: D103 -- as there

from __future__ import annotations

from leman.v1 import jobs_pb2
from leman_core.model.errors import InvalidArgument, LemanError
from leman_core.model.job import Job, JobEvent, JobState, Progress, Stall, StoredRowError
from leman_core.model.plan import BackfillSpec
from leman_core.server.status import to_status
from leman_core.wire import convert, convert_views
from leman_core.wire.convert_arrow import known
from leman_core.wire.convert_values import (
    duration_to_proto,
    given,
    microseconds_from_proto,
    ref_to_proto,
    timestamp_to_proto,
    unless_negative,
)
from leman_executor.history.job_filter import JobFilter
from leman_executor.jobs.job_news import JobNews

_HIGHEST_PRIORITY = 100
_STATE_FROM = {jobs_pb2.Job.State.Value(f"STATE_{state.value}"): state for state in JobState}
#: Durations of a job's progress → their names here.
_DURATIONS = tuple(
    (f"{name}_duration", f"{name}_seconds")
    for name in ("udf", "read", "checkpoint", "write", "commit", "load", "elapsed")
)
_NOT_COUNTS = {name for _, name in _DURATIONS} | {"eta_seconds", "bottleneck", "rows_partly_committed"}
_COUNTS = sorted(Progress.__dataclass_fields__.keys() - _NOT_COUNTS)


def job_to_proto(job: Job, error: LemanError | None) -> jobs_pb2.Job:
    """`error`: why it failed, as it was raised."""
    message = jobs_pb2.Job(
        job_id=job.job_id,
        state=jobs_pb2.Job.State.Value(f"STATE_{job.state.value}"),
        progress=_progress(job),
        create_time=timestamp_to_proto(job.created_at),
        update_time=timestamp_to_proto(job.updated_at),
        udf=ref_to_proto(job.udf_name, job.udf_version),
        reasons=[convert.reason_count_to_proto(c) for c in job.reasons],
        plan_summary=job.plan_summary,
        table_version=given(job.table_version),
        attempt=job.attempt,
        queue_position=given(job.queue_position),
        expected_start_time=timestamp_to_proto(job.expected_start_at) if job.expected_start_at else None,
        stalls=[_stall(s) for s in job.stalls],
        retry_of=job.retry_of,
        failed_in=job.failed_in,
        stale_indices=[convert.index_to_proto(index) for index in job.stale_indices],
        labels=job.labels,
        env_names=job.env_names,
        priority=job.priority,
        initiator=job.initiator,
        traceparent=job.traceparent,
        start_time=timestamp_to_proto(job.started_at) if job.started_at else None,
        end_time=timestamp_to_proto(job.ended_at) if job.ended_at else None,
    )
    if isinstance(job.request, BackfillSpec):
        message.backfill.CopyFrom(convert.spec_to_proto(job.request))
    else:
        message.refresh.CopyFrom(convert_views.refresh_spec_to_proto(job.request))
    if job.refresh_result is not None:
        message.refresh_result.CopyFrom(convert_views.refresh_result_to_proto(job.refresh_result))
    if error is not None:
        message.error.CopyFrom(to_status(error))
    return message


def filter_from_proto(message: jobs_pb2.JobFilter) -> JobFilter:
    """Return the filter.

    Raises:
        InvalidArgument: UNKNOWN_VALUE – a state that this release does not know; BAD_TIME – a time that is none.
    """
    return JobFilter(
        states=frozenset(known(_STATE_FROM, state, "filter.states") for state in message.states),
        tables=frozenset(message.tables),
        column=message.column,
        labels=dict(message.labels),
        initiator=message.initiator,
        accepted_from=microseconds_from_proto(message, "create_time_from"),
        accepted_before=microseconds_from_proto(message, "create_time_before"),
    )


def priority_from_proto(priority: int) -> int:
    """Return the priority of a job.

    Raises:
        InvalidArgument: BAD_NUMBER – below −100 or above 100.
    """
    if abs(priority) > _HIGHEST_PRIORITY:
        message = f"priority is {priority}: give a number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}"
        raise InvalidArgument("BAD_NUMBER", message, field="priority")
    return priority


def _stall(stall: Stall) -> jobs_pb2.Stall:
    return jobs_pb2.Stall(
        worker=stall.worker,
        fragment_id=unless_negative(stall.fragment_id),
        rows=convert.range_to_proto(stall.rows),
        idle_duration=duration_to_proto(stall.idle_seconds),
        silent=stall.silent,
        message=stall.message,
    )


def _progress(job: Job) -> jobs_pb2.Progress:
    progress = job.progress
    message = jobs_pb2.Progress(**{name: getattr(progress, name) for name in _COUNTS})
    for field, name in _DURATIONS:
        getattr(message, field).CopyFrom(duration_to_proto(getattr(progress, name)))
    if progress.eta_seconds and job.state is JobState.RUNNING:
        message.remaining_duration.CopyFrom(duration_to_proto(progress.eta_seconds))
    if progress.bottleneck:
        message.bottleneck = jobs_pb2.Progress.Bottleneck.Value(f"BOTTLENECK_{progress.bottleneck.upper()}")
    return message


def event_to_proto(event: JobEvent) -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(
        sequence=event.sequence,
        event_time=timestamp_to_proto(event.time),
        kind=jobs_pb2.JobEvent.Kind.Value(f"KIND_{event.kind.upper()}"),
        message=event.message,
    )


def news_to_proto(news: JobNews) -> jobs_pb2.WatchJobResponse:
    """Without the job, of which there is one message for all watchers."""
    return jobs_pb2.WatchJobResponse(
        sequence=news.sequence, events=map(event_to_proto, news.events), events_missing=news.events_missing
    )


def row_error_to_proto(error: StoredRowError, *, place_only: bool = False) -> jobs_pb2.RowError:
    row_id = unless_negative(error.row_id)
    if place_only:
        return jobs_pb2.RowError(job_id=error.job_id, column=error.column, row_address=error.row_address, row_id=row_id)
    values = {name: getattr(error, name) for name in StoredRowError.__dataclass_fields__}
    return jobs_pb2.RowError(**{**values, "row_id": row_id})
