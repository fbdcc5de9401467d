"""One try of a change to a table or its rows, in the table's commit queue: look at the latest version, then commit.

A try that fails unclearly is followed by another, which finds out first whether the commit was made.
"""

from __future__ import annotations

from leman_coordinator.lance_io import row_commits, row_merges, row_updates, twin_commits
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_coordinator.requests import CommitResult
from leman_coordinator.tables.requests import (
    AppendRowsRequest,
    CreateTableRequest,
    DeleteRowsRequest,
    MergeRowsRequest,
    RowsRequest,
    UpdateRowsRequest,
)
from leman_core.model.errors import Aborted, FailedPrecondition
from leman_core.model.table import TableSnapshot
from leman_core.model.view_metadata import is_view
from leman_core.process.crash_points import crash_point
from leman_core.server.request_digest import check_body
from leman_core.storage import commit_history
from leman_core.storage.commit_history import SCAN_LIMIT
from leman_core.storage.locations import is_link
from leman_core.storage.transactions import VersionGone

CREATE, DELETE, UPDATE = "CreateTable", "DeleteRows", "UpdateRows"
APPEND, MERGE = twin_commits.APPEND, twin_commits.MERGE


def create(request: CreateTableRequest) -> CommitResult:
    """Make the table, or complete it where this very request made it before.

    Raises:
        AlreadyExists: TABLE_EXISTS – there is another table of that name; REQUEST_ID_REUSED – this request id made it
            with another body.
        CommitConflict: Another writer came between.
        CommitUnclear: The table may have been made.
        LemanError: what `row_commits.create_table` raises.
    """
    made = row_commits.made_by(request.uri)
    if made is None and is_link(request.uri):
        raise row_commits.exists(request.uri)
    if made is None:
        properties = commit_history.row_properties(request.request_id, request.body, CREATE, fragments=0, rows=0)
        row_commits.create_table(request.uri, request.schema, properties, stable_row_ids=request.stable_row_ids)
        crash_point("coordinator.table_created")
    elif made[0] != request.request_id:
        raise row_commits.exists(request.uri)
    else:
        check_body(request.request_id, made[1], request.body)
    version = row_commits.complete_creation(request.uri, request.request_id, request.body)
    return CommitResult(version, operation=CREATE, repeated=made is not None)


