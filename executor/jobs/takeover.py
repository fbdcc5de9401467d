"""What an executor does before it goes on with a job that another one had."""

from __future__ import annotations

import uuid

from core.domain.job import Job
from core.errors import NotFound
from core.locations import table_uri
from executor.jobs.awaiting import patiently
from executor.peers import CommitClient


async def begin_attempt(commits: CommitClient, job: Job) -> None:
    """Has the job's earlier attempts refused in its table, or its view: from now on nothing that a frozen executor left
    behind is installed there. A first attempt has none before it, and writes nothing.

    Raises what the coordinator says, FailedPrecondition (ATTEMPT_FENCED) where this attempt is itself not the last; not
    that there is no such table any more, which planning finds out.
    """
    try:
        await begin_attempt_at(commits, job, table_uri(job.request.database, job.request.table))
    except NotFound:
        return


async def begin_attempt_at(commits: CommitClient, job: Job, uri: str) -> None:
    """Likewise for another table that the job writes to. Raises NotFound where it is gone."""
    if job.attempt == 1:
        return
    request_id = uuid.uuid4().hex
    await patiently(commits.begin_attempt, uri, attempt=job.this_attempt, request_id=request_id)
