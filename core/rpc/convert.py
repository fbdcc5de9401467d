"""Protobuf messages ↔ domain values, for every message of a plan or of a function that services exchange.

`*_to_proto` never fails. `*_from_proto` raises InvalidArgument: UNKNOWN_VALUE for an enum value that this
release does not know, BAD_SCHEMA for bytes that are no Arrow schema. Written out field by field: a plan has
100,000 tasks.
"""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa

from core.domain.plan import (
    BackfillSpec,
    CheckpointRef,
    FollowedFile,
    FragmentTask,
    OutputField,
    PlanHeader,
    Reason,
    ReasonCount,
    StagedFile,
)
from core.domain.ranges import RowRange
from core.domain.table import TableField
from core.domain.udf import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    Resources,
    UdfDefinition,
    UdfKind,
)
from core.errors import InvalidArgument
from core.udf import blobs
from leman.v1 import catalog_pb2, planner_pb2, udf_pb2

#: Tasks in one message of a plan's stream: far below 4 MiB, the most that a client takes unasked.
TASKS_PER_MESSAGE = 2000

Number = TypeVar("Number", bound=int)
Value = TypeVar("Value")

_KIND_TO = {
    UdfKind.SCALAR: udf_pb2.UdfDefinition.KIND_SCALAR,
    UdfKind.ARRAY: udf_pb2.UdfDefinition.KIND_ARRAY,
    UdfKind.RECORD_BATCH: udf_pb2.UdfDefinition.KIND_RECORD_BATCH,
    UdfKind.SQL: udf_pb2.UdfDefinition.KIND_SQL,
}
_ACTION_TO = {
    ErrorAction.FAIL: udf_pb2.ErrorRule.ACTION_FAIL,
    ErrorAction.SKIP: udf_pb2.ErrorRule.ACTION_SKIP,
    ErrorAction.RETRY: udf_pb2.ErrorRule.ACTION_RETRY,
}
_REASON_TO = {
    Reason.REUSED: planner_pb2.REASON_REUSED,
    Reason.STAGED: planner_pb2.REASON_STAGED,
    Reason.MISSING: planner_pb2.REASON_MISSING,
    Reason.UDF_CHANGED: planner_pb2.REASON_UDF_CHANGED,
    Reason.INPUT_CHANGED: planner_pb2.REASON_INPUT_CHANGED,
    Reason.PARTIAL: planner_pb2.REASON_PARTIAL,
    Reason.FOREIGN_VALUES: planner_pb2.REASON_FOREIGN_VALUES,
    Reason.REUSED_FILTER: planner_pb2.REASON_REUSED_FILTER,
    Reason.REUSED_COMPACTED: planner_pb2.REASON_REUSED_COMPACTED,
    Reason.HISTORY_LOST: planner_pb2.REASON_HISTORY_LOST,
}
_KIND_FROM = {number: kind for kind, number in _KIND_TO.items()}
_ACTION_FROM = {number: action for action, number in _ACTION_TO.items()}
_REASON_FROM = {number: reason for reason, number in _REASON_TO.items()}


# ---------------------------------------------------------------------------------- Arrow types


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """An Arrow IPC schema message."""
    return bytes(schema.serialize())


def schema_from_bytes(raw: bytes, field: str) -> pa.Schema:
    """The schema of an IPC schema message; `field` names the request's field in the error."""
    try:
        return pa.ipc.read_schema(pa.BufferReader(raw))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InvalidArgument(
            "BAD_SCHEMA", f"{field} is not an Arrow IPC schema message: {error}", field=field
        ) from None


def field_from_bytes(raw: bytes, field: str) -> pa.Field:
    """The one field of an IPC schema message."""
    schema = schema_from_bytes(raw, field)
    if len(schema) != 1:
        raise InvalidArgument("BAD_SCHEMA", f"{field} must hold exactly one field, it holds {len(schema)}", field=field)
    return schema.field(0)


# ------------------------------------------------------------------------------------ functions


def udf_to_proto(udf: UdfDefinition) -> udf_pb2.UdfDefinition:
    message = udf_pb2.UdfDefinition(
        name=udf.name,
        version=udf.version,
        kind=_KIND_TO[udf.kind],
        input_columns=udf.input_columns,
        input_schema=_input_schema(udf),
        output_schema=schema_to_bytes(pa.schema([_output_field(udf)])),
        stateful=udf.stateful,
        checkpoint=bounds_to_proto(udf.checkpoint),
        error_policy=error_policy_to_proto(udf.error_policy),
        batch_size=udf.batch_size,
        timeout_seconds=udf.timeout_seconds,
        resources=resources_to_proto(udf.resources),
    )
    if udf.bundle_sha256:
        message.python_bundle.sha256 = udf.bundle_sha256
        message.python_bundle.python_version = udf.bundle_python
        message.python_bundle.size_bytes = udf.bundle_size
    elif udf.entrypoint:
        message.entrypoint = udf.entrypoint
    elif udf.sql_expression:
        message.sql_expression = udf.sql_expression
    return message


