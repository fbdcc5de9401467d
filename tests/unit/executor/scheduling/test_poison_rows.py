"""Rows that end the process of anyone who evaluates them: found with few deaths, and all the others are computed."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.row_positions import RowRange, count_offsets, merge_ranges, split_range, subtract_ranges
from leman_core.model.work import FragmentResult, FragmentWork, InFlightRows, UnitOutcome, WorkUnit
from leman_executor.scheduling.crash_tracker import Crash, CrashTracker, decide_after_crash
from leman_executor.scheduling.work_queue import WorkQueue
from tests.unit.executor.scheduling.test_work_queue import plans, task

UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
DEATHS = 3  # for one row of a slice of at most 256
Row = tuple[int, int]


def policy(*rules: ErrorRule) -> UdfDefinition:
    return replace(UDF, error_policy=ErrorPolicy(rules))


SKIPPING = policy(ErrorRule(ErrorAction.SKIP, ("WorkerLost",)))


class Died(Exception):
    """The worker is gone."""


class World:
    """An executor and its workers, without processes: poison ends a worker, and now and then so does chance."""

    def __init__(self, tasks: list[FragmentTask], poison: set[Row], rng: random.Random, kills: int, workers: int):
        self.poison = poison
        self.rng = rng
        self.kills = kills
        self.workers = workers
        self.deaths = 0
        self.quarantined: set[Row] = set()
        self.done: dict[int, list[RowRange]] = {t.fragment_id: [] for t in tasks}
        self.finished: set[int] = set()
        self.crashes = CrashTracker()
        self.work_queue = WorkQueue(tasks, workers, seconds_per_row=rng.choice([None, 0.01]))

    def run(self, udf: UdfDefinition) -> None:
        out = self.work_queue.first_units()
        for _ in range(20_000):
            while len(out) < self.workers and (unit := self.work_queue.take()) is not None:
                out.append(unit)
            if not out:
                return
            self._work(out.pop(self.rng.randrange(len(out))), udf)
        raise AssertionError("no end")

    def _work(self, unit: WorkUnit, udf: UdfDefinition) -> None:
        try:
            results = tuple(self._fragment(unit, work) for work in unit.works)
        except Died:
            self.deaths += 1
            crash = self.crashes.lost(unit)
            self.work_queue.give_back(unit, crash.held, crash.stored)
            decision = decide_after_crash(crash, self.crashes, udf)
            if decision.error is not None:
                raise decision.error from None
            if decision.quarantined is not None:
                self.work_queue.quarantine(decision.quarantined)
            return
        self.crashes.ended(unit.unit_id)
        self.work_queue.note(UnitOutcome(unit.unit_id, results))

    def _fragment(self, unit: WorkUnit, work: FragmentWork) -> FragmentResult:
        self._chance()
        refs: list[CheckpointRef] = []
        for rows in work.ranges:
            assert not [d for d in self.done[work.fragment_id] if d.intersect(rows)], "handed out twice"
            self._range(unit, work, rows, refs)
        known = [r.range for r in work.checkpoints]
        if work.finish:
            assert not subtract_ranges([RowRange(0, work.task.physical_rows)], [*known, *work.ranges]), (
                "finished with rows unknown"
            )
            self.finished.add(work.fragment_id)
            self.crashes.settled(work.fragment_id)
        staged = object() if work.finish else None
        result = FragmentResult(work.fragment_id, tuple(refs), staged=staged, rows_evaluated=count_offsets(work.ranges))  # type: ignore[arg-type]
        self.crashes.passed(unit.unit_id, result)
        return result

    def _range(self, unit: WorkUnit, work: FragmentWork, rows: RowRange, refs: list[CheckpointRef]) -> None:
        safe = rows.start
        doomed = {f.offset for f in work.quarantined}
        for part in split_range(rows, unit.slice_rows or self.rng.choice([1, 7, 64, 500])):
            self.crashes.heard(unit.unit_id, InFlightRows(work.fragment_id, (part,)))
            self._chance()
            for offset in range(part.start, part.end):
                if offset in doomed:
                    self.quarantined.add((work.fragment_id, offset))
                elif (work.fragment_id, offset) in self.poison:
                    raise Died
            if part.end == rows.end or unit.look_first or self.rng.random() < 0.1:
                covered = RowRange(safe, part.end)
                refs.append(CheckpointRef(f"{unit.unit_id}-{work.fragment_id}-{safe}", covered))
                self.crashes.heard(unit.unit_id, InFlightRows(work.fragment_id, stored=refs[-1]))
                self.done[work.fragment_id] = merge_ranges([*self.done[work.fragment_id], covered])
                safe = part.end

    def _chance(self) -> None:
        if self.kills and self.rng.random() < 0.05:
            self.kills -= 1
            raise Died


@given(plans(), st.integers(1, 4), st.integers(0, 1), st.data(), st.integers(0, 1 << 32))
def test_poison_rows_are_found_and_all_others_computed(tasks, workers, kills, data, seed):
    rows = [(t.fragment_id, o) for t in tasks for r in t.missing for o in range(r.start, r.end)]
    poison = set(data.draw(st.lists(st.sampled_from(rows), max_size=8))) if rows else set()
    world = World(tasks, poison, random.Random(seed), kills, workers)
    world.run(SKIPPING)
    assert world.quarantined == poison
    assert world.finished == {t.fragment_id for t in tasks}
    for plan in tasks:
        assert not subtract_ranges(plan.missing, world.done[plan.fragment_id])
    assert world.deaths <= (DEATHS + 1) * len(poison) + kills
    assert world.work_queue.empty


@pytest.mark.parametrize("rows", [1, 256, 257, 65_536])
def test_deaths_do_not_depend_on_the_size_of_the_slice(rows):
    work_queue, crashes = WorkQueue([task(0, rows, [RowRange(0, rows)])], 1), CrashTracker()
    (unit,) = work_queue.first_units()
    held, deaths = RowRange(0, rows), 0
    while True:
        deaths += 1
        crashes.heard(unit.unit_id, InFlightRows(0, (held,)))
        crash = crashes.lost(unit)
        work_queue.give_back(unit, crash.held, crash.stored)
        decision = decide_after_crash(crash, crashes, SKIPPING)
        if decision.quarantined is not None:
            break
        unit = work_queue.take()
        assert unit is not None
        suspects = unit.works[0].ranges[-1]
        held = RowRange(max(suspects.start, suspects.end - unit.slice_rows), suspects.end)
        assert work_queue.take() is None or rows > 1, "suspects go out one range at a time"
    assert (decision.quarantined.offset, decision.quarantined.error_type) == (rows - 1, "WorkerLost")
    assert deaths == DEATHS + (rows > 256)


def lose_three_times(udf: UdfDefinition, overran: float = 0.0):
    crashes = CrashTracker()
    decisions = []
    for n in range(DEATHS):
        work = FragmentWork(FragmentTask(3, 10, 0, Reason.MISSING, "", "", ()), (RowRange(4, 5),), finish=True)
        unit = WorkUnit(f"u{n}", (work,), slice_rows=min(n, 1))  # the first one was not suspect yet
        crashes.heard(unit.unit_id, InFlightRows(3, (RowRange(4, 5),), overran_seconds=overran))
        decisions.append(decide_after_crash(crashes.lost(unit), crashes, udf))
    return decisions


def test_without_a_rule_the_job_fails_and_names_the_row():
    one, two, three = lose_three_times(UDF)
    assert one.error is None
    assert two.error is None
    assert three.error is not None
    assert three.error.reason == "WORKER_LOST"
    assert "row 4 of fragment 3" in three.error.message
    assert (three.row.error_type, three.row.offset, three.row.attempt) == ("WorkerLost", 4, 3)


def test_a_function_that_ends_its_process_while_it_is_loaded_has_computed_no_row():
    crashes, decisions = CrashTracker(), []
    for n in range(3):
        work = FragmentWork(FragmentTask(0, 1, 0, Reason.MISSING, "", "", ()), (RowRange(0, 1),), finish=True)
        crashes.heard(f"u{n}", InFlightRows(0, loading=True))
        decisions.append(decide_after_crash(crashes.lost(WorkUnit(f"u{n}", (work,))), crashes, SKIPPING))
    one, two, three = decisions
    assert one.error is two.error is None
    assert three.error is not None
    assert three.error.reason == "UDF_NOT_LOADABLE"
    assert "ended while it loaded the function" in three.error.message
    assert "row" not in three.error.message
    assert three.row is three.quarantined is None


def test_a_row_after_the_function_is_loaded_is_to_blame():
    crashes = CrashTracker()
    crashes.heard("u", InFlightRows(3, loading=True))
    crashes.heard("u", InFlightRows(3, (RowRange(4, 5),)))
    work = FragmentWork(FragmentTask(3, 10, 0, Reason.MISSING, "", "", ()), (RowRange(4, 5),), finish=True)
    crash = crashes.lost(WorkUnit("u", (work,)))
    assert (crash.row, crash.loading) == ((3, 4), False)


def test_a_call_that_overran_is_to_blame_at_once():
    first = lose_three_times(UDF, overran=1.5)[0]
    assert first.error.reason == "UDF_TIMEOUT"
    assert "timeout of 1.5 s" in first.error.message
    assert first.row.error_type == "UdfTimeout"


@pytest.mark.parametrize("names", [(), ("UdfTimeout",), ("TimeoutError",), ("Exception",)])
def test_rules_that_match_a_timeout(names):
    assert lose_three_times(policy(ErrorRule(ErrorAction.SKIP, names)), overran=1.0)[0].quarantined is not None


@pytest.mark.parametrize("names", [("ValueError",), ("MemoryError",), ("UdfTimeout",)])
def test_rules_that_do_not_match_a_lost_worker(names):
    assert lose_three_times(policy(ErrorRule(ErrorAction.SKIP, names)))[-1].error is not None


def test_retry_goes_before_the_next_rule():
    rules = (
        ErrorRule(ErrorAction.RETRY, ("UdfTimeout",), max_attempts=3, initial_backoff_seconds=0.5),
        ErrorRule(ErrorAction.SKIP),
    )
    one, two, three = lose_three_times(policy(*rules), overran=1.0)
    assert (one.pause, two.pause) == (0.5, 1.0)
    assert three.quarantined is not None


def test_a_row_that_is_not_alone_is_not_blamed():
    crashes = CrashTracker()
    task = FragmentTask(0, 10, 0, Reason.MISSING, "", "", ())
    unit = WorkUnit("u", (FragmentWork(task, (RowRange(0, 10),), finish=True),))
    for _ in range(DEATHS):
        crashes.heard("u", InFlightRows(0, (RowRange(0, 1),)))
        crash = crashes.lost(unit)
        assert isinstance(crash, Crash)
        assert decide_after_crash(crash, crashes, SKIPPING).quarantined is None
