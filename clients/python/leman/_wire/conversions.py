"""Convert messages and statuses to the SDK's values and errors, and back."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from leman import errors
from leman._arrow import pa
from leman._columns import OnStaleInput, on_stale_input_to_wire
from leman._job_model import Job, JobError, JobEvent, JobState, Progress, RefreshResult, Stall, trace_of
from leman._message_text import translate
from leman._signature import is_blob
from leman._table_model import (
    Commit,
    ComputedColumn,
    FragmentDecision,
    IndexCoverage,
    KeptRows,
    Plan,
    ReasonCount,
    RefreshPlan,
    RefreshPolicy,
    RowError,
    RowErrorGroup,
    RowStates,
    StaleInput,
    TableInfo,
    UdfInfo,
    ViewColumn,
    ViewFunction,
    ViewInfo,
    ViewQuery,
    ViewSummary,
)
from leman._wire.wire_values import enum_word, or_none, seconds, time
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2, planner_pb2, udf_pb2

MAX_MESSAGE = 4000
#: Messages of gRPC if TLS fails, and what they mean.
_TLS_FAILURES = {
    "WRONG_VERSION_NUMBER": "the server there does not use TLS: leave tls_ca out, or give the address of one that does",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by those in tls_ca, or not for this host: check both",
}

#: Messages of gRPC or a proxy if a connection ends during a call.
_LOST = (
    *("socket closed", "connection reset", "broken pipe", "stream removed", "recvmsg", "rst_stream"),
    "connection termination",  # from Envoy
)


def from_rpc(error: grpc.RpcError, *, service: str, address: str) -> errors.LemanError:
    """Return the Leman error for a failed call of `service` at `address`. Raise it `from None` to hide gRPC's error.

    `error` is the exception of a stub's call, with code, details and trailers.
    """
    status = status_of(error)
    if status is not None and _details(status)[0].reason:
        return from_status(status)
    code = code_of(error)
    details = (error.details() or "").strip()[:MAX_MESSAGE]
    where = f"the {service.replace('_', ' ')} at {address}"
    away = f"cannot reach {where}" + (f": {why}" if (why := tls_failure(error)) else "")
    if lost_connection(error):
        away = f"{where} ended during the call: check its log before you repeat the call"
    messages = {
        "UNAVAILABLE": away,
        "DEADLINE_EXCEEDED": f"no answer from {where} in time",
        "UNIMPLEMENTED": f"{where} does not know this call: use the same release of client and services",
        "UNAUTHENTICATED": f"{where} refused the token" + (f": {details}" if details else ""),
        "CANCELLED": f"the call to {where} was cancelled",
    }
    return errors.make(code.name, "", messages.get(code.name) or f"{where} answered {code.name}: {details}")


def from_status(status: status_pb2.Status) -> errors.LemanError:
    """Return the Leman error for the google.rpc.Status of a call or of a failed job."""
    info, request, retry = _details(status)
    fields = [errors.FieldViolation(item.field, translate(item.description)) for item in request.field_violations]
    return errors.make(
        code_pb2.Code.Name(status.code),
        info.reason,
        translate(status.message[:MAX_MESSAGE]),
        dict(info.metadata),
        fields=fields,
        retry_after=seconds(retry.retry_delay) if retry.HasField("retry_delay") else None,
    )


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """Return the code of a failed call. If the call's connection broke, the code is UNAVAILABLE."""
    code: grpc.StatusCode = error.code()
    return grpc.StatusCode.UNAVAILABLE if _was_cut(error) else code


def _was_cut(error: grpc.RpcError) -> bool:
    """Return whether the connection of a call broke, so that neither the service nor this program ended the call.

    Either a proxy lost the service in the middle of an answer, which gRPC reports in its own words, or the channel was
    closed to open another one. An INTERNAL or CANCELLED from the services always has a reason.
    """
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        ended = "Locally cancelled" not in details
    else:
        ended = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and "RST_STREAM" in details
    status = status_of(error) if ended else None
    return ended and not (status is not None and _details(status)[0].reason)


