"""The graph of computed columns that read each other, including columns that are about to be added. No I/O."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from leman._format.column_bindings import NOT_YET, ColumnBinding
from leman_core.functions import binding
from leman_core.model.service_errors import UNREADABLE, FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot


def upstream_columns(table: TableSnapshot, column: str, inputs: Iterable[TableField] | None = None) -> list[str]:
    """Return the computed columns that a column depends on, directly or indirectly, each before its readers.

    Args:
        inputs: The columns that `column` reads, or None for the inputs in its binding.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    first = columns_read(table, column) if inputs is None else _columns(inputs)
    graph = {column: [name for name in first if is_computed(table, name)]}
    todo = list(graph[column])
    while todo:
        name = todo.pop()
        if name not in graph:
            graph[name] = [read for read in columns_read(table, name) if is_computed(table, read)]
            todo += graph[name]
    return [name for name in inputs_first(graph) if name != column]


def inputs_first(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Sort columns so that each comes after the columns that it reads.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise FailedPrecondition(
            "COLUMN_CYCLE",
            f"Computed columns depend on each other in a cycle ({cycle}). Change the inputs of one of them",
            columns=cycle,
        ) from None


def columns_read(table: TableSnapshot, column: str) -> list[str]:
    """Return the current names of the columns that a computed column reads, or nothing for other columns."""
    bound = _bound(table, column)
    if bound is None or bound.source is not None:  # a view's scratch table reads its inputs from the source
        return []
    found = (table.find_id(known.field_id) or table.find(known.name) for known in bound.inputs)
    return _columns(field for field in found if field is not None)


def is_computed(table: TableSnapshot, column: str) -> bool:
    """Return whether a function computes a column, or False if its binding cannot be read."""
    return _bound(table, column) is not None


def _columns(fields: Iterable[TableField]) -> list[str]:
    return list(dict.fromkeys(field.name.split(".")[0] for field in fields))


def _bound(table: TableSnapshot, column: str) -> ColumnBinding | None:
    field = table.column(column)
    try:
        return None if field is None else binding.read(field.arrow)
    except UNREADABLE:  # a job of that column reports the problem
        return None


def with_columns(table: TableSnapshot, fields: Iterable[pa.Field]) -> TableSnapshot:
    """Return the table with more columns, or with other bindings of its columns."""
    new = [_about_to_be(field) for field in fields if table.column(field.name) is None]
    return replace(table, fields=(*table.fields, *new)) if new else table


def _about_to_be(field: pa.Field) -> TableField:
    inner = [field.type.field(at) for at in range(field.type.num_fields)] if pa.types.is_struct(field.type) else []
    return TableField(field, (NOT_YET,), tuple(_about_to_be(part) for part in inner))


def pending_columns(table: TableSnapshot) -> list[pa.Field]:
    """Return those columns of a `with_columns` table that do not exist yet."""
    return [field.arrow for field in table.fields if field.field_id == NOT_YET]


def check_cycles(table: TableSnapshot, fields: Sequence[pa.Field]) -> None:
    """Reject bindings that would make columns depend on each other in a cycle.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    new = {field.name: field for field in fields}
    changed = (replace(f, arrow=new[f.name]) if f.name in new else f for f in table.fields)
    after = replace(table, fields=tuple(changed))
    for name in new:
        upstream_columns(after, name)
