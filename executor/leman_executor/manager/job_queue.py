"""Whose turn it is, and when the others' will be.

A heap of names by keys that change. Pure.

The order in which jobs have their turn, and what follows from it for those that wait. Pure: no I/O, no clock.

Of the jobs that wait, those of the highest priority come first. Among these the databases take turns: the one with the
fewest running jobs; of several such the one that has waited longest, since its last turn or since it began to wait; of
those the one with the oldest job. Within the database its callers take turns by the same rule, and of a caller's jobs
the oldest is next. Jobs that a limit keeps from running are passed over until they may.

Example: one job runs at once, `lake` has ten jobs of `etl` and one of `ann`, and `shop` asks for one after them all.
The order is `etl`, `shop`, `ann`, `etl`, …: no one waits for the ten jobs of someone else.

No one starves. Say that running jobs end in the order in which they began. A database that waits has no running job
left after as many turns as jobs run at once. From then on only databases come before it that have waited for longer,
each of them once: anyone who comes later, or comes again, has waited for less. The same holds for a caller among the
turns of its database, unless a limit for each caller keeps jobs of that caller waiting for one another.

The queue of jobs: some have their turn, others wait for it, in the order of `leman_executor.manager.job_queue`.
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from leman_core.model.service_errors import ResourceExhausted

_Key = TypeVar("_Key", bound=tuple[Any, ...])
#: Entries that do not count any more and are kept, beside as many as there are names.
_STALE = 32


class TurnHeap(Generic[_Key]):
    """Names, of which the one with the least key is found in few steps; `key_of`: the keys that count."""

    def __init__(self) -> None:
        self.key_of: dict[str, _Key] = {}
        self._entries: list[tuple[_Key, str]] = []

    def put(self, name: str, key: _Key) -> None:
        """Give a name a key, in the place of the one that it had."""
        if self.key_of.get(name) == key:
            return
        self.key_of[name] = key
        heapq.heappush(self._entries, (key, name))
        if len(self._entries) > 2 * len(self.key_of) + _STALE:
            self._entries = [(key, name) for name, key in self.key_of.items()]
            heapq.heapify(self._entries)

    def drop(self, name: str) -> None:
        """Forget a name."""
        self.key_of.pop(name, None)

    def first(self, may: Callable[[str], bool]) -> str | None:
        """Return the name with the least key among those that may be taken; None: none may."""
        passed_over = []
        found = None
        while self._entries and found is None:
            key, name = self._entries[0]
            if self.key_of.get(name) != key:  # it has another one by now
                heapq.heappop(self._entries)
            elif may(name):
                found = name
            else:
                passed_over.append(heapq.heappop(self._entries))
        for entry in passed_over:
            heapq.heappush(self._entries, entry)
        return found

    def least(self) -> _Key:
        """Return the least key; there is a name."""
        name = self.first(lambda _: True)
        if name is None:
            raise LookupError("the heap is empty")
        return self.key_of[name]

    def copy(self) -> TurnHeap[_Key]:
        """Return another heap with the same names and keys."""
        other: TurnHeap[_Key] = TurnHeap()
        other.key_of = dict(self.key_of)
        other._entries = list(self._entries)
        return other


_age = attrgetter("age")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job as the queue knows it."""

    key: str
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
        object.__setattr__(self, "age", (self.accepted_at, self.key))
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
DurationOf: TypeAlias = Callable[[QueuedJob], float | None]
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
        """Return the jobs that run, by key, in the order in which they began."""
        return self._running

    @property
    def waiting(self) -> Mapping[str, QueuedJob]:
        """Return the jobs that wait, by key."""
        return self._waiting

    def waiting_of(self, caller: str) -> int:
        """Return how many jobs of a caller wait."""
        return self._waiting_of[caller]

    def waiting_in(self, database: str) -> int:
        """Return how many jobs of a database wait."""
        return self._in_line[(database,)]

    def may_run(self, job: QueuedJob) -> bool:
        """Return whether the limits let one more job of this database and caller run."""
        return len(self._running) < self._limits.running and self._may(job.database) and self._may_for(job.caller)

    def _may(self, database: str) -> bool:
        most = self._limits.database(database)
        return not most or self._at_work[(database,)] < most

    def _may_for(self, caller: str) -> bool:
        most = self._limits.per_caller
        return not most or self._at_work_of[caller] < most

    def join(self, job: QueuedJob) -> None:
        """Have a job wait."""
        self._waiting[job.key] = job
        self._waiting_of[job.caller] += 1
        for line in job.lines:
            self._in_line[line] += 1
            self._since.setdefault(line, self._turns)
        self._enter(job)

    def prioritise(self, key: str, priority: int) -> None:
        """Give a job that waits another priority; nothing is done for one that does not wait."""
        job = self._waiting.get(key)
        if job is not None:
            self._take_out(job)
            self._claim(job)
            self._waiting[key] = job = replace(job, priority=priority)
            self._enter(job)

    def leave(self, key: str) -> None:
        """Forget a job, whether it waits or runs."""
        job = self._waiting.get(key)
        if job is not None:
            self._stop_waiting(job)
            self._claim(job)
            return
        job = self._running.pop(key, None)
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
        self._running[job.key] = job
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
        del self._waiting[job.key]
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

    def turns_to_come(self, duration: DurationOf) -> list[tuple[str, float]]:
        """Return the jobs that wait in the order of the turns to come, with the seconds until each.

        A job of which nothing is known counts as one that does not end: turns that wait for it are infinitely far.
        Where only such jobs are left, they end in the order in which they began, as if all took the same time.
        """
        return self._copy()._play(duration)

    def _play(self, duration: DurationOf) -> list[tuple[str, float]]:
        numbers = itertools.count()
        ends = [(_endless(duration(job)), next(numbers), key) for key, job in self._running.items()]
        heapq.heapify(ends)
        turns: list[tuple[str, float]] = []
        now = 0.0
        while self._waiting:
            job = self.start()
            if job is not None:
                turns.append((job.key, now))
                heapq.heappush(ends, (now + _endless(duration(job)), next(numbers), job.key))
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


