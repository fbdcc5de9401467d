"""Progress of a refresh: rows are the view's, however many functions are called for each."""

from __future__ import annotations

from core.domain.work import FragmentResult, UnitOutcome
from executor.jobs.job_metrics import Tally
from executor.refresh.refresh_metrics import RefreshTally


def part(tally: RefreshTally, rows: int, left: int) -> Tally:
    """A backfill of a stage of so many rows, of which some are left to compute."""
    made = Tally()
    made.rows_total, made.rows_planned = rows, left
    tally.begin(made, f"stage/{len(tally._parts)}")
    return made


def compute(tally: Tally, rows: int) -> None:
    tally.outcome(UnitOutcome(f"{id(tally)}-{tally.rows_evaluated}", (FragmentResult(0, rows_evaluated=rows),)))


def seen(tally: RefreshTally) -> tuple[int, int, int, int]:
    now = tally.progress()
    return now.rows_planned, now.rows_checkpointed, now.rows_committed, now.rows_evaluated


def test_a_row_counts_once_however_many_functions_it_has():
    tally = RefreshTally()
    tally.expect(100, 2)
    first = part(tally, 100, 100)
    compute(first, 60)
    assert seen(tally) == (100, 30, 0, 60)
    compute(first, 40)
    assert seen(tally) == (100, 50, 0, 100)
    compute(part(tally, 100, 100), 100)
    assert seen(tally) == (100, 100, 0, 200)
    tally.rows_committed = 100
    assert seen(tally) == (100, 100, 100, 200)


def test_without_a_function_a_row_is_safe_when_it_is_committed():
    tally = RefreshTally()
    tally.expect(100, 0)
    assert seen(tally) == (100, 0, 0, 0)
    tally.rows_committed = 100
    assert seen(tally) == (100, 100, 100, 0)


def test_what_a_stage_holds_already_is_safe():
    tally = RefreshTally()
    tally.expect(60, 1)  # forty of the stage's rows are in the view by now
    compute(part(tally, 100, 25), 5)
    assert seen(tally) == (60, 40, 0, 5)


def test_rows_of_the_next_step_are_added_to_those_that_are_committed():
    tally = RefreshTally()
    tally.expect(100, 2)
    for _ in range(2):
        compute(part(tally, 100, 100), 100)
    tally.rows_committed = 100
    tally.expect(10, 2)
    assert seen(tally) == (110, 100, 100, 200)
    compute(part(tally, 10, 10), 10)
    assert seen(tally) == (110, 105, 100, 210)


def test_what_was_given_up_is_not_planned_twice():
    tally = RefreshTally()
    tally.expect(100, 1)
    compute(part(tally, 100, 100), 80)
    tally.expect(100, 1)
    part(tally, 100, 20)
    assert seen(tally) == (100, 80, 0, 80)


def test_time_left_is_unknown_while_functions_wait_for_their_turn():
    tally = RefreshTally()
    tally.expect(100, 2)
    moving(part(tally, 100, 100))
    assert tally.progress().eta_seconds == 0
    moving(part(tally, 100, 100))
    assert tally.progress().eta_seconds > 0


def moving(tally: Tally) -> None:
    """So far it took ten seconds."""
    tally._clock = lambda: tally._begin + 10
    compute(tally, 50)
