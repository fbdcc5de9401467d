"""The jobs of one database as this executor knows them: by id, by request and by age, of a table or in a state."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from operator import attrgetter

from leman_core.model.job import Job, JobState
from leman_executor.history.job_filter import JobFilter
from leman_executor.history.job_record import Age, JobRecord

_age = attrgetter("age")
#: What a list of records has in common: everything (None), a table, or a state.
_Shared = str | JobState | None


class KnownJobs:
    """The known jobs of one database, for one event loop; a job keeps its request, its table and its age.

    The records lie in lists by age: one of all, one for each table, one for each state. A filter goes through the
    shortest that holds all it wants, so that what it costs follows what it finds, unless tables and states are many
    and what is in both is rare.
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
        """Return the job of an id; None: it is not known."""
        record = self._jobs.get(job_id)
        return None if record is None else record.job()

    def of_request(self, request_id: str) -> Job | None:
        """Return the job that a request made; None: it is not known."""
        return self.get(self._requests.get(request_id, ""))

    def was_deleted(self, job_id: str) -> bool:
        """Tell whether a job was deleted: its id is never given again."""
        return job_id in self._deleted

    def put(self, job: Job | JobRecord) -> None:
        """Keep a job as it stands now; one that was deleted is not known any more, whatever is said of it later."""
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
            if not records or records[-1].age < record.age:  # as nearly always
                records.append(record)
            else:
                bisect.insort(records, record, key=_age)

    def drop(self, job_id: str) -> None:
        """Forget a job that was not made after all, or was deleted."""
        record = self._jobs.pop(job_id, None)
        if record is not None:
            self._take_out(record)
            if self._requests.get(record.request_id) == job_id:
                del self._requests[record.request_id]

    def listed(
        self,
        wanted: JobFilter,
        after: Age | None = None,
        most: int | None = None,
        looks: int | None = None,
        *,
        oldest_first: bool = False,
    ) -> tuple[list[JobRecord], Age | None]:
        """Return jobs that are wanted, newest first or oldest first.

        Args:
            wanted: Which.
            after: Only jobs that come after this one; None: from the first on.
            most: So many at the most; None: all.
            looks: So many jobs are looked at at the most; None: as many as it takes.
            oldest_first: The order.

        Returns:
            The jobs, and the last one that was looked at where looking on may find more; None: these are all, or
            `most` of them.
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

    def _newest(self, wanted: JobFilter, after: Age | None) -> Iterator[JobRecord]:
        """Yield the records of the lists that hold all that are wanted, newest first."""
        before = min((age for age in (after, _begin(wanted.accepted_before)) if age is not None), default=None)
        sources = [_backwards(records, before) for records in self._narrowest(wanted)]
        return sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_age, reverse=True)

    def _oldest(self, wanted: JobFilter, after: Age | None) -> Iterator[JobRecord]:
        """Yield the records of the lists that hold all that are wanted, oldest first."""
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


def _begin(accepted_before: int | None) -> Age | None:
    return None if accepted_before is None else (accepted_before, "")


def _backwards(records: list[JobRecord], before: Age | None) -> Iterator[JobRecord]:
    end = len(records) if before is None else bisect.bisect_left(records, before, key=_age)
    return map(records.__getitem__, range(end - 1, -1, -1))


def _forwards(records: list[JobRecord], after: Age | None, begin: Age | None) -> Iterator[JobRecord]:
    first = 0 if after is None else bisect.bisect_right(records, after, key=_age)
    if begin is not None:
        first = max(first, bisect.bisect_left(records, begin, key=_age))
    return map(records.__getitem__, range(first, len(records)))
