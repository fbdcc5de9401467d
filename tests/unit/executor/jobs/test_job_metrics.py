"""Sums that are kept equal the sums of their parts, in any order of reports."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.job import Progress
from leman_core.model.plan import Plan, StagedFile
from leman_core.model.row_positions import RowRange, count_offsets
from leman_core.model.work import FragmentResult, ProgressReport, Timings, UnitFailure, UnitOutcome, WorkUnit
from leman_executor.jobs.columns_run import ColumnsMetrics
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.scheduling.crash_tracker import ReassignedUnits
from leman_executor.scheduling.work_queue import WorkQueue
from tests.unit.executor.manager_helpers import HEADER, TASK
from tests.unit.executor.scheduling.test_work_queue import task

TIMINGS = Timings(udf=1.0)
COUNTS = [
    name for name in Progress.__dataclass_fields__ if name.startswith(("rows_", "fragments_", "commits", "spark_"))
]
COUNTS.remove("rows_per_second")


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
    assert [count_offsets(u.works[0].ranges) for u in units] == [1000, 1000, 500]
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


def planned(
    metrics: JobMetrics, *, left: int, reused: int, where: str = "", fragments: tuple[int, ...] = (100,)
) -> JobMetrics:
    """What knows the plan of a table of 100 rows; `fragments`: rows of those in which something is to be done."""
    header = replace(HEADER, rows_total=100, rows_reused=reused, rows_to_compute=left, where=where)
    tasks = tuple(TASK._replace(fragment_id=i, physical_rows=rows) for i, rows in enumerate(fragments))
    metrics.planned(Plan(header, tasks), 0.0)
    return metrics


def test_rows_that_a_filter_left_out_are_not_committed():
    metrics = planned(JobMetrics(), left=100, reused=0, where="x > 3")
    metrics.staged(0, 12, 1, rows_skipped=8)
    metrics.staged(1, 20, 0)
    now = metrics.progress()
    assert (now.rows_ready_to_commit, now.rows_committed, now.rows_skipped) == (32, 0, 0)
    metrics.rejected(0)
    metrics.staged(0, 15, 1, rows_skipped=5)
    metrics.committed(0)
    metrics.committed(1)
    now = metrics.progress()
    assert (now.rows_ready_to_commit, now.rows_committed, now.rows_skipped) == (0, 35, 5)


def test_no_count_falls_when_another_executor_goes_on():
    before = planned(JobMetrics(), left=90, reused=10)
    before.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=60, rows_computed=58),), timings=TIMINGS))
    before.staged(0, 20, 0)
    before.committed(0)
    paused = before.progress()
    after = JobMetrics()
    after.go_on(paused)
    planned(after, left=30, reused=70, fragments=(70,))
    now = after.progress()
    assert {name for name in COUNTS if getattr(now, name) != getattr(paused, name)} == {"fragments_planned"}
    assert now.fragments_planned == 1 + 1, "one was committed, and one is left"
    assert now.udf_seconds == 1.0
    after.outcome(UnitOutcome("u2", (FragmentResult(1, rows_evaluated=30, rows_computed=30),)))
    now = after.progress()
    assert (now.rows_planned, now.rows_checkpointed, now.rows_evaluated, now.rows_computed) == (90, 90, 90, 88)


def test_what_was_committed_and_not_written_down_counts_for_who_goes_on():
    """History has the job as it began: its executor died when 40 rows were committed, and 15 of 20 in a checkpoint."""
    begun = planned(JobMetrics(), left=100, reused=0, fragments=(20,) * 5).progress()
    after = JobMetrics()
    after.go_on(begun)
    now = planned(after, left=45, reused=55, fragments=(20,) * 3).progress()
    assert (now.rows_planned, now.rows_checkpointed, now.rows_reused) == (100, 55, 0)
    assert (now.rows_committed, now.fragments_committed, now.fragments_planned) == (40, 2, 5)
    for fragment_id in range(3):
        after.staged(fragment_id, 20, 0)
        after.committed(fragment_id)
    after.outcome(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=45, rows_computed=45),)))
    now = after.progress()
    assert (now.rows_committed, now.fragments_committed, now.rows_checkpointed) == (100, 5, 100)
    third = JobMetrics()
    third.go_on(now)
    now = planned(third, left=0, reused=100, fragments=()).progress()
    assert (now.rows_committed, now.fragments_committed, now.fragments_planned) == (100, 5, 5)
    filtered = JobMetrics()
    filtered.go_on(begun)
    assert planned(filtered, left=45, reused=55, fragments=(20,) * 3, where="x > 3").progress().rows_committed == 0


def partial(metrics: JobMetrics, fragment_id: int, rows: int, computed: int) -> None:
    """Commit a partial file with some rows of a fragment."""
    file = StagedFile(file="p", size_bytes=1, digest="", physical_rows=rows, rows_computed=computed, rows_failed=0)
    metrics.partly_committed(TASK._replace(fragment_id=fragment_id, physical_rows=rows), file)


def go_on(paused: Progress, *, left: int, fragments: tuple[int, ...], first: int = 0) -> JobMetrics:
    """What knows the plan of another executor, in which all fragments have a file that shows some rows."""
    after = JobMetrics()
    after.go_on(paused)
    header = replace(HEADER, rows_total=100, rows_reused=100 - left, rows_to_compute=left)
    task = TASK._replace(extend_current=True)
    tasks = tuple(task._replace(fragment_id=first + i, physical_rows=n) for i, n in enumerate(fragments))
    after.planned(Plan(header, tasks), 0.0)
    return after


@pytest.mark.parametrize("first", [0, 7])
def test_rows_of_an_unfinished_fragment_count_once_when_another_executor_goes_on(first):
    """Also where a compaction gave the fragments other numbers."""
    before = planned(JobMetrics(), left=100, reused=0, fragments=(40, 60))
    partial(before, 0, 40, 30)
    partial(before, 1, 60, 20)
    after = go_on(before.progress(), left=50, fragments=(40, 60), first=first)
    seen = [after.progress().rows_committed]
    partial(after, first, 40, 35)
    seen.append(after.progress().rows_committed)
    for fragment_id, rows in ((first, 40), (first + 1, 60)):
        after.staged(fragment_id, rows, 0)
        after.committed(fragment_id)
        seen.append(after.progress().rows_committed)
    assert (seen[0], seen[-1]) == (50, 100)
    assert seen == sorted(seen)


def test_rows_of_a_fragment_that_was_finished_before_another_executor_goes_on_count_once():
    before = planned(JobMetrics(), left=100, reused=0, fragments=(40, 60))
    partial(before, 0, 40, 30)
    partial(before, 1, 60, 20)
    after = go_on(before.progress(), left=30, fragments=(60,), first=1)
    assert after.progress().rows_committed == 40 + 30, "of the other one as many as need no call"
    after.staged(1, 60, 0)
    after.committed(1)
    assert after.progress().rows_committed == 100


def test_rows_of_an_unfinished_fragment_count_once_when_it_is_compacted_under_the_job():
    metrics = planned(JobMetrics(), left=100, reused=0)
    partial(metrics, 0, 100, 40)
    compacted = TASK._replace(fragment_id=5, physical_rows=100, extend_current=True)
    metrics.planned(Plan(replace(HEADER, rows_total=100, rows_reused=40, rows_to_compute=60), (compacted,)), 0.0)
    assert metrics.progress().rows_committed == 40
    metrics.staged(5, 100, 0)
    metrics.committed(5)
    assert metrics.progress().rows_committed == 100


def test_rows_that_a_dead_worker_had_stored_count():
    """No one computes them again."""
    metrics = planned(JobMetrics(), left=100, reused=0)
    metrics.report(ProgressReport(unit_id="u1", rows_evaluated=30, rows_safe=20, rows_failed=2))
    metrics.lost("u1", 25)
    metrics.outcome(UnitOutcome("u2", (FragmentResult(0, rows_evaluated=75, rows_computed=75, rows_failed=0),)))
    now = metrics.progress()
    assert (now.rows_evaluated, now.rows_checkpointed, now.rows_computed) == (100, 100, 98)
    failure = UnitFailure("STORE_UNAVAILABLE", "the store did not answer")
    metrics.report(ProgressReport(unit_id="u0", rows_evaluated=9, rows_safe=5))
    metrics.outcome(UnitOutcome("u0", (FragmentResult(0, rows_evaluated=2, rows_computed=2),), failure))
    assert metrics.progress().rows_checkpointed == 105, "what a unit that gave up had stored is not computed again"
    metrics.report(ProgressReport(unit_id="u3", rows_evaluated=9, rows_safe=7))
    metrics.lost("u3", None)
    metrics.lost("u4", None)
    assert metrics.progress().rows_checkpointed == 112


def test_with_a_filter_only_what_was_said_to_be_safe_counts_on():
    """Of 90 rows at the most the filter let fewer through: how many were left out is not known."""
    metrics = JobMetrics()
    metrics.go_on(Progress(rows_total=100, rows_reused=10, rows_planned=90, rows_checkpointed=20))
    now = planned(metrics, left=30, reused=70, where="x > 3").progress()
    assert (now.rows_planned, now.rows_reused, now.rows_checkpointed) == (50, 50, 20)


def test_after_a_migration_the_rows_are_those_of_the_plan_that_found_it():
    metrics = JobMetrics()
    metrics.go_on(Progress(rows_total=100, rows_planned=100, rows_checkpointed=50))
    planned(metrics, left=80, reused=20)
    header = replace(HEADER, rows_total=100, rows_reused=60, rows_to_compute=40)
    metrics.migrated(Plan(header, (TASK,)))
    now = metrics.progress()
    assert (now.rows_planned, now.rows_reused, now.rows_checkpointed) == (100, 0, 60)


def test_the_rows_of_a_job_in_all_include_those_of_columns_that_wait_for_others():
    """Else fewer rows are there in all than are planned."""
    whole, first = ColumnsMetrics(), JobMetrics()
    first.planned(Plan(replace(HEADER, rows_total=1000, rows_to_compute=1000), (TASK,)), 0.0)
    whole.add("caption", first)
    whole.expected["embedding"] = 1000
    progress = whole.progress()
    assert (progress.rows_total, progress.rows_planned) == (2000, 2000)
