"""Jobs that have not ended, as the history of their database has them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from core.domain.garbage import OpenJob
from core.domain.job import JobState
from core.errors import Unavailable
from core.lance_io.append_log import AppendLog
from core.lance_io.tables import TABLE_ENDING

_ENDED = frozenset(state.value for state in JobState if state.terminal)


def open_jobs(uri: str) -> list[OpenJob]:
    """Those of one table, oldest first. History knows a job before it writes anything, and until it ends, whoever runs
    it; a lease would not tell of a job that waits to be taken over. Raises Unavailable (STORE_UNAVAILABLE)."""
    database, _, name = uri.rpartition("/")
    log = AppendLog(f"{database}/_leman/jobs.lance", pa.schema([]))
    try:
        rows = log.read(["job_id", "table", "column", "state", "created_at"])
    except (OSError, ValueError) as error:
        raise Unavailable("STORE_UNAVAILABLE", f"The job history of {database} cannot be read: {error}") from None
    wanted = [row for row in rows if row["table"] == name.removesuffix(TABLE_ENDING)]
    ended = {row["job_id"] for row in wanted if row["state"] in _ENDED}
    found = {
        str(row["job_id"]): OpenJob(str(row["job_id"]), str(row["column"]), _seconds(row["created_at"]))
        for row in wanted
        if row["job_id"] not in ended
    }
    return sorted(found.values(), key=lambda job: job.created_at)


def _seconds(moment: object) -> float:
    return moment.timestamp() if isinstance(moment, dt.datetime) else 0.0