def lost_connection(error: Exception) -> bool:
    """Return whether a connection was lost during a call. If no connection could be opened, return False."""
    if not isinstance(error, grpc.RpcError) or code_of(error) is not grpc.StatusCode.UNAVAILABLE:
        return False
    details = (error.details() or "").lower()
    return "failed to connect" not in details and any(sign in details for sign in _LOST)


def retry_after(error: grpc.RpcError) -> float:
    """Return the seconds that the service asks to wait before a retry, or 0."""
    status = status_of(error)
    return 0.0 if status is None else seconds(_details(status)[2].retry_delay)


def tls_failure(error: grpc.RpcError) -> str:
    """Return why TLS with the peer fails permanently, or "" if TLS is not the cause."""
    details = error.details() or ""
    return next((meaning for word, meaning in _TLS_FAILURES.items() if word in details), "")


def is_of_function_server(error: grpc.RpcError) -> bool:
    """Return whether the services answered but a function server, which the caller has to start, did not."""
    status = status_of(error)
    return status is not None and _details(status)[0].reason == "FUNCTION_UNAVAILABLE"


def status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    """Return the google.rpc.Status of a failed call, or None if there is none."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(cast("grpc.Call", error))
        return status
    except ValueError:  # the trailers contradict the status line, so they are not from the services
        return None


def _details(
    status: status_pb2.Status,
) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo]:
    """Return the three kinds of details of a status, with an empty message for each kind that it lacks."""
    found = (error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo())
    for detail in status.details:
        for message in found:
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    return found


_DURATIONS = ("udf", "read", "checkpoint", "write", "commit", "load", "elapsed")
_PLAIN = (str, bytes, int, float)
_Seen = TypeVar("_Seen")


@functools.cache
def _shared_fields(kind: Any, descriptor: Any) -> tuple[str, ...]:
    """Return the plain fields that a dataclass and a message have in common."""
    names = {field.name for field in dataclasses.fields(kind)}
    return tuple(f.name for f in descriptor.fields if f.name in names and f.message_type is f.enum_type is None)


def seen(kind: type[_Seen], message: Any, /, **others: Any) -> _Seen:
    """Convert a message to a dataclass. Fields with equal names are copied; `others` are added."""
    values = {
        name: getattr(message, name)
        for name in _shared_fields(cast("Any", kind), message.DESCRIPTOR)
        if name not in others
    }
    return kind(**{name: v if isinstance(v, _PLAIN) else tuple(v) for name, v in values.items()}, **others)


def _time_of(message: Any, field: str) -> datetime.datetime | None:
    return time(getattr(message, field)) if message.HasField(field) else None


def seconds_of(message: Any, field: str) -> float | None:
    """Return an optional duration in seconds, or None if it is not set."""
    return seconds(getattr(message, field)) if message.HasField(field) else None


def job(message: jobs_pb2.Job) -> Job:
    backfill = message.backfill
    table = message.refresh.view if message.HasField("refresh") else backfill.table
    return seen(
        Job,
        message,
        state=_state(message),
        database=table.database,
        table=table.table,
        column=backfill.column,
        where=backfill.where,
        columns=tuple(backfill.columns),
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        progress=_progress(message.progress),
        reasons=tuple(map(_reason_count, message.reasons)),
        error=_job_error(message) if message.HasField("error") else None,
        create_time=time(message.create_time),
        update_time=time(message.update_time),
        refresh_result=refresh_result(message) if message.HasField("refresh_result") else None,
        stalls=tuple(map(_stall, message.stalls)),
        stale_indices=tuple(map(index_coverage, message.stale_indices)),
        labels=dict(message.labels),
        trace_id=trace_of(message.traceparent),
        start_time=_time_of(message, "start_time"),
        end_time=_time_of(message, "end_time"),
        expected_start_time=_time_of(message, "expected_start_time"),
    )


def _progress(message: jobs_pb2.Progress) -> Progress:
    return seen(
        Progress,
        message,
        **{f"{name}_seconds": seconds(getattr(message, f"{name}_duration")) for name in _DURATIONS},
        eta_seconds=seconds(message.remaining_duration),
        bottleneck=enum_word(jobs_pb2.Progress.Bottleneck, message.bottleneck, "BOTTLENECK_"),
    )


def _state(message: jobs_pb2.Job) -> JobState:
    return JobState(jobs_pb2.Job.State.Name(message.state).removeprefix("STATE_"))


def commit(message: commit_pb2.Commit) -> Commit:
    return seen(Commit, message)


def index_coverage(message: planner_pb2.IndexCoverage) -> IndexCoverage:
    return seen(IndexCoverage, message)


def _stall(message: jobs_pb2.Stall) -> Stall:
    return seen(
        Stall,
        message,
        fragment_id=or_none(message, "fragment_id"),
        rows=(message.rows.start, message.rows.end),
        idle_seconds=seconds(message.idle_duration),
    )


def refresh_result(job: jobs_pb2.Job) -> RefreshResult:
    """Convert the result of a refresh, together with the job's counts of failed rows."""
    message = job.refresh_result
    return seen(
        RefreshResult,
        message,
        mode=_refresh_mode(message.mode),
        reason=_refresh_reason(message.reason),
        rows_failed=job.progress.rows_failed,
        rows_failed_before=job.progress.rows_failed_before,
        input_rows_evaluated=job.progress.input_rows_evaluated,
        job_id=job.job_id,
        failed_in=tuple(job.failed_in),
        state=_state(job),
    )


