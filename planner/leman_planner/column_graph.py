"""Which computed columns of a table read which others. Pure."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence

from leman_core.functions import binding
from leman_core.model.errors import UNREADABLE, FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.udf import ColumnBinding


def rests_on(table: TableSnapshot, column: str, inputs: Iterable[TableField] | None = None) -> list[str]:
    """Return the computed columns that a column is computed from, near and far, inputs before what reads them.

    Args:
        inputs: what the column reads; None: what it is bound to.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    first = reads(table, column) if inputs is None else _columns(inputs)
    graph = {column: [name for name in first if is_computed(table, name)]}
    todo = list(graph[column])
    while todo:
        name = todo.pop()
        if name not in graph:
            graph[name] = [read for read in reads(table, name) if is_computed(table, read)]
            todo += graph[name]
    return [name for name in inputs_first(graph) if name != column]


def inputs_first(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all names in an order in which each comes after those that it reads.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise FailedPrecondition(
            "COLUMN_CYCLE",
            f"Computed columns would read one another in a circle ({circle}): have one of them read something else",
            columns=circle,
        ) from None


def reads(table: TableSnapshot, column: str) -> list[str]:
    """Return the columns that a computed column reads, as they are called now, each once; none for any other."""
    bound = _bound(table, column)
    if bound is None or bound.source is not None:  # of a view's scratch table: its inputs are elsewhere
        return []
    found = (table.find_id(known.field_id) or table.find(known.name) for known in bound.inputs)
    return _columns(field for field in found if field is not None)


def is_computed(table: TableSnapshot, column: str) -> bool:
    """Tell whether a function computes a column, as far as can be told."""
    return _bound(table, column) is not None


def _columns(fields: Iterable[TableField]) -> list[str]:
    return list(dict.fromkeys(field.name.split(".")[0] for field in fields))


def _bound(table: TableSnapshot, column: str) -> ColumnBinding | None:
    field = table.column(column)
    try:
        return None if field is None else binding.read(field.arrow)
    except UNREADABLE:  # whoever computes that column hears of it
        return None