def change(table: TableHandle, request: RowsRequest) -> CommitResult:
    """Add, delete, update or merge rows.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED – the id is that of another change.
        FailedPrecondition: IS_A_VIEW – rows of a view come from its source.
        Aborted: TABLE_REPLACED – the table was dropped and created again; SCHEMA_CHANGED – a column of the new rows
            is another one now; FILES_GONE – the files of the new rows were removed.
        LemanError: what `row_updates.update` and `row_merges.merge` raise.
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        LemanError: what `TableHandle.latest` raises.
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
    properties = commit_history.row_properties(
        request.request_id, request.body, APPEND, fragments=len(request.files), rows=request.rows
    )
    crash_point("coordinator.rows_staged")
    version = row_commits.append(table, request.files, request.columns, properties)
    crash_point("coordinator.rows_committed")
    return _first(table, request, base, CommitResult(version, operation=APPEND, rows=request.rows))


def replaced(uri: str) -> Aborted:
    """Return the error (TABLE_REPLACED) of rows for a table that is not the one that they were sent for."""
    return Aborted("TABLE_REPLACED", f"Table {uri} was dropped, or created again: send the rows again")


def is_a_view(uri: str) -> FailedPrecondition:
    """Return the error (IS_A_VIEW) of a change that only a refresh may make."""
    return FailedPrecondition("IS_A_VIEW", f"{uri} is a view: its rows come from its source", uri=uri)


def _delete(table: TableHandle, request: DeleteRowsRequest) -> CommitResult:
    found = row_commits.matching(table.dataset, request.where)
    if not found.rows:
        return CommitResult(int(table.dataset.version), operation=DELETE)
    properties = commit_history.row_properties(
        request.request_id, request.body, DELETE, fragments=found.fragments, rows=found.rows
    )
    version = row_commits.delete(table, found, request.where, properties)
    crash_point("coordinator.rows_deleted")
    return CommitResult(version, operation=DELETE, rows=found.rows)


def _update(table: TableHandle, request: UpdateRowsRequest) -> CommitResult:
    found = row_commits.matching(table.dataset, request.where)
    row_updates.check(table, request)
    if not found.rows:
        return CommitResult(int(table.dataset.version), operation=UPDATE)
    properties = commit_history.row_properties(
        request.request_id, request.body, UPDATE, fragments=found.fragments, rows=found.rows
    )
    version = row_updates.update(table, found, request, properties)
    crash_point("coordinator.rows_updated")
    return CommitResult(version, operation=UPDATE, rows=found.rows)


def _merge(table: TableHandle, request: MergeRowsRequest) -> CommitResult:
    with row_merges.merged(table, request) as ready:
        counts, rows = ready.counts, sum(ready.counts)
        if not rows:
            return CommitResult(int(table.dataset.version), operation=MERGE, merged=counts)
        properties = commit_history.row_properties(
            request.request_id, request.body, MERGE, fragments=ready.fragments, rows=rows, merged=counts
        )
        version = table.commit(ready.operation, properties)
    crash_point("coordinator.rows_merged")
    return CommitResult(version, operation=MERGE, rows=rows, merged=counts)


def _done(table: TableHandle, request: RowsRequest) -> CommitResult | None:
    """Return the answer of an earlier call with this request id, as the table's history has it; None: there was none.

    The first answer may have been lost, or this very try follows one that failed unclearly. What another coordinator
    added for a request that had been committed is taken back with that.
    """
    records = list(table.records(0, SCAN_LIMIT))
    taken_back = twin_commits.take_back_all(table, records)
    asked = [record for record in records if request.request_id in record.request_ids]
    if not asked:
        return None
    first = asked[-1]
    check_body(request.request_id, first.body, request.body)
    refers = isinstance(request, AppendRowsRequest) and _refers(table, request, first.version, taken_back)
    return CommitResult(
        first.version, operation=first.operation, rows=first.rows, merged=first.merged, repeated=not refers
    )


def _refers(table: TableHandle, request: AppendRowsRequest, version: int, taken_back: frozenset[str]) -> bool:
    """Tell whether a version of the table refers to files of the request, which then have to stay.

    It does where an earlier try made the commit and its answer was lost, or where they were taken back: an older
    version refers to them until it is cleaned up. What cannot be looked up counts as referring.
    """
    files = {file.file for file in request.files}
    try:
        added = twin_commits.added_files(table, version)
    except VersionGone:
        return True
    return not files.isdisjoint(taken_back | added)


def _first(table: TableHandle, request: RowsRequest, base: TableSnapshot, made: CommitResult) -> CommitResult:
    """Return the answer to a request that was committed here, and may have been by another coordinator before."""
    if made.version <= base.version + 1:
        return made  # nobody came between the look and the commit
    known = _done(table, request)
    return made if known is None or known.version == made.version else known


def _check_columns(base: TableSnapshot, request: AppendRowsRequest | MergeRowsRequest) -> None:
    if request.incarnation != base.incarnation:
        raise replaced(request.uri)
    for column in request.columns:
        now = base.column(column.name)
        same = now is not None and (now.field_ids, now.arrow.type) == (column.field_ids, column.arrow.type)
        if not same or (now is not None and now.arrow.nullable < column.arrow.nullable):
            raise Aborted(
                "SCHEMA_CHANGED",
                f"Column '{column.name}' was changed while the rows were sent: look at the table and send them again",
                column=column.name,
            )


def _check_fits(base: TableSnapshot, request: AppendRowsRequest) -> None:
    _check_columns(base, request)
    given = {column.name for column in request.columns}
    lacking = [f.name for f in base.fields if not f.arrow.nullable and f.name not in given]
    if lacking:
        raise Aborted("SCHEMA_CHANGED", f"Column '{lacking[0]}' has to have values since the rows were sent")
    row_commits.check_files(request.uri, request.files)
