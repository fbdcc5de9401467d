"""From messages and statuses to what callers see, and back.

From gRPC errors and google.rpc.Status to the errors of `leman.errors`.

From protobuf messages to what callers see, and back.

From messages about views to what callers see, and back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from leman import errors
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

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


MAX_MESSAGE = 4000
#: What gRPC says of TLS that cannot come about, and what that means.
_TLS_FAILURES = {
    "WRONG_VERSION_NUMBER": "what answers there speaks no TLS: leave tls_ca out, or give the address of one that does",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by those in tls_ca, or not for this host: check both",
}

#: What gRPC or a proxy says of a connection that ends during a call.
_LOST = (
    *("socket closed", "connection reset", "broken pipe", "stream removed", "recvmsg", "rst_stream"),
    "connection termination",  # in Envoy's words
)


def from_rpc(error: grpc.RpcError, *, service: str, address: str) -> errors.LemanError:
    """The Leman error for a failed call of `service` at `address`. Raise it `from None`: the rest is noise.

    `error` is what a call of a stub raised (it carries code, details and trailers).
    """
    status = status_of(error)
    if status is not None and _details(status)[0].reason:
        return from_status(status)
    code = code_of(error)
    details = (error.details() or "").strip()[:MAX_MESSAGE]
    where = f"the {service.replace('_', ' ')} at {address}"
    away = f"cannot reach {where}" + (f": {why}" if (why := tls_failure(error)) else "")
    if lost_connection(error):
        away = f"{where} went away while it worked on the call: look at its log before you send the call again"
    messages = {
        "UNAVAILABLE": away,
        "DEADLINE_EXCEEDED": f"no answer from {where} in time",
        "UNIMPLEMENTED": f"{where} does not know this call; client and services are of different releases",
        "UNAUTHENTICATED": f"{where} refused the token" + (f": {details}" if details else ""),
        "CANCELLED": f"the call to {where} was cancelled",
    }
    return errors.make(code.name, "", messages.get(code.name) or f"{where} answered {code.name}: {details}")


def from_status(status: status_pb2.Status) -> errors.LemanError:
    """The Leman error for a google.rpc.Status, be it of a call or of a failed job."""
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
    """The code of a failed call; UNAVAILABLE also where it was cut on its way."""
    code: grpc.StatusCode = error.code()
    return grpc.StatusCode.UNAVAILABLE if _was_cut(error) else code


def _was_cut(error: grpc.RpcError) -> bool:
    """Whether a call ended on its way, though neither the service nor this program ended it: a proxy lost the service
    amid an answer, which gRPC tells in words of its own, or the channel was closed to open another one. The services
    give every INTERNAL and CANCELLED a reason."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        ended = "Locally cancelled" not in details
    else:
        ended = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and "RST_STREAM" in details
    status = status_of(error) if ended else None
    return ended and not (status is not None and _details(status)[0].reason)


def lost_connection(error: Exception) -> bool:
    """Return whether a connection was lost while a call ran on it. A call that found no connection was not made."""
    if not isinstance(error, grpc.RpcError) or code_of(error) is not grpc.StatusCode.UNAVAILABLE:
        return False
    details = (error.details() or "").lower()
    return "failed to connect" not in details and any(sign in details for sign in _LOST)


def retry_after(error: grpc.RpcError) -> float:
    """Seconds that the service asks to wait before the call is tried again; 0: it says nothing."""
    status = status_of(error)
    return 0.0 if status is None else seconds(_details(status)[2].retry_delay)


def tls_failure(error: grpc.RpcError) -> str:
    """Why there is no TLS with what answers at the address, which another try would not fix; empty: that is not it."""
    details = error.details() or ""
    return next((meaning for word, meaning in _TLS_FAILURES.items() if word in details), "")


def is_of_function_server(error: grpc.RpcError) -> bool:
    """Whether the services answered, and a server of a remote function did not: that is for the caller to start."""
    status = status_of(error)
    return status is not None and _details(status)[0].reason == "FUNCTION_UNAVAILABLE"


