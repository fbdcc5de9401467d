"""Jobs that have not ended, as the history of their database has them."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from core.domain.garbage import OpenJob
from core.domain.job import Job, counted
from core.errors import Unavailable
from core.lance_io.append_log import AppendLog
from core.locations import TABLE_ENDING


def open_jobs(uri: str) -> list[OpenJob]:
    """Those of one table, oldest first. History knows a job before it writes anything, and until it ends, whoever runs
    it; a lease would not tell of a job that waits to be taken over. Raises Unavailable (STORE_UNAVAILABLE)."""
    database, _, name = uri.rpartition("/")
    log = AppendLog(f"{database}/_leman/jobs.lance", pa.schema([]))
    try:
        rows = log.read(["table", "record"])
    except (OSError, ValueError) as error:
        raise Unavailable("STORE_UNAVAILABLE", f"The job history of {database} cannot be read: {error}") from None
    jobs: dict[str, Job] = {}
    for row in rows:
        if row["table"] == name.removesuffix(TABLE_ENDING):
            job = msgspec.json.decode(str(row["record"]), type=Job)
            jobs[job.job_id] = counted(jobs.get(job.job_id), job)
    found = [OpenJob(job.job_id, job.spec.column, job.created_at) for job in jobs.values() if not job.state.terminal]
    return sorted(found, key=lambda job: job.created_at)
