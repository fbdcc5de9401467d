"""Sums that are kept are those of what they are sums of, whatever is reported in which order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from core.domain.ranges import RowRange, total
from core.domain.work import FragmentResult, ProgressReport, Timings, UnitOutcome, WorkUnit
from executor.jobs.job_metrics import JobMetrics
from executor.scheduling.reassigned import ReassignedUnits
from executor.scheduling.work_queue import WorkQueue
from tests.unit.executor.scheduling.test_work_queue import task


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
    rng, metrics, plain = random.Random(seed), JobMetrics(), PlainSums()
    for number in range(60):
        fragment_id, rows = rng.randrange(5), rng.randrange(20)
        step = rng.choice(["unit", "unit", "file", "file again", "committed", "rejected"])
        if step == "unit":
            result = FragmentResult(fragment_id, rows_evaluated=rows, rows_failed=rows)
            metrics.outcome(UnitOutcome(f"u{number}", (result,)))
            plain.reported[fragment_id] = plain.reported.get(fragment_id, 0) + rows
        elif step.startswith("file"):
            metrics.staged(fragment_id, 100 + rows, rows)
            plain.files[fragment_id], plain.ready[fragment_id] = rows, 100 + rows
        else:
            getattr(metrics, step)(fragment_id)
            plain.ready.pop(fragment_id, None)
        progress = metrics.progress()
        assert metrics.rows_failed == progress.rows_failed == plain.rows_failed
        assert progress.rows_ready_to_commit == sum(plain.ready.values())


def test_a_running_units_failed_rows_count_until_it_is_done():
    metrics = JobMetrics()
    metrics.report(ProgressReport(unit_id="u1", rows_evaluated=10, rows_failed=3))
    assert metrics.rows_failed == 3
    metrics.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=10, rows_failed=4),)))
    assert metrics.rows_failed == 4


def units_of(*sizes: int) -> list[WorkUnit]:
    """A unit for each fragment."""
    work_queue = WorkQueue([task(i, rows, [RowRange(0, rows)]) for i, rows in enumerate(sizes)], 1, task_size=1000)
    return [unit for unit in iter(work_queue.take, None) if unit is not None]


def test_only_rows_that_were_reassigned_count_as_such():
    reassigned = ReassignedUnits()
    units = units_of(2000, 500)
    assert [total(u.works[0].ranges) for u in units] == [1000, 1000, 500]
    first, second, other = units
    reassigned.add(first, "worker 1")
    assert [reassigned.had_rows_of(u) for u in (first, second, other)] == [True, False, False]
    assert reassigned.has_worker("worker 1")
    assert first.unit_id in reassigned


def test_setting_a_function_up_is_an_account_of_its_own():
    metrics = JobMetrics(clock=iter(range(100)).__next__)
    timings = Timings(udf=1.0, read=0.5, load=30.0, fixed=0.25)
    metrics.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=10),), timings=timings))
    progress = metrics.progress()
    assert (progress.udf_seconds, progress.load_seconds, progress.bottleneck) == (1.0, 30.0, "load")
    assert metrics.seconds_per_row == 0.125
