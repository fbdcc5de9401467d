"""Plans and what they are asked for, in protobuf messages ↔ domain values. See `core.rpc.convert` for what is raised.

Written out field by field: a plan has 100,000 tasks.
"""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

import pyarrow as pa

from core.domain.plan import (
    BackfillSpec,
    CheckpointRef,
    FragmentTask,
    InputSource,
    KeptRows,
    OutputField,
    PlanHeader,
    Reason,
    ReasonCount,
    StagedFile,
    TracedFile,
    ValueState,
)
from core.domain.ranges import RowRange
from core.domain.table import IndexCoverage, TableField
from core.domain.udf import FunctionVersion
from core.errors import InvalidArgument
from core.rpc.convert_arrow import field_from_bytes, known, schema_to_bytes
from core.rpc.convert_udfs import bounds_from_proto, bounds_to_proto, udf_from_proto, udf_to_proto
from leman.v1 import catalog_pb2, planner_pb2

_REASON_TO = {
    Reason.REUSED: planner_pb2.REASON_REUSED,
    Reason.STAGED: planner_pb2.REASON_STAGED,
    Reason.MISSING: planner_pb2.REASON_MISSING,
    Reason.UDF_CHANGED: planner_pb2.REASON_UDF_CHANGED,
    Reason.INPUT_CHANGED: planner_pb2.REASON_INPUT_CHANGED,
    Reason.PARTIAL: planner_pb2.REASON_PARTIAL,
    Reason.EXTERNAL_WRITE: planner_pb2.REASON_EXTERNAL_WRITE,
    Reason.REUSED_FILTER: planner_pb2.REASON_REUSED_FILTER,
    Reason.REUSED_COMPACTED: planner_pb2.REASON_REUSED_COMPACTED,
    Reason.HISTORY_LOST: planner_pb2.REASON_HISTORY_LOST,
    Reason.PAST_INPUT: planner_pb2.REASON_PAST_INPUT,
}
_STATE_FROM: dict[int, ValueState | None] = {
    planner_pb2.ROW_STATE_UNSPECIFIED: None,
    planner_pb2.ROW_STATE_COMPUTED: ValueState.COMPUTED,
    planner_pb2.ROW_STATE_NULL: ValueState.NULL,
    planner_pb2.ROW_STATE_FAILED: ValueState.FAILED,
    planner_pb2.ROW_STATE_NOT_COMPUTED: ValueState.NOT_COMPUTED,
}
_REASON_FROM = {number: reason for reason, number in _REASON_TO.items()}


def spec_to_proto(spec: BackfillSpec) -> planner_pb2.BackfillSpec:
    return planner_pb2.BackfillSpec(
        table=catalog_pb2.TableRef(database=spec.database, table=spec.table),
        column=spec.column,
        udf_name=spec.udf_name,
        udf_version=spec.udf_version,
        where=spec.where,
        read_version=spec.read_version,
        read_tag=spec.read_tag,
        concurrency=spec.concurrency,
        checkpoint=bounds_to_proto(spec.checkpoint),
        task_size=spec.task_size,
        commit_granularity=spec.commit_granularity,
        num_frags=spec.num_frags,
        intra_applier_concurrency=spec.intra_applier_concurrency,
        failed_only=spec.failed_only,
        task_shuffle_diversity=spec.task_shuffle_diversity,
        optimize_indices=spec.optimize_indices,
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
        read_tag=message.read_tag,
        concurrency=message.concurrency,
        checkpoint=bounds_from_proto(message.checkpoint),
        task_size=message.task_size,
        commit_granularity=message.commit_granularity,
        num_frags=message.num_frags,
        intra_applier_concurrency=message.intra_applier_concurrency,
        failed_only=message.failed_only,
        task_shuffle_diversity=message.task_shuffle_diversity,
        optimize_indices=message.optimize_indices,
    )


def index_to_proto(index: IndexCoverage) -> planner_pb2.IndexCoverage:
    return planner_pb2.IndexCoverage(**{name: getattr(index, name) for name in IndexCoverage.__dataclass_fields__})


