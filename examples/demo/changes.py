"""What happens to the demo's table after its view is filled: definitions are added, edited and removed.

They are chosen when the source is read, and wait in a table of their own: a demo that was interrupted finds them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

import leman
from examples.demo.extract import Row

TABLE = "changes"

_ADDED = 100  # one of so many definitions comes later
_TOUCHED = 40  # so many documented ones are edited or removed
_REVIEWED = "'\n\nReviewed.'"


def split(rows: Sequence[Row]) -> tuple[Sequence[Row], dict[str, Sequence[Row]]]:
    """The definitions that the table begins with, and those that are to be added, edited or removed later.

    Added are the last ones that were read; edited and removed ones stand all over the documented ones.
    """
    first = len(rows) - min(len(rows) // 2, -(-len(rows) // _ADDED))
    documented = [row for row in rows[:first] if row.docstring]
    touched = documented[1 :: max(1, len(documented) // _TOUCHED)]
    return rows[:first], {"add": rows[first:], "edit": touched[::2], "remove": touched[1::2]}


def pending(changes: leman.Table, table: leman.Table) -> dict[str, pa.Table]:
    """The changes that were not made yet, by kind; none of them is to be made twice."""
    wanted = {kind: changes.to_arrow(where=f"change = '{kind}'").drop_columns(["change"]) for kind in _MAKE}
    now = table.to_lance()
    return {
        kind: rows
        for kind, rows in wanted.items()
        if rows.num_rows and bool(now.count_rows(_to_do(kind, rows))) is not (kind == "add")
    }


def make(table: leman.Table, changes: Mapping[str, pa.Table]) -> None:
    """Changes the table, as anyone would who has it."""
    for kind, rows in changes.items():
        _MAKE[kind](table, rows)


def _add(table: leman.Table, rows: pa.Table) -> None:
    table.add(rows)


def _edit(table: leman.Table, rows: pa.Table) -> None:
    table.to_lance().update({"docstring": f"docstring || {_REVIEWED}"}, _to_do("edit", rows))


def _remove(table: leman.Table, rows: pa.Table) -> None:
    table.to_lance().delete(_to_do("remove", rows))


_MAKE = {"add": _add, "edit": _edit, "remove": _remove}


def _to_do(kind: str, rows: pa.Table) -> str:
    """A filter for the rows that are to be changed; of added ones for the first, as all of them come at once."""
    places = rows.slice(0, 1 if kind == "add" else None).to_pylist()
    these = " OR ".join(f"(path = {_text(row['path'])} AND line = {row['line']})" for row in places)
    return f"({these}) AND NOT ends_with(docstring, {_REVIEWED})" if kind == "edit" else these


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
