"""Decide which waiting job runs next, and forecast when each waiting job will run.

The order is computed without I/O or a clock. Waiting jobs with the highest priority come first. Among these, databases
take turns: the next database is the one with the fewest running jobs. If several have equally few, the next is the one
whose last turn (or whose first waiting job, if there was no turn) is longest ago, and then the one with the oldest job.
Within a database, callers take turns by the same rule; a caller's oldest job is next. A job that a limit blocks is
skipped until it may run.

Example: one job runs at a time. `lake` has ten jobs of the caller `etl` and one of `ann`; after all of these, `shop`
submits a job. The order is `etl`, `shop`, `ann`, `etl`, …, so no caller waits for another caller's ten jobs.

No job starves. Assume that n jobs run concurrently and end in the order in which they began. After n turns, a waiting
database has no running jobs left. From then on, only databases that have waited longer come before it, each only once.
The same holds for the callers within a database, unless a caller is blocked by its own limit.
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
#: Number of stale entries that a heap keeps, in addition to one current entry for each name.
_STALE = 32


class TurnHeap(Generic[_Key]):
    """A heap of names, ordered by keys that may change. `key_of` maps each name to its current key."""

    def __init__(self) -> None:
        self.key_of: dict[str, _Key] = {}
        self._entries: list[tuple[_Key, str]] = []

    def put(self, name: str, key: _Key) -> None:
        """Set the key of a name, replacing its previous key."""
        if self.key_of.get(name) == key:
            return
        self.key_of[name] = key
        heapq.heappush(self._entries, (key, name))
        if len(self._entries) > 2 * len(self.key_of) + _STALE:
            self._entries = [(key, name) for name, key in self.key_of.items()]
            heapq.heapify(self._entries)

    def drop(self, name: str) -> None:
        self.key_of.pop(name, None)

    def first(self, may: Callable[[str], bool]) -> str | None:
        """Return the name with the smallest key among those that `may` accepts, or None."""
        passed_over = []
        found = None
        while self._entries and found is None:
            key, name = self._entries[0]
            if self.key_of.get(name) != key:  # replaced by a later key
                heapq.heappop(self._entries)
            elif may(name):
                found = name
            else:
                passed_over.append(heapq.heappop(self._entries))
        for entry in passed_over:
            heapq.heappush(self._entries, entry)
        return found

    def least(self) -> _Key:
        """Return the smallest key. The heap must not be empty."""
        name = self.first(lambda _: True)
        if name is None:
            raise LookupError("the heap is empty")
        return self.key_of[name]

    def copy(self) -> TurnHeap[_Key]:
        other: TurnHeap[_Key] = TurnHeap()
        other.key_of = dict(self.key_of)
        other._entries = list(self._entries)
        return other


_age = attrgetter("age")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job in the queue, waiting or running."""

    key: str
    accepted_at: float
    """When the job was accepted, in seconds since the epoch."""
    database: str = ""
    caller: str = ""
    """The caller; empty if anonymous."""
    priority: int = 0
    age: _Age = field(init=False, repr=False, compare=False)
    """The sort key. Older jobs come first."""
    lines: tuple[_Line, _Line] = field(init=False, repr=False, compare=False)
    """The two waiting lines of the job: its database, and its caller in that database.

    Starting the job uses a turn of both.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "age", (self.accepted_at, self.key))
        object.__setattr__(self, "lines", ((self.database,), (self.database, self.caller)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """Maximum numbers of jobs that may run concurrently: in total, in each database, and of each caller in all
    databases together. 0 means no limit.
    """

    running: int
    per_database: int = 0
    per_caller: int = 0
    of_database: Callable[[str], int | None] = lambda _: None
    """Returns a database's own limit, which replaces `per_database`, or None. It may change at any time."""

    def database(self, database: str) -> int:
        """Return the maximum number of concurrent jobs in a database; 0 for no limit."""
        own = self.of_database(database)
        return self.per_database if own is None else own


#: The total or the remaining seconds of a job; None if unknown.
DurationOf: TypeAlias = Callable[[QueuedJob], float | None]
#: A waiting line: a database, or a caller in a database.
_Line: TypeAlias = tuple[str, ...]
_Age: TypeAlias = tuple[float, str]
#: The sort key of a line for the next turn: the number of its running jobs, the turn since which it waits, and its
#: oldest job. The smallest is next.
_Claim: TypeAlias = tuple[int, int, _Age]