def udf_from_proto(message: udf_pb2.UdfDefinition) -> UdfDefinition:
    policy = message.error_policy if message.HasField("error_policy") else None
    output = field_from_bytes(message.output_schema, "output_schema")
    return UdfDefinition(
        name=message.name,
        version=message.version,
        kind=_known(_KIND_FROM, message.kind, "kind"),
        input_columns=tuple(message.input_columns),
        output_type=output.type,
        input_types=_input_types(message.input_schema),
        bundle_sha256=message.python_bundle.sha256,
        bundle_python=message.python_bundle.python_version,
        bundle_size=message.python_bundle.size_bytes,
        entrypoint=message.entrypoint,
        stateful=message.stateful,
        checkpoint=bounds_from_proto(message.checkpoint),
        error_policy=ErrorPolicy() if policy is None else error_policy_from_proto(policy),
        batch_size=message.batch_size,
        sql_expression=message.sql_expression,
        timeout_seconds=message.timeout_seconds,
        blob=blobs.is_blob(output),
        resources=resources_from_proto(message.resources),
    )


def resources_to_proto(resources: Resources) -> udf_pb2.Resources | None:
    """None where nothing was asked, so that the message is absent."""
    if resources == Resources():
        return None
    return udf_pb2.Resources(
        num_cpus=resources.num_cpus, num_gpus=resources.num_gpus, memory_bytes=resources.memory_bytes
    )


def resources_from_proto(message: udf_pb2.Resources) -> Resources:
    return Resources(message.num_cpus, message.num_gpus, message.memory_bytes)


def bounds_to_proto(bounds: CheckpointBounds) -> udf_pb2.CheckpointBounds:
    return udf_pb2.CheckpointBounds(
        checkpoint_size=bounds.checkpoint_size,
        min_checkpoint_size=bounds.min_checkpoint_size,
        max_checkpoint_size=bounds.max_checkpoint_size,
    )


def bounds_from_proto(message: udf_pb2.CheckpointBounds) -> CheckpointBounds:
    return CheckpointBounds(message.checkpoint_size, message.min_checkpoint_size, message.max_checkpoint_size)


def error_policy_to_proto(policy: ErrorPolicy) -> udf_pb2.ErrorPolicy:
    rules = [
        udf_pb2.ErrorRule(
            action=_ACTION_TO[rule.action],
            exception_types=rule.exception_types,
            message_pattern=rule.message_pattern,
            max_attempts=rule.max_attempts,
            initial_backoff_seconds=rule.initial_backoff_seconds,
            max_backoff_seconds=rule.max_backoff_seconds,
        )
        for rule in policy.rules
    ]
    return udf_pb2.ErrorPolicy(
        rules=rules,
        max_errors=policy.max_errors,
        max_error_fraction=policy.max_error_fraction,
        store_errors=policy.store_errors,
    )


def error_policy_from_proto(message: udf_pb2.ErrorPolicy) -> ErrorPolicy:
    """Zero attempts and a zero longest pause, which a caller gets by leaving them out, mean the defaults."""
    default = ErrorRule(ErrorAction.RETRY)
    rules = tuple(
        ErrorRule(
            action=_known(_ACTION_FROM, rule.action, "error_policy.rules.action"),
            exception_types=tuple(rule.exception_types),
            message_pattern=rule.message_pattern,
            max_attempts=rule.max_attempts or default.max_attempts,
            initial_backoff_seconds=rule.initial_backoff_seconds,
            max_backoff_seconds=rule.max_backoff_seconds or default.max_backoff_seconds,
        )
        for rule in message.rules
    )
    return ErrorPolicy(rules, message.max_errors, message.max_error_fraction, message.store_errors)


def _output_field(udf: UdfDefinition) -> pa.Field:
    return pa.field("output", udf.output_type, metadata={blobs.BLOB_KEY: b"true"} if udf.blob else None)


