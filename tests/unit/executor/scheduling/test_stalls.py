"""Report a stall once, and again after twice as long; give a slow worker more time."""

from __future__ import annotations

from leman_core.model.job import Stall
from leman_core.model.plan import FragmentTask, Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentWork, InFlightRows, WorkUnit
from leman_executor.scheduling.crash_tracker import CrashTracker
from leman_executor.scheduling.stalls import WorkerWatch

CHECKS, SECONDS = 6, 5.0


def unit(name: str = "u1") -> WorkUnit:
    work = FragmentWork(FragmentTask(3, 100, 0, Reason.MISSING, "f" * 32, "p", ()), (RowRange(10, 50),), finish=False)
    return WorkUnit(name, (work,))


class Watched:
    """One watch, and the checks that it makes."""

    def __init__(self, *, is_remote: bool = False) -> None:
        self.crashes = CrashTracker()
        self.watch = WorkerWatch(CHECKS, SECONDS, self.crashes, is_remote=is_remote)

    def checks(self, count: int, others: dict[str, object] | None = None, *, alive: str = "") -> list[Stall]:
        """News of so many checks; `alive`: a unit whose worker says before each that it lives."""
        news = []
        for _ in range(count):
            if alive:
                self.watch.lives(alive)
            news += self.watch.check(others or {})[1]
        return news


def test_a_worker_that_does_not_move_is_told_after_six_checks_and_after_twice_as_many():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    assert watched.checks(CHECKS, alive="u1") == []
    (first,) = watched.checks(1, alive="u1")
    assert (first.worker, first.fragment_id, first.rows, first.idle_seconds) == ("worker 1", 3, RowRange(10, 50), 30.0)
    assert not first.silent
    assert first.message == "worker 1 has not moved for 30 s at rows 10 to 49 of fragment 3"
    assert watched.checks(CHECKS - 1, alive="u1") == []
    (again,) = watched.checks(1, alive="u1")
    assert again.idle_seconds == 60.0
    assert watched.watch.silent == []


def test_the_rows_that_the_function_was_called_with_are_named():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    watched.crashes.heard("u1", InFlightRows(3, (RowRange(12, 13),)))
    (stall,) = watched.checks(CHECKS + 1, alive="u1")
    assert (stall.fragment_id, stall.rows) == (3, RowRange(12, 13))
    assert "since the function was called with row 12 of fragment 3;" in stall.message
    assert stall.message.endswith("; give the function a timeout to end such calls")


def test_a_worker_may_wait_for_a_function_server():
    watched = Watched(is_remote=True)
    watched.watch.took("worker 1", unit(), heartbeats=True)
    watched.crashes.heard("u1", InFlightRows(3, (RowRange(12, 13),)))
    (stall,) = watched.checks(CHECKS + 1, alive="u1")
    assert "if it waits for a function server, the job continues once one can be reached" in stall.message


def test_what_moves_in_time_is_no_stall():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    for _ in range(5):
        assert watched.checks(CHECKS) == []
        watched.watch.moved("u1")


def test_a_worker_that_does_not_say_that_it_lives_is_silent():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    watched.watch.took("thread 0", unit("u2"), heartbeats=False)
    news = watched.checks(CHECKS + 1)
    assert {stall.worker: stall.silent for stall in news} == {"worker 1": True, "thread 0": False}
    assert [u.unit_id for u in watched.watch.silent] == ["u1"]
    watched.watch.lives("u1")
    watched.checks(1)
    assert watched.watch.silent == []


def test_an_idle_worker_that_falls_silent_is_news():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    (idle,) = watched.checks(CHECKS + 1, alive="u1")
    (silent,) = watched.checks(CHECKS, alive="")[:1]
    assert (idle.silent, silent.silent) == (False, True)


def test_whoever_was_only_slow_is_given_twice_as_long():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    assert len(watched.checks(CHECKS + 1, alive="u1")) == 1
    watched.watch.moved("u1")
    assert watched.checks(2 * CHECKS, alive="u1") == []
    assert len(watched.checks(1, alive="u1")) == 1


def test_a_unit_that_ended_is_no_stall():
    watched = Watched()
    watched.watch.took("worker 1", unit(), heartbeats=True)
    watched.watch.ended("u1")
    assert watched.checks(3 * CHECKS) == []


def test_other_things_are_told_too():
    watched = Watched()
    waits: dict[str, object] = {"the commit of 3 fragments has no response yet": 1}
    assert watched.checks(CHECKS, waits) == []
    (stall,) = watched.checks(1, waits)
    assert (stall.worker, stall.fragment_id) == ("", -1)
    assert stall.message == "the commit of 3 fragments has no response yet, for 30 s now"
    assert watched.checks(CHECKS, {"the commit of 3 fragments has no response yet": 2}) == [], "the next one is another"
