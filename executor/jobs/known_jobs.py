"""The jobs of one database as this executor knows them: by id, by request, and by age."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator

from core.domain.job import Job

#: Sort key of a job: microseconds since the epoch when it was accepted, and its id.
Age = tuple[int, str]


def age(job: Job) -> Age:
    """Return the sort key of a job; older jobs come first."""
    return int(job.created_at * 1e6), job.job_id


class KnownJobs:
    """The known jobs of one database, for one event loop; a job keeps its request and its age."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._requests: dict[str, str] = {}
        self._ages: list[Age] = []

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def get(self, job_id: str) -> Job | None:
        """Return the job of an id; None: it is not known."""
        return self._jobs.get(job_id)

    def of_request(self, request_id: str) -> Job | None:
        """Return the job that a request made; None: it is not known."""
        return self._jobs.get(self._requests.get(request_id, ""))

    def put(self, job: Job) -> None:
        """Keep a job as it stands now."""
        if job.job_id not in self._jobs:
            bisect.insort(self._ages, age(job))
            if job.request_id:
                self._requests.setdefault(job.request_id, job.job_id)
        self._jobs[job.job_id] = job

    def drop(self, job_id: str) -> None:
        """Forget a job that was not made after all."""
        job = self._jobs.pop(job_id, None)
        if job is not None:
            self._ages.remove(age(job))
            if self._requests.get(job.request_id) == job_id:
                del self._requests[job.request_id]

    def newest(self, after: Age | None, most: int | None, wanted: Callable[[Job], bool]) -> Iterable[Job]:
        """Return the newest `wanted` jobs that are older than `after`, newest first, `most` of them at the most."""
        end = len(self._ages) if after is None else bisect.bisect_left(self._ages, after)
        found: list[Job] = []
        for at in range(end - 1, -1, -1):
            if most is not None and len(found) >= most:
                break
            job = self._jobs[self._ages[at][1]]
            if wanted(job):
                found.append(job)
        return found
