"""Convert requests and plans of backfills to protobuf and back.

The tasks of a plan are sent as Arrow record batches. Earlier releases send and read them as `FragmentTask` messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from leman._format.column_bindings import FunctionVersion, InputSource
from leman.v1 import catalog_pb2, planner_pb2, udf_pb2
from leman_core.model.plan import (
    BackfillSpec,
    CheckpointRef,
    ComparedFile,
    EarlierRows,
    FragmentTask,
    KeptRows,
    MigratedRows,
    OnStaleInput,
    OutputField,
    PlanHeader,
    Reason,
    ReasonCount,
    StagedFile,
    StaleInput,
    TracedFile,
    ValueState,
)
from leman_core.model.plan_columns import PlannedTasks
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.table import IndexCoverage, TableField
from leman_core.wire.convert_udfs import bounds_from_proto, bounds_to_proto, udf_from_proto, udf_to_proto
from leman_core.wire.convert_values import (
    MOST_THREADS,
    MOST_WORKERS,
    enum_value,
    field_from_bytes,
    number_from_proto,
    or_none,
    ref_to_proto,
    schema_from_bytes,
    schema_to_bytes,
)
from leman_internal.v1 import plan_pb2

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


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
_ON_STALE_INPUT_TO = {
    OnStaleInput.ERROR: planner_pb2.ON_STALE_INPUT_ERROR,
    OnStaleInput.WARN: planner_pb2.ON_STALE_INPUT_WARN,
    OnStaleInput.FIRST: planner_pb2.ON_STALE_INPUT_FIRST,
}
_ON_STALE_INPUT_FROM = {
    planner_pb2.ON_STALE_INPUT_UNSPECIFIED: OnStaleInput.ERROR,
    **{number: value for value, number in _ON_STALE_INPUT_TO.items()},
}
_REASON_FROM = {number: reason for reason, number in _REASON_TO.items()}


def spec_to_proto(spec: BackfillSpec) -> planner_pb2.BackfillSpec:
    return planner_pb2.BackfillSpec(
        table=catalog_pb2.TableRef(database=spec.database, table=spec.table),
        column=spec.column,
        udf=ref_to_proto(spec.udf_name, spec.udf_version),
        where=spec.where,
        read_version=or_none(spec.read_version),
        read_tag=or_none(spec.read_tag),
        concurrency=or_none(spec.concurrency),
        checkpoint=bounds_to_proto(spec.checkpoint),
        task_size=or_none(spec.task_size),
        commit_granularity=or_none(spec.commit_granularity),
        commit_rows=or_none(spec.commit_rows),
        num_frags=or_none(spec.num_frags),
        intra_applier_concurrency=or_none(spec.intra_applier_concurrency),
        failed_only=spec.failed_only,
        task_shuffle_diversity=or_none(spec.task_shuffle_diversity),
        optimize_indices=spec.optimize_indices,
        on_stale_input=on_stale_input_to_proto(spec.on_stale_input),
        columns=spec.columns,
    )


def spec_from_proto(message: planner_pb2.BackfillSpec) -> BackfillSpec:
    return BackfillSpec(
        database=message.table.database,
        table=message.table.table,
        column=message.column,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        where=message.where,
        read_version=number_from_proto(message, "read_version"),
        read_tag=_tag(message),
        concurrency=number_from_proto(message, "concurrency", most=MOST_WORKERS),
        checkpoint=bounds_from_proto(message.checkpoint),
        task_size=number_from_proto(message, "task_size"),
        commit_granularity=number_from_proto(message, "commit_granularity"),
        commit_rows=number_from_proto(message, "commit_rows"),
        num_frags=number_from_proto(message, "num_frags"),
        intra_applier_concurrency=number_from_proto(message, "intra_applier_concurrency", most=MOST_THREADS),
        failed_only=message.failed_only,
        task_shuffle_diversity=number_from_proto(message, "task_shuffle_diversity"),
        optimize_indices=message.optimize_indices,
        on_stale_input=on_stale_input_from_proto(message.on_stale_input),
        columns=_columns(message),
    )


def _columns(message: planner_pb2.BackfillSpec) -> tuple[str, ...]:
    columns = tuple(message.columns)
    if not columns:
        return ()
    if message.column or message.udf.name or message.failed_only:
        text = "a backfill of several columns takes neither column, udf nor failed_only"
        raise InvalidArgument("BAD_REQUEST", text, field="columns")
    if len(set(columns)) < len(columns):
        raise InvalidArgument("BAD_REQUEST", "a column is named more than once", field="columns")
    return columns


def _tag(message: planner_pb2.BackfillSpec) -> str:
    if message.HasField("read_tag") and not message.read_tag.strip():
        raise InvalidArgument(
            "BAD_REQUEST", "read_tag is empty: give a tag's name, or leave the field out", field="read_tag"
        )
    return message.read_tag


def index_to_proto(index: IndexCoverage) -> planner_pb2.IndexCoverage:
    return planner_pb2.IndexCoverage(**{name: getattr(index, name) for name in IndexCoverage.__dataclass_fields__})


def index_from_proto(message: planner_pb2.IndexCoverage) -> IndexCoverage:
    return IndexCoverage(
        name=message.name,
        kind=message.kind,
        columns=tuple(message.columns),
        fragments=message.fragments,
        fragments_covered=message.fragments_covered,
        rows_left_out=message.rows_left_out,
    )


def kept_to_proto(kept: KeptRows) -> planner_pb2.KeptRows:
    return planner_pb2.KeptRows(udf=ref_to_proto(kept.function.name, kept.function.version), rows=kept.rows)


def kept_from_proto(message: planner_pb2.KeptRows) -> KeptRows:
    return KeptRows(FunctionVersion(message.udf.name, message.udf.version), message.rows)


def on_stale_input_to_proto(value: OnStaleInput) -> planner_pb2.OnStaleInput.ValueType:
    return _ON_STALE_INPUT_TO[value]


def on_stale_input_from_proto(number: planner_pb2.OnStaleInput.ValueType) -> OnStaleInput:
    return enum_value(_ON_STALE_INPUT_FROM, number, "on_stale_input")


def stale_input_to_proto(stale: StaleInput) -> planner_pb2.StaleInput:
    return planner_pb2.StaleInput(column=stale.column, rows=stale.rows)


def stale_input_from_proto(message: planner_pb2.StaleInput) -> StaleInput:
    return StaleInput(message.column, message.rows)


def reason_to_proto(reason: Reason) -> planner_pb2.Reason.ValueType:
    return _REASON_TO[reason]


def reason_from_proto(number: planner_pb2.Reason.ValueType) -> Reason:
    return enum_value(_REASON_FROM, number, "reason")


def reason_count_to_proto(count: ReasonCount) -> planner_pb2.ReasonCount:
    return planner_pb2.ReasonCount(reason=reason_to_proto(count.reason), fragments=count.fragments, rows=count.rows)


def reason_count_from_proto(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(reason_from_proto(message.reason), message.fragments, message.rows)


def value_state_from_proto(state: int) -> ValueState | None:
    """Convert a state; None if the request does not ask for a state."""
    if state not in _STATE_FROM:
        raise InvalidArgument("UNKNOWN_VALUE", f"state is {state}; known are 0 to {max(_STATE_FROM)}", field="state")
    return _STATE_FROM[state]


def range_to_proto(row_range: RowRange) -> planner_pb2.RowRange:
    return planner_pb2.RowRange(start=row_range.start, end=row_range.end)


def range_from_proto(message: planner_pb2.RowRange) -> RowRange:
    return RowRange(message.start, message.end)


# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


def output_to_proto(output: OutputField) -> plan_pb2.OutputField:
    return plan_pb2.OutputField(
        name=output.name,
        field_ids=output.field.field_ids,
        schema=schema_to_bytes(pa.schema([output.field.arrow])),
        column_id=output.column_id,
    )


def output_from_proto(message: plan_pb2.OutputField) -> OutputField:
    arrow = field_from_bytes(message.schema, "output.schema").with_name(message.name)
    return OutputField(TableField(arrow, tuple(message.field_ids)), message.column_id)


def header_to_proto(header: PlanHeader) -> plan_pb2.PlanHeader:
    return plan_pb2.PlanHeader(
        uri=header.uri,
        read_version=header.read_version,
        incarnation=header.incarnation,
        output=output_to_proto(header.output),
        input_columns=header.input_columns,
        input_schema=_types_to_bytes(header.input_types),
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
        kept_functions=[udf_pb2.UdfRef(name=kept.name, version=kept.version) for kept in header.kept_functions],
        input_source=source_to_proto(header.input_source),
        inputs_version=header.inputs_version,
        stale_inputs=[stale_input_to_proto(stale) for stale in header.stale_inputs],
        replaced=[kept_to_proto(other) for other in header.replaced],
        manifest=header.manifest,
        identity=header.identity,
    )


def header_from_proto(message: plan_pb2.PlanHeader) -> PlanHeader:
    return PlanHeader(
        uri=message.uri,
        read_version=message.read_version,
        incarnation=message.incarnation,
        output=output_from_proto(message.output),
        input_columns=tuple(message.input_columns),
        input_types=_types_from_bytes(message.input_schema),
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
        kept_functions=tuple(FunctionVersion(kept.name, kept.version) for kept in message.kept_functions),
        input_source=source_from_proto(message.input_source) if message.HasField("input_source") else None,
        inputs_version=message.inputs_version,
        stale_inputs=tuple(stale_input_from_proto(stale) for stale in message.stale_inputs),
        replaced=tuple(kept_from_proto(other) for other in message.replaced),
        manifest=message.manifest,
        identity=message.identity,
    )


def _types_to_bytes(types: Sequence[pa.DataType]) -> bytes:
    return schema_to_bytes(pa.schema([pa.field("", kind) for kind in types])) if types else b""


def _types_from_bytes(data: bytes) -> tuple[pa.DataType, ...]:
    return tuple(schema_from_bytes(data, "input_schema").types) if data else ()


def source_to_proto(source: InputSource | None) -> plan_pb2.InputSource | None:
    if source is None:
        return None
    return plan_pb2.InputSource(uri=source.uri, version=source.version, columns=source.columns)


def source_from_proto(message: plan_pb2.InputSource) -> InputSource:
    return InputSource(message.uri, message.version, tuple(message.columns))


def add_task(batch: plan_pb2.FragmentTaskBatch, task: FragmentTask) -> plan_pb2.FragmentTask:
    """Append the task to the batch as a message, and return the message."""
    message = batch.tasks.add(
        fragment_id=task.fragment_id,
        physical_rows=task.physical_rows,
        deleted_rows=task.deleted_rows,
        reason=reason_to_proto(task.reason),
        fingerprint=task.fingerprint,
        checkpoint_prefix=task.checkpoint_prefix,
        input_files=task.input_files,
    )
    if task.current_file:  # passing an empty value as an argument would also take time
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
        added = message.checkpoints.add(key=ref.key, settles=ref.settles, version=ref.version)
        added.range.start, added.range.end = ref.range
    if task.staged is not None:
        message.staged.CopyFrom(staged_to_proto(task.staged))
    return message


def task_from_proto(message: plan_pb2.FragmentTask) -> FragmentTask:
    return FragmentTask(
        fragment_id=message.fragment_id,
        physical_rows=message.physical_rows,
        deleted_rows=message.deleted_rows,
        reason=reason_from_proto(message.reason),
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


def tasks_to_bytes(batch: pa.RecordBatch) -> bytes:
    """Return tasks as an Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def tasks_from_bytes(streams: Iterable[bytes]) -> PlannedTasks:
    """Decode streams of tasks that `tasks_to_bytes` returned, one for each batch.

    Raises:
        InvalidArgument: UNKNOWN_VALUE – a release that this one does not know wrote them.
    """
    try:
        return PlannedTasks(batch for stream in streams for batch in pa.ipc.open_stream(stream)).checked()
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        text = f"The tasks of the plan cannot be read: {error}. Run a planner and an executor of the same release"
        raise InvalidArgument("UNKNOWN_VALUE", text, field="task_batch") from None


