"""Plans of refreshes, as the planner tells them to the executor, in protobuf messages ↔ domain values.

See `leman_core.wire.convert` for what is raised.
"""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

import pyarrow as pa

from leman_core.model import view_metadata
from leman_core.model.errors import Internal
from leman_core.model.refresh import EarlierValues, RefreshPlan, ResolvedFunction, SourceChange, UnsetFragment
from leman_core.model.view import EarlierState
from leman_core.wire.convert_arrow import schema_from_bytes, schema_to_bytes
from leman_core.wire.convert_backfills import stale_input_from_proto, stale_input_to_proto
from leman_core.wire.convert_udfs import udf_from_proto, udf_to_proto
from leman_core.wire.convert_views import (
    change_kind_from_proto,
    change_kind_to_proto,
    function_from_proto,
    function_to_proto,
    mode_from_proto,
    mode_to_proto,
    reason_from_proto,
    reason_to_proto,
)
from leman_internal.v1 import planning_pb2, refresh_plan_pb2


def refresh_plan_to_proto(plan: RefreshPlan) -> planning_pb2.PlanRefreshResponse:
    """Return a refresh plan as a message. The definition travels in the schema's metadata."""
    return planning_pb2.PlanRefreshResponse(
        uri=plan.uri,
        version=plan.version,
        incarnation=plan.incarnation,
        schema=schema_to_bytes(view_metadata.write(plan.schema, plan.definition)),
        functions=[_resolved_to_proto(function) for function in plan.functions],
        target_version=plan.target_version,
        target_incarnation=plan.target_incarnation,
        mode=mode_to_proto(plan.mode),
        reason=reason_to_proto(plan.reason),
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
        mode=mode_from_proto(message.mode),
        reason=reason_from_proto(message.reason),
        message=message.message,
        unset=tuple(UnsetFragment(f.fragment_id, f.physical_rows, f.deleted_rows) for f in message.unset),
        create_placeholders_again=message.create_placeholders_again,
        changes=tuple(_change_from_proto(change) for change in message.changes),
        stale=tuple(message.stale),
        rows=message.rows,
        state=_state_from_proto(message.state) if message.HasField("state") else None,
        earlier=tuple(_earlier_from_proto(earlier, message.uri) for earlier in message.earlier),
        file_format=message.file_format,
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
        definition=schema_to_bytes(view_metadata.write(pa.schema([]), earlier.definition)),
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