class _Callers:
    """The waiting jobs in one database with one priority."""

    def __init__(self) -> None:
        #: By caller, the oldest job first.
        self.jobs: dict[str, list[QueuedJob]] = {}
        self.claims: TurnHeap[_Claim] = TurnHeap()
        self.ages: TurnHeap[_Age] = TurnHeap()

    def drop(self, caller: str) -> None:
        """Remove a caller that has no waiting jobs left."""
        del self.jobs[caller]
        self.claims.drop(caller)
        self.ages.drop(caller)

    def copy(self) -> _Callers:
        other = _Callers()
        other.jobs = {caller: list(jobs) for caller, jobs in self.jobs.items()}
        other.claims, other.ages = self.claims.copy(), self.ages.copy()
        return other


class _Databases:
    """The waiting jobs with one priority."""

    def __init__(self) -> None:
        self.callers: dict[str, _Callers] = {}
        self.claims: TurnHeap[_Claim] = TurnHeap()

    def drop(self, database: str) -> None:
        """Remove a database that has no waiting jobs left."""
        del self.callers[database]
        self.claims.drop(database)

    def copy(self) -> _Databases:
        other = _Databases()
        other.callers = {name: callers.copy() for name, callers in self.callers.items()}
        other.claims = self.claims.copy()
        return other


class FairOrder:
    """The running jobs, and the waiting jobs in their order."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._turns = 0
        self._waiting: dict[str, QueuedJob] = {}
        self._levels: dict[int, _Databases] = {}
        self._running: dict[str, QueuedJob] = {}
        #: How many jobs of each line run, and how many wait.
        self._at_work: Counter[_Line] = Counter()
        self._in_line: Counter[_Line] = Counter()
        #: The number of the turn since which a line waits. Only lines with waiting jobs have one.
        self._since: dict[_Line, int] = {}
        self._at_work_of: Counter[str] = Counter()
        self._waiting_of: Counter[str] = Counter()

    @property
    def running(self) -> Mapping[str, QueuedJob]:
        """Return the running jobs by key, in the order in which they began."""
        return self._running

    @property
    def waiting(self) -> Mapping[str, QueuedJob]:
        return self._waiting

    def waiting_of(self, caller: str) -> int:
        return self._waiting_of[caller]

    def waiting_in(self, database: str) -> int:
        return self._in_line[(database,)]

    def may_run(self, job: QueuedJob) -> bool:
        """Return whether the limits allow one more job of this database and caller."""
        return len(self._running) < self._limits.running and self._may(job.database) and self._may_for(job.caller)

    def _may(self, database: str) -> bool:
        most = self._limits.database(database)
        return not most or self._at_work[(database,)] < most

    def _may_for(self, caller: str) -> bool:
        most = self._limits.per_caller
        return not most or self._at_work_of[caller] < most

    def join(self, job: QueuedJob) -> None:
        """Add a waiting job."""
        self._waiting[job.key] = job
        self._waiting_of[job.caller] += 1
        for line in job.lines:
            self._in_line[line] += 1
            self._since.setdefault(line, self._turns)
        self._enter(job)

    def prioritise(self, key: str, priority: int) -> None:
        """Change the priority of a waiting job. Ignore any other job."""
        job = self._waiting.get(key)
        if job is not None:
            self._take_out(job)
            self._claim(job)
            self._waiting[key] = job = replace(job, priority=priority)
            self._enter(job)

    def leave(self, key: str) -> None:
        """Remove a waiting or running job."""
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
        """Start the next job and return it. Return None if no waiting job may run."""
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
        """Return the caller whose turn is next in a database. Return None if no job may run there."""
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
        """Update the claims of a job's lines, after the job has joined, started or left."""
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
        """Return the waiting jobs in the order of their turns, each with the seconds until its turn.

        A job of unknown duration is assumed never to end, so a turn that waits for such a job is infinitely far away.
        If the durations of all running jobs are unknown, the jobs are assumed to end in the order in which they began.
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
    """Decrement a count. Remove it when it is zero."""
    counts[what] -= 1
    if not counts[what]:
        del counts[what]


def _endless(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


_RETRY_SECONDS = 5.0
#: How long a forecast stays valid.
_FORECAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The order and the expected starts of the waiting jobs at some moment."""

    made_at: float
    """Seconds since the epoch."""
    places: Mapping[str, int]
    """The places of the waiting jobs, in order; 1 is next."""
    starts: Mapping[str, float]
    """The known expected starts, in seconds since the epoch. A job never starts before a job in an earlier place."""


