"""A table as it will be: with columns that are about to be added, or that get other bindings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.udf import NOT_YET
from leman_planner.column_graph import rests_on


def with_columns(table: TableSnapshot, fields: Iterable[pa.Field]) -> TableSnapshot:
    """Return the table as it is with columns that are about to be added; those that it has stay as they are."""
    new = [_about_to_be(field) for field in fields if table.column(field.name) is None]
    return replace(table, fields=(*table.fields, *new)) if new else table


def _about_to_be(field: pa.Field) -> TableField:
    inner = [field.type.field(at) for at in range(field.type.num_fields)] if pa.types.is_struct(field.type) else []
    return TableField(field, (NOT_YET,), tuple(_about_to_be(part) for part in inner))


def not_yet(table: TableSnapshot) -> list[pa.Field]:
    """Return the columns that are about to be added."""
    return [field.arrow for field in table.fields if field.field_id == NOT_YET]


def check_circles(table: TableSnapshot, fields: Sequence[pa.Field]) -> None:
    """Refuse new bindings of a table's columns by which they would read one another.

    Raises:
        FailedPrecondition: COLUMN_CYCLE.
    """
    new = {field.name: field for field in fields}
    changed = (replace(f, arrow=new[f.name]) if f.name in new else f for f in table.fields)
    after = replace(table, fields=tuple(changed))
    for name in new:
        rests_on(after, name)
