"""One try of a change to a table, its rows or its columns, in the table's commit queue.

A try reads the latest version, checks, then commits. After an unclear failure, the next try first finds out whether the
commit was made.
"""

from __future__ import annotations

from typing import Any

from leman._format.view_definitions import is_view
from leman_coordinator.commits.commit_requests import (
    AlteredColumn,
    AppendRowsRequest,
    ChangeColumnsRequest,
    CommitResult,
    CreateTableRequest,
    DeleteRowsRequest,
    MergeRowsRequest,
    RowsRequest,
    UpdateRowsRequest,
)
from leman_coordinator.lance_io import row_commits, row_rewrites
from leman_coordinator.lance_io.column_definitions import users_of
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions import arrow_types, binding
from leman_core.functions.column_checks import column_not_found
from leman_core.model.service_errors import Aborted, FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot
from leman_core.process.crash_points import crash_point
from leman_core.server.request_messages import check_same_request
from leman_core.storage import transactions
from leman_core.storage.lance_tables import file_format
from leman_core.storage.locations import is_link
from leman_core.storage.transactions import SCAN_LIMIT, VersionGone

CREATE, DELETE, UPDATE = "CreateTable", "DeleteRows", "UpdateRows"
APPEND, MERGE = row_commits.APPEND, row_commits.MERGE


def create_new_table(request: CreateTableRequest) -> CommitResult:
    """Create the table, or complete it if this request created it before.

    Raises:
        AlreadyExists: TABLE_EXISTS – another table has the name; REQUEST_ID_REUSED – a request with this id but another
            body created the table.
        CommitConflict: Another writer committed first.
        CommitUnclear: The table may have been created.
        LemanError: raised by `create_table`.
    """
    made = row_commits.made_by(request.uri)
    if made is None and is_link(request.uri):
        raise row_commits.table_exists_error(request.uri)
    if made is None:
        properties = transactions.row_properties(request.request_id, request.body, CREATE, fragments=0, rows=0)
        row_commits.create_table(request.uri, request.schema, properties, stable_row_ids=request.stable_row_ids)
        crash_point("coordinator.table_created")
    elif made[0] != request.request_id:
        raise row_commits.table_exists_error(request.uri)
    else:
        check_same_request(request.request_id, made[1], request.body)
    version = row_commits.complete_creation(request.uri, request.request_id, request.body)
    return CommitResult(version, operation=CREATE, repeated=made is not None)


def change_rows(table: TableHandle, request: RowsRequest) -> CommitResult:
    """Add, delete, update or merge rows.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED – another change was made with this request id.
        FailedPrecondition: IS_A_VIEW – rows of a view come from its source.
        Aborted: TABLE_REPLACED – the table was dropped and created again; SCHEMA_CHANGED – a column of the new rows has
            been replaced; FILES_GONE – the files of the new rows were removed.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: raised by `update_rows`, `prepared_merge` and `TableHandle.latest`.
    """
    base = table.latest()
    done = _done(table, request)
    if done is not None:
        return done
    if is_view(table.dataset.schema.metadata or {}):
        raise is_a_view(request.uri)
    if isinstance(request, DeleteRowsRequest):
        return _delete(table, request)
    if isinstance(request, UpdateRowsRequest):
        return _update(table, request)
    if isinstance(request, MergeRowsRequest):
        _check_columns(base, request)
        return _first(table, request, base, _merge(table, request))
    if not request.files:
        return CommitResult(int(table.dataset.version), operation=APPEND)
    _check_fits(base, request)
    properties = transactions.row_properties(
        request.request_id, request.body, APPEND, fragments=len(request.files), rows=request.rows
    )
    crash_point("coordinator.rows_staged")
    version = row_commits.append_files(table, request.files, request.columns, properties)
    crash_point("coordinator.rows_committed")
    return _first(table, request, base, CommitResult(version, operation=APPEND, rows=request.rows))


def table_replaced_error(uri: str) -> Aborted:
    """Return the error (TABLE_REPLACED) for rows whose table was replaced after they were sent."""
    return Aborted("TABLE_REPLACED", f"Table {uri} was dropped, or created again: send the rows again")


def is_a_view(uri: str) -> FailedPrecondition:
    """Return the error (IS_A_VIEW) for a change that only a refresh may make."""
    return FailedPrecondition("IS_A_VIEW", f"{uri} is a view: its rows come from its source", uri=uri)


def _delete(table: TableHandle, request: DeleteRowsRequest) -> CommitResult:
    found = row_commits.matching_rows(table.dataset, request.where)
    if not found.rows:
        return CommitResult(int(table.dataset.version), operation=DELETE)
    properties = transactions.row_properties(
        request.request_id, request.body, DELETE, fragments=found.fragments, rows=found.rows
    )
    version = row_commits.delete_rows(table, found, request.where, properties)
    crash_point("coordinator.rows_deleted")
    return CommitResult(version, operation=DELETE, rows=found.rows)


def _update(table: TableHandle, request: UpdateRowsRequest) -> CommitResult:
    found = row_commits.matching_rows(table.dataset, request.where)
    row_rewrites.check_update(table, request)
    if not found.rows:
        return CommitResult(int(table.dataset.version), operation=UPDATE)
    properties = transactions.row_properties(
        request.request_id, request.body, UPDATE, fragments=found.fragments, rows=found.rows
    )
    version = row_rewrites.update_rows(table, found, request, properties)
    crash_point("coordinator.rows_updated")
    return CommitResult(version, operation=UPDATE, rows=found.rows)