class JobQueue:
    """The jobs of one executor, on one event loop.

    Args:
        most_waiting: Maximum number of waiting jobs in total.
        most_waiting_per_caller: Maximum number of waiting jobs of one caller; 0 for no limit.
        most_waiting_in: Returns the maximum number of waiting jobs in a database, or None if it has no limit of its
            own.
        duration: Estimates how long a job takes.
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
        """Check that another job can be accepted.

        Raises:
            ResourceExhausted: TOO_MANY_JOBS – the maximum number of jobs is running and waiting; TOO_MANY_WAITING_JOBS
                – the maximum number of this caller's jobs, or of jobs in this database, is waiting.
        """
        if self._order.may_run(job):
            return
        running, waiting = len(self._order.running), len(self._order.waiting)
        own = self._order.waiting_of(job.caller)
        if self._most_waiting_per_caller and own >= self._most_waiting_per_caller:
            whose = f"'{job.caller}'" if job.caller else "callers without a name"
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{own} jobs of {whose} wait already: wait until some have run, or cancel them",
                retry_after_seconds=_RETRY_SECONDS,
            )
        most, of_database = self._most_waiting_in(job.database), self._order.waiting_in(job.database)
        if most is not None and of_database >= most:
            raise ResourceExhausted(
                "TOO_MANY_WAITING_JOBS",
                f"{of_database} jobs of {job.database} wait, as many as its registration allows: wait until some "
                "have run, or cancel them",
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
            always: Whether to accept the job even if the queue is full.

        Returns:
            A future. Its result is True when the job may run (possibly at once), or False if the job leaves the queue
            before that.

        Raises:
            ResourceExhausted: see `check_capacity`, unless `always`.
        """
        if not always:
            self.check_capacity(job)
        turn = self._turns[job.key] = asyncio.get_running_loop().create_future()
        self._order.join(job)
        self._give_turns()
        return turn

    def leave(self, key: str) -> None:
        """Remove an ended or withdrawn job. Start the next one."""
        self._order.leave(key)
        turn = self._turns.pop(key, None)
        if turn is not None and not turn.done():
            turn.set_result(False)
        self._give_turns()

    def look_again(self) -> None:
        """Start those waiting jobs that may run after a change of limits."""
        self._give_turns()

    def prioritise(self, key: str, priority: int) -> None:
        """Change the priority of a waiting job. Ignore any other job."""
        self._order.prioritise(key, priority)
        self._forecast = None

    def waits(self, key: str) -> bool:
        return key in self._order.waiting

    @property
    def waiting(self) -> int:
        return len(self._order.waiting)

    @property
    def together(self) -> int:
        """Return the number of jobs that run now."""
        return len(self._order.running)

    def places(self) -> Mapping[str, int]:
        """Return the place of each waiting job, in order. Place 1 is next."""
        return self._forecast_at(time.time()).places

    def expected(self, key: str) -> tuple[int, float]:
        """Return a waiting job's place and its expected start, in seconds since the epoch, never in the past.

        The start is 0 if unknown. Both are 0 if the job does not wait.
        """
        if not self.waits(key):
            return 0, 0.0
        now = time.time()
        forecast = self._forecast_at(now)
        start = forecast.starts.get(key)
        # Starts in the past are replaced by the current time, rounded up to a second so that concurrent callers get the
        # same answer.
        return forecast.places[key], 0.0 if start is None else max(start, math.ceil(now))

    def _forecast_at(self, now: float) -> _Forecast:
        """Return the forecast. It is renewed after jobs join or leave and, if any durations are known, each second."""
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
        """Start no more jobs."""
        self._closed = True

    def _give_turns(self) -> None:
        self._forecast = None
        while not self._closed and (job := self._order.start()) is not None:
            turn = self._turns.pop(job.key)
            if not turn.done():
                turn.set_result(True)
