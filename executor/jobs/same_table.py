"""Which of all tables and views that had one name a job is about: another one that has it by now is left alone."""

from __future__ import annotations

from core.domain.job import Job
from core.errors import Aborted

#: Reason of Aborted.
TABLE_REPLACED = "TABLE_REPLACED"


def incarnation_of(job: Job, planned: str) -> str:
    """Return the incarnation that a job is about: that of its first plan, also where an executor took the job over.

    Args:
        planned: that of a new plan; empty: of a table that Leman has not written to.

    Raises:
        Aborted: TABLE_REPLACED – the table was dropped, and another one has its name.
    """
    if "" not in (job.incarnation, planned) and planned != job.incarnation:
        kind, name = "View" if job.column is None else "Table", job.request.table
        raise Aborted(
            TABLE_REPLACED,
            f"{kind} '{name}' was dropped during the job, and another one has its name now. "
            "Send the request again if it is meant for that one",
            table=name,
        )
    return job.incarnation or planned