def traced_to_proto(traced: TracedFile) -> plan_pb2.TracedFile:
    return plan_pb2.TracedFile(
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
        compared=traced.compared,
    )


def traced_from_proto(message: plan_pb2.TracedFile) -> TracedFile:
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
        compared=message.compared,
    )


def compared_to_proto(compared: ComparedFile) -> plan_pb2.ComparedFile:
    earlier = [
        plan_pb2.EarlierRows(
            version=rows.version,
            fragment_id=rows.fragment_id,
            physical_rows=rows.physical_rows,
            row_states=rows.row_states,
            columns=rows.columns,
            same_offsets=rows.same_offsets,
        )
        for rows in compared.earlier
    ]
    return plan_pb2.ComparedFile(known=traced_to_proto(compared.known), earlier=earlier, rows=compared.rows)


def compared_from_proto(message: plan_pb2.ComparedFile) -> ComparedFile:
    earlier = tuple(
        EarlierRows(
            version=rows.version,
            fragment_id=rows.fragment_id,
            physical_rows=rows.physical_rows,
            row_states=rows.row_states,
            columns=tuple(rows.columns),
            same_offsets=rows.same_offsets,
        )
        for rows in message.earlier
    )
    return ComparedFile(known=traced_from_proto(message.known), earlier=earlier, rows=message.rows)


