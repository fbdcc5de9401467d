"""What callers ask of a backfill and are told about it, in protobuf messages ↔ domain values.

See `leman_core.wire.convert` for what is raised.
"""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

from leman.v1 import catalog_pb2, planner_pb2
from leman_core.model.errors import InvalidArgument
from leman_core.model.plan import BackfillSpec, KeptRows, OnStaleInput, Reason, ReasonCount, StaleInput, ValueState
from leman_core.model.ranges import RowRange
from leman_core.model.table import IndexCoverage
from leman_core.model.udf import FunctionVersion
from leman_core.wire.convert_arrow import known
from leman_core.wire.convert_udfs import bounds_from_proto, bounds_to_proto
from leman_core.wire.convert_values import MOST_THREADS, MOST_WORKERS, given, number_from_proto, ref_to_proto

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
        read_version=given(spec.read_version),
        read_tag=given(spec.read_tag),
        concurrency=given(spec.concurrency),
        checkpoint=bounds_to_proto(spec.checkpoint),
        task_size=given(spec.task_size),
        commit_granularity=given(spec.commit_granularity),
        commit_rows=given(spec.commit_rows),
        num_frags=given(spec.num_frags),
        intra_applier_concurrency=given(spec.intra_applier_concurrency),
        failed_only=spec.failed_only,
        task_shuffle_diversity=given(spec.task_shuffle_diversity),
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
        raise InvalidArgument("BAD_REQUEST", "read_tag is empty: name a tag, or leave it out", field="read_tag")
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
    return known(_ON_STALE_INPUT_FROM, number, "on_stale_input")


def stale_input_to_proto(stale: StaleInput) -> planner_pb2.StaleInput:
    return planner_pb2.StaleInput(column=stale.column, rows=stale.rows)


def stale_input_from_proto(message: planner_pb2.StaleInput) -> StaleInput:
    return StaleInput(message.column, message.rows)


def reason_to_proto(reason: Reason) -> planner_pb2.Reason.ValueType:
    return _REASON_TO[reason]


def reason_from_proto(number: planner_pb2.Reason.ValueType) -> Reason:
    return known(_REASON_FROM, number, "reason")


def reason_count_to_proto(count: ReasonCount) -> planner_pb2.ReasonCount:
    return planner_pb2.ReasonCount(reason=reason_to_proto(count.reason), fragments=count.fragments, rows=count.rows)


def reason_count_from_proto(message: planner_pb2.ReasonCount) -> ReasonCount:
    return ReasonCount(reason_from_proto(message.reason), message.fragments, message.rows)


def value_state_from_proto(state: int) -> ValueState | None:
    """Return the state; None: no state is asked for."""
    if state not in _STATE_FROM:
        raise InvalidArgument("UNKNOWN_VALUE", f"state is {state}; known are 0 to {max(_STATE_FROM)}", field="state")
    return _STATE_FROM[state]


def range_to_proto(row_range: RowRange) -> planner_pb2.RowRange:
    return planner_pb2.RowRange(start=row_range.start, end=row_range.end)


def range_from_proto(message: planner_pb2.RowRange) -> RowRange:
    return RowRange(message.start, message.end)
