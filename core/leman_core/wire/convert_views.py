"""Convert views, refreshes and their plans to protobuf and back.

See `convert_values` for the errors.
"""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import INTERNAL_COLUMNS, EarlierState, ViewColumn, ViewFunction, ViewQuery
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from leman_core.model import view_metadata
from leman_core.model.service_errors import Internal, InvalidArgument
from leman_core.model.view import (
    ChangeKind,
    EarlierValues,
    MaterializedView,
    RefreshMode,
    RefreshPlan,
    RefreshPolicy,
    RefreshReason,
    RefreshResult,
    RefreshSpec,
    ResolvedFunction,
    SourceChange,
    UnsetFragment,
    ViewSummary,
)
from leman_core.wire import convert_plans, convert_values
from leman_core.wire.convert_plans import stale_input_from_proto, stale_input_to_proto
from leman_core.wire.convert_types import schema_to_json
from leman_core.wire.convert_udfs import udf_from_proto, udf_to_proto
from leman_core.wire.convert_values import (
    MOST_WORKERS,
    number_from_proto,
    or_none,
    ref_to_proto,
    schema_from_bytes,
    schema_to_bytes,
)
from leman_internal.v1 import planning_pb2, refresh_plan_pb2

# ruff: noqa: D103 -- as there


Word = TypeVar("Word", RefreshMode, RefreshReason, ChangeKind)

_POLICIES = {
    planner_pb2.RefreshSpec.POLICY_UNSPECIFIED: RefreshPolicy.AUTO,
    planner_pb2.RefreshSpec.POLICY_AUTO: RefreshPolicy.AUTO,
    planner_pb2.RefreshSpec.POLICY_INCREMENTAL: RefreshPolicy.INCREMENTAL,
    planner_pb2.RefreshSpec.POLICY_FULL: RefreshPolicy.FULL,
}


#: The stored format of a view → the way in which the view refers to rows of its source.
_ROW_REFERENCES = {1: catalog_pb2.ROW_REFERENCE_ADDRESS, 2: catalog_pb2.ROW_REFERENCE_STABLE_ROW_ID}


def quoted_column(column: str) -> str:
    """Return an expression that reads a column of the source unchanged."""
    return "`" + column.replace("`", "``") + "`"


def query_to_proto(query: ViewQuery) -> catalog_pb2.ViewQuery:
    return catalog_pb2.ViewQuery(
        source=catalog_pb2.TableRef(database=query.database, table=query.table),
        columns=[_column_to_proto(column) for column in query.columns],
        functions=[function_to_proto(function) for function in query.functions],
        where=query.where,
        shuffle_seed=query.seed if query.shuffle else None,
        limit=query.limit,
        offset=query.offset,
    )


def query_from_proto(message: catalog_pb2.ViewQuery) -> ViewQuery:
    """Convert a query.

    `source_column` of a column is set if its expression is empty or only a name in backticks.
    """
    return ViewQuery(
        database=message.source.database,
        table=message.source.table,
        columns=tuple(_column_from_proto(column) for column in message.columns),
        functions=tuple(function_from_proto(function) for function in message.functions),
        where=message.where,
        shuffle=message.HasField("shuffle_seed"),
        seed=message.shuffle_seed,
        limit=message.limit if message.HasField("limit") else None,
        offset=message.offset,
    )


def _column_to_proto(column: ViewColumn) -> catalog_pb2.ViewColumn:
    if column.source_column == column.name:
        return catalog_pb2.ViewColumn(name=column.name)
    return catalog_pb2.ViewColumn(
        name=column.name, expression=quoted_column(column.source_column) if column.source_column else column.expression
    )


def _column_from_proto(message: catalog_pb2.ViewColumn) -> ViewColumn:
    if not message.expression:
        return ViewColumn(message.name, quoted_column(message.name), message.name)
    inner = message.expression.strip()[1:-1].replace("``", "`")
    source = inner if message.expression.strip() == quoted_column(inner) else ""
    return ViewColumn(message.name, message.expression, source)


def function_to_proto(function: ViewFunction) -> catalog_pb2.ViewFunction:
    return catalog_pb2.ViewFunction(
        name=function.name,
        udf=ref_to_proto(function.udf_name, function.udf_version),
        input_columns=function.inputs,
    )


def function_from_proto(message: catalog_pb2.ViewFunction) -> ViewFunction:
    return ViewFunction(message.name, message.udf.name, message.udf.version, tuple(message.input_columns))


def refresh_spec_to_proto(spec: RefreshSpec) -> planner_pb2.RefreshSpec:
    return planner_pb2.RefreshSpec(
        view=catalog_pb2.TableRef(database=spec.database, table=spec.view),
        src_version=or_none(spec.src_version),
        max_rows_per_fragment=or_none(spec.max_rows_per_fragment),
        policy=planner_pb2.RefreshSpec.Policy.Value(f"POLICY_{spec.policy.name}"),
        concurrency=or_none(spec.concurrency),
        optimize_indices=spec.optimize_indices,
        on_stale_input=convert_plans.on_stale_input_to_proto(spec.on_stale_input),
    )


