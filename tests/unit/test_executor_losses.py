"""Which rows are blamed for the death of workers."""

from __future__ import annotations

from core.domain.ranges import RowRange
from core.domain.work import FragmentWork, WorkUnit
from executor.losses import Losses, in_hand


def unit(*parts: tuple[int, int, int]) -> WorkUnit:
    """Of (fragment, start, end); an empty range: the fragment is only to be assembled."""
    works = [
        FragmentWork(
            fragment, 100, 0, "", "", (), "", False, (RowRange(start, end),) if end > start else (), (), finish=True
        )
        for fragment, start, end in parts
    ]
    return WorkUnit("u", tuple(works))


def test_only_rows_that_were_in_hand_each_time_are_blamed():
    losses = Losses()
    losses.note(unit((0, 0, 100), (1, 0, 100)))
    losses.note(unit((0, 0, 60)))
    assert losses.at_least(3) == []
    losses.note(unit((0, 40, 100)))
    assert losses.at_least(3) == [(0, RowRange(40, 60))]
    assert losses.at_least(2) == [(0, RowRange(0, 100))]


def test_deaths_over_different_rows_of_a_fragment_do_not_add_up():
    losses = Losses()
    for start in range(0, 100, 10):
        losses.note(unit((0, start, start + 10)))
    assert losses.at_least(2) == []


def test_finished_fragments_are_not_to_blame():
    losses = Losses()
    for _ in range(2):
        losses.note(unit((0, 0, 10), (1, 0, 10)))
        losses.settled(0)
    losses.note(unit((0, 0, 10), (1, 0, 10)))
    assert losses.at_least(2) == [(1, RowRange(0, 10))]


def test_assembling_counts_as_the_whole_fragment():
    assert in_hand(unit((7, 0, 0))) == [(7, RowRange(0, 100))]