def _input_schema(udf: UdfDefinition) -> bytes:
    if not udf.input_types:
        return b""
    types = [pa.null() if declared is None else declared for declared in udf.input_types]
    pairs = zip(udf.input_columns, types, strict=True)
    return schema_to_bytes(pa.schema([pa.field(name, type_) for name, type_ in pairs]))


def _input_types(raw: bytes) -> tuple[pa.DataType | None, ...]:
    if not raw:
        return ()
    schema = schema_from_bytes(raw, "input_schema")
    return tuple(None if pa.types.is_null(field.type) else field.type for field in schema)


# ---------------------------------------------------------------------------------------- plans


def spec_to_proto(spec: BackfillSpec) -> planner_pb2.BackfillSpec:
    return planner_pb2.BackfillSpec(
        table=catalog_pb2.TableRef(database=spec.database, table=spec.table),
        column=spec.column,
        udf_name=spec.udf_name,
        udf_version=spec.udf_version,
        where=spec.where,
        read_version=spec.read_version,
        concurrency=spec.concurrency,
        checkpoint=bounds_to_proto(spec.checkpoint),
        task_size=spec.task_size,
        commit_granularity=spec.commit_granularity,
        num_frags=spec.num_frags,
        intra_applier_concurrency=spec.intra_applier_concurrency,
        task_shuffle_diversity=spec.task_shuffle_diversity,
    )


def spec_from_proto(message: planner_pb2.BackfillSpec) -> BackfillSpec:
    return BackfillSpec(
        database=message.table.database,
        table=message.table.table,
        column=message.column,
        udf_name=message.udf_name,
        udf_version=message.udf_version,
        where=message.where,
        read_version=message.read_version,
        concurrency=message.concurrency,
        checkpoint=bounds_from_proto(message.checkpoint),
        task_size=message.task_size,
        commit_granularity=message.commit_granularity,
        num_frags=message.num_frags,
        intra_applier_concurrency=message.intra_applier_concurrency,
        task_shuffle_diversity=message.task_shuffle_diversity,
    )


def output_to_proto(output: OutputField) -> planner_pb2.OutputField:
    return planner_pb2.OutputField(
        name=output.name,
        field_ids=output.field.field_ids,
        schema=schema_to_bytes(pa.schema([output.field.arrow])),
        column_id=output.column_id,
    )


def output_from_proto(message: planner_pb2.OutputField) -> OutputField:
    arrow = field_from_bytes(message.schema, "output.schema").with_name(message.name)
    return OutputField(TableField(arrow, tuple(message.field_ids)), message.column_id)


def header_to_proto(header: PlanHeader) -> planner_pb2.PlanHeader:
    return planner_pb2.PlanHeader(
        uri=header.uri,
        read_version=header.read_version,
        incarnation=header.incarnation,
        output=output_to_proto(header.output),
        input_columns=header.input_columns,
        udf=udf_to_proto(header.udf),
        bundle_uri=header.bundle_uri,
        reasons=[reason_count_to_proto(count) for count in header.reasons],
        rows_total=header.rows_total,
        rows_reused=header.rows_reused,
        rows_to_compute=header.rows_to_compute,
        rows_failed_before=header.rows_failed_before,
        where=header.where,
        input_field_ids=header.input_field_ids,
    )


def header_from_proto(message: planner_pb2.PlanHeader) -> PlanHeader:
    return PlanHeader(
        uri=message.uri,
        read_version=message.read_version,
        incarnation=message.incarnation,
        output=output_from_proto(message.output),
        input_columns=tuple(message.input_columns),
        udf=udf_from_proto(message.udf),
        bundle_uri=message.bundle_uri,
        where=message.where,
        reasons=tuple(reason_count_from_proto(count) for count in message.reasons),
        rows_total=message.rows_total,
        rows_reused=message.rows_reused,
        rows_to_compute=message.rows_to_compute,
        rows_failed_before=message.rows_failed_before,
        input_field_ids=tuple(message.input_field_ids),
    )


def reason_count_to_proto(count: ReasonCount) -> planner_pb2.ReasonCount:
    return planner_pb2.ReasonCount(reason=_REASON_TO[count.reason], fragments=count.fragments, rows=count.rows)


