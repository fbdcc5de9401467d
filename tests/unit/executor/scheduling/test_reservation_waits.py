"""What a job waits for that others have reserved: told, and not for ever."""

from __future__ import annotations

import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentResult
from leman_executor.scheduling.stalls import ReservationWaits

ROWS = RowRange(0, 60)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def holds(clock) -> ReservationWaits:
    return ReservationWaits(ttl_seconds=6.0, stall_seconds=30.0, clock=clock)


def busy(mark: object, holder: str = "job-1#1", fragment_id: int = 7) -> FragmentResult:
    return FragmentResult(fragment_id, busy=(ROWS,), holds=(f"0-60-{holder}={mark}",))


def test_a_hold_that_is_not_renewed_for_three_lifetimes_is_dead(holds, clock):
    for _ in range(18):
        holds.seen(busy(1))
        holds.turn()
        assert holds.dead == ()
        clock.now += 1
    holds.seen(busy(1))
    holds.turn()
    assert holds.dead == ("0-60-job-1#1=1",)
    holds.turn()
    assert holds.dead == ("0-60-job-1#1=1",), "it stays dead, as no one reports it any more"


def test_a_holder_that_renews_is_waited_for_however_long(holds, clock):
    for renewed in range(1000):
        holds.seen(busy(renewed))
        holds.turn()
        clock.now += 2
    assert holds.dead == ()


def test_a_hold_that_was_gone_in_between_is_a_new_one(holds, clock):
    holds.seen(busy(1))
    holds.turn()
    clock.now += 10
    holds.turn()
    clock.now += 10
    holds.seen(busy(1))
    holds.turn()
    assert holds.dead == ()


def test_waiting_is_told_with_what_and_since_when(holds, clock):
    told = []
    for second in range(130):
        holds.seen(busy(second, "job-9#2"))
        stalls, news = holds.turn()
        (stall,) = stalls
        assert (stall.fragment_id, stall.rows, stall.idle_seconds) == (7, ROWS, second)
        told += [stall.message for stall in news]
        clock.now += 1
    text = "rows 0 to 59 of fragment 7 are reserved by job-9; waiting for {} s now"
    assert told == [text.format(30), text.format(60), text.format(120)]
    assert holds.turns == 130
    assert holds.turn() == ([], [])
    assert holds.turns == 0


def test_a_fragment_without_others_is_not_waited_for(holds):
    holds.seen(FragmentResult(7, left=(ROWS,)))
    assert holds.turn() == ([], [])
