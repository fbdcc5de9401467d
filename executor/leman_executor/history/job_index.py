"""Index the jobs of a database in memory: small records by id, request and age, and filters over them."""

from __future__ import annotations

import bisect
import functools
import heapq
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.storage import stored_jobs
from leman_core.storage.stored_jobs import Asked, CallCost, JobHead

#: The sort key of a job: the time of its acceptance in microseconds since the epoch, and its id.
JobAge = tuple[int, str]
_NO_LABELS: dict[str, str] = {}
#: Number of recently requested jobs whose decoded form is kept.
_DECODED = 4096


class JobRecord:
    """One state of a job: the fields for finding and filtering it, and its stored form.

    Records are compared by identity, because each state of a job has its own record. Repeated values, such as the name
    of a table, are shared objects.
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
        #: The column that the job fills; None if it refreshes a view.
        self.column = sys.intern(asked.column) if head.backfill is not None else None
        #: All columns that the job fills, if there are several.
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
        """Return the columns that the job fills; none if it refreshes a view."""
        return self.columns or (() if self.column is None else (self.column,))

    @classmethod
    def read(cls, record: str, home: str = "") -> JobRecord:
        """Parse an entry of the job history.

        Args:
            record: The entry.
            home: The database whose history this is. The job belongs to it even if the database was moved since the
                entry was written. If empty, the job belongs to the database that the entry names.

        Raises:
            DataLoss: RECORD_DAMAGED.
        """
        return cls(*stored_jobs.job_head(record), home)

    @classmethod
    def of(cls, job: Job, record: str = "", home: str = "") -> JobRecord:
        """Return the record of a job.

        Args:
            record: The encoded job, if there is one. An open job is kept as an object instead, because it changes soon.
            home: See `read`.
        """
        if job.state.terminal:
            return cls.read(record or stored_jobs.encode_job(job), home)
        return cls(_head(job), job, home)

    @property
    def age(self) -> JobAge:
        return self.created_at, self.job_id

    def job(self) -> Job:
        """Return the whole job. While it is among the recently requested jobs, this returns the same object."""
        return self._whole if isinstance(self._whole, Job) else _decoded(self)

    def decode(self) -> Job:
        """Decode the whole job. An open job is already decoded."""
        if isinstance(self._whole, Job):
            return self._whole
        job = stored_jobs.decode_job(self._whole)
        if not self._home or job.request.database == self._home:
            return job
        return replace(job, request=replace(job.request, database=self._home))


@functools.lru_cache(_DECODED)
def _decoded(record: JobRecord) -> Job:
    return record.decode()


def job_age(job: Job) -> JobAge:
    """Return the sort key of a job. Older jobs sort first."""
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
    spent = cost.udf_seconds + cost.read_seconds
    return spent / cost.rows_evaluated if cost.rows_evaluated and spent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A filter of jobs. A job matches if all conditions that are set hold."""

    tables: frozenset[str] = frozenset()
    states: frozenset[JobState] = frozenset()
    #: The job was accepted at or after the first and before the second time, in microseconds since the epoch.
    accepted_from: int | None = None
    accepted_before: int | None = None
    #: The job fills this column.
    column: str = ""
    #: This caller created the job.
    initiator: str = ""
    #: The job has all of these labels.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Any further condition.
    matches: Callable[[JobRecord], bool] | None = None

    def wants(self, record: JobRecord) -> bool:
        """Return whether a job matches, apart from the time of its acceptance."""
        return (
            (not self.tables or record.table in self.tables)
            and (not self.states or record.state in self.states)
            and (not self.column or self.column in record.filled)
            and (not self.initiator or record.initiator == self.initiator)
            and all(record.labels.get(key) == value for key, value in self.labels.items())
            and (self.matches is None or self.matches(record))
        )

    def is_past(self, record: JobRecord, *, oldest_first: bool) -> bool:
        """Return whether this job and all later jobs in this order were accepted outside the filter's times."""
        if oldest_first:
            return self.accepted_before is not None and record.created_at >= self.accepted_before
        return self.accepted_from is not None and record.created_at < self.accepted_from


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """A page of jobs."""

    filter: JobFilter = JobFilter()
    after: JobAge | None = None
    """The last job of the previous page; None for the first page."""
    most: int | None = None
    """The maximum number of jobs; None for all."""
    oldest_first: bool = False
    """The order. By default, the newest jobs come first."""


_age = attrgetter("age")
#: What the records in a list have in common: nothing (None), a table, or a state.
_Shared = str | JobState | None


