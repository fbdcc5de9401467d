"""Who reads or computes columns of a table: computed columns and jobs of its own, and views of its database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leman_core.functions import binding
from leman_core.model.errors import UNREADABLE, NotFound
from leman_core.model.table import TableField, TableSnapshot
from leman_core.sql.query_columns import columns_read
from leman_core.storage.locations import table_uri
from leman_core.storage.open_jobs import open_jobs
from leman_core.storage.tables import LanceTables
from leman_core.storage.views.definitions import definition_in


@dataclass(frozen=True, slots=True)
class Users:
    """Names of computed columns and views, ids of jobs."""

    columns: list[str]
    views: list[str]
    jobs: list[str]


def users_of(table: TableSnapshot, columns: Sequence[TableField]) -> Users:
    """Return who reads or computes one of the columns, of those that are not among them.

    Raises:
        LemanError: what `open_jobs` and `LanceTables.list_tables` raise.
    """
    names = {column.name for column in columns}
    ids = {field_id for column in columns for field_id in column.field_ids}
    readers = [f.name for f in table.fields if f.name not in names and _reads(f, names, ids)]
    jobs = [job.job_id for job in open_jobs(table.uri) if job.column in names]
    return Users(readers, _views(table, names), jobs)


def _reads(field: TableField, names: Collection[str], ids: Collection[int]) -> bool:
    try:
        bound = binding.read(field.arrow)
    except UNREADABLE:  # good for being dropped only
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
        except (NotFound, *UNREADABLE):  # dropped meanwhile; damaged
            continue
        if view is not None and view.source_uri == table.uri and names & set(columns_read(view.query, known)):
            found.append(other)
    return found
