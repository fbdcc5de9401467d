"""Servers of a remote function that break every connection, and those that do so over some rows only."""

from __future__ import annotations

from core.domain.work import ProgressReport, ServerAnswers
from core.errors import Unavailable
from executor.scheduling.server_breaks import MOST_LOST, ServerBreaks


def report(unit: str, lost: int, answered: int = 0) -> ProgressReport:
    return ProgressReport(unit_id=unit, servers=ServerAnswers(answered, lost, f"the row {lost} of {unit}"))


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
