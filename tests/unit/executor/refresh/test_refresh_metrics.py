"""Progress of a refresh: rows are the view's, however many functions are called for each."""

from __future__ import annotations

from leman_core.model.job import Progress
from leman_core.model.work import FragmentResult, UnitOutcome
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.refresh.refresh_journal import RefreshMetrics


def part(metrics: RefreshMetrics, rows: int, left: int, column: str = "", scratch: str = "scratch table") -> JobMetrics:
    """A backfill of a scratch table of `rows` rows, of which some are left to compute; of another column each time."""
    made = JobMetrics()
    made.rows_total, made.rows_planned = rows, left
    metrics.begin(made, f"{scratch}/{column or len(metrics._parts)}")
    return made


def compute(metrics: JobMetrics, rows: int) -> None:
    metrics.outcome(UnitOutcome(f"{id(metrics)}-{metrics.rows_evaluated}", (FragmentResult(0, rows_evaluated=rows),)))


def seen(metrics: RefreshMetrics) -> tuple[int, int, int, int]:
    now = metrics.progress()
    return now.rows_planned, now.rows_checkpointed, now.rows_committed, now.rows_evaluated


def test_a_row_counts_once_however_many_functions_it_has():
    metrics = RefreshMetrics()
    metrics.expect(100, 2)
    first = part(metrics, 100, 100)
    compute(first, 60)
    assert seen(metrics) == (100, 30, 0, 60)
    compute(first, 40)
    assert seen(metrics) == (100, 50, 0, 100)
    compute(part(metrics, 100, 100), 100)
    assert seen(metrics) == (100, 100, 0, 200)
    metrics.rows_committed = 100
    assert seen(metrics) == (100, 100, 100, 200)


def test_without_a_function_a_row_is_safe_when_it_is_committed():
    metrics = RefreshMetrics()
    metrics.expect(100, 0)
    assert seen(metrics) == (100, 0, 0, 0)
    metrics.rows_committed = 100
    assert seen(metrics) == (100, 100, 100, 0)


def test_what_a_scratch_holds_already_is_safe():
    metrics = RefreshMetrics()
    metrics.expect(60, 1)  # forty of the scratch table's rows are in the view by now
    compute(part(metrics, 100, 25), 5)
    assert seen(metrics) == (60, 40, 0, 5)


def test_rows_of_the_next_step_are_added_to_those_that_are_committed():
    metrics = RefreshMetrics()
    metrics.expect(100, 2)
    for _ in range(2):
        compute(part(metrics, 100, 100), 100)
    metrics.rows_committed = 100
    metrics.expect(10, 2)
    assert seen(metrics) == (110, 100, 100, 200)
    compute(part(metrics, 10, 10), 10)
    assert seen(metrics) == (110, 105, 100, 210)


def test_what_was_given_up_is_not_planned_twice():
    metrics = RefreshMetrics()
    metrics.expect(100, 1)
    compute(part(metrics, 100, 100, "c"), 80)
    metrics.expect(100, 1)
    assert seen(metrics) == (100, 80, 0, 80), "nor does it begin at nothing, before its backfill has a plan again"
    part(metrics, 100, 20, "c")
    assert seen(metrics) == (100, 80, 0, 80)
    metrics.expect(100, 1)
    part(metrics, 100, 100, "c", scratch="another")
    assert seen(metrics) == (100, 0, 0, 80), "its values are of no use any more"


def test_who_takes_a_refresh_over_goes_on_counting():
    metrics = RefreshMetrics()
    metrics.go_on(Progress(rows_planned=100, rows_checkpointed=90, rows_committed=60, rows_evaluated=90, commits=2))
    metrics.expect(40, 1)
    part(metrics, 100, 10)
    assert seen(metrics) == (100, 90, 60, 90)
    metrics.rows_committed = 40
    assert seen(metrics) == (100, 100, 100, 90)


def test_time_left_is_unknown_while_functions_wait_for_their_turn():
    metrics = RefreshMetrics()
    metrics.expect(100, 2)
    moving(part(metrics, 100, 100))
    assert metrics.progress().eta_seconds == 0
    moving(part(metrics, 100, 100))
    assert metrics.progress().eta_seconds > 0


def moving(metrics: JobMetrics) -> None:
    """So far it took ten seconds."""
    metrics._clock = lambda: metrics._begin + 10
    compute(metrics, 50)
