"""The begin of a takeover: what an executor does before it goes on with a job that another one had."""

from __future__ import annotations

import uuid

from leman_core.model.errors import Aborted, NotFound
from leman_core.model.job import Job
from leman_core.storage.locations import table_uri
from leman_executor.jobs.async_helpers import patiently
from leman_executor.jobs.ports import Commits
from leman_executor.jobs.same_table import TABLE_REPLACED


async def begin_attempt(commits: Commits, job: Job) -> None:
    """Have the job's earlier attempts refused in its table, or its view.

    From now on nothing that a frozen executor left behind is installed there. A first attempt has none before it, and
    writes nothing. That the table is gone, or is another one, is ignored here: planning finds it out.

    Raises:
        FailedPrecondition: ATTEMPT_FENCED – a later attempt than this one has begun.
        LemanError: what else the coordinator says.
    """
    try:
        await begin_attempt_at(commits, job, table_uri(job.request.database, job.request.table), job.incarnation)
    except NotFound:
        return
    except Aborted as error:
        if error.reason != TABLE_REPLACED:
            raise


async def begin_attempt_at(commits: Commits, job: Job, uri: str, incarnation: str = "") -> None:
    """Have the job's earlier attempts refused in a table that the job writes to.

    Args:
        incarnation: of the table that is meant; empty: whichever is there.

    Raises:
        NotFound: The table is gone.
        Aborted: TABLE_REPLACED – it is another one.
        LemanError: as `begin_attempt`.
    """
    if job.attempt > 1:
        await _note_attempt(commits, job, uri, incarnation)


async def give_incarnation(commits: Commits, job: Job) -> None:
    """Have the job's table, or view, be told from others of its name, as commits need it.

    A copy that somebody made with Lance has columns of Leman's, and none of what tells it from others.

    Raises:
        LemanError: as `begin_attempt`.
    """
    await _note_attempt(commits, job, table_uri(job.request.database, job.request.table), "")


async def _note_attempt(commits: Commits, job: Job, uri: str, incarnation: str) -> None:
    request_id = uuid.uuid4().hex
    await patiently(
        commits.begin_attempt, uri, incarnation=incarnation, attempt=job.this_attempt, request_id=request_id
    )
