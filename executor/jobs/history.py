"""Job history of one database, kept as a Lance table in it."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from core.domain.job import Job
from core.lance_io.append_log import AppendLog
from executor.worker.error_store import errors_uri, open_log

_JOBS = pa.schema(
    [
        ("job_id", pa.string()),
        ("table", pa.string()),
        ("column", pa.string()),
        ("state", pa.string()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("rows_evaluated", pa.int64()),
        ("rows_failed", pa.int64()),
        ("table_version", pa.int64()),
        ("record", pa.string()),
    ]
)


class History:
    """Blocking; call it in threads. One state of a job is one row: the last one counts."""

    def __init__(self, database: str) -> None:
        self._jobs = AppendLog(f"{database.rstrip('/')}/_leman/jobs.lance", _JOBS)
        self._errors = open_log(errors_uri(database))
        self._prepared = False

    def prepare(self) -> None:
        """Makes the tables of jobs and failed rows if there are none."""
        if not self._prepared:
            self._jobs.create()
            self._errors.create()
            self._prepared = True

    def save(self, job: Job) -> None:
        """Appends the job's state."""
        self._jobs.append(
            [
                {
                    "job_id": job.job_id,
                    "table": job.spec.table,
                    "column": job.spec.column,
                    "state": job.state.value,
                    "created_at": int(job.created_at * 1e6),
                    "updated_at": int(job.updated_at * 1e6),
                    "rows_evaluated": job.progress.rows_evaluated,
                    "rows_failed": job.progress.rows_failed,
                    "table_version": job.table_version,
                    "record": msgspec.json.encode(job).decode(),
                }
            ]
        )

    def load(self) -> dict[str, Job]:
        """The last state of every job, in the order of their first. An executor that was taken for dead and still
        writes says nothing but the end."""
        jobs: dict[str, Job] = {}
        for row in self._jobs.read(["record"]):
            job = msgspec.json.decode(str(row["record"]), type=Job)
            known = jobs.get(job.job_id)
            if known is None or job.state.terminal or (not known.state.terminal and job.attempt >= known.attempt):
                jobs[job.job_id] = job
        return jobs
