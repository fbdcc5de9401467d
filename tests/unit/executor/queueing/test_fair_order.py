"""The order of turns, against a plain reading of its rule; and that no one waits for ever."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from leman_executor.manager.job_queue import FairOrder, QueuedJob, TurnLimits

DATABASES, CALLERS = ("a", "b", "c"), ("", "x", "y")


def job(number: int, database: str = "a", caller: str = "", priority: int = 0) -> QueuedJob:
    return QueuedJob(
        key=f"job-{number}", accepted_at=float(number), database=database, caller=caller, priority=priority
    )


class PlainOrder:
    """The rule, read off its description."""

    def __init__(self, limits: TurnLimits) -> None:
        self.limits = limits
        self.turns = 0
        self.waiting: list[QueuedJob] = []
        self.running: list[QueuedJob] = []
        self.since: dict[tuple[str, ...], int] = {}

    def join(self, joining: QueuedJob) -> None:
        for line in joining.lines:
            if not any(line in other.lines for other in self.waiting):
                self.since[line] = self.turns
        self.waiting.append(joining)

    def leave(self, job_id: str) -> None:
        self.waiting = [other for other in self.waiting if other.key != job_id]
        self.running = [other for other in self.running if other.key != job_id]

    def may_run(self, one: QueuedJob) -> bool:
        limits = self.limits
        of_database = sum(other.database == one.database for other in self.running)
        of_caller = sum(other.caller == one.caller for other in self.running)
        return (
            len(self.running) < limits.running
            and (not limits.database(one.database) or of_database < limits.database(one.database))
            and (not limits.per_caller or of_caller < limits.per_caller)
        )

    def first(self, jobs: list[QueuedJob], level: int) -> tuple[str, ...]:
        """Whose turn it is: a database (level 0), or a caller in one (level 1)."""
        lines = {one.lines[level] for one in jobs}

        def claim(line: tuple[str, ...]) -> tuple[int, int, tuple[float, str]]:
            at_work = sum(other.lines[level] == line for other in self.running)
            oldest = min(
                one.age for one in self.waiting if one.lines[level] == line and one.priority == jobs[0].priority
            )
            return at_work, self.since[line], oldest

        return min(lines, key=claim)

    def start(self) -> QueuedJob | None:
        may = [one for one in self.waiting if self.may_run(one)]
        may = [one for one in may if one.priority == max(other.priority for other in may)]
        if not may:
            return None
        for level in (0, 1):
            line = self.first(may, level)
            may = [one for one in may if one.lines[level] == line]
        chosen = min(may, key=lambda one: one.age)
        self.turns += 1
        self.waiting.remove(chosen)
        self.running.append(chosen)
        for line in chosen.lines:
            self.since[line] = self.turns
        return chosen


def limits_of(draw: st.DrawFn) -> TurnLimits:
    few = st.integers(0, 2)
    own = draw(st.dictionaries(st.sampled_from(DATABASES), st.integers(1, 3)))
    return TurnLimits(
        running=draw(st.integers(1, 4)), per_database=draw(few), per_caller=draw(few), of_database=own.get
    )


@given(st.data())
def test_it_is_the_order_that_its_rule_describes(data):
    limits = limits_of(data.draw)
    order, plain = FairOrder(limits), PlainOrder(limits)
    for number in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(("join", "join", "start", "end", "leave", "prioritise"))):
            case "join":
                new = job(
                    data.draw(st.integers(0, 99)) * 100 + number,
                    data.draw(st.sampled_from(DATABASES)),
                    data.draw(st.sampled_from(CALLERS)),
                    data.draw(st.integers(-1, 1)),
                )
                order.join(new)
                plain.join(new)
            case "start":
                assert order.start() == plain.start()
            case "end" if plain.running:
                ended = data.draw(st.sampled_from(plain.running)).key
                order.leave(ended)
                plain.leave(ended)
            case "leave" if plain.waiting:
                left = data.draw(st.sampled_from(plain.waiting)).key
                order.leave(left)
                plain.leave(left)
            case "prioritise" if plain.waiting:
                at = data.draw(st.integers(0, len(plain.waiting) - 1))
                raised = job(0, priority=data.draw(st.integers(-1, 1))).priority
                old = plain.waiting[at]
                plain.waiting[at] = QueuedJob(
                    key=old.key,
                    accepted_at=old.accepted_at,
                    database=old.database,
                    caller=old.caller,
                    priority=raised,
                )
                order.prioritise(old.key, raised)
    assert list(order.running) == [one.key for one in plain.running]
    assert set(order.waiting) == {one.key for one in plain.waiting}
    assert {caller: order.waiting_of(caller) for caller in CALLERS} == {
        caller: sum(one.caller == caller for one in plain.waiting) for caller in CALLERS
    }
    assert places(order) == played(plain), "places are those of the turns to come"


def places(order: FairOrder) -> list[str]:
    """The jobs that wait in the order of their turns, where nothing is known of any."""
    return [job_id for job_id, _ in order.turns_to_come(lambda _: None)]


def played(plain: PlainOrder) -> list[str]:
    """The jobs in the order of their turns, where running ones end in the order in which they began."""
    turns: list[str] = []
    while plain.waiting:
        chosen = plain.start()
        if chosen is not None:
            turns.append(chosen.key)
        else:
            plain.leave(plain.running[0].key)
    return turns


@given(st.data())
def test_whoever_waits_with_the_highest_priority_has_a_turn_before_long(data):
    slots = data.draw(st.integers(1, 4))
    order = FairOrder(TurnLimits(running=slots))
    number, turns = 0, 0
    most: dict[str, int] = {}
    running: list[str] = []
    for _ in range(data.draw(st.integers(20, 80))):
        for _ in range(data.draw(st.integers(0, 3))):  # anyone who comes, and comes again
            number += 1
            new = job(number, data.draw(st.sampled_from(DATABASES)), data.draw(st.sampled_from(CALLERS)))
            before = sum(other.lines == new.lines for other in order.waiting.values())
            order.join(new)
            turns_of_database, turns_of_caller = slots + len(DATABASES), slots + len(CALLERS)
            most[new.key] = turns + (before + 1) * turns_of_caller * turns_of_database
        chosen = order.start()
        if chosen is None and running:
            order.leave(running.pop(0))
            chosen = order.start()
        if chosen is not None:
            turns += 1
            running.append(chosen.key)
            assert turns <= most[chosen.key]
        assert all(turns <= most[job_id] for job_id in order.waiting)


@given(st.data())
def test_limits_hold_and_no_turn_is_wasted(data):
    limits = limits_of(data.draw)
    order = FairOrder(limits)
    running: list[QueuedJob] = []
    for number in range(40):
        order.join(job(number, data.draw(st.sampled_from(DATABASES)), data.draw(st.sampled_from(CALLERS))))
        while (chosen := order.start()) is not None:
            running.append(chosen)
        assert not any(order.may_run(one) for one in order.waiting.values())
        databases, callers = Counter(one.database for one in running), Counter(one.caller for one in running)
        assert all(not limits.database(name) or count <= limits.database(name) for name, count in databases.items())
        assert not limits.per_caller or all(count <= limits.per_caller for count in callers.values())
        if data.draw(st.booleans()):
            order.leave(running.pop(data.draw(st.integers(0, len(running) - 1))).key)


def test_nobody_waits_for_all_jobs_of_somebody_else():
    order = FairOrder(TurnLimits(running=1))
    for number in range(4):
        order.join(job(number, "lake", "etl"))
    order.join(job(4, "lake", "ann"))
    order.join(job(5, "shop", "bob"))
    order.join(job(6, "lake", "ops", priority=1))
    started = order.start()
    assert started is not None
    assert started.key == "job-6", "the highest priority comes first, no matter who asks"
    assert places(order) == ["job-5", "job-0", "job-4", "job-1", "job-2", "job-3"]


def test_who_comes_again_and_again_does_not_come_before_who_waits():
    order = FairOrder(TurnLimits(running=1))
    order.join(job(0, "busy"))
    order.start()
    order.join(job(1, "patient"))
    for number in range(2, 9):  # one job after the other, each of a database that has never had a turn
        order.join(job(number, f"new-{number}"))
    order.leave("job-0")
    assert order.start() == job(1, "patient")


def test_a_job_expects_its_turn_when_those_before_it_are_likely_to_be_done():
    order = FairOrder(TurnLimits(running=2))
    known: dict[str, float | None] = {"job-0": 10.0, "job-1": 4.0, "job-2": 3.0, "job-3": None, "job-4": 1.0}
    duration: Callable[[QueuedJob], float | None] = lambda one: known.get(one.key)  # noqa: E731
    for number in range(6):
        order.join(job(number))
        order.start()
    assert places(order) == ["job-2", "job-3", "job-4", "job-5"]
    assert order.turns_to_come(duration) == [("job-2", 4.0), ("job-3", 7.0), ("job-4", 10.0), ("job-5", 11.0)]
    known["job-0"] = None
    never = math.inf
    expected = [("job-2", 4.0), ("job-3", 7.0), ("job-4", never), ("job-5", never)]
    assert order.turns_to_come(duration) == expected, "no one knows when job-3 ends"
    known["job-1"] = None
    assert [seconds for _, seconds in order.turns_to_come(duration)] == [never] * 4


def test_who_expects_an_earlier_turn_has_a_place_before():
    """The older job waits for one of its own database, which takes long."""
    order = FairOrder(TurnLimits(running=2, per_database=1))
    known = {"job-0": 3600.0, "job-1": 10.0, "job-2": 5.0, "job-3": 5.0}
    for number, database in enumerate(["lake", "shop", "lake", "shop"]):
        order.join(job(number, database))
        order.start()
    assert places(order) == ["job-2", "job-3"]
    assert order.turns_to_come(lambda one: known[one.key]) == [("job-3", 10.0), ("job-2", 3600.0)]