def status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    """The google.rpc.Status that came with a failed call, if one did."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(cast("grpc.Call", error))
        return status
    except ValueError:  # trailers that contradict the status line: not ours
        return None


def _details(
    status: status_pb2.Status,
) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo]:
    """What stands in a status beside its code and message; empty messages where it does not."""
    found = (error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo())
    for detail in status.details:
        for message in found:
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    return found


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
        bottleneck=enum_word(jobs_pb2.Progress.Bottleneck, message.bottleneck, "BOTTLENECK_"),
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
        fragment_id=or_none(message, "fragment_id"),
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
    return enum_word(planner_pb2.RefreshMode, value, "REFRESH_MODE_")


def refresh_reason(value: int) -> str:
    """Why it works so, as callers see it."""
    return enum_word(planner_pb2.RefreshReason, value, "REFRESH_REASON_")


def event(message: jobs_pb2.JobEvent) -> JobEvent:
    """Something that happened in a job."""
    kind = enum_word(jobs_pb2.JobEvent.Kind, message.kind, "KIND_")
    return JobEvent(message.sequence, time(message.event_time), kind, message.message)


def row_error(message: jobs_pb2.RowError) -> RowError:
    """A failed row."""
    values = {f.name: getattr(message, f.name) for f in dataclasses.fields(RowError)}
    return RowError(**{**values, "row_id": or_none(message, "row_id")})


def row_error_group(message: jobs_pb2.RowErrorGroup) -> RowErrorGroup:
    """Failed rows with one cause."""
    examples = tuple(row_error(example) for example in message.examples)
    return RowErrorGroup(message.error_type, message.error_message, message.rows, examples)


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
    error = from_status(message.error)
    return JobError(error.reason, error.message, error.facts, error.code)


_POLICIES = ("auto", "incremental", "full")


def view_info(table: TableInfo, message: catalog_pb2.MaterializedView) -> ViewInfo:
    """A view, of which `table` is its table."""
    return ViewInfo(
        name=message.name,
        uri=message.uri,
        version=message.version,
        row_count=message.rows_set,
        fragment_count=table.fragment_count,
        schema=schema(message.schema),
        computed_columns=(),
        stable_row_ids=table.stable_row_ids,
        query=view_query(message.query),
        source_version=message.source_version,
        rows_unset=message.row_count - message.rows_set,
        row_reference=enum_word(catalog_pb2.RowReference, message.row_reference, "ROW_REFERENCE_"),
        stale_columns=tuple(message.stale_columns),
    )


def view_summary(message: catalog_pb2.MaterializedViewSummary) -> ViewSummary:
    """A view in a list."""
    rows_set = or_none(message, "rows_set")
    return ViewSummary(
        name=message.name,
        uri=message.uri,
        version=message.version,
        source_database=message.source.database,
        source_table=message.source.table,
        source_version=message.source_version,
        row_reference=enum_word(catalog_pb2.RowReference, message.row_reference, "ROW_REFERENCE_"),
        row_count=rows_set,
        rows_unset=None if rows_set is None else message.row_count - rows_set,
        stale_columns=tuple(message.stale_columns),
    )


def view_query(message: catalog_pb2.ViewQuery) -> ViewQuery:
    """What a view holds."""
    return ViewQuery(
        source_database=message.source.database,
        source_table=message.source.table,
        columns=tuple(ViewColumn(c.name, c.expression or c.name) for c in message.columns),
        functions=tuple(_function(function) for function in message.functions),
        where=message.where,
        shuffle_seed=or_none(message, "shuffle_seed"),
        limit=or_none(message, "limit"),
        offset=message.offset,
    )


def _function(message: catalog_pb2.ViewFunction) -> ViewFunction:
    return ViewFunction(message.name, message.udf.name, message.udf.version, tuple(message.input_columns))


def refresh_plan(name: str, message: planner_pb2.ExplainRefreshResponse) -> RefreshPlan:
    """What a refresh would do."""
    kinds = planner_pb2.SourceChangeKind
    return RefreshPlan(
        view=name,
        mode=refresh_mode(message.mode),
        reason=refresh_reason(message.reason),
        message=message.message,
        version=message.version,
        source_version=message.source_version,
        target_version=message.target_version,
        rows=message.rows,
        fragments_unset=message.fragments_unset,
        changes={enum_word(kinds, change.kind, "SOURCE_CHANGE_KIND_"): change.fragments for change in message.changes},
        stale=tuple(message.stale),
        stale_inputs=stale_inputs(message.stale_inputs),
    )


def refresh_spec(
    view: catalog_pb2.TableRef,
    src_version: int | None,
    max_rows_per_fragment: int | None,
    policy: RefreshPolicy,
    concurrency: int | None,
    on_stale_input: OnStaleInput | None = None,
) -> planner_pb2.RefreshSpec:
    """What is asked of a refresh. Raises InvalidArgument."""
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
    """A number on the wire; None leaves it out. Raises InvalidArgument."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << bits:
        raise InvalidArgument(f"{name} is a whole number, {least} or more, not {value!r}", facts={"field": name})
    return value
