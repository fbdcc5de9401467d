"""Check that the source is still what the view was made from, and the view what its definition says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from leman_core.functions import validation
from leman_core.functions.blobs import is_blob
from leman_core.functions.nested_types import differ_in_names
from leman_core.model.errors import FailedPrecondition
from leman_core.model.refresh import ResolvedFunction
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.view import INTERNAL_COLUMNS, ViewDefinition
from leman_planner.views.source_diff import fields_read

_ADVICE = "Drop the view and create it again"


def check_view(view: TableSnapshot, definition: ViewDefinition) -> None:
    """Check that a view's table has the columns of its definition.

    Raises:
        FailedPrecondition: EXTERNAL_WRITES, where it has other ones.
    """
    query = definition.query
    wanted = [*INTERNAL_COLUMNS, *(c.name for c in query.columns), *(f.name for f in query.functions)]
    have = [field.name for field in view.fields]
    if gone := [name for name in wanted if name not in have]:
        problem = f"its columns {', '.join(gone)} were dropped or renamed. {_ADVICE}"
    elif more := [name for name in have if name not in wanted]:
        problem = f"columns {', '.join(more)} were added, which its query does not have. Drop them"
    else:
        return
    raise FailedPrecondition("EXTERNAL_WRITES", f"The view was changed by somebody else: {problem}", table=view.uri)


def check_source(
    view: TableSnapshot,
    definition: ViewDefinition,
    base: TableSnapshot | None,
    target: TableSnapshot,
    functions: Sequence[ResolvedFunction],
) -> None:
    """Check that the target version has the columns that a view reads, with their types.

    Without a base version the columns of expressions are not checked.

    Raises:
        FailedPrecondition: SOURCE_COLUMN_MISSING, TYPE_MISMATCH.
    """
    for name, before in _recorded(view, definition, base):
        column = target.find(name)
        if column is None:
            raise source_column_missing(name, target, base)
        if before is not None and not _same_values(before, column.arrow):
            raise _retyped(name, before.type, column, target)
    for function in functions:
        inputs = tuple(c for name in function.column.inputs if (c := target.find(name)) is not None)
        validation.check_input_types(inputs, function.udf)
        column = view.column(function.column.name)
        if column is not None:
            validation.check_output_type(column, function.udf, _ADVICE)


def source_column_missing(name: str, target: TableSnapshot, base: TableSnapshot | None) -> FailedPrecondition:
    """Return the error for a column that the source lacks, or does not have any more."""
    old = None if base is None else base.column(name)
    renamed = old and next((f.name for f in target.fields if f.field_id == old.field_id), None)
    hint = f"It is called '{renamed}' now: rename it back" if renamed else "Add it back"
    return FailedPrecondition(
        "SOURCE_COLUMN_MISSING",
        f"The view reads column '{name}', which version {target.version} of its source does not have. "
        f"{hint}, or refresh to a version that has it, or drop the view and create it without the column",
        column=name,
        source_version=target.version,
    )


def _recorded(
    view: TableSnapshot, definition: ViewDefinition, base: TableSnapshot | None
) -> Iterator[tuple[str, pa.Field | None]]:
    """Yield (source column, what it was when the view was made or last refreshed; None: unknown)."""
    if base is not None:
        yield from ((column.name, column.arrow) for column in fields_read(definition.query, base))
    for column in definition.query.columns:
        own = view.column(column.name)
        if column.source_column and own is not None:
            yield column.source_column, own.arrow
    for function in definition.query.functions:
        yield from ((name, None) for name in function.inputs)


def _same_values(before: pa.Field, now: pa.Field) -> bool:
    """Tell whether the view can hold both in one column. It keeps blobs of any form as plain ones."""
    if is_blob(before) or is_blob(now):
        return is_blob(before) and is_blob(now)
    return validation.same_type(before.type, now.type)


def _retyped(name: str, before: pa.DataType, column: TableField, target: TableSnapshot) -> FailedPrecondition:
    back = "Rename its fields back" if differ_in_names(before, column.arrow.type) else "Cast it back"
    return FailedPrecondition(
        "TYPE_MISMATCH",
        f"Type mismatch for column {name}: the view was made from {before}, version {target.version} of its source has "
        f"{column.arrow.type}. {back}, or drop the view and create it again",
        column=name,
        declared=before,
        actual=column.arrow.type,
    )