def _merge(table: TableHandle, request: MergeRowsRequest) -> CommitResult:
    with row_rewrites.prepared_merge(table, request) as ready:
        counts, rows = ready.counts, sum(ready.counts)
        if not rows:
            return CommitResult(int(table.dataset.version), operation=MERGE, merged=counts)
        properties = transactions.row_properties(
            request.request_id, request.body, MERGE, fragments=ready.fragments, rows=rows, merged=counts
        )
        version = table.commit(ready.operation, properties)
    crash_point("coordinator.rows_merged")
    return CommitResult(version, operation=MERGE, rows=rows, merged=counts)


def _done(table: TableHandle, request: RowsRequest) -> CommitResult | None:
    """Return the result of an earlier call with this request id from the table's history, or None.

    The answer to the earlier call may have been lost, or an earlier try may have failed with an unclear outcome. If two
    coordinators have added the request's rows, the duplicates are removed.
    """
    records = list(table.records(0, SCAN_LIMIT))
    taken_back = row_commits.take_back_all(table, records)
    asked = [record for record in records if request.request_id in record.request_ids]
    if not asked:
        return None
    first = asked[-1]
    check_same_request(request.request_id, first.body, request.body)
    refers = isinstance(request, AppendRowsRequest) and _refers(table, request, first.version, taken_back)
    return CommitResult(
        first.version, operation=first.operation, rows=first.rows, merged=first.merged, repeated=not refers
    )


def _refers(table: TableHandle, request: AppendRowsRequest, version: int, taken_back: frozenset[str]) -> bool:
    """Return whether any version of the table refers to files of the request, so that they must not be removed.

    The latest version refers to them if an earlier try committed but its answer was lost. After the rows were removed
    as duplicates, an older version still refers to the files until that version is deleted. If the versions cannot be
    read, the result is True.
    """
    files = {file.file for file in request.files}
    try:
        added = row_commits.added_files(table, version)
    except VersionGone:
        return True
    return not files.isdisjoint(taken_back | added)


def _first(table: TableHandle, request: RowsRequest, base: TableSnapshot, made: CommitResult) -> CommitResult:
    """Return the result that counts: `made`, or that of another coordinator's earlier commit for the same request."""
    if made.version <= base.version + 1:
        return made  # there was no other commit since the read
    known = _done(table, request)
    return made if known is None or known.version == made.version else known


def _check_columns(base: TableSnapshot, request: AppendRowsRequest | MergeRowsRequest) -> None:
    if request.incarnation != base.incarnation:
        raise table_replaced_error(request.uri)
    for column in request.columns:
        now = base.column(column.name)
        same = now is not None and (now.field_ids, now.arrow.type) == (column.field_ids, column.arrow.type)
        if not same or (now is not None and now.arrow.nullable < column.arrow.nullable):
            raise Aborted(
                "SCHEMA_CHANGED",
                f"Column '{column.name}' was changed while the rows were sent: check the table, then send them again",
                column=column.name,
            )


def _check_fits(base: TableSnapshot, request: AppendRowsRequest) -> None:
    _check_columns(base, request)
    given = {column.name for column in request.columns}
    lacking = [f.name for f in base.fields if not f.arrow.nullable and f.name not in given]
    if lacking:
        raise Aborted("SCHEMA_CHANGED", f"Column '{lacking[0]}' has become non-nullable since the rows were sent")
    row_commits.check_files(request.uri, request.files)


def change_columns(table: TableHandle, request: ChangeColumnsRequest) -> CommitResult:
    """Add, drop or alter columns, all of them or none.

    Raises:
        FailedPrecondition: IS_A_VIEW, COLUMN_NOT_FOUND, COLUMN_EXISTS, LAST_COLUMN, COLUMN_IS_COMPUTED, COLUMN_IN_USE,
            TYPE_NOT_STORABLE.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: raised by `TableHandle.latest`.
    """
    base = table.latest()
    if is_view(table.dataset.schema.metadata or {}):
        raise is_a_view(request.uri)
    wanted = _names_after(request, request.before[0]) if request.before else None
    if wanted is not None and wanted != request.before[0] and _names(base) == wanted:
        return CommitResult(base.version, operation="ChangeColumns")  # an earlier try with an unclear result succeeded
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
        arrow_types.check_storable(field.name, field.type, file_format(table.dataset))
    return table.add_plain_columns(request.added)


def _drop(table: TableHandle, base: TableSnapshot, request: ChangeColumnsRequest) -> int:
    columns = [_column(base, name) for name in request.dropped]
    if len(columns) == len(base.fields):
        raise FailedPrecondition(
            "LAST_COLUMN", f"Table {request.uri} would have no columns left: drop the table", uri=base.uri
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
            arrow_types.check_storable(column.name, column.kind, file_format(table.dataset))
            if binding.read(field.arrow) is not None:
                raise FailedPrecondition(
                    "COLUMN_IS_COMPUTED",
                    f"Column '{column.name}' is computed, and keeps its function's type: add another column instead",
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
    """Refuse to change columns that views, computed columns or jobs use.

    Args:
        columns: The columns to change.
        what: The change, for the error.
        by_name: Whether computed columns and jobs prevent the change, as views always do. A rename does not affect
            them.
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
    """Return the column names after the request."""
    new = {column.name: column.new_name or column.name for column in request.altered}
    left = [new.get(name, name) for name in before if name not in request.dropped]
    return (*left, *(field.name for field in request.added))