def reason_count_from_proto(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(_known(_REASON_FROM, message.reason, "reason"), message.fragments, message.rows)


def add_task(batch: planner_pb2.FragmentTaskBatch, task: FragmentTask) -> planner_pb2.FragmentTask:
    """The task as the batch's last message; made in its place, which takes half the time of making and adding it."""
    message = batch.tasks.add(
        fragment_id=task.fragment_id,
        physical_rows=task.physical_rows,
        deleted_rows=task.deleted_rows,
        reason=_REASON_TO[task.reason],
        fingerprint=task.fingerprint,
        checkpoint_prefix=task.checkpoint_prefix,
        input_files=task.input_files,
        current_file=task.current_file,
        extend_current=task.extend_current,
        row_states=task.row_states,
    )
    for start, end in task.missing:
        message.missing.add(start=start, end=end)
    for ref in task.checkpoints:
        added = message.checkpoints.add(key=ref.key, settles=ref.settles)
        added.range.start, added.range.end = ref.range
    if task.staged is not None:
        message.staged.CopyFrom(staged_to_proto(task.staged))
    return message


def task_to_proto(task: FragmentTask) -> planner_pb2.FragmentTask:
    return add_task(planner_pb2.FragmentTaskBatch(), task)


def task_from_proto(message: planner_pb2.FragmentTask) -> FragmentTask:
    return FragmentTask(
        fragment_id=message.fragment_id,
        physical_rows=message.physical_rows,
        deleted_rows=message.deleted_rows,
        reason=_known(_REASON_FROM, message.reason, "reason"),
        fingerprint=message.fingerprint,
        checkpoint_prefix=message.checkpoint_prefix,
        input_files=tuple(message.input_files),
        current_file=message.current_file,
        extend_current=message.extend_current,
        missing=tuple([RowRange(r.start, r.end) for r in message.missing]),
        checkpoints=tuple([checkpoint_ref_from_proto(ref) for ref in message.checkpoints]),
        staged=staged_from_proto(message.staged) if message.HasField("staged") else None,
        row_states=message.row_states,
    )


def followed_to_proto(followed: FollowedFile) -> planner_pb2.FollowedFile:
    return planner_pb2.FollowedFile(
        fragment_id=followed.fragment_id,
        file=followed.file,
        physical_rows=followed.physical_rows,
        fingerprint=followed.fingerprint,
        input_files=followed.input_files,
        row_states=followed.row_states,
        rows_computed=followed.rows_computed,
        rows_failed=followed.rows_failed,
    )


def followed_from_proto(message: planner_pb2.FollowedFile) -> FollowedFile:
    return FollowedFile(
        fragment_id=message.fragment_id,
        file=message.file,
        physical_rows=message.physical_rows,
        fingerprint=message.fingerprint,
        input_files=tuple(message.input_files),
        row_states=message.row_states,
        rows_computed=message.rows_computed,
        rows_failed=message.rows_failed,
    )


def task_batches(tasks: Iterable[FragmentTask]) -> Iterator[planner_pb2.FragmentTaskBatch]:
    """The tasks of a plan as messages of at most TASKS_PER_MESSAGE."""
    rest = iter(tasks)
    while chunk := list(itertools.islice(rest, TASKS_PER_MESSAGE)):
        yield planner_pb2.FragmentTaskBatch(tasks=[task_to_proto(task) for task in chunk])


def checkpoint_ref_to_proto(ref: CheckpointRef) -> planner_pb2.CheckpointRef:
    return planner_pb2.CheckpointRef(key=ref.key, range=range_to_proto(ref.range), settles=ref.settles)


def checkpoint_ref_from_proto(message: planner_pb2.CheckpointRef) -> CheckpointRef:
    return CheckpointRef(message.key, range_from_proto(message.range), message.settles)


def range_to_proto(row_range: RowRange) -> planner_pb2.RowRange:
    return planner_pb2.RowRange(start=row_range.start, end=row_range.end)


def range_from_proto(message: planner_pb2.RowRange) -> RowRange:
    return RowRange(message.start, message.end)


def staged_to_proto(staged: StagedFile) -> planner_pb2.StagedFile:
    return planner_pb2.StagedFile(
        file=staged.file,
        size_bytes=staged.size_bytes,
        digest=staged.digest,
        physical_rows=staged.physical_rows,
        rows_computed=staged.rows_computed,
        rows_failed=staged.rows_failed,
    )


def staged_from_proto(message: planner_pb2.StagedFile) -> StagedFile:
    return StagedFile(
        file=message.file,
        size_bytes=message.size_bytes,
        digest=message.digest,
        physical_rows=message.physical_rows,
        rows_computed=message.rows_computed,
        rows_failed=message.rows_failed,
    )


def _known(table: Mapping[Number, Value], number: Number, field: str) -> Value:
    value = table.get(number)
    if value is None:
        known = ", ".join(str(n) for n in sorted(table))
        raise InvalidArgument("UNKNOWN_VALUE", f"{field} is {number}; known are {known}", field=field)
    return value