_RETRY_SECONDS = 5.0
#: For so long it holds when jobs will have their turn.
_FORECAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The turns to come, as they were at one moment."""

    made_at: float
    """Seconds since the epoch."""
    places: Mapping[str, int]
    """Of the jobs that wait, in their order; 1 is next."""
    starts: Mapping[str, float]
    """In seconds since the epoch, where that is known: none comes before that of a job in a place before."""


class JobQueue:
    """The jobs of one executor, for one event loop.

    Args:
        limits: How many have their turn at once.
        most_waiting: So many more may wait for it.
        most_waiting_per_caller: So many of one caller; 0: no limit of its own.
        most_waiting_in: So many of a database; None: no limit of its own.
        duration: What is known of how long a job takes.
    """

    def __init__(
        self,
        limits: TurnLimits,
        most_waiting: int,
        most_waiting_per_caller: int = 0,
        duration: DurationOf = lambda _: None,
        most_waiting_in: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._order = FairOrder(limits)
        self._most_waiting = most_waiting
        self._most_waiting_per_caller = most_waiting_per_caller
        self._most_waiting_in = most_waiting_in
        self._duration = duration
        self._turns: dict[str, asyncio.Future[bool]] = {}
        self._closed = False
        self._forecast: _Forecast | None = None

    def check_capacity(self, job: QueuedJob) -> None:
        """Check that a job can be accepted.

        Raises:
            ResourceExhausted: TOO_MANY_JOBS – neither a turn nor a place in the queue is free;
                TOO_MANY_WAITING_JOBS – as many jobs of this caller, or of this database, wait as may.
        """
        if self._order.may_run(job):
            return
        running, waiting = len(self._order.running), len(self._order.waiting)
        own = self._order.waiting_of(job.caller)
        if self._most_waiting_per_caller and own >= self._most_waiting_per_caller:
            whose = f"'{job.caller}'" if job.caller else "callers without a name"
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{own} jobs of {whose} wait, as many as may: wait until some have had their turn, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )
        most, of_database = self._most_waiting_in(job.database), self._order.waiting_in(job.database)
        if most is not None and of_database >= most:
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{of_database} jobs of {job.database} wait, as many as its registration allows: wait until some have "
                "had their turn, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )
        if waiting >= self._most_waiting:
            raise ResourceExhausted(
                "TOO_MANY_JOBS",
                f"{running} jobs run and {waiting} wait: wait for some to end, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )

    def join(self, job: QueuedJob, *, always: bool = False) -> asyncio.Future[bool]:
        """Put a job into the queue.

        Args:
            job: The job.
            always: Accept it also where the queue is full.

        Returns:
            The job's turn: True once it has come, which may be at once; False: the job left the queue before.

        Raises:
            ResourceExhausted: as `check_capacity`, unless `always`.
        """
        if not always:
            self.check_capacity(job)
        turn = self._turns[job.key] = asyncio.get_running_loop().create_future()
        self._order.join(job)
        self._give_turns()
        return turn

    def leave(self, key: str) -> None:
        """Take out a job that is over, or is not to run after all; the next one has its turn."""
        self._order.leave(key)
        turn = self._turns.pop(key, None)
        if turn is not None and not turn.done():
            turn.set_result(False)
        self._give_turns()

    def look_again(self) -> None:
        """Give turns to jobs that may run by now, as limits are others than they were."""
        self._give_turns()

    def prioritise(self, key: str, priority: int) -> None:
        """Give a job that waits another priority; nothing is done for one that does not wait."""
        self._order.prioritise(key, priority)
        self._forecast = None

    def waits(self, key: str) -> bool:
        """Return whether the job waits for its turn."""
        return key in self._order.waiting

    @property
    def waiting(self) -> int:
        """Return how many jobs wait now."""
        return len(self._order.waiting)

    @property
    def together(self) -> int:
        """Return how many jobs run at once now."""
        return len(self._order.running)

    def places(self) -> Mapping[str, int]:
        """Return the places of the jobs that wait, in their order; 1 is next."""
        return self._forecast_at(time.time()).places

    def expected(self, key: str) -> tuple[int, float]:
        """Return a waiting job's place, and when it will have its turn, in seconds since the epoch: not in the past.

        The time is 0 where it is not known; both are where the job does not wait.
        """
        if not self.waits(key):
            return 0, 0.0
        now = time.time()
        forecast = self._forecast_at(now)
        start = forecast.starts.get(key)
        # what is overdue is so within the second: then all who ask meanwhile are told the same
        return forecast.places[key], 0.0 if start is None else max(start, math.ceil(now))

    def _forecast_at(self, now: float) -> _Forecast:
        """Return the turns to come: made again where jobs came or went, and each second while it is known how long some
        take."""
        forecast = self._forecast
        if forecast is None or (not 0.0 <= now - forecast.made_at < _FORECAST_SECONDS and self._something_is_known):
            turns = self._order.turns_to_come(self._duration)
            places = {key: place for place, (key, _) in enumerate(turns, start=1)}
            starts = {key: now + seconds for key, seconds in turns if not math.isinf(seconds)}
            forecast = self._forecast = _Forecast(now, places, starts)
        return forecast

    @property
    def _something_is_known(self) -> bool:
        return any(self._duration(job) is not None for job in self._order.running.values())

    def close(self) -> None:
        """Give no one a turn any more."""
        self._closed = True

    def _give_turns(self) -> None:
        self._forecast = None
        while not self._closed and (job := self._order.start()) is not None:
            turn = self._turns.pop(job.key)
            if not turn.done():
                turn.set_result(True)
