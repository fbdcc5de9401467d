"""Convert jobs, events, failed rows and previews to protobuf messages, and requests back.

See `leman_core.wire.convert_values` for the guarantees and errors.
"""

from __future__ import annotations

import pyarrow as pa

from leman._format.stored_logs import MOST_EXAMPLES, ErrorGroup
from leman.v1 import jobs_pb2
from leman_core.model.job import Job, JobEvent, JobState, Progress, Stall
from leman_core.model.plan import BackfillSpec
from leman_core.model.row_positions import RowAddress
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.model.work import RowError
from leman_core.server.request_messages import without_secrets
from leman_core.server.status import to_status
from leman_core.wire import convert_plans, convert_views
from leman_core.wire.convert_types import schema_to_json
from leman_core.wire.convert_values import (
    MOST_WORKERS,
    duration_to_proto,
    enum_value,
    env_from_proto,
    microseconds_from_proto,
    number_from_proto,
    or_none,
    ref_to_proto,
    schema_to_bytes,
    seconds_from_proto,
    timestamp_to_proto,
    unless_negative,
)
from leman_executor.history.job_index import JobFilter
from leman_executor.jobs.function_previews import PreviewRequest, PreviewResult, TriedRow
from leman_executor.jobs.job_status import JobUpdate
from leman_executor.worker.preview_messages import (
    COMPUTED,
    FAILED,
    FAILS,
    MOST_BYTES,
    from_arrow_stream,
    to_arrow_stream,
)

# ruff: noqa: D103 -- as in `convert_values`


_HIGHEST_PRIORITY = 100
_STATE_FROM = {jobs_pb2.Job.State.Value(f"STATE_{state.value}"): state for state in JobState}
#: The durations in a job's progress → their names in the message.
_DURATIONS = tuple(
    (f"{name}_duration", f"{name}_seconds")
    for name in ("udf", "read", "checkpoint", "write", "commit", "load", "elapsed")
)
_NOT_COUNTS = {name for _, name in _DURATIONS} | {"eta_seconds", "bottleneck", "rows_partly_committed"}
_COUNTS = sorted(Progress.__dataclass_fields__.keys() - _NOT_COUNTS)


def job_to_proto(job: Job, error: LemanError | None) -> jobs_pb2.Job:
    """Convert a job. `error` is the error with which the job failed, as it was raised, or None."""
    message = jobs_pb2.Job(
        job_id=job.job_id,
        state=jobs_pb2.Job.State.Value(f"STATE_{job.state.value}"),
        progress=_progress(job),
        create_time=timestamp_to_proto(job.created_at),
        update_time=timestamp_to_proto(job.updated_at),
        udf=ref_to_proto(job.udf_name, job.udf_version),
        reasons=[convert_plans.reason_count_to_proto(c) for c in job.reasons],
        plan_summary=job.plan_summary,
        table_version=or_none(job.table_version),
        attempt=job.attempt,
        queue_position=or_none(job.queue_position),
        expected_start_time=timestamp_to_proto(job.expected_start_at) if job.expected_start_at else None,
        stalls=[_stall(s) for s in job.stalls],
        retry_of=job.retry_of,
        failed_in=job.failed_in,
        stale_indices=[convert_plans.index_to_proto(index) for index in job.stale_indices],
        labels=job.labels,
        env_names=job.env_names,
        priority=job.priority,
        initiator=job.initiator,
        traceparent=job.traceparent,
        start_time=timestamp_to_proto(job.started_at) if job.started_at else None,
        end_time=timestamp_to_proto(job.ended_at) if job.ended_at else None,
    )
    if isinstance(job.request, BackfillSpec):
        message.backfill.CopyFrom(convert_plans.spec_to_proto(job.request))
    else:
        message.refresh.CopyFrom(convert_views.refresh_spec_to_proto(job.request))
    if job.refresh_result is not None:
        message.refresh_result.CopyFrom(convert_views.refresh_result_to_proto(job.refresh_result))
    if error is not None:
        message.error.CopyFrom(to_status(error))
    return message