def _refresh_mode(value: int) -> str:
    return enum_word(planner_pb2.RefreshMode, value, "REFRESH_MODE_")


def _refresh_reason(value: int) -> str:
    return enum_word(planner_pb2.RefreshReason, value, "REFRESH_REASON_")


def event(message: jobs_pb2.JobEvent) -> JobEvent:
    kind = enum_word(jobs_pb2.JobEvent.Kind, message.kind, "KIND_")
    return JobEvent(message.sequence, time(message.event_time), kind, message.message)


def row_error(message: jobs_pb2.RowError) -> RowError:
    return seen(RowError, message, row_id=or_none(message, "row_id"))


def row_error_group(message: jobs_pb2.RowErrorGroup) -> RowErrorGroup:
    return seen(RowErrorGroup, message, examples=tuple(map(row_error, message.examples)))


def udf_info(message: udf_pb2.UdfDefinition) -> UdfInfo:
    output = schema(message.output_schema).field(0)
    bounds, resources = message.checkpoint, message.resources
    options = {
        "batch_size": message.batch_size,
        "checkpoint_size": bounds.checkpoint_size,
        "min_checkpoint_size": bounds.min_checkpoint_size,
        "max_checkpoint_size": bounds.max_checkpoint_size,
        "timeout": seconds(message.call_timeout),
        "num_cpus": resources.num_cpus,
        "num_gpus": resources.num_gpus,
        "memory": resources.memory_bytes,
        "blob": is_blob(output),
    }
    return seen(
        UdfInfo,
        message,
        kind=enum_word(udf_pb2.UdfDefinition.Kind, message.kind, "KIND_"),
        data_type=output.type,
        options={name: value for name, value in options.items() if value},
        addresses=tuple(message.remote_function.addresses),
    )


def table_info(name: str, message: catalog_pb2.DescribeTableResponse) -> TableInfo:
    computed = (
        ComputedColumn(
            c.name, c.udf.name, c.udf.version, tuple(c.input_columns), tuple(f"{k.name}@{k.version}" for k in c.kept)
        )
        for c in message.computed_columns
    )
    return seen(TableInfo, message, name=name, schema=schema(message.schema), computed_columns=tuple(computed))


def plan(table: str, message: planner_pb2.ExplainPlanResponse) -> Plan:
    return seen(
        Plan,
        message,
        table=table,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        reasons=tuple(map(_reason_count, message.reasons)),
        fragments=tuple(map(_decision, message.decisions)),
        kept=_kept(message.kept),
        expected_seconds=seconds_of(message, "expected_duration"),
        stale_inputs=_stale_inputs(message.stale_inputs),
    )


def _stale_inputs(messages: Iterable[planner_pb2.StaleInput]) -> tuple[StaleInput, ...]:
    return tuple(StaleInput(message.column, message.rows) for message in messages)


