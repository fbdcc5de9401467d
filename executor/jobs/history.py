"""Job history of one database, kept as a Lance table in it."""

from __future__ import annotations

from collections import OrderedDict

import msgspec
import pyarrow as pa
import structlog

from core import seal
from core.domain.job import Job, counted
from core.lance_io.append_log import AppendLog
from executor.worker.error_store import errors_uri, open_log

_log = structlog.get_logger(__name__)

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
#: Versions of the table that are remembered as written by this process.
_VERSIONS_KNOWN = 4096
_READ_BACK = 0


class History:
    """Blocking; call it in threads. One state of a job is one row. Several executors may write: which rows count is
    decided by their order in the table alone (see `counted`), and so all who read agree on it."""

    def __init__(self, database: str) -> None:
        self._jobs = AppendLog(f"{database.rstrip('/')}/_leman/jobs.lance", _JOBS)
        self._errors = open_log(errors_uri(database))
        self._prepared = False
        self._mine: OrderedDict[int, None] = OrderedDict()
        self._last: dict[str, int] = {}

    def prepare(self) -> None:
        """Makes the tables of jobs and failed rows if there are none."""
        if not self._prepared:
            self._jobs.create()
            self._errors.create()
            self._prepared = True

    def save(self, job: Job) -> Job:
        """Appends the job's state. Returns the state that counts: this one, or what somebody else had written before,
        an end of the job or a later attempt."""
        new = job.attempt == 1 and job.job_id not in self._last
        version = self._append(job)
        kept = job if new or self._nobody_else_since(job.job_id, version) else self.find(job.job_id)
        if kept is None:
            raise OSError(f"job {job.job_id} was written to the history and is not in it")
        self._last[job.job_id] = _READ_BACK if kept is not job or job.state.terminal else version
        self._mine[version] = None
        while len(self._mine) > _VERSIONS_KNOWN:
            self._mine.popitem(last=False)
        return kept

    def _nobody_else_since(self, job_id: str, version: int) -> bool:
        """Whether all versions between the job's last state and this one were written here: then there is nothing to
        read back, which would take longer with every job in the table."""
        last = self._last.get(job_id, _READ_BACK)
        return last != _READ_BACK and all(v in self._mine for v in range(last + 1, version))

    def _append(self, job: Job) -> int:
        return self._jobs.append(
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
                    "record": seal.seal_text(msgspec.json.encode(job).decode()),
                }
            ]
        )

    def find(self, job_id: str) -> Job | None:
        """The state of one job that counts."""
        return self._read(f"job_id = '{job_id}'").get(job_id)

    def load(self) -> dict[str, Job]:
        """The state of every job that counts, in the order of their first."""
        return self._read(None)

    def _read(self, where: str | None) -> dict[str, Job]:
        jobs: dict[str, Job] = {}
        for row in self._jobs.read(["record"], where):
            try:
                job = msgspec.json.decode(seal.unseal_text(str(row["record"])), type=Job)
            except ValueError as error:  # another state of the job may be whole; the table itself tells what is left
                _log.warning("damaged record in the job history is not used", error=str(error))
                continue
            jobs[job.job_id] = counted(jobs.get(job.job_id), job)
        return jobs
