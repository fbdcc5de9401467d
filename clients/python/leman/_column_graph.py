"""Which computed columns of a table read which others."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Sequence

from leman._table_model import ComputedColumn, TableInfo
from leman.errors import FailedPrecondition


def reads(column: ComputedColumn) -> list[str]:
    """The columns that a column reads, each once; of fields of a struct the column that they lie in."""
    return list(dict.fromkeys(name.split(".")[0] for name in column.input_columns))


def inputs_first(columns: Sequence[ComputedColumn]) -> list[str]:
    """The names of computed columns, each after those that it reads; else as they come.

    Raises FailedPrecondition (COLUMN_CYCLE).
    """
    names = {column.name for column in columns}
    graph = {column.name: [name for name in reads(column) if name in names] for column in columns}
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise FailedPrecondition(
            f"computed columns read one another in a circle ({circle}): alter one of them", reason="COLUMN_CYCLE"
        ) from None


def tree(table: TableInfo) -> list[str]:
    """Lines of text: under each column that is read, those that are computed from it. What is computed from several
    columns stands under each of them, and what follows from it once."""
    computed = {column.name: column for column in table.computed_columns}
    readers: dict[str, list[str]] = {}
    for column in table.computed_columns:
        for name in reads(column):
            readers.setdefault(name, []).append(column.name)
    told: set[str] = set()

    def below(name: str, indent: str) -> Iterator[str]:
        for at, reader in enumerate(readers.get(name, ())):
            last = at == len(readers[name]) - 1
            column = computed[reader]
            text = f"{reader} = {column.udf_name}({', '.join(column.input_columns)})"
            again = reader in told and reader in readers
            yield f"{indent}{'└─' if last else '├─'} {text}{' …' if again else ''}"
            if reader not in told:
                told.add(reader)
                yield from below(reader, indent + ("   " if last else "│  "))

    return [line for root in _roots(table, readers, computed) for line in (root, *below(root, ""))]


def _roots(table: TableInfo, readers: Iterable[str], computed: Iterable[str]) -> list[str]:
    """The columns that are read and not computed, as the table has them; those that it lost come last."""
    found = [name for name in readers if name not in computed]
    there = [name for name in table.schema.names if name in found]
    return [*there, *(name for name in found if name not in there)]