def row_states(message: planner_pb2.GetRowStatesResponse) -> RowStates:
    return seen(
        RowStates,
        message,
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
    return pa.ipc.read_schema(pa.py_buffer(data))


def _reason_count(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(_reason(message.reason), message.fragments, message.rows)


def _decision(message: planner_pb2.FragmentDecision) -> FragmentDecision:
    return seen(
        FragmentDecision,
        message,
        reason=_reason(message.reason),
        rows=message.physical_rows - message.deleted_rows,
        missing=tuple((r.start, r.end) for r in message.missing),
    )


def _reason(value: Any) -> str:
    return planner_pb2.Reason.Name(value).removeprefix("REASON_")


def _job_error(message: jobs_pb2.Job) -> JobError:
    error = from_status(message.error)
    return JobError(error.reason, error.message, error.facts, error.code)


_POLICIES = ("auto", "incremental", "full")


def view_info(table: TableInfo, message: catalog_pb2.MaterializedView) -> ViewInfo:
    """Convert a view that is stored as `table`."""
    return seen(
        ViewInfo,
        message,
        row_count=message.rows_set,
        fragment_count=table.fragment_count,
        schema=schema(message.schema),
        computed_columns=(),
        stable_row_ids=table.stable_row_ids,
        query=_view_query(message.query),
        rows_unset=message.row_count - message.rows_set,
        row_reference=_row_reference(message.row_reference),
    )


def view_summary(message: catalog_pb2.MaterializedViewSummary) -> ViewSummary:
    rows_set = or_none(message, "rows_set")
    return seen(
        ViewSummary,
        message,
        source_database=message.source.database,
        source_table=message.source.table,
        row_reference=_row_reference(message.row_reference),
        row_count=rows_set,
        rows_unset=None if rows_set is None else message.row_count - rows_set,
    )


def _row_reference(value: int) -> str:
    return enum_word(catalog_pb2.RowReference, value, "ROW_REFERENCE_")


def _view_query(message: catalog_pb2.ViewQuery) -> ViewQuery:
    return seen(
        ViewQuery,
        message,
        source_database=message.source.database,
        source_table=message.source.table,
        columns=tuple(ViewColumn(c.name, c.expression or c.name) for c in message.columns),
        functions=tuple(
            ViewFunction(f.name, f.udf.name, f.udf.version, tuple(f.input_columns)) for f in message.functions
        ),
        shuffle_seed=or_none(message, "shuffle_seed"),
        limit=or_none(message, "limit"),
    )


def refresh_plan(name: str, message: planner_pb2.ExplainRefreshResponse) -> RefreshPlan:
    kinds = planner_pb2.SourceChangeKind
    return seen(
        RefreshPlan,
        message,
        view=name,
        mode=_refresh_mode(message.mode),
        reason=_refresh_reason(message.reason),
        changes={enum_word(kinds, change.kind, "SOURCE_CHANGE_KIND_"): change.fragments for change in message.changes},
        calls={function.column: function.most_rows for function in message.functions},
        stale_inputs=_stale_inputs(message.stale_inputs),
    )


def refresh_spec(
    view: catalog_pb2.TableRef,
    src_version: int | None,
    max_rows_per_fragment: int | None,
    policy: RefreshPolicy,
    concurrency: int | None,
    on_stale_input: OnStaleInput | None = None,
) -> planner_pb2.RefreshSpec:
    """Return the message for a refresh. Raises InvalidArgument."""
    if policy not in _POLICIES:
        raise InvalidArgument(f"policy is one of {', '.join(_POLICIES)}, not {policy!r}", facts={"field": "policy"})
    return planner_pb2.RefreshSpec(
        view=view,
        src_version=count("src_version", src_version),
        max_rows_per_fragment=count("max_rows_per_fragment", max_rows_per_fragment),
        policy=planner_pb2.RefreshSpec.Policy.Value(f"POLICY_{policy.upper()}"),
        concurrency=count("concurrency", concurrency, bits=31),
        on_stale_input=on_stale_input_to_wire(on_stale_input),
    )


def count(name: str, value: object, *, least: int = 1, bits: int = 63) -> int | None:
    """Check a whole number for the wire. None leaves the field out. Raises InvalidArgument."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << bits:
        raise InvalidArgument(f"{name} is a whole number, {least} or more, not {value!r}", facts={"field": name})
    return value
