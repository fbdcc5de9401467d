"""Jobs that have not ended, as the history of their database has them."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from leman_core.model.errors import UNREADABLE
from leman_core.model.garbage import OpenJob
from leman_core.model.job import Job, JobState, counted
from leman_core.storage import history_tail, job_records
from leman_core.storage.append_log import AppendLog
from leman_core.storage.locations import TABLE_ENDING


def open_jobs(uri: str) -> list[OpenJob]:
    """Return the open jobs of one table, oldest first.

    History knows a job before it writes anything, and until it ends, whoever runs it; a lease would not tell of a job
    that waits to be taken over. Only of a refresh that is over within its call, in seconds, it is told the end alone.

    Raises:
        DataLoss: RECORD_DAMAGED, of the tail.
        Unavailable: STORE_UNAVAILABLE.
    """
    database, _, name = uri.rpartition("/")
    return _open_jobs(database, name.removesuffix(TABLE_ENDING))


def open_jobs_of(database: str) -> list[str]:
    """Return the ids of the open jobs of a database, oldest first.

    Raises:
        DataLoss: RECORD_DAMAGED, of the tail.
        Unavailable: STORE_UNAVAILABLE.
    """
    return [job.job_id for job in _open_jobs(database.rstrip("/"), None)]


def _open_jobs(database: str, table: str | None) -> list[OpenJob]:
    """Return the open jobs of a table; None: of all."""
    tail = history_tail.records_of(database)
    log = AppendLog(f"{database}/_leman/jobs.lance", pa.schema([]), called=f"The job history of {database}")
    rows = log.read(["job_id", "table", "column", "state", "created_at", "record"])
    jobs: dict[str, Job] = {}
    damaged: dict[str, OpenJob] = {}
    for row in rows:
        try:
            job = job_records.decode(str(row["record"]))
        except UNREADABLE:  # what lies beside the record, without a digest, says enough to let the job's files be
            if table in (None, row["table"]) and not _has_ended(row["state"]):
                job_id = str(row["job_id"])
                damaged[job_id] = OpenJob(job_id, _text(row["column"]), _seconds(row["created_at"]))
            continue
        if job.deleted or table in (None, job.request.table):  # what is left of a deleted job names no table
            jobs[job.job_id] = counted(jobs.get(job.job_id), job)
    for record in tail:
        job = job_records.decode(record)
        if job.deleted or table in (None, job.request.table):
            jobs[job.job_id] = counted(jobs.get(job.job_id), job)
    going_on = (job for job in jobs.values() if not job.state.terminal)
    found = [OpenJob(job.job_id, job.column, job.created_at, job.incarnation) for job in going_on]
    found += [job for job_id, job in damaged.items() if job_id not in jobs]
    return sorted(found, key=lambda job: job.created_at)


def _has_ended(state: object) -> bool:
    """Tell whether a state is terminal. A word that is no state may have been any: its job counts as open."""
    try:
        return state == job_records.DELETED or JobState(state).terminal
    except ValueError:
        return False


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _seconds(at: object) -> float:
    return at.timestamp() if isinstance(at, datetime) else 0.0