def filter_from_proto(message: jobs_pb2.JobFilter) -> JobFilter:
    """Convert a filter.

    Raises:
        InvalidArgument: UNKNOWN_VALUE – a state that this release does not know; BAD_TIME – a time that is not valid.
    """
    return JobFilter(
        states=frozenset(enum_value(_STATE_FROM, state, "filter.states") for state in message.states),
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
        InvalidArgument: BAD_NUMBER – the priority is below −100 or above 100.
    """
    if abs(priority) > _HIGHEST_PRIORITY:
        message = f"priority is {priority}: set a number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}"
        raise InvalidArgument("BAD_NUMBER", message, field="priority")
    return priority


def _stall(stall: Stall) -> jobs_pb2.Stall:
    return jobs_pb2.Stall(
        worker=stall.worker,
        fragment_id=unless_negative(stall.fragment_id),
        rows=convert_plans.range_to_proto(stall.rows),
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


def update_to_proto(news: JobUpdate) -> jobs_pb2.WatchJobResponse:
    """Convert an update except for the job. All watchers share the job's message."""
    return jobs_pb2.WatchJobResponse(
        sequence=news.sequence, events=map(event_to_proto, news.events), events_missing=news.events_missing
    )


def row_error_to_proto(error: RowError, *, place_only: bool = False) -> jobs_pb2.RowError:
    row_id = unless_negative(error.row_id)
    if place_only:
        return jobs_pb2.RowError(job_id=error.job_id, column=error.column, row_address=error.row_address, row_id=row_id)
    values = {name: getattr(error, name) for name in RowError.__dataclass_fields__}
    return jobs_pb2.RowError(**{**values, "row_id": row_id})


def examples_from_proto(message: jobs_pb2.GroupJobErrorsRequest) -> int:
    """Return the requested number of examples of each group.

    Raises:
        InvalidArgument: BAD_NUMBER.
    """
    examples = message.examples if message.HasField("examples") else 1
    if not 0 <= examples <= MOST_EXAMPLES:
        raise InvalidArgument(
            "BAD_NUMBER", f"examples is {examples}; 0 to {MOST_EXAMPLES} are allowed", field="examples"
        )
    return examples


def error_group_to_proto(group: ErrorGroup[RowError]) -> jobs_pb2.RowErrorGroup:
    return jobs_pb2.RowErrorGroup(
        error_type=group.error_type,
        error_message=group.message,
        rows=group.rows,
        examples=map(row_error_to_proto, group.examples),
    )


DEFAULT_ROWS = 5
MOST_ROWS = 100
DEFAULT_SECONDS = 30.0
MOST_SECONDS = 600.0
_STATES = {
    COMPUTED: jobs_pb2.PreviewRow.STATE_COMPUTED,
    FAILED: jobs_pb2.PreviewRow.STATE_FAILED,
    FAILS: jobs_pb2.PreviewRow.STATE_FAILS,
}


def preview_from_proto(message: jobs_pb2.PreviewFunctionRequest) -> PreviewRequest:
    """Convert those fields of a preview request that the executor uses. The planner reads all other fields.

    Raises:
        InvalidArgument: BAD_NUMBER, BAD_REQUEST, BAD_ENV.
    """
    rows = int(number_from_proto(message, "rows", default=DEFAULT_ROWS))
    if rows > MOST_ROWS:
        raise InvalidArgument("BAD_NUMBER", f"rows is {rows}; 1 to {MOST_ROWS} are allowed", field="rows")
    seconds = seconds_from_proto(message, "timeout", default=DEFAULT_SECONDS)
    if not 0 < seconds <= MOST_SECONDS:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"timeout is {seconds:g} s: set a time above 0 and up to {MOST_SECONDS:g} s, or leave it out",
            field="timeout",
        )
    if message.bundle and not message.definition.python_bundle.sha256:
        raise InvalidArgument(
            "BAD_REQUEST", "a bundle needs a definition with its digest: send the definition too", field="bundle"
        )
    return PreviewRequest(
        message=without_secrets(message, keys=False),
        database=message.table.database,
        table=message.table.table,
        column=message.column,
        rows=rows,
        seconds=seconds,
        concurrency=int(number_from_proto(message, "concurrency", most=MOST_WORKERS)),
        bundle=message.bundle,
        entrypoint=message.definition.entrypoint,
        addresses=tuple(message.definition.remote_function.addresses),
        env=env_from_proto(message.env),
    )


def preview_to_proto(result: PreviewResult) -> jobs_pb2.PreviewFunctionResponse:
    """Convert the result of a preview."""
    header, record = result.header, result.record
    schema = pa.schema([result.output.field(0).with_name(header.udf.name)]).remove_metadata()
    values, left_out = _values(result)
    return jobs_pb2.PreviewFunctionResponse(
        udf=ref_to_proto(header.udf.name, header.udf.version),
        input_columns=header.input_columns,
        read_version=header.read_version,
        where=header.where,
        rows=[_row(row) for row in record.rows()],
        values=values,
        columns_left_out=left_out,
        output_schema=schema_to_bytes(schema),
        json_output_schema=schema_to_json(schema),
        set_up_duration=None if record.set_up_seconds is None else duration_to_proto(record.set_up_seconds),
        printed=record.printed,
        printed_size_bytes=record.printed_bytes,
        timed_out=record.timed_out,
        fails=record.fails,
        projection=_projection(result),
    )


def _row(row: TriedRow) -> jobs_pb2.PreviewRow:
    place, attempted = row.place, row.attempted
    state = jobs_pb2.PreviewRow.STATE_UNFINISHED if attempted is None else _STATES[attempted.state]
    message = jobs_pb2.PreviewRow(
        state=state,
        row_address=RowAddress(place.fragment_id, place.offset).to_int(),
        row_id=unless_negative(place.row_id),
        inputs=place.inputs,
        output="" if attempted is None else attempted.output,
        elapsed=None if row.seconds is None else duration_to_proto(row.seconds),
    )
    failure = None if attempted is None else attempted.failure
    if failure is not None:
        message.error.error_type = failure.error_type
        message.error.message = failure.error_message
        message.error.traceback = failure.traceback
        message.error.attempts = failure.attempt
    return message


def _values(result: PreviewResult) -> tuple[bytes, list[str]]:
    """Return inputs and outputs as one Arrow stream, and the names of the columns that do not fit."""
    record, name = result.record, result.header.udf.name
    if record.found is None or not record.found.rows:
        return b"", []
    inputs, left_out = from_arrow_stream(record.found.values), list(record.found.left_out)
    columns, names = list(inputs.columns), list(inputs.schema.names)
    outputs = record.outputs(result.output.field(0).type)
    if record.too_large() or outputs.nbytes > MOST_BYTES:
        left_out.append(name)
    else:
        columns.append(outputs)
        names.append(name)
    if not columns:
        return b"", left_out
    return to_arrow_stream(pa.RecordBatch.from_arrays(columns, names=names)), left_out


def _projection(result: PreviewResult) -> jobs_pb2.PreviewProjection:
    rows, cost = result.header.rows_to_compute, result.record.seconds_per_row()
    at_once = max(1, min(result.workers, rows))
    expected = None if cost is None else rows * cost / at_once
    return jobs_pb2.PreviewProjection(
        rows_to_compute=rows,
        duration_per_row=None if cost is None else duration_to_proto(cost),
        workers=at_once,
        expected_duration=None if expected is None else duration_to_proto(expected),
    )
