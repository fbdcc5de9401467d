"""Which of all tables that had its name a refresh reads: another one that has it by now has other rows."""

from __future__ import annotations

from leman_core.model.errors import Aborted, LemanError, NotFound
from leman_core.model.job import Job
from leman_core.model.refresh import RefreshPlan
from leman_core.model.view_metadata import identity, outlives_versions
from leman_core.storage.locations import table_uri
from leman_core.storage.tables import LanceTables
from leman_core.storage.views.definitions import definition_in
from leman_core.storage.views.source import SourceRows
from leman_executor.jobs.same_table import TABLE_REPLACED


def is_of_another(job: Job, plan: RefreshPlan) -> bool:
    """Tell whether a plan goes to the version of the job's first plan, by its number, and that is another table's."""
    same_number = plan.target_version == job.refresh.src_version
    return bool(job.source_incarnation) and same_number and plan.target_incarnation != job.source_incarnation


def is_replaced(job: Job) -> bool:
    """Tell whether another table has the name of the source that the job began with; False where that is not known.

    Reads the view and the source.
    """
    if not job.source_incarnation:
        return False
    try:
        uri = table_uri(job.request.database, job.request.table)
        definition = definition_in(LanceTables().snapshot(uri))
        return definition is not None and _is_another(definition.source_uri, job)
    except LemanError:
        return False


def _is_another(uri: str, job: Job) -> bool:
    tables, known = LanceTables(), job.source_incarnation
    try:
        return identity(tables.snapshot(uri, job.refresh.src_version)) != known
    except NotFound:  # the latest tells less: a restore may have taken its incarnation along
        now = tables.snapshot(uri).incarnation
        return bool(now) and outlives_versions(known) and now != known


def check_source(opened: SourceRows, plan: RefreshPlan) -> None:
    """Check that a version of the source is of the table that a plan was made for.

    Raises:
        Aborted: TABLE_REPLACED – it is of another one: plan again.
    """
    expected = {
        plan.definition.base_version: plan.definition.base_incarnation,
        plan.target_version: plan.target_incarnation,
    }
    if expected.get(opened.version, opened.identity) != opened.identity:
        raise replaced()


def replaced() -> Aborted:
    """Return the error of a refresh whose source is another table now."""
    return Aborted(
        TABLE_REPLACED,
        "The view's source was dropped during the refresh, and another table has its name now. Refresh the view "
        "without a version, or to one of the new source",
    )
