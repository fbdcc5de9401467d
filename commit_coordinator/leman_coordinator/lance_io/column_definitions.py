"""Columns of a table: add and bind computed ones, find their users, and update their indexes.

An update of indexes takes long, so it runs outside the commit queues. Lance makes sure that nothing is lost: a
concurrent commit either removes its fragments from the new index, or makes Lance refuse the index as a conflict. After
a conflict, the update is retried.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance import LanceOperation
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leman._format import column_bindings
from leman._format.column_bindings import NOT_YET
from leman_coordinator.lance_io.row_commits import first_version
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, TableHandle, commit_outcomes
from leman_core.functions import binding
from leman_core.functions.column_checks import column_not_found
from leman_core.model.service_errors import (
    UNREADABLE,
    Aborted,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.model.table import IndexCoverage, TableField, TableSnapshot
from leman_core.process.crash_points import crash_point
from leman_core.sql.expressions import columns_read
from leman_core.storage.lance_tables import LanceTables, index_coverage, index_coverage_of, open_table
from leman_core.storage.locations import table_uri
from leman_core.storage.stored_jobs import open_jobs
from leman_core.storage.view_data_files import definition_in

#: Lance accepts a column of such a name, but can then neither delete rows from the table nor compact it.
_RESERVED_NAMES = frozenset(
    {"", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def add_null_columns(table: TableHandle, base: TableSnapshot, schema: pa.Schema) -> int:
    """Add columns without data, all or none, and return the version of the table that has them.

    A table without an incarnation, the id that tells it from other tables of the same name, gets one first. Columns are
    identified by the column id in their metadata. If all of them exist already, nothing is done, and the version is the
    first one that had them. If a new column reads another new column, a second version records the field id of that
    input in the reading column's metadata. Until then, the input is found by name.

    Raises:
        FailedPrecondition: COLUMN_EXISTS – another column has the name; else see `commit_outcomes`.
        InvalidArgument: BAD_COLUMN – Lance refuses the schema, or a name is reserved or repeated.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
    """
    if all(_same_column(base.column(wanted.name), wanted) for wanted in schema):
        if _settle_inputs(table, schema):
            return int(table.dataset.version)
        return first_version(base.uri, base.version, lambda past: _has_settled(past, schema))
    _check_new_columns(base, schema)
    table.add_schema(schema)
    _settle_inputs(table, schema)
    return int(table.dataset.version)


def bind_columns(table: TableHandle, base: TableSnapshot, schema: pa.Schema) -> int:
    """Replace the function bindings in the columns' metadata, all or none, and return the version with them.

    Values stay. If the metadata has these bindings already, nothing is done. If this request wrote them, the version is
    the first one that has them.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED – a column was dropped or added again; TYPE_MISMATCH – a column has
            another type; else see `commit_outcomes`.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
    """
    changed = {}
    for asked in schema:
        wanted = binding.settled(asked, base) or asked
        column = _bindable(base, wanted)
        if binding.read(column.arrow) != binding.read(wanted):
            changed[column.field_id] = LanceOperation.UpdateMap(column_bindings.entries(wanted))
    if not changed and _has_all(table.dataset, schema, column_bindings.REQUEST):
        return first_version(base.uri, base.version, lambda past: _has_all(past, schema, column_bindings.REQUEST))
    if changed:
        table.update_fields(changed)
    return int(table.dataset.version)


def record_input_names(table: TableHandle, base: TableSnapshot, columns: Iterable[str]) -> None:
    """Add the names of input fields to bindings that an older release wrote without them.

    From then on, a rename of these fields does not change the names that the function sees. If this fails, for example
    because another writer commits first, the next commit tries it again.
    """
    with contextlib.suppress(CommitConflict, CommitUnclear, LemanError):
        found = [column for name in columns if (column := base.column(name)) is not None]
        named = ((column.field_id, _with_input_names(column.arrow, base)) for column in found)
        changed = {
            i: LanceOperation.UpdateMap(column_bindings.entries(field)) for i, field in named if field is not None
        }
        if changed:
            table.update_fields(changed)


def _with_input_names(field: pa.Field, base: TableSnapshot) -> pa.Field | None:
    bound = binding.read(field)
    if bound is None or bound.input_names is not None or bound.source is not None:
        return None
    names = binding.names_of(found for i in bound.inputs if (found := base.find_id(i.field_id)) is not None)
    return None if names is None else column_bindings.bind(field, dataclasses.replace(bound, input_names=names))


def _settle_inputs(table: TableHandle, schema: pa.Schema) -> bool:
    """Write the field ids of inputs that were added with the columns that read them. Return whether there were any."""
    there = table.current(())
    columns = [column for name in schema.names if (column := there.column(name)) is not None]
    found = [(column.field_id, binding.settled(column.arrow, there)) for column in columns]
    changed = {i: LanceOperation.UpdateMap(column_bindings.entries(field)) for i, field in found if field is not None}
    if changed:
        crash_point("coordinator.inputs_unsettled")
        table.update_fields(changed)
    return bool(changed)


def _same_column(existing: TableField | None, wanted: pa.Field) -> bool:
    """Return whether the column has the same column id, for example because this request added it."""
    if existing is None:
        return False
    column_id = (wanted.metadata or {}).get(column_bindings.COLUMN_ID)
    return column_id is not None and (existing.arrow.metadata or {}).get(column_bindings.COLUMN_ID) == column_id


def _has_all(dataset: lance.LanceDataset, wanted: pa.Schema, key: bytes) -> bool:
    """Return whether a version of the table has all wanted entries, each in the metadata of some column."""
    entries = [(field.metadata or {}).get(key) for field in wanted]
    there = Counter((field.metadata or {}).get(key) for field in dataset.schema)
    return None not in entries and not Counter(entries) - there


def _has_settled(dataset: lance.LanceDataset, wanted: pa.Schema) -> bool:
    """Return whether a version of the table has the wanted columns with the field ids of all their inputs."""
    return _has_all(dataset, wanted, column_bindings.COLUMN_ID) and not any(
        column.field_id == NOT_YET
        for field in dataset.schema
        if field.name in wanted.names and (bound := binding.read(field)) is not None
        for column in bound.inputs
    )


def _bindable(base: TableSnapshot, wanted: pa.Field) -> TableField:
    column = base.column(wanted.name)
    if column is None or binding.read(wanted) is None or not _same_column(column, wanted):
        raise FailedPrecondition(
            "COLUMN_NOT_DEFINED",
            f"Column {wanted.name} is not the one that was to be altered: it was dropped or added again meanwhile",
            column=wanted.name,
        )
    if column.arrow.type != wanted.type:
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {wanted.name}: it is {column.arrow.type}, {wanted.type} was to be altered",
            column=wanted.name,
        )
    return column


def _check_new_columns(base: TableSnapshot, schema: pa.Schema) -> None:
    for wanted in schema:
        if base.column(wanted.name) is not None:
            raise FailedPrecondition(
                "COLUMN_EXISTS", f"Column {wanted.name} exists in this table already", column=wanted.name
            )
        if wanted.name in _RESERVED_NAMES:
            raise InvalidArgument("BAD_COLUMN", f"A column cannot be named '{wanted.name}'", field="schema")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument("BAD_COLUMN", "A column is listed more than once: list each once", field="schema")


@dataclass(frozen=True, slots=True)
class Users:
    """The names of computed columns and views, and the ids of jobs, that use certain columns."""

    columns: list[str]
    views: list[str]
    jobs: list[str]


def users_of(table: TableSnapshot, columns: Sequence[TableField]) -> Users:
    """Return the computed columns, views and jobs that use one of the columns, except these columns themselves.

    Raises:
        LemanError: raised by `open_jobs` and `LanceTables.list_tables`.
    """
    names = {column.name for column in columns}
    ids = {field_id for column in columns for field_id in column.field_ids}
    readers = [f.name for f in table.fields if f.name not in names and _reads(f, names, ids)]
    jobs = [job.job_id for job in open_jobs(table.uri) if job.column in names]
    return Users(readers, _views(table, names), jobs)


def _reads(field: TableField, names: Collection[str], ids: Collection[int]) -> bool:
    try:
        bound = binding.read(field.arrow)
    except UNREADABLE:  # such a column can only be dropped
        return False
    inputs = bound.inputs if bound is not None and bound.source is None else ()
    return any(i.field_id in ids or i.name.partition(".")[0] in names for i in inputs)


def _views(table: TableSnapshot, names: set[str]) -> list[str]:
    database = table.uri.rpartition("/")[0]
    known = [field.name for field in table.fields]
    tables, found = LanceTables(), []
    for other in tables.list_tables(database):
        try:
            view = definition_in(tables.snapshot(table_uri(database, other)))
        except (NotFound, *UNREADABLE):  # it was dropped meanwhile, or is damaged
            continue
        if view is not None and view.source_uri == table.uri and names & set(columns_read(view.query, known)):
            found.append(other)
    return found


def optimize_once(
    uri: str, columns: Collection[str] = (), names: Collection[str] = ()
) -> tuple[int, list[IndexCoverage]]:
    """Make indexes cover the whole table. Indexes that do already stay unchanged.

    Returns:
        The result of `coverage` afterwards.

    Raises:
        NotFound: INDEX_NOT_FOUND – no index has that name.
        FailedPrecondition: COLUMN_NOT_FOUND – the table has no such column.
        LemanError: raised by `open_table` and `commit_outcomes`.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
    """
    dataset = open_table(uri)
    _check_columns(uri, dataset, columns)
    found = index_coverage_of(dataset, columns, names)
    missing = sorted(set(names) - {index.name for index in found})
    if missing:
        raise NotFound("INDEX_NOT_FOUND", f"Table {uri} has no index {', '.join(missing)}", uri=uri)
    behind = [index.name for index in found if index.is_stale]
    if behind:
        with commit_outcomes(uri):
            dataset.optimize.optimize_indices(index_names=behind)
    return index_coverage(uri, columns, names)


def _check_columns(uri: str, dataset: lance.LanceDataset, columns: Collection[str]) -> None:
    known = set(dataset.schema.names)
    indexed = {name for index in dataset.describe_indices() for name in index.field_names}
    unknown = sorted(set(columns) - known - indexed)  # an index may be on a field of a struct
    if unknown:
        raise column_not_found(unknown[0], sorted(known), uri=uri)


_TRIES = 5


def optimize_indices(uri: str, columns: Sequence[str], names: Sequence[str]) -> tuple[int, list[IndexCoverage]]:
    """Update indexes, see `CommitService.OptimizeIndices` (protos/leman/v1/commit.proto).

    Raises:
        Aborted: CONFLICT – other writers committed first at every try.
        Unavailable: COMMIT_UNKNOWN – it is unknown whether the indexes were updated.
        LemanError: raised by `optimize_once`.
    """
    trying = Retrying(
        retry=retry_if_exception_type((CommitConflict, CommitUnclear)),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        reraise=True,
    )
    try:
        return trying(optimize_once, uri, columns, names)
    except CommitConflict as conflict:
        raise Aborted("CONFLICT", f"Other writers changed the table at every try: {conflict}", uri=uri) from None
    except CommitUnclear as unclear:
        raise Unavailable(
            "COMMIT_UNKNOWN", f"It is unknown whether the indexes were updated: {unclear}. Retry the call.", uri=uri
        ) from None
