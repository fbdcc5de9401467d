"""From protobuf messages to what callers see, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from leman import _status
from leman._job_model import Job, JobError, JobEvent, JobState, Progress, RefreshResult, Stall, trace_of
from leman._plan import FragmentDecision, Plan
from leman._table_model import (
    Commit,
    ComputedColumn,
    IndexCoverage,
    KeptRows,
    ReasonCount,
    RowError,
    RowStates,
    StaleInput,
    TableInfo,
    UdfInfo,
)
from leman._types import is_blob
from leman._wire_values import given, seconds, time, word
from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2, planner_pb2, udf_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_DURATIONS = ("udf", "read", "checkpoint", "write", "commit", "load", "elapsed")
_COUNTS = [f.name for f in dataclasses.fields(Progress) if not f.name.endswith("_seconds") and f.name != "bottleneck"]


def job(message: jobs_pb2.Job) -> Job:
    """A job."""
    backfill = message.backfill
    table = message.refresh.view if message.HasField("refresh") else backfill.table
    return Job(
        job_id=message.job_id,
        state=_state(message),
        database=table.database,
        table=table.table,
        column=backfill.column,
        where=backfill.where,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        progress=_progress(message.progress),
        reasons=tuple(_reason_count(count) for count in message.reasons),
        plan_summary=message.plan_summary,
        error=_job_error(message) if message.HasField("error") else None,
        table_version=message.table_version,
        attempt=message.attempt,
        create_time=time(message.create_time),
        update_time=time(message.update_time),
        refresh_result=refresh_result(message) if message.HasField("refresh_result") else None,
        stalls=tuple(_stall(stall) for stall in message.stalls),
        retry_of=message.retry_of,
        failed_in=tuple(message.failed_in),
        queue_position=message.queue_position,
        stale_indices=tuple(index_coverage(index) for index in message.stale_indices),
        labels=dict(message.labels),
        priority=message.priority,
        initiator=message.initiator,
        env_names=tuple(message.env_names),
        trace_id=trace_of(message.traceparent),
        columns=tuple(backfill.columns),
        start_time=time(message.start_time) if message.HasField("start_time") else None,
        end_time=time(message.end_time) if message.HasField("end_time") else None,
        expected_start_time=(time(message.expected_start_time) if message.HasField("expected_start_time") else None),
    )


def _progress(message: jobs_pb2.Progress) -> Progress:
    values: dict[str, Any] = {name: getattr(message, name) for name in _COUNTS}
    values |= {f"{name}_seconds": seconds(getattr(message, f"{name}_duration")) for name in _DURATIONS}
    return Progress(
        **values,
        eta_seconds=seconds(message.remaining_duration),
        bottleneck=word(jobs_pb2.Progress.Bottleneck, message.bottleneck, "BOTTLENECK_"),
    )


def _state(message: jobs_pb2.Job) -> JobState:
    return JobState(jobs_pb2.Job.State.Name(message.state).removeprefix("STATE_"))


def commit(message: commit_pb2.Commit) -> Commit:
    """A version that Leman made."""
    return Commit(
        version=message.version,
        operation=message.operation,
        fragments=message.fragments,
        request_ids=tuple(message.request_ids),
        job_ids=tuple(message.job_ids),
    )


def index_coverage(message: planner_pb2.IndexCoverage) -> IndexCoverage:
    """How much of a table an index covers."""
    return IndexCoverage(
        name=message.name,
        kind=message.kind,
        columns=tuple(message.columns),
        fragments=message.fragments,
        fragments_covered=message.fragments_covered,
        rows_left_out=message.rows_left_out,
    )


def _stall(message: jobs_pb2.Stall) -> Stall:
    return Stall(
        worker=message.worker,
        fragment_id=given(message, "fragment_id"),
        rows=(message.rows.start, message.rows.end),
        idle_seconds=seconds(message.idle_duration),
        silent=message.silent,
        message=message.message,
    )


def refresh_result(job: jobs_pb2.Job) -> RefreshResult:
    """What a refresh did, with what its job says of failed rows."""
    message = job.refresh_result
    numbers = {f.name for f in dataclasses.fields(RefreshResult)} & set(message.DESCRIPTOR.fields_by_name)
    return RefreshResult(
        refresh_mode(message.mode),
        refresh_reason(message.reason),
        **{name: getattr(message, name) for name in numbers - {"mode", "reason", "warnings"}},
        warnings=tuple(message.warnings),
        rows_failed=job.progress.rows_failed,
        rows_failed_before=job.progress.rows_failed_before,
        job_id=job.job_id,
        failed_in=tuple(job.failed_in),
        state=_state(job),
    )


def refresh_mode(value: int) -> str:
    """How a refresh works, as callers see it."""
    return word(planner_pb2.RefreshMode, value, "REFRESH_MODE_")


def refresh_reason(value: int) -> str:
    """Why it works so, as callers see it."""
    return word(planner_pb2.RefreshReason, value, "REFRESH_REASON_")


def event(message: jobs_pb2.JobEvent) -> JobEvent:
    """Something that happened in a job."""
    kind = word(jobs_pb2.JobEvent.Kind, message.kind, "KIND_")
    return JobEvent(message.sequence, time(message.event_time), kind, message.message)


def row_error(message: jobs_pb2.RowError) -> RowError:
    """A failed row."""
    values = {f.name: getattr(message, f.name) for f in dataclasses.fields(RowError)}
    return RowError(**{**values, "row_id": given(message, "row_id")})


def udf_info(message: udf_pb2.UdfDefinition) -> UdfInfo:
    """A registered function."""
    return UdfInfo(
        name=message.name,
        version=message.version,
        kind=udf_pb2.UdfDefinition.Kind.Name(message.kind).removeprefix("KIND_").lower(),
        input_columns=tuple(message.input_columns),
        data_type=schema(message.output_schema).field(0).type,
        stateful=message.stateful,
        sql_expression=message.sql_expression,
        options=_udf_options(message),
        addresses=tuple(message.remote_function.addresses),
        source=message.source,
    )


def _udf_options(message: udf_pb2.UdfDefinition) -> dict[str, object]:
    """Those options of `leman.udf` that were given; `error_handling` is left out."""
    bounds, resources = message.checkpoint, message.resources
    all_of_them: dict[str, object] = {
        "batch_size": message.batch_size,
        "checkpoint_size": bounds.checkpoint_size,
        "min_checkpoint_size": bounds.min_checkpoint_size,
        "max_checkpoint_size": bounds.max_checkpoint_size,
        "timeout": seconds(message.call_timeout),
        "num_cpus": resources.num_cpus,
        "num_gpus": resources.num_gpus,
        "memory": resources.memory_bytes,
        "blob": is_blob(schema(message.output_schema).field(0)),
    }
    return {name: value for name, value in all_of_them.items() if value}


def table_info(name: str, message: catalog_pb2.DescribeTableResponse) -> TableInfo:
    """A table."""
    return TableInfo(
        name=name,
        uri=message.uri,
        version=message.version,
        row_count=message.row_count,
        fragment_count=message.fragment_count,
        schema=schema(message.schema),
        computed_columns=tuple(
            ComputedColumn(
                c.name,
                c.udf.name,
                c.udf.version,
                tuple(c.input_columns),
                tuple(f"{kept.name}@{kept.version}" for kept in c.kept),
            )
            for c in message.computed_columns
        ),
        stable_row_ids=message.stable_row_ids,
    )


def plan(table: str, message: planner_pb2.ExplainPlanResponse) -> Plan:
    """A dry run's answer."""
    return Plan(
        table=table,
        column=message.column,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        input_columns=tuple(message.input_columns),
        read_version=message.read_version,
        inputs_version=message.inputs_version,
        where=message.where,
        rows_total=message.rows_total,
        rows_reused=message.rows_reused,
        rows_to_compute=message.rows_to_compute,
        rows_failed_before=message.rows_failed_before,
        reasons=tuple(_reason_count(count) for count in message.reasons),
        fragments=tuple(_decision(decision) for decision in message.decisions),
        summary=message.summary,
        kept=_kept(message.kept),
        expected_seconds=seconds(message.expected_duration) if message.HasField("expected_duration") else None,
        stale_inputs=stale_inputs(message.stale_inputs),
    )


