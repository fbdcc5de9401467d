"""The order in which jobs have their turn, and what follows from it for those that wait. Pure: no I/O, no clock.

Of the jobs that wait, those of the highest priority come first. Among these the databases take turns: the one with the
fewest running jobs; of several such the one that has waited longest, since its last turn or since it began to wait; of
those the one with the oldest job. Within the database its callers take turns by the same rule, and of a caller's jobs
the oldest is next. Jobs that a limit keeps from running are passed over until they may.

Example: one job runs at once, `lake` has ten jobs of `etl` and one of `ann`, and `shop` asks for one after them all.
The order is `etl`, `shop`, `ann`, `etl`, …: nobody waits for the ten jobs of somebody else.

Nobody starves. Say that running jobs end in the order in which they began. A database that waits has no running job
left after as many turns as jobs run at once. From then on only databases come before it that have waited for longer,
each of them once: whoever comes later, or comes again, has waited for less. The same holds for a caller among the turns
of its database, unless a limit for each caller keeps jobs of that caller waiting for one another.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeAlias

from leman_executor.queueing.turn_heap import TurnHeap

_age = attrgetter("age")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job as the queue knows it."""

    job_id: str
    accepted_at: float
    """Seconds since the epoch."""
    database: str = ""
    caller: str = ""
    """Empty: anonymous."""
    priority: int = 0
    age: _Age = field(init=False, repr=False, compare=False)
    """The sort key; older jobs come first."""
    lines: tuple[_Line, _Line] = field(init=False, repr=False, compare=False)
    """What has turns by turns with others: the job's database, and its caller there."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "age", (self.accepted_at, self.job_id))
        object.__setattr__(self, "lines", ((self.database,), (self.database, self.caller)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """How many jobs may run at once: in all, of a database, of a caller in all databases; 0: no limit of its own."""

    running: int
    per_database: int = 0
    per_caller: int = 0
    of_database: Callable[[str], int | None] = lambda _: None
    """The limit of a database that has one of its own, in place of `per_database`; it may change."""

    def database(self, database: str) -> int:
        """Return how many jobs of a database may run at once; 0: no limit of its own."""
        own = self.of_database(database)
        return self.per_database if own is None else own


#: How many seconds a job takes, or still takes; None: not known.
Duration: TypeAlias = Callable[[QueuedJob], float | None]
#: A database, or a caller in a database.
_Line: TypeAlias = tuple[str, ...]
_Age: TypeAlias = tuple[float, str]
#: Of a line that waits: how many of its jobs run, the turn since which it waits, its oldest job.
_Claim: TypeAlias = tuple[int, int, _Age]


class _Callers:
    """The waiting jobs of one database and one priority."""

    def __init__(self) -> None:
        #: Of each caller, oldest first.
        self.jobs: dict[str, list[QueuedJob]] = {}
        self.claims: TurnHeap[_Claim] = TurnHeap()
        self.ages: TurnHeap[_Age] = TurnHeap()

    def drop(self, caller: str) -> None:
        """Forget a caller, of whom no job waits any more."""
        del self.jobs[caller]
        self.claims.drop(caller)
        self.ages.drop(caller)

    def copy(self) -> _Callers:
        other = _Callers()
        other.jobs = {caller: list(jobs) for caller, jobs in self.jobs.items()}
        other.claims, other.ages = self.claims.copy(), self.ages.copy()
        return other


class _Databases:
    """The waiting jobs of one priority."""

    def __init__(self) -> None:
        self.callers: dict[str, _Callers] = {}
        self.claims: TurnHeap[_Claim] = TurnHeap()

    def drop(self, database: str) -> None:
        """Forget a database, of which no job waits any more."""
        del self.callers[database]
        self.claims.drop(database)

    def copy(self) -> _Databases:
        other = _Databases()
        other.callers = {name: callers.copy() for name, callers in self.callers.items()}
        other.claims = self.claims.copy()
        return other


class FairOrder:
    """The jobs that wait and those that run."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._turns = 0
        self._waiting: dict[str, QueuedJob] = {}
        self._levels: dict[int, _Databases] = {}
        self._running: dict[str, QueuedJob] = {}
        #: How many jobs of a line run, and how many wait.
        self._at_work: Counter[_Line] = Counter()
        self._in_line: Counter[_Line] = Counter()
        #: The number of the turn since which a line waits; only of lines in which jobs wait.
        self._since: dict[_Line, int] = {}
        self._at_work_of: Counter[str] = Counter()
        self._waiting_of: Counter[str] = Counter()

    @property
    def running(self) -> Mapping[str, QueuedJob]:
        """Return the jobs that run, by id, in the order in which they began."""
        return self._running

    @property
    def waiting(self) -> Mapping[str, QueuedJob]:
        """Return the jobs that wait, by id."""
        return self._waiting

    def waiting_of(self, caller: str) -> int:
        """Return how many jobs of a caller wait."""
        return self._waiting_of[caller]

    def waiting_in(self, database: str) -> int:
        """Return how many jobs of a database wait."""
        return self._in_line[(database,)]

    def may_run(self, job: QueuedJob) -> bool:
        """Tell whether the limits let one more job of this database and caller run."""
        return len(self._running) < self._limits.running and self._may(job.database) and self._may_for(job.caller)

    def _may(self, database: str) -> bool:
        most = self._limits.database(database)
        return not most or self._at_work[(database,)] < most

    def _may_for(self, caller: str) -> bool:
        most = self._limits.per_caller
        return not most or self._at_work_of[caller] < most

    def join(self, job: QueuedJob) -> None:
        """Have a job wait."""
        self._waiting[job.job_id] = job
        self._waiting_of[job.caller] += 1
        for line in job.lines:
            self._in_line[line] += 1
            self._since.setdefault(line, self._turns)
        self._enter(job)

    def prioritise(self, job_id: str, priority: int) -> None:
        """Give a job that waits another priority; nothing is done for one that does not wait."""
        job = self._waiting.get(job_id)
        if job is not None:
            self._take_out(job)
            self._claim(job)
            self._waiting[job_id] = job = replace(job, priority=priority)
            self._enter(job)

    def leave(self, job_id: str) -> None:
        """Forget a job, whether it waits or runs."""
        job = self._waiting.get(job_id)
        if job is not None:
            self._stop_waiting(job)
            self._claim(job)
            return
        job = self._running.pop(job_id, None)
        if job is not None:
            _less(self._at_work_of, job.caller)
            for line in job.lines:
                _less(self._at_work, line)
            self._claim(job)

    def start(self) -> QueuedJob | None:
        """Give the next job its turn and return it; None: none that waits may run."""
        job = self._next() if len(self._running) < self._limits.running else None
        if job is None:
            return None
        self._turns += 1
        self._stop_waiting(job)
        self._running[job.job_id] = job
        self._at_work_of[job.caller] += 1
        for line in job.lines:
            self._at_work[line] += 1
            if line in self._since:
                self._since[line] = self._turns
        self._claim(job)
        return job

    def _next(self) -> QueuedJob | None:
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            database = level.claims.first(lambda name: self._caller_of(level.callers[name], name) is not None)  # noqa: B023
            if database is not None:
                callers = level.callers[database]
                return callers.jobs[self._caller_of(callers, database) or ""][0]
        return None

    def _caller_of(self, callers: _Callers, database: str) -> str | None:
        """Return whose turn it is in a database; None: no job may run there."""
        return callers.claims.first(self._may_for) if self._may(database) else None

    def _stop_waiting(self, job: QueuedJob) -> None:
        del self._waiting[job.job_id]
        _less(self._waiting_of, job.caller)
        self._take_out(job)
        for line in job.lines:
            _less(self._in_line, line)
            if line not in self._in_line:
                del self._since[line]

    def _enter(self, job: QueuedJob) -> None:
        level = self._levels.setdefault(job.priority, _Databases())
        callers = level.callers.setdefault(job.database, _Callers())
        bisect.insort(callers.jobs.setdefault(job.caller, []), job, key=_age)
        self._claim(job)

    def _take_out(self, job: QueuedJob) -> None:
        level = self._levels[job.priority]
        callers = level.callers[job.database]
        jobs = callers.jobs[job.caller]
        del jobs[bisect.bisect_left(jobs, job.age, key=_age)]
        if not jobs:
            callers.drop(job.caller)
        if not callers.jobs:
            level.drop(job.database)
        if not level.callers:
            del self._levels[job.priority]

    def _claim(self, job: QueuedJob) -> None:
        """Note what the lines of a job that came, went, began or ended claim by now."""
        database, line = job.lines
        for level in self._levels.values():
            callers = level.callers.get(job.database)
            if callers is None:
                continue
            if jobs := callers.jobs.get(job.caller):
                callers.ages.put(job.caller, jobs[0].age)
                callers.claims.put(job.caller, (self._at_work[line], self._since[line], jobs[0].age))
            level.claims.put(job.database, (self._at_work[database], self._since[database], callers.ages.least()))

    def turns_to_come(self, duration: Duration) -> list[tuple[str, float]]:
        """Return the jobs that wait in the order of the turns to come, with the seconds until each.

        A job of which nothing is known counts as one that does not end: turns that wait for it are infinitely far.
        Where only such jobs are left, they end in the order in which they began, as if all took the same time.
        """
        return self._copy()._play(duration)

    def _play(self, duration: Duration) -> list[tuple[str, float]]:
        numbers = itertools.count()
        ends = [(_endless(duration(job)), next(numbers), job_id) for job_id, job in self._running.items()]
        heapq.heapify(ends)
        turns: list[tuple[str, float]] = []
        now = 0.0
        while self._waiting:
            job = self.start()
            if job is not None:
                turns.append((job.job_id, now))
                heapq.heappush(ends, (now + _endless(duration(job)), next(numbers), job.job_id))
            else:
                now, _, ended = heapq.heappop(ends)
                self.leave(ended)
        return turns

    def _copy(self) -> FairOrder:
        other = FairOrder(self._limits)
        other._turns = self._turns
        other._levels = {priority: databases.copy() for priority, databases in self._levels.items()}
        for name in ("_waiting", "_running", "_at_work", "_in_line", "_since", "_at_work_of", "_waiting_of"):
            setattr(other, name, getattr(self, name).copy())
        return other


def _less(counts: Counter[Any], what: Any) -> None:
    """Count one less, and forget what is none."""
    counts[what] -= 1
    if not counts[what]:
        del counts[what]


def _endless(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
