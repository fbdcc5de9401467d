"""Check that the tables of a job were not replaced by other tables of the same name (decision 49).

An incarnation is a table's unique id. If a table is dropped and created again, the new table has another incarnation.
With its first plan, a job records the incarnation of its table or view; a refresh also records that of its source.
Later plans, opened sources and errors are checked against this record. If a table was replaced, the job does not change
the new table.
"""

from __future__ import annotations

import enum

from leman_core.model.job import Job
from leman_core.model.service_errors import ATTEMPT_FENCED, Aborted, LemanError, NotFound
from leman_core.model.table import outlives_versions
from leman_core.model.view import RefreshPlan
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage.lance_tables import LanceTables, is_other_table
from leman_core.storage.locations import table_uri
from leman_core.storage.source_rows import SourceRows
from leman_core.storage.view_data_files import definition_in

#: Reason of Aborted.
TABLE_REPLACED = "TABLE_REPLACED"


class Replaced(enum.Enum):
    """Which table of a job was dropped and replaced by another table of the same name."""

    #: The table or view that the job writes.
    TABLE = "table"
    #: The source of the view.
    SOURCE = "source"


def check_incarnation(job: Job, planned: str) -> str:
    """Return the incarnation of the job's table, as recorded with the job's first plan, even after a takeover.

    Args:
        planned: The incarnation in a new plan. It is empty for a table to which Leman has not written. If the job has
            recorded an incarnation, an empty one means that the table is new, because every view and every table with a
            computed column has an incarnation.

    Raises:
        Aborted: TABLE_REPLACED – the table was dropped, and another table has its name.
    """
    if job.incarnation and planned != job.incarnation:
        raise replaced_error(job, Replaced.TABLE)
    return job.incarnation or planned


def plans_other_source(job: Job, plan: RefreshPlan) -> bool:
    """Return whether a plan has the source version of the job's first plan, but another source table."""
    same_number = plan.target_version == job.refresh.src_version
    return bool(job.source_incarnation) and same_number and plan.target_incarnation != job.source_incarnation


def check_source(opened: SourceRows, plan: RefreshPlan) -> None:
    """Check that an opened source is the table that the plan names.

    Raises:
        Aborted: TABLE_REPLACED – it is another table; plan again.
    """
    definition = plan.definition
    planned = {
        definition.base_version: definition.base_incarnation,
        plan.target_version: plan.target_incarnation,
    }
    if planned.get(opened.version, opened.identity) != opened.identity:
        raise _source_error()


async def find_replaced(job: Job) -> Replaced | None:
    """Return which table of the job was replaced. Return None if none was, or if the tables cannot be read."""
    return await run_in_job_thread(_find_replaced, job)


async def explain_replaced_table(job: Job, error: LemanError) -> LemanError:
    """Return TABLE_REPLACED if a table of the job was replaced, else `error` itself.

    The new table may be of another kind, lack the column, or hold values that the function does not accept. `error`
    would then describe this consequence instead of the cause.
    """
    known = error.reason == TABLE_REPLACED and job.column is not None  # a refresh: perhaps its source was replaced
    if error.reason == ATTEMPT_FENCED or not (known or await find_replaced(job) is Replaced.TABLE):
        return error
    return replaced_error(job, Replaced.TABLE)


async def check_ended_job(job: Job) -> None:
    """Check that the table of a job that has ended is still the same.

    Raises:
        Aborted: TABLE_REPLACED – the table was dropped, and another table has its name.
    """
    if await find_replaced(job) is Replaced.TABLE:
        raise _table_error(job, f" of job {job.job_id} was dropped", "Start a new backfill if you want that one")


def replaced_error(job: Job, replaced: Replaced) -> Aborted:
    """Return the error of a job whose table or source was replaced."""
    if replaced is Replaced.SOURCE:
        return _source_error()
    return _table_error(job, " was dropped during the job", "To work on the new table, send the request again")


def _table_error(job: Job, fate: str, advice: str) -> Aborted:
    kind, name = "View" if job.column is None else "Table", job.request.table
    return Aborted(TABLE_REPLACED, f"{kind} '{name}'{fate}, and another one has its name now. {advice}", table=name)


def _source_error() -> Aborted:
    return Aborted(
        TABLE_REPLACED,
        "The view's source was dropped during the refresh, and another table has its name now. Refresh the view "
        "without a version, or to one of the new source",
    )


def _find_replaced(job: Job) -> Replaced | None:
    uri = table_uri(job.request.database, job.request.table)
    try:
        if job.incarnation and is_other_table(uri, job.incarnation):
            return Replaced.TABLE
        if job.source_incarnation and _has_other_source(uri, job):
            return Replaced.SOURCE
    except LemanError:
        return None
    return None


def _has_other_source(view: str, job: Job) -> bool:
    tables, known = LanceTables(), job.source_incarnation
    definition = definition_in(tables.snapshot(view))
    if definition is None:
        return False
    try:
        return tables.snapshot(definition.source_uri, job.refresh.src_version).identity != known
    except NotFound:  # weaker evidence: a restore also restores the incarnation
        now = tables.snapshot(definition.source_uri).incarnation
        return bool(now) and outlives_versions(known) and now != known
