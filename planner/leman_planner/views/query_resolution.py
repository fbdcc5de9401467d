"""Check a view's query, and resolve the columns and functions that it uses, before anything is created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import INTERNAL_COLUMNS, IS_SET, SOURCE_ROW_ID, ViewColumn, ViewFunction, ViewQuery
from leman_core.functions import arrow_types, column_checks
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, excerpt
from leman_core.model.table import TableField, TableSnapshot
from leman_core.sql import expressions, filters
from leman_core.sql.filters import Kind

#: Prefixes of names that are reserved for Lance or Leman.
_RESERVED = column_checks.RESERVED_PREFIXES
_AGGREGATES = frozenset(
    {"approx_distinct", "approx_median", "array_agg", "avg", "bit_and", "bit_or", "bool_and", "bool_or", "corr"}
    | {"count", "covar", "first_value", "grouping", "last_value", "max", "mean", "median", "min", "nth_value"}
    | {"percentile_cont", "stddev", "string_agg", "sum", "var", "variance"}
)
_WINDOWS = frozenset({"cume_dist", "dense_rank", "lag", "lead", "ntile", "over", "percent_rank", "rank", "row_number"})
_OWN_KEYS = b"leman::"

#: Returns the registered function for a name and a version, which may be empty.
FindUdf = Callable[[str, str], UdfDefinition]
#: Returns the type of a checked expression on the source.
TypeOf = Callable[[str], pa.DataType]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A resolved query, and the schema of the view's table without metadata."""

    query: ViewQuery
    schema: pa.Schema


def resolve_query(query: ViewQuery, source: TableSnapshot, find_udf: FindUdf, type_of: TypeOf) -> Resolved:
    """Check and resolve a view's query. Whether Lance accepts the filter is not checked.

    Raises:
        LemanError: See `CatalogService.CreateMaterializedView` (protos/leman/v1/catalog.proto).
    """
    check_numbers(query)
    table = replace(source, fields=tuple(f for f in source.fields if f.name not in INTERNAL_COLUMNS))
    if query.where:
        check_where(query.where)
    asked = query.columns or tuple(ViewColumn(f.name, _quoted(f.name), f.name) for f in table.fields)
    columns: list[ViewColumn] = []
    fields: list[pa.Field] = []
    for column in asked:
        found, field = _column(column, table, type_of)
        columns.append(found)
        fields.append(field)
    functions: list[ViewFunction] = []
    outputs: list[pa.Field] = []
    for function in query.functions:
        check_name(function.name, "query.functions.name")
        udf = find_udf(function.udf_name, function.udf_version)
        inputs = inputs_of(function, udf, table)
        if udf.kind is UdfKind.SQL:  # SQL is evaluated together with the other columns, without a scratch table
            text = expressions.rename_columns(udf.sql_expression, dict(zip(udf.input_columns, inputs, strict=True)))
            found, field = _column(ViewColumn(function.name, text), table, type_of)
            columns.append(found)
            fields.append(field)
        else:
            functions.append(ViewFunction(function.name, udf.name, udf.version, inputs))
            outputs.append(column_checks.output_field(function.name, udf, arrow_types.VIEW_FORMAT))
    _check_clash([*fields, *outputs])
    _check_storable([*fields, *outputs])
    schema = pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), pa.field(IS_SET, pa.bool_()), *fields, *outputs])
    return Resolved(replace(query, columns=tuple(columns), functions=tuple(functions)), schema)


def check_numbers(query: ViewQuery) -> None:
    """Reject a negative limit or offset, and a shuffle seed without shuffle.

    Raises:
        InvalidArgument: BAD_NUMBER.
    """
    for name, number in {"limit": query.limit, "offset": query.offset}.items():
        if number is not None and number < 0:
            raise InvalidArgument("BAD_NUMBER", f"{name} is {number}: it must not be negative", field=f"query.{name}")
    if query.seed and not query.shuffle:
        raise InvalidArgument(
            "BAD_NUMBER", f"shuffle_seed is {query.seed}, but shuffle is not set", field="query.shuffle_seed"
        )


def check_name(name: str, field: str) -> None:
    """Reject a name that a column of a view cannot have. `field` is the request's field in the error.

    Raises:
        InvalidArgument: RESERVED_NAME, BAD_COLUMN_NAME.
    """
    if name.lower().startswith(_RESERVED) or name in INTERNAL_COLUMNS:
        raise InvalidArgument(
            "RESERVED_NAME",
            f"'{name}' cannot be a column of a view: the name is reserved for Leman or Lance",
            field=field,
        )
    column_checks.check_column_name(name, field)


def check_where(where: str) -> None:
    """Reject a filter that a view cannot have.

    Raises:
        InvalidArgument: VOLATILE_FUNCTION, RESERVED_NAME, INVALID_FILTER.
    """
    _check_kept(where, "where", "INVALID_FILTER", "filter")


