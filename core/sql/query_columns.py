"""Which columns of its source a view's query reads."""

from __future__ import annotations

from collections.abc import Iterable

from core.domain.view import IS_SET, ViewQuery
from core.sql import expressions


def columns_read(query: ViewQuery, columns: Iterable[str]) -> tuple[str, ...]:
    """Return those of the source's columns that the view reads, in the source's order; a view's `__is_set` too."""
    names = list(columns)
    texts = [c.expression for c in query.columns]
    wanted = {c for text in texts for c in expressions.inputs(text, names)} | {c.source_column for c in query.columns}
    wanted |= {c.split(".")[0] for function in query.functions for c in function.inputs}
    if query.where:
        wanted.update(expressions.inputs(query.where, names))
    if IS_SET in names:
        wanted.add(IS_SET)
    return tuple(name for name in names if name in wanted)
