"""Jobs, their events and failed rows → protobuf. See `core.rpc.convert` for what that promises."""
# ruff: noqa: D103 -- as there

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from core.domain.job import Job, JobEvent, Progress, Stall, StoredRowError
from core.domain.plan import BackfillSpec
from core.errors import LemanError
from core.rpc import convert, convert_views
from core.rpc.status import to_status
from leman.v1 import jobs_pb2


def job_to_proto(job: Job, error: LemanError | None) -> jobs_pb2.Job:
    """`error`: why it failed, as it was raised."""
    message = jobs_pb2.Job(
        job_id=job.job_id,
        state=jobs_pb2.Job.State.Value(f"STATE_{job.state.value}"),
        progress=_progress(job.progress),
        created_at=_timestamp(job.created_at),
        updated_at=_timestamp(job.updated_at),
        udf_name=job.udf_name,
        udf_version=job.udf_version,
        reasons=[convert.reason_count_to_proto(c) for c in job.reasons],
        plan_summary=job.plan_summary,
        table_version=job.table_version,
        attempt=job.attempt,
        queue_position=job.queue_position,
        stalls=[_stall(s) for s in job.stalls],
        retry_of=job.retry_of,
        failed_in=job.failed_in,
        stale_indices=[convert.index_to_proto(index) for index in job.stale_indices],
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


def _stall(stall: Stall) -> jobs_pb2.Stall:
    return jobs_pb2.Stall(
        worker=stall.worker,
        fragment_id=stall.fragment_id,
        rows=convert.range_to_proto(stall.rows),
        idle_seconds=stall.idle_seconds,
        silent=stall.silent,
        message=stall.message,
    )


def _progress(progress: Progress) -> jobs_pb2.Progress:
    return jobs_pb2.Progress(**{name: getattr(progress, name) for name in Progress.__dataclass_fields__})


def event_to_proto(event: JobEvent) -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(
        sequence=event.sequence, time=_timestamp(event.time), kind=event.kind, message=event.message
    )


def row_error_to_proto(error: StoredRowError, *, place_only: bool = False) -> jobs_pb2.RowError:
    if place_only:
        return jobs_pb2.RowError(
            job_id=error.job_id, column=error.column, row_address=error.row_address, row_id=error.row_id
        )
    return jobs_pb2.RowError(**{name: getattr(error, name) for name in StoredRowError.__dataclass_fields__})


def _timestamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(int(seconds * 1e6))
    return stamp
