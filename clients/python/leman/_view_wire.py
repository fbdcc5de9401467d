"""From messages about views to what callers see, and back."""

from __future__ import annotations

from leman import _wire
from leman._backfill import OnStaleInput, on_stale_input_to_wire
from leman._table_model import TableInfo
from leman._view_model import RefreshPlan, RefreshPolicy, ViewColumn, ViewFunction, ViewInfo, ViewQuery, ViewSummary
from leman._wire_values import given, word
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, planner_pb2

_POLICIES = ("auto", "incremental", "full")


def view_info(table: TableInfo, message: catalog_pb2.MaterializedView) -> ViewInfo:
    """A view, of which `table` is its table."""
    return ViewInfo(
        name=message.name,
        uri=message.uri,
        version=message.version,
        row_count=message.rows_set,
        fragment_count=table.fragment_count,
        schema=_wire.schema(message.schema),
        computed_columns=(),
        stable_row_ids=table.stable_row_ids,
        query=view_query(message.query),
        source_version=message.source_version,
        rows_unset=message.row_count - message.rows_set,
        row_reference=word(catalog_pb2.RowReference, message.row_reference, "ROW_REFERENCE_"),
        stale_columns=tuple(message.stale_columns),
    )


def view_summary(message: catalog_pb2.MaterializedViewSummary) -> ViewSummary:
    """A view in a list."""
    rows_set = given(message, "rows_set")
    return ViewSummary(
        name=message.name,
        uri=message.uri,
        version=message.version,
        source_database=message.source.database,
        source_table=message.source.table,
        source_version=message.source_version,
        row_reference=word(catalog_pb2.RowReference, message.row_reference, "ROW_REFERENCE_"),
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
        shuffle_seed=given(message, "shuffle_seed"),
        limit=given(message, "limit"),
        offset=message.offset,
    )


def _function(message: catalog_pb2.ViewFunction) -> ViewFunction:
    return ViewFunction(message.name, message.udf.name, message.udf.version, tuple(message.input_columns))


def refresh_plan(name: str, message: planner_pb2.ExplainRefreshResponse) -> RefreshPlan:
    """What a refresh would do."""
    kinds = planner_pb2.SourceChangeKind
    return RefreshPlan(
        view=name,
        mode=_wire.refresh_mode(message.mode),
        reason=_wire.refresh_reason(message.reason),
        message=message.message,
        version=message.version,
        source_version=message.source_version,
        target_version=message.target_version,
        rows=message.rows,
        fragments_unset=message.fragments_unset,
        changes={word(kinds, change.kind, "SOURCE_CHANGE_KIND_"): change.fragments for change in message.changes},
        stale=tuple(message.stale),
        stale_inputs=_wire.stale_inputs(message.stale_inputs),
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
