"""One try of a change to a table's columns, in the table's commit queue: look who reads them, then commit."""

from __future__ import annotations

from typing import Any

from leman_coordinator.lance_io.column_users import users_of
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_coordinator.requests import CommitResult
from leman_coordinator.tables.changes import is_a_view
from leman_coordinator.tables.requests import AlteredColumn, ChangeColumnsRequest
from leman_core.functions import binding, storable_types
from leman_core.functions.validation import column_not_found
from leman_core.model.errors import FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.view_metadata import is_view
from leman_core.process.crash_points import crash_point
from leman_core.storage.tables import file_format


def change(table: TableHandle, request: ChangeColumnsRequest) -> CommitResult:
    """Add, drop or alter columns, all of them or none.

    Raises:
        FailedPrecondition: IS_A_VIEW, COLUMN_NOT_FOUND, COLUMN_EXISTS, LAST_COLUMN, COLUMN_IS_COMPUTED, COLUMN_IN_USE,
            TYPE_NOT_STORABLE.
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        LemanError: what `TableHandle.latest` raises.
    """
    base = table.latest()
    if is_view(table.dataset.schema.metadata or {}):
        raise is_a_view(request.uri)
    wanted = _names_after(request, request.before[0]) if request.before else None
    if wanted is not None and wanted != request.before[0] and _names(base) == wanted:
        return CommitResult(base.version, operation="ChangeColumns")  # a try that failed unclearly had done it
    request.before[:] = [_names(base)]
    if request.added:
        version = _add(table, base, request)
    elif request.dropped:
        version = _drop(table, base, request)
    else:
        version = _alter(table, base, request)
    crash_point("coordinator.columns_changed")
    return CommitResult(version, operation="ChangeColumns")


def _add(table: TableHandle, base: TableSnapshot, request: ChangeColumnsRequest) -> int:
    for field in request.added:
        _check_free(base, field.name)
        storable_types.check(field.name, field.type, file_format(table.dataset))
    return table.add_plain_columns(request.added)


def _drop(table: TableHandle, base: TableSnapshot, request: ChangeColumnsRequest) -> int:
    columns = [_column(base, name) for name in request.dropped]
    if len(columns) == len(base.fields):
        raise FailedPrecondition(
            "LAST_COLUMN", f"Table {request.uri} would have no column: drop the table", uri=base.uri
        )
    if not request.force:
        _check_unused(base, columns, "dropped", by_name=True)
    return table.drop_columns(request.dropped)


def _alter(table: TableHandle, base: TableSnapshot, request: ChangeColumnsRequest) -> int:
    renamed = [_column(base, column.name) for column in request.altered if column.new_name is not None]
    retyped = [_column(base, column.name) for column in request.altered if column.kind is not None]
    for column in request.altered:
        field = _column(base, column.name)
        if column.new_name not in (None, column.name):
            _check_free(base, str(column.new_name))
        if column.kind is not None:
            storable_types.check(column.name, column.kind, file_format(table.dataset))
            if binding.read(field.arrow) is not None:
                raise FailedPrecondition(
                    "COLUMN_IS_COMPUTED",
                    f"Column '{column.name}' has the type of its function: add another column instead",
                    column=column.name,
                )
    if not request.force:
        _check_unused(base, retyped, "given another type", by_name=True)
        _check_unused(base, renamed, "renamed", by_name=False)
    return table.alter_columns([_alteration(column) for column in request.altered])


def _alteration(column: AlteredColumn) -> dict[str, Any]:
    asked = {"name": column.new_name, "data_type": column.kind, "nullable": column.nullable}
    return {"path": column.name, **{key: value for key, value in asked.items() if value is not None}}


def _check_unused(base: TableSnapshot, columns: list[TableField], what: str, *, by_name: bool) -> None:
    """Refuse a change of columns that others read.

    Args:
        by_name: whether computed columns and jobs mind too; they follow a column to its new name.
    """
    users = users_of(base, columns) if columns else None
    if users is None or not (users.views or (by_name and (users.columns or users.jobs))):
        return
    facts = {"views": users.views, **({"columns": users.columns, "jobs": users.jobs} if by_name else {})}
    listed = " and ".join(f"{kind} {', '.join(names)}" for kind, names in facts.items() if names)
    names = ", ".join(f"'{column.name}'" for column in columns)
    raise FailedPrecondition(
        "COLUMN_IN_USE",
        f"Column {names} cannot be {what}: {listed} read or compute it. Change these first, or force it",
        uri=base.uri,
        **{kind: ", ".join(names) for kind, names in facts.items()},
    )


def _column(base: TableSnapshot, name: str) -> TableField:
    found = base.column(name)
    if found is None:
        raise column_not_found(name, _names(base))
    return found


def _check_free(base: TableSnapshot, name: str) -> None:
    if base.column(name) is not None:
        raise FailedPrecondition("COLUMN_EXISTS", f"Column '{name}' exists in this table already", column=name)


def _names(base: TableSnapshot) -> tuple[str, ...]:
    return tuple(field.name for field in base.fields)


def _names_after(request: ChangeColumnsRequest, before: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that columns have once the request is done."""
    new = {column.name: column.new_name or column.name for column in request.altered}
    left = [new.get(name, name) for name in before if name not in request.dropped]
    return (*left, *(field.name for field in request.added))
