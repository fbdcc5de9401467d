"""Which columns of its source a view's query reads."""

from __future__ import annotations

from collections.abc import Iterable

from leman_core.model.view import IS_SET, ViewQuery
from leman_core.sql import expressions


def columns_read(query: ViewQuery, columns: Iterable[str]) -> tuple[str, ...]:
    """Return those of the source's columns that the view reads, each once, in the order in which the query names them.

    Names that the source does not have are left out. Of a source that is a view its `__is_set` is read too, and comes
    last: rows without values are not there.
    """
    names = list(columns)
    read: list[str] = []
    for column in query.columns:
        read += [column.source_column] if column.source_column else expressions.inputs(column.expression, names)
    if query.where:
        read += expressions.inputs(query.where, names)
    for function in query.functions:
        read += [path.split(".")[0] for path in function.inputs]
    held = frozenset(names)
    return tuple(name for name in dict.fromkeys([*read, IS_SET]) if name in held)
