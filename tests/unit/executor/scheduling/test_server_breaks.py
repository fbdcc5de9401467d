"""Servers of a remote function that break every connection, and those that do so over some rows only."""

from __future__ import annotations

import itertools

from leman_core.model.service_errors import Unavailable
from leman_core.model.work import ProgressReport, ServerAnswers
from leman_executor.scheduling.crash_tracker import MOST_BROKEN, MOST_LOST, ServerBreaks


def report(unit: str, lost: int, answered: int = 0) -> ProgressReport:
    return ProgressReport(unit_id=unit, servers=ServerAnswers(answered, lost, message=f"the row {lost} of {unit}"))


def test_rows_in_succession_that_nobody_answers_end_the_job_whichever_worker_has_them():
    breaks = ServerBreaks("twice@1")
    for n in range(1, MOST_LOST // 2):
        assert breaks.heard(report("a", n)) is None
        assert breaks.heard(report("b", n)) is None
        assert breaks.heard(report("b", n)) is None  # a report of something else
    breaks.ended("a")
    assert breaks.heard(report("c", 1)) is None
    error = breaks.heard(report("c", 2))
    assert isinstance(error, Unavailable)
    assert error.reason == "FUNCTION_UNAVAILABLE"
    assert f"{MOST_LOST} rows" in error.message
    assert "twice@1" in error.message
    assert "the row 2 of c" in error.message


def test_sums_that_others_overtook_are_not_counted_again():
    breaks = ServerBreaks("twice@1")
    for n in range(1, MOST_LOST):
        assert breaks.heard(report("a", n)) is None
        assert breaks.heard(report("a", n - 1)) is None
    assert breaks.heard(report("a", MOST_LOST)) is not None


def test_any_answer_to_any_worker_clears_the_servers():
    breaks = ServerBreaks("twice@1")
    for n in range(1, MOST_LOST):
        assert breaks.heard(report("a", n)) is None
    assert breaks.heard(report("b", 0, answered=1)) is None
    for n in range(MOST_LOST, 2 * MOST_LOST - 1):
        assert breaks.heard(report("a", n)) is None
    assert breaks.heard(report("a", 2 * MOST_LOST - 1, answered=1)) is None  # it was answered before it was lost
    for n in range(2 * MOST_LOST, 3 * MOST_LOST - 2):
        assert breaks.heard(report("a", n, answered=1)) is None
    assert breaks.heard(report("a", 3 * MOST_LOST - 2, answered=1)) is not None


def test_answers_to_others_count_as_long_as_workers_wait():
    time = Time()
    breaks = ServerBreaks("twice@1", 60.0, time)
    assert not breaks.answer_others("a")
    breaks.heard(report("a", 0, answered=1))
    assert not breaks.answer_others("a"), "that was itself"
    breaks.heard(report("b", 0, answered=1))
    breaks.ended("b")
    assert breaks.answer_others("a")
    time.now = 60.0
    assert not breaks.answer_others("a")


def test_what_is_known_of_answers_does_not_grow_with_the_units():
    time = Time()
    breaks = ServerBreaks("twice@1", 60.0, time)
    for n in range(1000):
        breaks.heard(report(f"u{n % 500}", 0, answered=1 + n // 500))
    assert len(breaks._answered) == 2
    assert breaks.answer_others("u499"), "u498 was answered, too"
    assert breaks.answer_others("u0")


class Time:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def broken(unit: str, count: int, *, answered: int = 0, lost: int = 0) -> ProgressReport:
    return ProgressReport(
        unit_id=unit, servers=ServerAnswers(answered, lost, count, f"the connection {count} of {unit}")
    )


def test_servers_that_a_loop_starts_again_end_the_job_once_the_patience_is_over():
    """Each death took two seconds, and 32 rows six minutes: two hundred deaths."""
    time = Time()
    breaks = ServerBreaks("twice@1", 60.0, time)
    error = None
    for n in itertools.count(1):
        error = breaks.heard(broken("ab"[n % 2], (n + 1) // 2, lost=n // 8))
        if error is not None:
            break
        time.now += 2.0
    assert n == MOST_BROKEN
    assert time.now == 2.0 * (MOST_BROKEN - 1)
    assert "for 62 s connections to them broke, 32 times in succession" in error.message
    assert "run the job again, which computes these rows" in error.message


def test_servers_that_are_quick_to_come_back_may_break_more_connections_until_it_is_the_rows():
    time = Time()
    breaks = ServerBreaks("twice@1", 60.0, time)
    for n in range(1, 3 * MOST_LOST):
        time.now += 0.2
        assert breaks.heard(broken("a", n, lost=n // 3)) is None
    assert "rows in succession" in breaks.heard(broken("a", 3 * MOST_LOST, lost=MOST_LOST)).message


def test_servers_that_are_restarted_now_and_then_end_no_job():
    """For a day every 20 s, as one after the other is replaced, with a batch answered in between."""
    time = Time()
    breaks = ServerBreaks("twice@1", 60.0, time)
    for n in range(1, 24 * 3600 // 20):
        time.now += 20.0
        assert breaks.heard(broken("a", n, answered=n - 1)) is None
        assert breaks.heard(broken("b", n, answered=n)) is None