def checkpoint_ref_to_proto(ref: CheckpointRef) -> plan_pb2.CheckpointRef:
    return plan_pb2.CheckpointRef(
        key=ref.key, range=range_to_proto(ref.range), settles=ref.settles, version=ref.version
    )


def checkpoint_ref_from_proto(message: plan_pb2.CheckpointRef) -> CheckpointRef:
    return CheckpointRef(message.key, range_from_proto(message.range), message.settles, message.version)


def staged_to_proto(staged: StagedFile) -> plan_pb2.StagedFile:
    return plan_pb2.StagedFile(
        file=staged.file,
        size_bytes=staged.size_bytes,
        digest=staged.digest,
        physical_rows=staged.physical_rows,
        rows_computed=staged.rows_computed,
        rows_failed=staged.rows_failed,
        etag=staged.etag,
    )


def staged_from_proto(message: plan_pb2.StagedFile) -> StagedFile:
    return StagedFile(
        file=message.file,
        size_bytes=message.size_bytes,
        digest=message.digest,
        physical_rows=message.physical_rows,
        rows_computed=message.rows_computed,
        rows_failed=message.rows_failed,
        etag=message.etag,
    )


def migrated_to_proto(migrated: MigratedRows) -> plan_pb2.MigratedRows:
    return plan_pb2.MigratedRows(
        fragment_id=migrated.fragment_id,
        key=migrated.key,
        covered=range_to_proto(migrated.covered),
        source=migrated.source,
        from_fragment=migrated.from_fragment,
        from_rows=range_to_proto(migrated.from_rows),
        at=migrated.at,
        before_version=migrated.before,
        left_out=migrated.left_out,
    )


def migrated_from_proto(message: plan_pb2.MigratedRows) -> MigratedRows:
    return MigratedRows(
        fragment_id=message.fragment_id,
        key=message.key,
        covered=range_from_proto(message.covered),
        source=message.source,
        from_fragment=message.from_fragment,
        from_rows=range_from_proto(message.from_rows),
        at=message.at,
        before=message.before_version,
        left_out=message.left_out,
    )
