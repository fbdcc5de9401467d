"""SQL that callers send along with changes to rows, as it can be used on the latest version of a table."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import lance
import pyarrow as pa

from leman_coordinator.tables.requests import MergeRules
from leman_core.functions.nested_types import holds
from leman_core.model.errors import InvalidArgument
from leman_core.sql import case_expressions, expressions, filters, json_columns, struct_paths, time_literals
from leman_core.sql.filters import Token
from leman_core.sql.relative_time import pin
from leman_core.storage import patterns
from leman_core.storage.dialect import Dialect
from leman_core.storage.tables import LanceTables

#: What a condition of a merge calls the rows that are sent, and those that they match.
_SIDES = ("source", "target")


def condition(uri: str, where: str, now: dt.datetime) -> str:
    """Return a filter with `now()` and the like as of `now`.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: what else `LanceTables.check_filter` raises.
    """
    pinned = pin(where, now)
    LanceTables().check_filter(uri, pinned)
    return pinned


def values(uri: str, given: Mapping[str, str], now: dt.datetime) -> dict[str, str]:
    """Return SQL that gives new values, by column, with `now()` and the like as of `now`.

    Raises:
        InvalidArgument: INVALID_EXPRESSION.
        FailedPrecondition: INPUT_COLUMN_MISSING.
        LemanError: what else `LanceTables.expression_type` raises.
    """
    tables, found = LanceTables(), {}
    schema = tables.dataset(uri).schema
    for column, expression in given.items():
        try:
            found[column] = pin(expression, now)
            expressions.check(found[column], schema.names)
            if column in schema.names and not holds(schema.field(column).type, pa.types.is_floating):
                filters.check_exact(filters.tokens(found[column]))
            tables.expression_type(uri, found[column], may_be_constant=True)
        except InvalidArgument as error:
            said = f"Invalid SQL expression for '{column}': {error.message.partition(': ')[2]}"
            raise InvalidArgument("INVALID_EXPRESSION", said, field="expressions") from None
    return found


def rules(uri: str, given: MergeRules, now: dt.datetime) -> MergeRules:
    """Return the rules of a merge, with `now()` and the like in its conditions as of `now`.

    Which columns there are in `source` and `target`, Lance judges when it brings rows together.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: what else `LanceTables.check_filter` raises.
    """
    update, delete = given.update_where, given.delete_where
    if update:
        with _about("header.update_where"):
            update = pin(update, now)
        update_condition(LanceTables().dataset(uri).schema, update)
    with _about("header.delete_where"):
        if delete:
            delete = condition(uri, delete, now)
    return replace(given, update_where=update, delete_where=delete)


def update_condition(schema: pa.Schema, where: str) -> str:
    """Return a condition on `source` and `target`, two rows of a table with this schema, as Lance's merge reads it.

    Lance's merge knows less SQL than its scan: no CASE, and no value of a type with a time zone.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    with _about("header.update_where"):
        filters.check(where, schema.names)
        found = filters.tokens(where)
        if case_expressions.keywords(found):
            raise filters.invalid("CASE cannot be used in it: write its conditions with AND and OR")
        patterns.check(where)
        json_columns.check(_without_sides(where, found), schema)
        struct_paths.check_packed(_without_sides(where, found), schema)
        if time_literals.mentioned(found):
            where = Dialect(_sides(schema, where)).lance(where)
        if any(call.lower == "arrow_cast" for call in filters.calls(filters.tokens(where))):
            raise filters.invalid(
                "of times only now() and ones like timestamp '2024-06-01' can be in it, compared by <, <=, =, >= and > "
                "with columns that have no time zone. For one with a zone write the number that it has for the time: "
                "cast(target.at as bigint) < 1717200000000000, in microseconds since 1970 for timestamp[us, …]"
            )
    return where


def _without_sides(where: str, found: Sequence[Token]) -> str:
    """Return a condition that calls `source.a` and `target.a` both `a`."""
    pieces, at = [], 0
    for index, token in enumerate(found[:-1]):
        begins = index == 0 or found[index - 1].text != "."
        if begins and token.name.lower() in _SIDES and found[index + 1].text == ".":
            pieces.append(where[at : token.start])
            at = found[index + 1].end
    return "".join([*pieces, where[at:]])


def _sides(schema: pa.Schema, where: str) -> lance.LanceDataset:
    """Return a dataset without rows, in memory, whose columns are the sides with what they have of times."""
    named = filters.names(where)
    row = pa.struct([field for field in schema if field.name.casefold() in named and _has_time(field.type)])
    sides = pa.schema([pa.field(side, row) for side in _SIDES])
    empty = pa.table([pa.nulls(0, row)] * len(_SIDES), schema=sides)
    return lance.write_dataset(empty, "memory://sides.lance", data_storage_version="2.1")


def _has_time(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return pa.types.is_temporal(kind) or any(_has_time(kind.field(at).type) for at in range(kind.num_fields))


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Have an error name the field that the SQL stands in."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=field) from None
