"""Find out whether a job that makes no progress waits for workers, or for reservations of other jobs. Pure.

The holder of a reservation renews it several times per lifetime. If this executor sees no renewal for a few lifetimes,
by its own clock, the holder is dead or the reservation belongs to no job. Its rows are then computed anyway.

A worker is stalled if it sends no report during a number of checks, which are a few seconds apart. Checks are counted
instead of seconds, because an executor that was suspended would otherwise mistake its own pause for a stall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leman_core.model.job import Stall
from leman_core.model.keys import id_in_key
from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentResult, WorkUnit
from leman_executor.scheduling.crash_tracker import CrashTracker, describe_rows, rows_in_flight

_LIFETIMES = 3


@dataclass(slots=True)
class _Wait:
    """The wait for one fragment: its start, its rows, and the reservations that were seen most recently."""

    since: float
    rows: RowRange
    holds: tuple[str, ...]
    told: float = 0.0


class ReservationWaits:
    """The waits of one job, over all its plans. A wait longer than `stall_seconds` is reported.

    A "hold" is one reservation in Redis together with its expiry, so each renewal makes a new hold.

    Example: with a lifetime of 60 s, a hold that is still there after 180 s was not renewed. Its job is dead, and the
    next plan computes the rows anyway.
    """

    def __init__(self, ttl_seconds: float, stall_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = _LIFETIMES * ttl_seconds
        self._stall = stall_seconds
        self._clock = clock
        self._first: dict[str, float] = {}
        self._seen: set[str] = set()
        self._waits: dict[int, _Wait] = {}
        self._waiting: set[int] = set()
        #: Holds of dead jobs, which are ignored.
        self.dead: tuple[str, ...] = ()
        #: Number of consecutive plans that ended with a wait.
        self.turns = 0

    def seen(self, result: FragmentResult) -> None:
        """Record the reservations that a unit encountered."""
        if not result.busy:
            return
        now = self._clock()
        for hold in result.holds:
            self._first.setdefault(hold, now)
            self._seen.add(hold)
        wait = self._waits.setdefault(result.fragment_id, _Wait(now, result.busy[0], result.holds))
        wait.rows, wait.holds = result.busy[0], result.holds
        self._waiting.add(result.fragment_id)

    def turn(self) -> tuple[list[Stall], list[Stall]]:
        """Record that a plan was executed.

        Returns:
            All waits, and the waits to report. A wait is reported after `stall_seconds`, and again each time its
            duration has doubled.
        """
        now = self._clock()
        self._first = {hold: first for hold, first in self._first.items() if hold in self._seen}
        dead = (hold for hold, first in self._first.items() if now - first >= self._patience)
        self.dead = tuple(dict.fromkeys([*self.dead, *dead]))
        self._waits = {i: wait for i, wait in self._waits.items() if i in self._waiting}
        self.turns = self.turns + 1 if self._waits else 0
        self._seen, self._waiting = set(), set()
        stalls: list[Stall] = []
        news: list[Stall] = []
        for fragment_id, wait in self._waits.items():
            seconds = now - wait.since
            stalls.append(_stall(fragment_id, wait, seconds))
            if seconds >= max(self._stall, 2 * wait.told):
                wait.told = seconds
                news.append(stalls[-1])
        return stalls, news


def _stall(fragment_id: int, wait: _Wait, seconds: float) -> Stall:
    holders = ", ".join(dict.fromkeys(_holder(hold) for hold in wait.holds)) or "another job"
    rows = f"rows {wait.rows.start} to {wait.rows.end - 1} of fragment {fragment_id}"
    message = f"{rows} are reserved by {holders}; waiting for {seconds:.0f} s now"
    return Stall(
        worker="", fragment_id=fragment_id, rows=wait.rows, idle_seconds=seconds, silent=False, message=message
    )


def _holder(hold: str) -> str:
    """Return the job id in a hold, which has the form "start-end-key#attempt=mark"."""
    return id_in_key(hold.split("-", 2)[-1].rpartition("=")[0].partition("#")[0]) or "another job"


_NOWHERE = RowRange(0, 0)


class IdleCount:
    """Count the checks in which a worker, or another thing that a job waits for, made no progress.

    If something makes progress after it counted as stalled, it was only slow. The limit then doubles for everything.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self._seen: dict[str, tuple[object, int]] = {}

    def check(self, marks: Mapping[str, object]) -> dict[str, int]:
        """Compare with the previous check. Return the number of idle checks for each name that is stalled.

        Args:
            marks: By name, a value that changes whenever there is progress.
        """
        before, self._seen = self._seen, {}
        for thing, mark in marks.items():
            seen, idle = before.get(thing, (None, 0))
            moved = thing not in before or seen != mark
            if moved and idle >= self.patience:
                self.patience = 2 * idle
            self._seen[thing] = (mark, 0 if moved else idle + 1)
        return {thing: idle for thing, (_, idle) in self._seen.items() if idle >= self.patience}


