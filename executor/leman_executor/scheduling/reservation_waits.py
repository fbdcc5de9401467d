"""The waits for reservations of other jobs: for how long, and which of them nobody renews any more.

A holder that lives renews what it has, several times in a lifetime. One that is not renewed for a few lifetimes of our
own clock is dead, whatever the clock of Redis says, or was never a job's: the rows are computed all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from leman_core.model.job import Stall
from leman_core.model.ranges import RowRange
from leman_core.model.work import FragmentResult

_LIFETIMES = 3


@dataclass(slots=True)
class _Wait:
    """The wait for one fragment: since when, where, and whose reservations were seen last."""

    since: float
    rows: RowRange
    holds: tuple[str, ...]
    told: float = 0.0


class ReservationWaits:
    """The waits of one job, over all its plans; a wait longer than `stall_seconds` is worth telling.

    A hold is one reservation as Redis has it, with the moment at which it expires: it is another one after each
    renewal.

    Example: with a lifetime of 60 s a hold that is seen again and again for 180 s was not renewed once. Its job is
    dead, and the next plan computes the rows all the same.
    """

    def __init__(self, ttl_seconds: float, stall_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = _LIFETIMES * ttl_seconds
        self._stall = stall_seconds
        self._clock = clock
        self._first: dict[str, float] = {}
        self._seen: set[str] = set()
        self._waits: dict[int, _Wait] = {}
        self._waiting: set[int] = set()
        #: Holds that count for nothing.
        self.dead: tuple[str, ...] = ()
        #: Plans in a row that ended with a wait.
        self.turns = 0

    def seen(self, result: FragmentResult) -> None:
        """Take in what a unit found reserved."""
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
        """Take in that a plan was executed.

        Returns:
            All waits, and those worth telling: each after a while, and again after twice as long.
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
    """Return the job in "start-end-job#attempt=mark"."""
    return hold.split("-", 2)[-1].rpartition("=")[0].partition("#")[0] or "another job"