def stale_inputs(messages: Iterable[planner_pb2.StaleInput]) -> tuple[StaleInput, ...]:
    """Computed columns that are not current."""
    return tuple(StaleInput(message.column, message.rows) for message in messages)


def row_states(message: planner_pb2.GetRowStatesResponse) -> RowStates:
    """Counts of rows by state."""
    return RowStates(
        version=message.version,
        computed=message.rows_computed,
        null=message.rows_null,
        failed=message.rows_failed,
        not_computed=message.rows_not_computed,
        kept=_kept(message.kept),
        checkpointed=message.rows_checkpointed,
        ready=message.rows_ready_to_commit,
    )


def _kept(messages: Iterable[planner_pb2.KeptRows]) -> tuple[KeptRows, ...]:
    return tuple(KeptRows(kept.udf.name, kept.udf.version, kept.rows) for kept in messages)


def schema(data: bytes) -> pa.Schema:
    """The schema in an Arrow IPC schema message."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def _reason_count(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(_reason(message.reason), message.fragments, message.rows)


def _decision(message: planner_pb2.FragmentDecision) -> FragmentDecision:
    return FragmentDecision(
        fragment_id=message.fragment_id,
        reason=_reason(message.reason),
        rows=message.physical_rows - message.deleted_rows,
        missing=tuple((r.start, r.end) for r in message.missing),
        checkpoints_reused=message.checkpoints_reused,
    )


def _reason(value: Any) -> str:
    return planner_pb2.Reason.Name(value).removeprefix("REASON_")


def _job_error(message: jobs_pb2.Job) -> JobError:
    error = _status.from_status(message.error)
    return JobError(error.reason, error.message, error.facts, error.code)