@dataclass(slots=True)
class _Worker:
    name: str
    unit: WorkUnit
    heartbeats: bool
    moves: int = 0
    times_heard: int = 0


class WorkerWatch:
    """Watch the workers of one job. A worker without progress in `idle_checks` checks, `check_seconds` apart, is
    stalled.
    """

    def __init__(
        self, idle_checks: int, check_seconds: float, crashes: CrashTracker, *, is_remote: bool = False
    ) -> None:
        """Initialize. `is_remote`: whether function servers compute for the workers."""
        self._is_remote = is_remote
        self._seconds = check_seconds
        self._idle = IdleCount(idle_checks)
        self._silent = IdleCount(idle_checks)
        self._crashes = crashes
        self._workers: dict[str, _Worker] = {}
        self._told: dict[str, Stall] = {}
        #: Units of workers that also send no signs of life.
        self.silent: list[WorkUnit] = []

    def took(self, worker: str, unit: WorkUnit, *, heartbeats: bool) -> None:
        """Record that a worker got a unit. `heartbeats`: whether it sends signs of life."""
        self._workers[unit.unit_id] = _Worker(worker, unit, heartbeats)

    def moved(self, unit_id: str) -> None:
        """Record that the worker of a unit has made progress."""
        worker = self._workers.get(unit_id)
        if worker is not None:
            worker.moves += 1
            worker.times_heard += 1

    def lives(self, unit_id: str) -> None:
        """Record a sign of life of the worker of a unit."""
        worker = self._workers.get(unit_id)
        if worker is not None:
            worker.times_heard += 1

    def ended(self, unit_id: str) -> None:
        """Record that a unit was returned or lost."""
        self._workers.pop(unit_id, None)

    def unit_of(self, unit_id: str) -> WorkUnit | None:
        """Return a unit that a worker has, or None if it is not in flight."""
        worker = self._workers.get(unit_id)
        return worker.unit if worker is not None else None

    def worker_of(self, unit_id: str) -> str:
        """Return the worker that has a unit, or "" if none has it."""
        worker = self._workers.get(unit_id)
        return worker.name if worker is not None else ""

    def check(self, others: Mapping[str, object]) -> tuple[list[Stall], list[Stall]]:
        """Find the workers and other things that have made no progress since the previous check.

        Args:
            others: Descriptions of other things that the job waits for, each with a value that changes on progress.

        Returns:
            All stalls, and the stalls to report: new ones, and those whose duration has doubled since their last
            report.
        """
        heard = {u: worker.times_heard for u, worker in self._workers.items() if worker.heartbeats}
        silent = self._silent.check(heard)
        marks = {u: worker.moves for u, worker in self._workers.items()}
        idle = self._idle.check({**marks, **others})
        self.silent = [self._workers[unit_id].unit for unit_id in silent]
        stalls = {
            thing: self._of_worker(self._workers[thing], checks * self._seconds, silent=thing in silent)
            if thing in self._workers
            else _of_other(thing, checks * self._seconds)
            for thing, checks in {**idle, **silent}.items()
        }
        news = [stall for thing, stall in stalls.items() if self._is_news(thing, stall)]
        self._told = {thing: told for thing, told in self._told.items() if thing in stalls}
        return list(stalls.values()), news

    def _is_news(self, thing: str, stall: Stall) -> bool:
        known = self._told.get(thing)
        if known is not None and known.silent == stall.silent and stall.idle_seconds < 2 * known.idle_seconds:
            return False
        self._told[thing] = stall
        return True

    def _of_worker(self, worker: _Worker, seconds: float, *, silent: bool) -> Stall:
        held = self._crashes.held_by(worker.unit)
        places = held or rows_in_flight(worker.unit)
        fragment_id, rows = places[0] if places else (-1, _NOWHERE)
        where = f"since the function was called with {describe_rows(places)}" if held else f"at {describe_rows(places)}"
        message = f"{worker.name} has not moved for {seconds:g} s {where}"
        if silent:
            message = f"{worker.name} has been silent for {seconds:g} s {where}: frozen, or cut off from the executor"
        elif held and self._is_remote:
            message += (
                "; if it waits for a function server, the job continues once one can be reached; give the function a "
                "timeout to end calls that a server does not answer"
            )
        elif held:
            message += "; give the function a timeout to end such calls"
        return Stall(
            worker=worker.name, fragment_id=fragment_id, rows=rows, idle_seconds=seconds, silent=silent, message=message
        )


def _of_other(text: str, seconds: float) -> Stall:
    return Stall(
        worker="",
        fragment_id=-1,
        rows=_NOWHERE,
        idle_seconds=seconds,
        silent=False,
        message=f"{text}, for {seconds:g} s now",
    )
