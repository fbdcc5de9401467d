"""Which of all tables and views that had one name a job is about: another one that has it by now is left alone."""

from __future__ import annotations

from leman_core.model.errors import ATTEMPT_FENCED, Aborted, LemanError
from leman_core.model.job import Job
from leman_core.server.blocking import in_job_thread
from leman_core.storage.incarnations import is_another
from leman_core.storage.locations import table_uri
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.ports import JobStore

#: Reason of Aborted.
TABLE_REPLACED = "TABLE_REPLACED"


def incarnation_of(job: Job, planned: str) -> str:
    """Return the incarnation that a job is about: that of its first plan, also where an executor took the job over.

    Args:
        planned: that of a new plan; empty: of a table that Leman has not written to. It is another one, where the job's
            is known: a table with a computed column has one, and so has a view.

    Raises:
        Aborted: TABLE_REPLACED – the table was dropped, and another one has its name.
    """
    if job.incarnation and planned != job.incarnation:
        raise _replaced(job)
    return job.incarnation or planned


async def is_replaced(job: Job) -> bool:
    """Tell whether another table or view has the name of the job's; False where that is not known.

    Reads the table.
    """
    if not job.incarnation:
        return False
    uri = table_uri(job.request.database, job.request.table)
    try:
        return await in_job_thread(is_another, uri, job.incarnation)
    except LemanError:
        return False


async def explained(job: Job, error: LemanError) -> LemanError:
    """Return why the job cannot go on, where that is said of what has the name of its table, or its view.

    Where that is another one it may be of another kind, have no such column, or hold what the function does not take:
    the reason would be that one's. It is TABLE_REPLACED then, and the error itself otherwise.
    """
    if error.reason == TABLE_REPLACED:  # of a refresh it may be the source that was
        return error if job.column is None else _replaced(job)
    if error.reason == ATTEMPT_FENCED or not await is_replaced(job):
        return error
    return _replaced(job)


async def check_same_table(job: Job) -> None:
    """Check that the table of a job that has ended is the one that it was about.

    Raises:
        Aborted: TABLE_REPLACED – the table was dropped, and another one has its name.
    """
    if await is_replaced(job):
        raise _replaced(job, f" of job {job.job_id} was dropped", "Backfill that one if it is meant")


def note_lost_commit(status: JobStatus, jobs: JobStore, version: int) -> None:
    """Add an event to a job whose table, or view, is at an earlier version than a recent job left it at.

    The job goes on: a folder that was restored from a copy looks the same.

    Args:
        version: The latest version of the table.
    """
    lost = jobs.lost_commit(status.job, version)
    if lost is None:
        return
    kind, name = "view" if lost.column is None else "table", lost.request.table
    status.note(
        "error",
        f"{kind} '{name}' is at version {version}, but job {lost.job_id} committed version {lost.table_version}: the "
        "newest files in _versions are gone, and with them what was committed since. Restore them from a copy before "
        "more is written; without one the lost values are computed again",
    )


def _replaced(
    job: Job,
    fate: str = " was dropped during the job",
    advice: str = "Send the request again if it is meant for that one",
) -> Aborted:
    kind, name = "View" if job.column is None else "Table", job.request.table
    return Aborted(TABLE_REPLACED, f"{kind} '{name}'{fate}, and another one has its name now. {advice}", table=name)
