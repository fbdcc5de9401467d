"""Job history and failed rows of one database, kept as Lance tables in it."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from core.domain.job import Job, StoredRowError
from core.lance_io.append_log import AppendLog

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
_ERRORS = pa.schema(
    [
        ("job_id", pa.string()),
        ("column", pa.string()),
        ("udf_version", pa.string()),
        ("row_address", pa.int64()),
        ("row_id", pa.int64()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
        ("traceback", pa.string()),
        ("attempt", pa.int32()),
    ]
)


class History:
    """Blocking; call it in threads. One state of a job is one row: the last one counts."""

    def __init__(self, database: str) -> None:
        root = f"{database.rstrip('/')}/_leman"
        self._jobs = AppendLog(f"{root}/jobs.lance", _JOBS)
        self._errors = AppendLog(f"{root}/errors.lance", _ERRORS)

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
        """The last state of every job, in the order of their first."""
        jobs: dict[str, Job] = {}
        for row in self._jobs.read(["record"]):
            job = msgspec.json.decode(str(row["record"]), type=Job)
            known = jobs.get(job.job_id)
            if known is None or not known.state.terminal or job.state.terminal:
                jobs[job.job_id] = job
        return jobs

    def save_errors(self, errors: list[StoredRowError]) -> None:
        """Appends failed rows."""
        if errors:
            self._errors.append([msgspec.to_builtins(e) for e in errors])

    def errors(self, job_id: str, column: str = "") -> list[StoredRowError]:
        """Failed rows of a job by row address, each once: the last attempt's."""
        rows = self._errors.read(where=f"job_id = '{job_id}'")
        found = {
            e.row_address: e
            for e in (msgspec.convert(r, StoredRowError) for r in rows)
            if not column or e.column == column
        }
        return [found[address] for address in sorted(found)]