def _check_kept(text: str, field: str, reason: str, what: str) -> None:
    filters.check_length(text)
    found = filters.tokenize(text)
    if name := expressions.volatile_function(text):
        raise InvalidArgument(
            "VOLATILE_FUNCTION",
            f"Invalid {what}: {name} changes with each call, but a view stores its rows. Use a constant, or filter "
            "when you query the view",
            field=field,
        )
    called = {token.name.lower() for token in filters.called_functions(found)}
    if windows := sorted(called & _WINDOWS):
        raise _unsupported(f"{windows[0]} reads other rows (a window)", field, reason, what)
    if aggregates := sorted(called & _AGGREGATES):
        raise _unsupported(f"{aggregates[0]} is an aggregate", field, reason, what)
    for token in found:
        name = token.name.lower()
        if token.kind in {Kind.WORD, Kind.QUOTED} and (name in INTERNAL_COLUMNS or name.startswith(_RESERVED)):
            raise InvalidArgument(
                "RESERVED_NAME",
                f"Invalid {what}: {token.name} is an internal column; a query can only read the source's own columns",
                field=field,
            )


def _unsupported(problem: str, field: str, reason: str, what: str) -> InvalidArgument:
    return InvalidArgument(
        reason,
        f"Invalid {what}: {problem}; a view has one row for each matching row of its source. Aggregates and windows "
        "are not supported",
        field=field,
    )


def _column(column: ViewColumn, table: TableSnapshot, type_of: TypeOf) -> tuple[ViewColumn, pa.Field]:
    check_name(column.name, "query.columns.name")
    name = column.source_column or _plain(column.expression, table)
    if name:
        field = _source_field(name, table)
        return ViewColumn(column.name, _quoted(name), name), _copied(field, column.name)
    try:
        filters.check_length(column.expression, expressions.MAX_BYTES)
        _check_kept(column.expression, "query.columns.expression", "INVALID_EXPRESSION", "SQL expression")
        names = [f.name for f in table.fields]
        expressions.check_expression(column.expression, names)
        for read in expressions.columns_of_expression(column.expression, names):
            arrow_types.check_readable(read, table.schema.field(read).type)
        return column, pa.field(column.name, arrow_types.stored_type(type_of(column.expression)))
    except (FailedPrecondition, InvalidArgument) as error:
        reason, said = error.reason, error.message
        if reason == "INVALID_FILTER":  # a rule for all SQL
            reason, said = "INVALID_EXPRESSION", said.replace("Invalid filter", "Invalid SQL expression", 1)
        message = f"Column '{column.name}': {said}"
        raise type(error)(reason, message, field="query.columns.expression", **error.facts) from None


def _plain(expression: str, table: TableSnapshot) -> str:
    """Return the source's column if the expression is only its name, or else ""."""
    text = expression.strip()
    return text if table.column(text) is not None and text.isidentifier() else ""


def _source_field(name: str, table: TableSnapshot) -> TableField:
    if name in INTERNAL_COLUMNS:
        raise InvalidArgument("RESERVED_NAME", f"Column '{name}' is internal and cannot be selected", field="query")
    column = table.column(name)
    if column is None:
        advice = f'. An expression needs an alias: select({{"alias": "{excerpt(name)}"}})'
        raise column_checks.column_not_found(name, [f.name for f in table.fields], advice)
    return column


def _copied(column: TableField, name: str) -> pa.Field:
    """Return the view's field for a column of the source, without the metadata of computed columns and keys."""
    if arrow_types.is_blob(column.arrow):
        return arrow_types.values_field(column.arrow).with_name(name)
    metadata = arrow_types.copied_metadata(column.arrow) or {}
    kept = {key: value for key, value in metadata.items() if not key.startswith(_OWN_KEYS)}
    return pa.field(name, arrow_types.stored_type(column.arrow.type), nullable=True, metadata=kept or None)


def inputs_of(function: ViewFunction, udf: UdfDefinition, table: TableSnapshot) -> tuple[str, ...]:
    """Return the columns of the source that the function reads.

    Raises:
        InvalidArgument: RESERVED_NAME.
        FailedPrecondition: INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING, TYPE_MISMATCH.
    """
    names = function.inputs or udf.input_columns
    if internal := [name for name in names if name in INTERNAL_COLUMNS]:
        raise InvalidArgument(
            "RESERVED_NAME", f"Column '{internal[0]}' is internal: a function cannot read it", field="query.functions"
        )
    column_checks.check_input_types(column_checks.find_inputs(names, udf, table), udf)
    return tuple(names)


def _check_storable(fields: Sequence[pa.Field]) -> None:
    """Reject a column whose type a view with these columns cannot store.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    for field in fields:
        arrow_types.check_storable(field.name, field.type, arrow_types.V2_FORMAT)
    blob = next((field.name for field in fields if arrow_types.is_blob(field)), None)
    for field in fields if blob is not None else ():
        try:
            arrow_types.check_storable(field.name, field.type, arrow_types.VIEW_FORMAT)
        except FailedPrecondition as error:
            message = f"Column '{field.name}' cannot have the type {field.type} in a view with a blob column ('{blob}')"
            raise FailedPrecondition(
                error.reason, f"{message}: leave out one of the two, or create two views", **error.facts
            ) from None


def _check_clash(fields: Sequence[pa.Field]) -> None:
    names = [field.name for field in fields]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidArgument(
            "NAME_CLASH",
            f"The view would have two columns '{twice[0]}': rename one of them",
            field="query.columns",
        )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
