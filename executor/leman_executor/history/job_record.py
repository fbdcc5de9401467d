"""A state of a job as an executor keeps it for every job of a database: small, and quick to find and to filter by."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace

from leman_core.model.job import Job
from leman_core.model.plan import BackfillSpec
from leman_core.storage import job_records
from leman_core.storage.job_records import Asked, CallCost, JobHead

#: Sort key of a job: microseconds since the epoch when it was accepted, and its id.
Age = tuple[int, str]
_NO_LABELS: dict[str, str] = {}
#: Whole jobs that are kept of those that were asked for last.
_DECODED = 4096


class JobRecord:
    """One state of a job: what it is found and filtered by, and the whole of it, as history has it.

    Records are compared by identity: another state of the job is another record. What is the same in many of them,
    such as the name of a table, is one object.
    """

    __slots__ = (
        "_home",
        "_whole",
        "attempt",
        "column",
        "columns",
        "created_at",
        "deleted",
        "executor",
        "initiator",
        "job_id",
        "labels",
        "request_id",
        "rows_failed",
        "seconds_per_row",
        "state",
        "table",
        "table_version",
        "udf_name",
        "udf_version",
    )

    def __init__(self, head: JobHead, whole: Job | str, home: str = "") -> None:
        asked = head.backfill or head.refresh or Asked()
        self.job_id = head.job_id
        self.request_id = head.request_id
        self.state = head.state
        #: Microseconds since the epoch.
        self.created_at = int(head.created_at * 1e6)
        self.attempt = head.attempt
        self.executor = sys.intern(head.executor)
        self.table = sys.intern(asked.table or asked.view)
        #: The column that it fills; None: it refreshes a view.
        self.column = sys.intern(asked.column) if head.backfill is not None else None
        #: The columns that it fills, where there are several.
        self.columns = tuple(map(sys.intern, asked.columns))
        self.udf_name = sys.intern(head.udf_name)
        self.udf_version = sys.intern(head.udf_version)
        self.rows_failed = head.progress.rows_failed
        self.deleted = head.deleted
        self.table_version = head.table_version
        self.initiator = sys.intern(head.initiator)
        self.labels = head.labels or _NO_LABELS
        self.seconds_per_row = _seconds_per_row(head.progress)
        self._whole = whole
        self._home = home

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the columns that it fills; none: it refreshes a view."""
        return self.columns or (() if self.column is None else (self.column,))

    @classmethod
    def read(cls, record: str, home: str = "") -> JobRecord:
        """Return what a text of the history says.

        Args:
            record: The text.
            home: The database of that history: the job is one of it, wherever it lay when the text was written. Empty:
                the one that the text names.

        Raises:
            DataLoss: RECORD_DAMAGED.
        """
        return cls(*job_records.head(record), home)

    @classmethod
    def of(cls, job: Job, record: str = "", home: str = "") -> JobRecord:
        """Return the record of a job.

        Args:
            job: The job.
            home: See `read`.
            record: Its text, where that is made already. A job that goes on changes soon: it is kept as it is.
        """
        if job.state.terminal:
            return cls.read(record or job_records.encode(job), home)
        return cls(_head(job), job, home)

    @property
    def age(self) -> Age:
        """Return the sort key of the job; older jobs come first."""
        return self.created_at, self.job_id

    def job(self) -> Job:
        """Return the whole job: the same object again while it is among those that were asked for last."""
        return self._whole if isinstance(self._whole, Job) else _decoded(self)

    def decode(self) -> Job:
        """Return the whole job, made anew unless it goes on."""
        if isinstance(self._whole, Job):
            return self._whole
        job = job_records.decode(self._whole)
        if not self._home or job.request.database == self._home:
            return job
        return replace(job, request=replace(job.request, database=self._home))


@functools.lru_cache(_DECODED)
def _decoded(record: JobRecord) -> Job:
    return record.decode()


def age(job: Job) -> Age:
    """Return the sort key of a job; older jobs come first."""
    return int(job.created_at * 1e6), job.job_id


def _head(job: Job) -> JobHead:
    columns = job.request.columns if isinstance(job.request, BackfillSpec) else ()
    progress, asked = job.progress, Asked(job.request.table, job.column or "", columns=columns)
    return JobHead(
        job_id=job.job_id,
        state=job.state,
        created_at=job.created_at,
        request_id=job.request_id,
        attempt=job.attempt,
        executor=job.executor,
        udf_name=job.udf_name,
        udf_version=job.udf_version,
        progress=CallCost(progress.rows_failed, progress.rows_evaluated, progress.udf_seconds, progress.read_seconds),
        backfill=None if job.column is None else asked,
        refresh=asked if job.column is None else None,
        labels=job.labels,
        initiator=job.initiator,
        table_version=job.table_version,
    )


def _seconds_per_row(cost: CallCost) -> float | None:
    """Return what a row cost; None: no function was called."""
    spent = cost.udf_seconds + cost.read_seconds
    return spent / cost.rows_evaluated if cost.rows_evaluated and spent else None