def refresh_spec_from_proto(message: planner_pb2.RefreshSpec) -> RefreshSpec:
    policy = _POLICIES.get(message.policy)
    if policy is None:
        raise InvalidArgument("UNKNOWN_VALUE", f"policy is {message.policy}; known are 0 to 3", field="spec.policy")
    return RefreshSpec(
        database=message.view.database,
        view=message.view.table,
        src_version=number_from_proto(message, "src_version"),
        max_rows_per_fragment=number_from_proto(message, "max_rows_per_fragment"),
        policy=policy,
        concurrency=number_from_proto(message, "concurrency", most=MOST_WORKERS),
        optimize_indices=message.optimize_indices,
        on_stale_input=convert_plans.on_stale_input_from_proto(message.on_stale_input),
    )


def refresh_mode_to_proto(mode: RefreshMode) -> planner_pb2.RefreshMode.ValueType:
    return planner_pb2.RefreshMode.Value(f"REFRESH_MODE_{mode.name}")


def refresh_mode_from_proto(number: planner_pb2.RefreshMode.ValueType) -> RefreshMode:
    return _word(RefreshMode, "REFRESH_MODE_", planner_pb2.RefreshMode, number)


def refresh_reason_to_proto(reason: RefreshReason) -> planner_pb2.RefreshReason.ValueType:
    return planner_pb2.RefreshReason.Value(f"REFRESH_REASON_{reason.name}")


def refresh_reason_from_proto(number: planner_pb2.RefreshReason.ValueType) -> RefreshReason:
    return _word(RefreshReason, "REFRESH_REASON_", planner_pb2.RefreshReason, number)


def change_kind_to_proto(kind: ChangeKind) -> planner_pb2.SourceChangeKind.ValueType:
    return planner_pb2.SourceChangeKind.Value(f"SOURCE_CHANGE_KIND_{kind.name}")


def change_kind_from_proto(number: planner_pb2.SourceChangeKind.ValueType) -> ChangeKind:
    return _word(ChangeKind, "SOURCE_CHANGE_KIND_", planner_pb2.SourceChangeKind, number)


_RESULT_NUMBERS = (
    "rows_added",
    "rows_recomputed",
    "rows_evicted",
    "rows_reused",
    "rows_evaluated",
    "source_rows_read",
    "fragments_rewritten",
    "source_version_before",
    "source_version",
    "view_version",
)


def refresh_result_to_proto(result: RefreshResult) -> jobs_pb2.RefreshResult:
    numbers = {name: getattr(result, name) for name in _RESULT_NUMBERS}
    return jobs_pb2.RefreshResult(
        mode=refresh_mode_to_proto(result.mode),
        reason=refresh_reason_to_proto(result.reason),
        warnings=result.warnings,
        **numbers,
    )


def view_to_proto(view: MaterializedView) -> catalog_pb2.MaterializedView:
    return catalog_pb2.MaterializedView(
        uri=view.uri,
        name=view.name,
        version=view.version,
        query=query_to_proto(view.definition.query),
        source_uri=view.definition.source_uri,
        source_version=view.definition.base_version,
        row_reference=_ROW_REFERENCES[int(view.definition.format)],
        row_count=view.row_count,
        rows_set=view.rows_set,
        schema=convert_values.schema_to_bytes(visible_schema(view.schema)),
        json_schema=schema_to_json(visible_schema(view.schema)),
        stale_columns=view.definition.stale,
    )


def summary_to_proto(view: ViewSummary) -> catalog_pb2.MaterializedViewSummary:
    query = view.definition.query
    return catalog_pb2.MaterializedViewSummary(
        name=view.name,
        uri=view.uri,
        version=view.version,
        source=catalog_pb2.TableRef(database=query.database, table=query.table),
        source_version=view.definition.base_version,
        row_reference=_ROW_REFERENCES[int(view.definition.format)],
        row_count=view.row_count,
        rows_set=view.rows_set,
        stale_columns=view.definition.stale,
    )


