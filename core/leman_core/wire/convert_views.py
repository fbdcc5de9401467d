"""protobuf ↔ domain for views and their refreshes. See `leman_core.wire.convert` for what both directions promise."""
# ruff: noqa: D103 -- as there

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa

from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from leman_core.model.errors import InvalidArgument
from leman_core.model.refresh import ChangeKind, RefreshMode, RefreshPolicy, RefreshReason, RefreshResult, RefreshSpec
from leman_core.model.view import INTERNAL_COLUMNS, MaterializedView, ViewColumn, ViewFunction, ViewQuery, ViewSummary
from leman_core.wire import convert
from leman_core.wire.convert_types import schema_to_json
from leman_core.wire.convert_values import MOST_WORKERS, given, number_from_proto, ref_to_proto

Word = TypeVar("Word", RefreshMode, RefreshReason, ChangeKind)

_POLICIES = {
    planner_pb2.RefreshSpec.POLICY_UNSPECIFIED: RefreshPolicy.AUTO,
    planner_pb2.RefreshSpec.POLICY_AUTO: RefreshPolicy.AUTO,
    planner_pb2.RefreshSpec.POLICY_INCREMENTAL: RefreshPolicy.INCREMENTAL,
    planner_pb2.RefreshSpec.POLICY_FULL: RefreshPolicy.FULL,
}


#: A view's format, as it is stored → how it refers to rows of its source.
_ROW_REFERENCES = {1: catalog_pb2.ROW_REFERENCE_ADDRESS, 2: catalog_pb2.ROW_REFERENCE_STABLE_ROW_ID}


def quoted(column: str) -> str:
    """Return the expression that is no more than a column of the source."""
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
    """Return the query.

    `source_column` is set where a column has no expression, or no more than a name in backticks.
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
        name=column.name, expression=quoted(column.source_column) if column.source_column else column.expression
    )


def _column_from_proto(message: catalog_pb2.ViewColumn) -> ViewColumn:
    if not message.expression:
        return ViewColumn(message.name, quoted(message.name), message.name)
    inner = message.expression.strip()[1:-1].replace("``", "`")
    source = inner if message.expression.strip() == quoted(inner) else ""
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
        src_version=given(spec.src_version),
        max_rows_per_fragment=given(spec.max_rows_per_fragment),
        policy=planner_pb2.RefreshSpec.Policy.Value(f"POLICY_{spec.policy.name}"),
        concurrency=given(spec.concurrency),
        optimize_indices=spec.optimize_indices,
        on_stale_input=convert.on_stale_input_to_proto(spec.on_stale_input),
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
        on_stale_input=convert.on_stale_input_from_proto(message.on_stale_input),
    )


def mode_to_proto(mode: RefreshMode) -> planner_pb2.RefreshMode.ValueType:
    return planner_pb2.RefreshMode.Value(f"REFRESH_MODE_{mode.name}")


def mode_from_proto(number: planner_pb2.RefreshMode.ValueType) -> RefreshMode:
    return _word(RefreshMode, "REFRESH_MODE_", planner_pb2.RefreshMode, number)


def reason_to_proto(reason: RefreshReason) -> planner_pb2.RefreshReason.ValueType:
    return planner_pb2.RefreshReason.Value(f"REFRESH_REASON_{reason.name}")


def reason_from_proto(number: planner_pb2.RefreshReason.ValueType) -> RefreshReason:
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
        mode=mode_to_proto(result.mode), reason=reason_to_proto(result.reason), warnings=result.warnings, **numbers
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
        schema=convert.schema_to_bytes(visible_schema(view.schema)),
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
    """Return the columns that queries show."""
    return pa.schema([field for field in schema if field.name not in INTERNAL_COLUMNS])


def _word(words: type[Word], prefix: str, numbers: Any, number: int) -> Word:
    try:
        return words[numbers.Name(number).removeprefix(prefix)]
    except (KeyError, ValueError):
        raise InvalidArgument("UNKNOWN_VALUE", f"{number} is no {words.__name__} that this release knows") from None
