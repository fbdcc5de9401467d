"""The begin of a takeover: what an executor does before it goes on with a job that another one had."""

from __future__ import annotations

import uuid

from core.domain.job import Job
from core.errors import NotFound
from core.locations import table_uri
from executor.jobs.async_helpers import patiently
from executor.jobs.ports import Commits


async def begin_attempt(commits: Commits, job: Job) -> None:
    """Have the job's earlier attempts refused in its table, or its view.

    From now on nothing that a frozen executor left behind is installed there. A first attempt has none before it, and
    writes nothing. That the table is gone is ignored here: planning finds it out.

    Raises:
        FailedPrecondition: ATTEMPT_FENCED – a later attempt than this one has begun.
        LemanError: what else the coordinator says.
    """
    try:
        await begin_attempt_at(commits, job, table_uri(job.request.database, job.request.table))
    except NotFound:
        return


async def begin_attempt_at(commits: Commits, job: Job, uri: str) -> None:
    """Have the job's earlier attempts refused in another table that the job writes to.

    Raises:
        NotFound: The table is gone.
        LemanError: as `begin_attempt`.
    """
    if job.attempt == 1:
        return
    request_id = uuid.uuid4().hex
    await patiently(commits.begin_attempt, uri, attempt=job.this_attempt, request_id=request_id)
