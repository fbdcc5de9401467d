"""The job history of one database, kept as a Lance table in it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from core.domain.job import Job, counted
from core.errors import DataLoss, LemanError
from core.lance_io import job_records
from core.lance_io.append_log import AppendLog
from core.lance_io.log_snapshot import Snapshot, position, was_saved
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
_TIDY_AFTER = 32


class _Said(NamedTuple):
    """A state of a job as a row has it."""

    position: int
    #: It may stand before rows that were read earlier.
    late: bool
    job: Job


class JobHistory:
    """The states of all jobs of a database, one row each. It blocks; any number of threads may call it.

    Several executors may write: which rows count is decided by the order of their appends alone (see `counted`,
    `log_snapshot.position`), so all who read agree on it.

    The states that count are kept here, and brought up to date from fragments that were not read before. Damaged parts
    are set aside, so that the rest can be read, and `warnings` say so. Where the storage cannot be used, calls raise
    what `storage_errors.failed` gives.
    """

    def __init__(self, database: str) -> None:
        self.uri = f"{database.rstrip('/')}/_leman/jobs.lance"
        self._log = AppendLog(
            self.uri, _JOBS, called=f"The job history {self.uri}", compact_after=0, repairs=True, ordered=True
        )
        self._errors = open_log(errors_uri(database))
        self._prepared = False
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._read: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._news: dict[str, Job] = {}
        self._appended = 0

    def prepare(self) -> None:
        """Create the tables of jobs and failed rows if there are none."""
        with self._lock:
            if not self._prepared:
                self._log.create()
                self._errors.create()
                self._prepared = True

    def save(self, job: Job) -> Job:
        """Append the job's state, and return the one that counts.

        That is this one, or one that somebody else had written before: an end of the job, or a later attempt.
        """
        return self.save_all([job])[0]

    def save_all(self, jobs: Sequence[Job]) -> list[Job]:
        """Save states as `save` does one after the other, in one version."""
        with self._lock:
            before = self._snapshot
            written = self._log.append([_row(job) for job in jobs])
            self._appended += 1
            unread = written.fragments.keys() - self._read
            if before is not None and written.version == before.version + 1 and len(unread) == 1:
                self._snapshot = written
                self._read.update(unread)
                for job in jobs:
                    self._count(job)
            else:
                self._take(written)
            return [self._jobs[job.job_id] for job in jobs]

    def find(self, job_id: str) -> Job | None:
        """Return the state of one job that counts; None: there is no such job."""
        with self._lock:
            self._catch_up()
            return self._jobs.get(job_id)

    def load(self) -> dict[str, Job]:
        """Return the state of every job that counts, in the order of the jobs' first states."""
        with self._lock:
            self._catch_up()
            return dict(self._jobs)

    def news(self) -> dict[str, Job]:
        """Return the jobs whose state has changed since the last call; at first all."""
        with self._lock:
            self._catch_up()
            news, self._news = self._news, {}
            return news

    def warnings(self) -> list[str]:
        """Return what of the history was damaged and set aside, for people."""
        return self._log.warnings()

    @property
    def untidy(self) -> bool:
        """Tell whether it is time to `tidy`."""
        return self._appended >= _TIDY_AFTER

    def tidy(self) -> None:
        """Merge many files into few."""
        with self._lock:
            self._catch_up()
            self._appended = 0
            done = self._log.tidy()
            if done is None:
                return
            before, after = done
            if before.fragments.keys() <= self._read and before.row_count == after.row_count:
                self._snapshot = after  # nobody came in between: the same rows in other fragments
                self._read = set(after.fragments)

    def _catch_up(self) -> None:
        if self._snapshot is not None:
            try:
                if self._snapshot.is_latest:
                    return
            except LemanError:  # damaged, or gone
                pass
        latest = self._log.snapshot()
        if latest is not None:
            self._take(latest)
        else:
            self._forget()

    def _take(self, snapshot: Snapshot) -> None:
        """Read the fragments that were not read before.

        Read all of them where somebody else merged old ones into new ones, or appended anew what was saved of a damaged
        one.
        """
        fragments = snapshot.fragments
        if not self._read <= fragments.keys():
            self._forget()
        said = self._said(snapshot, (number for file, number in fragments.items() if file not in self._read))
        if self._read and any(state.late for state in said):
            said = self._said(snapshot, (fragments[file] for file in self._read)) + said
            self._forget()
        for state in sorted(said, key=lambda state: state.position):
            self._count(state.job)
        self._read.update(fragments)
        self._snapshot = snapshot

    def _forget(self) -> None:
        self._snapshot = None
        self._read.clear()
        self._jobs.clear()

    def _count(self, job: Job) -> None:
        known = self._jobs.get(job.job_id)
        self._jobs[job.job_id] = self._news[job.job_id] = counted(known, job)

    def _said(self, snapshot: Snapshot, fragments: Iterable[int]) -> list[_Said]:
        return [said for fragment_id in fragments for said in self._said_in(snapshot, fragment_id)]

    def _said_in(self, snapshot: Snapshot, fragment_id: int) -> list[_Said]:
        try:
            return _decoded(snapshot.fragment(fragment_id, ["record"]))
        except LemanError as error:
            return _decoded(self._log.salvage(snapshot, fragment_id, error, _is_usable))


def _decoded(rows: Sequence[dict[str, object]]) -> list[_Said]:
    return [_Said(position(row), was_saved(row), job_records.decode(str(row["record"]))) for row in rows]


def _is_usable(row: dict[str, object]) -> bool:
    try:
        job_records.decode(str(row["record"]))
    except DataLoss:
        return False
    return True


def _row(job: Job) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "table": job.request.table,
        "column": job.column,
        "state": job.state.value,
        "created_at": int(job.created_at * 1e6),
        "updated_at": int(job.updated_at * 1e6),
        "rows_evaluated": job.progress.rows_evaluated,
        "rows_failed": job.progress.rows_failed,
        "table_version": job.table_version,
        "record": job_records.encode(job),
    }