def index_from_proto(message: planner_pb2.IndexCoverage) -> IndexCoverage:
    return IndexCoverage(
        message.name,
        message.kind,
        tuple(message.columns),
        message.fragments,
        message.fragments_covered,
        message.rows_left_out,
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
        kept=[kept_to_proto(kept) for kept in header.kept],
        failed_only=header.failed_only,
        rows_not_computed=header.rows_not_computed,
        versions=header.versions,
        input_source=source_to_proto(header.input_source),
        inputs_version=header.inputs_version,
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
        kept=tuple(kept_from_proto(kept) for kept in message.kept),
        failed_only=message.failed_only,
        rows_not_computed=message.rows_not_computed,
        versions=tuple(message.versions),
        input_source=source_from_proto(message.input_source) if message.HasField("input_source") else None,
        inputs_version=message.inputs_version,
    )


def source_to_proto(source: InputSource | None) -> planner_pb2.InputSource | None:
    if source is None:
        return None
    return planner_pb2.InputSource(uri=source.uri, version=source.version, columns=source.columns)


def source_from_proto(message: planner_pb2.InputSource) -> InputSource:
    return InputSource(message.uri, message.version, tuple(message.columns))


def kept_to_proto(kept: KeptRows) -> planner_pb2.KeptRows:
    return planner_pb2.KeptRows(udf_name=kept.function.name, udf_version=kept.function.version, rows=kept.rows)


def kept_from_proto(message: planner_pb2.KeptRows) -> KeptRows:
    return KeptRows(FunctionVersion(message.udf_name, message.udf_version), message.rows)


def reason_count_to_proto(count: ReasonCount) -> planner_pb2.ReasonCount:
    return planner_pb2.ReasonCount(reason=_REASON_TO[count.reason], fragments=count.fragments, rows=count.rows)


def reason_count_from_proto(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(known(_REASON_FROM, message.reason, "reason"), message.fragments, message.rows)


def value_state_from_proto(state: int) -> ValueState | None:
    """None: no state is asked for."""
    if state not in _STATE_FROM:
        raise InvalidArgument("UNKNOWN_VALUE", f"state is {state}; known are 0 to {max(_STATE_FROM)}", field="state")
    return _STATE_FROM[state]


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
    )
    if task.current_file:  # an argument costs also where it is empty
        message.current_file = task.current_file
    if task.extend_current:
        message.extend_current = True
    if task.row_states:
        message.row_states = task.row_states
    if task.rows_failed_before:
        message.rows_failed_before = task.rows_failed_before
    for start, end in task.missing:
        message.missing.add(start=start, end=end)
    for ref in task.checkpoints:
        added = message.checkpoints.add(key=ref.key, settles=ref.settles)
        added.range.start, added.range.end = ref.range
    if task.staged is not None:
        message.staged.CopyFrom(staged_to_proto(task.staged))
    return message


def task_from_proto(message: planner_pb2.FragmentTask) -> FragmentTask:
    return FragmentTask(
        fragment_id=message.fragment_id,
        physical_rows=message.physical_rows,
        deleted_rows=message.deleted_rows,
        reason=known(_REASON_FROM, message.reason, "reason"),
        fingerprint=message.fingerprint,
        checkpoint_prefix=message.checkpoint_prefix,
        input_files=tuple(message.input_files),
        current_file=message.current_file,
        extend_current=message.extend_current,
        missing=tuple([RowRange(r.start, r.end) for r in message.missing]),
        checkpoints=tuple([checkpoint_ref_from_proto(ref) for ref in message.checkpoints]),
        staged=staged_from_proto(message.staged) if message.HasField("staged") else None,
        row_states=message.row_states,
        rows_failed_before=message.rows_failed_before,
    )


def traced_to_proto(traced: TracedFile) -> planner_pb2.TracedFile:
    return planner_pb2.TracedFile(
        fragment_id=traced.fragment_id,
        file=traced.file,
        physical_rows=traced.physical_rows,
        fingerprint=traced.fingerprint,
        input_files=traced.input_files,
        row_states=traced.row_states,
        rows_computed=traced.rows_computed,
        rows_failed=traced.rows_failed,
        column_id=traced.column_id,
        output_field_ids=traced.output_field_ids,
    )


def traced_from_proto(message: planner_pb2.TracedFile) -> TracedFile:
    return TracedFile(
        fragment_id=message.fragment_id,
        file=message.file,
        physical_rows=message.physical_rows,
        fingerprint=message.fingerprint,
        input_files=tuple(message.input_files),
        row_states=message.row_states,
        rows_computed=message.rows_computed,
        rows_failed=message.rows_failed,
        column_id=message.column_id,
        output_field_ids=tuple(message.output_field_ids),
    )


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
