"""SQL that callers send along with changes to rows, as it can be used on the latest version of a table."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace

from commit_coordinator.tables.requests import MergeRules
from core.errors import InvalidArgument
from core.lance_io.tables import LanceTables
from core.sql import expressions, filters
from core.sql.relative_time import pin


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
    names = tables.dataset(uri).schema.names
    for column, expression in given.items():
        try:
            found[column] = pin(expression, now)
            expressions.check(found[column], names)
            tables.expression_type(uri, found[column], may_be_constant=True)
        except InvalidArgument as error:
            said = f"Invalid SQL expression for '{column}': {error.message.partition(': ')[2]}"
            raise InvalidArgument("INVALID_EXPRESSION", said, field="expressions") from None
    return found


def rules(uri: str, given: MergeRules, now: dt.datetime) -> MergeRules:
    """Return the rules of a merge, with `now()` and the like in its conditions as of `now`.

    What one says of `source` and `target`, Lance judges when it brings rows together.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: what else `LanceTables.check_filter` raises.
    """
    update, delete = given.update_where, given.delete_where
    with _about("header.update_where"):
        if update:
            update = pin(update, now)
            filters.check(update, [])
    with _about("header.delete_where"):
        if delete:
            delete = condition(uri, delete, now)
    return replace(given, update_where=update, delete_where=delete)


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Have an error name the field that the SQL stands in."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=field) from None
