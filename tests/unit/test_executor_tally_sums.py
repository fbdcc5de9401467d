"""Sums that are kept are those of what they are sums of, whatever is reported in which order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from core.domain.ranges import RowRange, total
from core.domain.work import FragmentResult, Hint, Timings, UnitOutcome, WorkUnit
from executor.jobs.job_metrics import Tally
from executor.scheduling.reassigned import HandedOver
from executor.scheduling.work_queue import Backlog
from tests.unit.test_executor_backlog import task


class PlainSums:
    """Adds everything up each time."""

    def __init__(self) -> None:
        self.reported: dict[int, int] = {}
        self.files: dict[int, int] = {}
        self.ready: dict[int, int] = {}

    @property
    def rows_failed(self) -> int:
        """A file knows all failed rows of its fragment."""
        return sum({**self.reported, **self.files}.values())


@given(st.integers(0, 1 << 32))
def test_failed_rows_and_rows_to_commit(seed):
    rng, tally, plain = random.Random(seed), Tally(), PlainSums()
    for number in range(60):
        fragment_id, rows = rng.randrange(5), rng.randrange(20)
        step = rng.choice(["unit", "unit", "file", "file again", "committed", "rejected"])
        if step == "unit":
            result = FragmentResult(fragment_id, rows_evaluated=rows, rows_failed=rows)
            tally.outcome(UnitOutcome(f"u{number}", (result,)))
            plain.reported[fragment_id] = plain.reported.get(fragment_id, 0) + rows
        elif step.startswith("file"):
            tally.staged(fragment_id, 100 + rows, rows)
            plain.files[fragment_id], plain.ready[fragment_id] = rows, 100 + rows
        else:
            getattr(tally, step)(fragment_id)
            plain.ready.pop(fragment_id, None)
        progress = tally.progress()
        assert tally.rows_failed == progress.rows_failed == plain.rows_failed
        assert progress.rows_ready_to_commit == sum(plain.ready.values())


def test_a_running_units_failed_rows_count_until_it_is_done():
    tally = Tally()
    tally.hint(Hint("u1", 10, rows_failed=3))
    assert tally.rows_failed == 3
    tally.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=10, rows_failed=4),)))
    assert tally.rows_failed == 4


def units_of(*sizes: int) -> list[WorkUnit]:
    """A unit for each fragment."""
    backlog = Backlog([task(i, rows, [RowRange(0, rows)]) for i, rows in enumerate(sizes)], 1, task_size=1000)
    return [unit for unit in iter(backlog.take, None) if unit is not None]


def test_only_rows_that_were_handed_over_count_as_such():
    handed_over = HandedOver()
    units = units_of(2000, 500)
    assert [total(u.works[0].ranges) for u in units] == [1000, 1000, 500]
    first, second, other = units
    handed_over.add(first, "lane 1")
    assert [handed_over.had_rows_of(u) for u in (first, second, other)] == [True, False, False]
    assert handed_over.has_lane("lane 1")
    assert first.unit_id in handed_over


def test_setting_a_function_up_is_an_account_of_its_own():
    tally = Tally(clock=iter(range(100)).__next__)
    timings = Timings(udf=1.0, read=0.5, load=30.0, fixed=0.25)
    tally.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=10),), timings=timings))
    progress = tally.progress()
    assert (progress.udf_seconds, progress.load_seconds, progress.bottleneck) == (1.0, 30.0, "load")
    assert tally.seconds_per_row == 0.125