def visible_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the columns that queries do not show."""
    return pa.schema([field for field in schema if field.name not in INTERNAL_COLUMNS])


def _word(words: type[Word], prefix: str, numbers: Any, number: int) -> Word:
    try:
        return words[numbers.Name(number).removeprefix(prefix)]
    except (KeyError, ValueError):
        raise InvalidArgument("UNKNOWN_VALUE", f"{number} is not a {words.__name__} that this release knows") from None


# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


def refresh_plan_to_proto(plan: RefreshPlan) -> planning_pb2.PlanRefreshResponse:
    """Convert a refresh plan. The view's definition is in the metadata of the plan's schema."""
    return planning_pb2.PlanRefreshResponse(
        uri=plan.uri,
        version=plan.version,
        incarnation=plan.incarnation,
        schema=schema_to_bytes(view_definitions.write(plan.schema, plan.definition)),
        functions=[_resolved_to_proto(function) for function in plan.functions],
        target_version=plan.target_version,
        target_incarnation=plan.target_incarnation,
        mode=refresh_mode_to_proto(plan.mode),
        reason=refresh_reason_to_proto(plan.reason),
        message=plan.message,
        unset=[
            refresh_plan_pb2.UnsetFragment(
                fragment_id=f.fragment_id, physical_rows=f.physical_rows, deleted_rows=f.deleted_rows
            )
            for f in plan.unset
        ],
        create_placeholders_again=plan.create_placeholders_again,
        changes=[_change_to_proto(change) for change in plan.changes],
        stale=plan.stale,
        rows=plan.rows,
        state=None if plan.state is None else _state_to_proto(plan.state),
        earlier=[_earlier_to_proto(earlier) for earlier in plan.earlier],
        file_format=plan.file_format,
        stale_inputs=[stale_input_to_proto(stale) for stale in plan.stale_inputs],
        identity=plan.identity,
    )


def refresh_plan_from_proto(message: planning_pb2.PlanRefreshResponse) -> RefreshPlan:
    schema = schema_from_bytes(message.schema, "schema")
    definition = view_metadata.read(schema, message.uri)
    if definition is None:
        raise Internal("PLAN_WITHOUT_DEFINITION", "the planner sent a refresh plan without the view's definition")
    return RefreshPlan(
        uri=message.uri,
        version=message.version,
        incarnation=message.incarnation,
        definition=definition,
        schema=schema,
        functions=tuple(_resolved_from_proto(function) for function in message.functions),
        target_version=message.target_version,
        target_incarnation=message.target_incarnation,
        mode=refresh_mode_from_proto(message.mode),
        reason=refresh_reason_from_proto(message.reason),
        message=message.message,
        unset=tuple(UnsetFragment(f.fragment_id, f.physical_rows, f.deleted_rows) for f in message.unset),
        create_placeholders_again=message.create_placeholders_again,
        changes=tuple(_change_from_proto(change) for change in message.changes),
        stale=tuple(message.stale),
        rows=message.rows,
        state=_state_from_proto(message.state) if message.HasField("state") else None,
        earlier=tuple(_earlier_from_proto(earlier, message.uri) for earlier in message.earlier),
        file_format=message.file_format,
        identity=message.identity,
        stale_inputs=tuple(map(stale_input_from_proto, message.stale_inputs)),
    )


def _state_to_proto(state: EarlierState) -> refresh_plan_pb2.ViewState:
    return refresh_plan_pb2.ViewState(
        view_version=state.view_version,
        source_version=state.source_version,
        computed=state.computed,
        last_fragment=state.last_fragment,
    )


def _state_from_proto(message: refresh_plan_pb2.ViewState) -> EarlierState:
    return EarlierState(
        view_version=message.view_version,
        source_version=message.source_version,
        computed=dict(message.computed),
        last_fragment=message.last_fragment,
    )


def _earlier_to_proto(earlier: EarlierValues) -> refresh_plan_pb2.EarlierValues:
    return refresh_plan_pb2.EarlierValues(
        view_version=earlier.view_version,
        definition=schema_to_bytes(view_definitions.write(pa.schema([]), earlier.definition)),
        columns=earlier.columns,
        changes=[_change_to_proto(change) for change in earlier.changes],
    )


def _earlier_from_proto(message: refresh_plan_pb2.EarlierValues, uri: str) -> EarlierValues:
    definition = view_metadata.read(schema_from_bytes(message.definition, "definition"), uri)
    if definition is None:
        raise Internal("PLAN_WITHOUT_DEFINITION", "the planner sent an earlier version without the view's definition")
    changes = tuple(_change_from_proto(change) for change in message.changes)
    return EarlierValues(
        view_version=message.view_version, definition=definition, columns=tuple(message.columns), changes=changes
    )


def _resolved_to_proto(function: ResolvedFunction) -> refresh_plan_pb2.ResolvedFunction:
    return refresh_plan_pb2.ResolvedFunction(
        column=function_to_proto(function.column),
        udf=udf_to_proto(function.udf),
        bundle_uri=function.bundle_uri,
    )


def _resolved_from_proto(message: refresh_plan_pb2.ResolvedFunction) -> ResolvedFunction:
    return ResolvedFunction(function_from_proto(message.column), udf_from_proto(message.udf), message.bundle_uri)


def _change_to_proto(change: SourceChange) -> refresh_plan_pb2.SourceChange:
    return refresh_plan_pb2.SourceChange(fragment_id=change.fragment_id, kind=change_kind_to_proto(change.kind))


def _change_from_proto(message: refresh_plan_pb2.SourceChange) -> SourceChange:
    return SourceChange(message.fragment_id, change_kind_from_proto(message.kind))