class KnownJobs:
    """The known jobs of one database, on one event loop. The request, the table and the age of a job never change.

    The records are in lists sorted by age: one list of all, one for each table, one for each state. A filter reads the
    shortest list that contains all matches. The cost is therefore proportional to the number of matches, unless many
    jobs have the table, many have the state, and few have both.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, JobRecord] = {}
        self._requests: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._lists: dict[_Shared, list[JobRecord]] = {None: []}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(list(self._jobs.values()))

    def get(self, job_id: str) -> Job | None:
        """Return the job with an id, or None."""
        record = self._jobs.get(job_id)
        return None if record is None else record.job()

    def of_request(self, request_id: str) -> Job | None:
        """Return the job that a request id created, or None."""
        return self.get(self._requests.get(request_id, ""))

    def was_deleted(self, job_id: str) -> bool:
        """Return whether a job was deleted. Its id is never used again."""
        return job_id in self._deleted

    def put(self, job: Job | JobRecord) -> None:
        """Store the current state of a job. A deleted job stays deleted, even if further states follow."""
        record = job if isinstance(job, JobRecord) else JobRecord.of(job)
        if record.deleted:
            self._deleted.add(record.job_id)
            self.drop(record.job_id)
        if record.job_id in self._deleted:
            return
        known = self._jobs.get(record.job_id)
        if known is record:
            return
        if known is not None:
            self._take_out(known)
        elif record.request_id:
            self._requests.setdefault(record.request_id, record.job_id)
        self._jobs[record.job_id] = record
        for shared in _shared(record):
            records = self._lists.setdefault(shared, [])
            if not records or records[-1].age < record.age:  # the usual case
                records.append(record)
            else:
                bisect.insort(records, record, key=_age)

    def drop(self, job_id: str) -> None:
        """Forget a job because its creation failed or it was deleted."""
        record = self._jobs.pop(job_id, None)
        if record is not None:
            self._take_out(record)
            if self._requests.get(record.request_id) == job_id:
                del self._requests[record.request_id]

    def listed(
        self,
        wanted: JobFilter,
        after: JobAge | None = None,
        most: int | None = None,
        looks: int | None = None,
        *,
        oldest_first: bool = False,
    ) -> tuple[list[JobRecord], JobAge | None]:
        """Return matching jobs, starting with the newest, or with the oldest.

        Args:
            wanted: The filter.
            after: Return only jobs that follow this one in the order. None starts at the first job.
            most: The maximum number of jobs to return; None for all.
            looks: The maximum number of jobs to examine; None for all.
            oldest_first: Whether to start with the oldest.

        Returns:
            The jobs, and the last examined job if `looks` ended the search before all matches, or `most` of them, were
            found. Otherwise the second is None.
        """
        found: list[JobRecord] = []
        candidates = self._oldest(wanted, after) if oldest_first else self._newest(wanted, after)
        for count, record in enumerate(candidates, 1):
            if wanted.is_past(record, oldest_first=oldest_first):
                break
            if wanted.wants(record):
                found.append(record)
                if most is not None and len(found) >= most:
                    break
            if count == looks:
                return found, record.age
        return found, None

    def _newest(self, wanted: JobFilter, after: JobAge | None) -> Iterator[JobRecord]:
        """Yield the records of the shortest lists that contain all matches, newest first."""
        before = min((age for age in (after, _begin(wanted.accepted_before)) if age is not None), default=None)
        sources = [_backwards(records, before) for records in self._narrowest(wanted)]
        return sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_age, reverse=True)

    def _oldest(self, wanted: JobFilter, after: JobAge | None) -> Iterator[JobRecord]:
        """Yield the records of the shortest lists that contain all matches, oldest first."""
        sources = [_forwards(records, after, _begin(wanted.accepted_from)) for records in self._narrowest(wanted)]
        return sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_age)

    def _narrowest(self, wanted: JobFilter) -> Sequence[list[JobRecord]]:
        choices: list[list[list[JobRecord]]] = [[self._lists[None]]]
        if wanted.tables:
            choices.append([self._lists.get(table, []) for table in wanted.tables])
        if wanted.states:
            choices.append([self._lists.get(state, []) for state in wanted.states])
        return min(choices, key=lambda lists: sum(map(len, lists)))

    def _take_out(self, record: JobRecord) -> None:
        for shared in _shared(record):
            records = self._lists[shared]
            at = bisect.bisect_left(records, record.age, key=_age)
            del records[at]
            if not records and shared is not None:
                del self._lists[shared]


def _shared(record: JobRecord) -> tuple[_Shared, ...]:
    return (None, record.table, record.state)


def _begin(accepted_before: int | None) -> JobAge | None:
    return None if accepted_before is None else (accepted_before, "")


def _backwards(records: list[JobRecord], before: JobAge | None) -> Iterator[JobRecord]:
    end = len(records) if before is None else bisect.bisect_left(records, before, key=_age)
    return map(records.__getitem__, range(end - 1, -1, -1))


def _forwards(records: list[JobRecord], after: JobAge | None, begin: JobAge | None) -> Iterator[JobRecord]:
    first = 0 if after is None else bisect.bisect_right(records, after, key=_age)
    if begin is not None:
        first = max(first, bisect.bisect_left(records, begin, key=_age))
    return map(records.__getitem__, range(first, len(records)))
