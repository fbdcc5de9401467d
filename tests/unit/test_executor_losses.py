"""Which rows are blamed for the death of workers."""

from __future__ import annotations

from core.domain.plan import CheckpointRef
from core.domain.ranges import RowRange
from core.domain.work import FragmentResult, FragmentWork, Sign, WorkUnit
from executor.scheduling.crash_tracker import Loss, Losses, in_hand


def unit(*parts: tuple[int, int, int], name: str = "u", slice_rows: int = 0) -> WorkUnit:
    """Of (fragment, start, end); an empty range: the fragment is only to be assembled."""
    works = [
        FragmentWork(
            fragment, 100, 0, "", "", (), "", False, (RowRange(start, end),) if end > start else (), (), finish=True
        )
        for fragment, start, end in parts
    ]
    return WorkUnit(name, tuple(works), slice_rows=slice_rows)


def hold(losses: Losses, fragment: int, start: int, end: int, name: str = "u") -> None:
    losses.heard(name, Sign(fragment, (RowRange(start, end),)))


def test_only_rows_that_were_in_hand_each_time_are_blamed():
    losses = Losses()
    losses.lost(unit((0, 0, 100), (1, 0, 100)))
    losses.lost(unit((0, 0, 60)))
    assert losses.hopeless() == (0, [])
    losses.lost(unit((0, 40, 100)))
    assert losses.hopeless() == (3, [(0, RowRange(40, 60))])


def test_deaths_over_different_rows_of_a_fragment_do_not_add_up():
    losses = Losses()
    for start in range(0, 100, 10):
        losses.lost(unit((0, start, start + 10)))
    assert losses.hopeless() == (0, [])


def test_finished_fragments_are_not_to_blame():
    losses = Losses()
    for _ in range(2):
        losses.lost(unit((0, 0, 10), (1, 0, 10)))
        losses.settled(0)
    losses.lost(unit((0, 0, 10), (1, 0, 10)))
    assert losses.hopeless() == (3, [(1, RowRange(0, 10))])


def test_assembling_counts_as_the_whole_fragment():
    assert in_hand(unit((7, 0, 0))) == [(7, RowRange(0, 100))]


def test_what_the_function_was_called_with_is_held():
    losses = Losses()
    hold(losses, 0, 10, 20)
    hold(losses, 0, 20, 30)
    loss = losses.lost(unit((0, 0, 100), (1, 0, 100)))
    assert loss.held == ((0, RowRange(20, 30)),)
    assert loss.row is None
    assert losses.hopeless() == (0, [])


def test_a_row_that_is_held_again_and_again_counts():
    losses = Losses()
    for times in (1, 2, 3):
        hold(losses, 0, 5, 6)
        loss = losses.lost(unit((0, 0, 100)))
        assert loss.row == (0, 5)
        assert losses.times(loss) == times


def test_overrunning_and_dying_are_counted_apart():
    losses = Losses()
    hold(losses, 0, 5, 6)
    losses.lost(unit((0, 0, 100)))
    losses.heard("u", Sign(0, (RowRange(5, 6),), overran_seconds=2.0))
    loss = losses.lost(unit((0, 0, 100)))
    assert loss.overran_seconds == 2.0
    assert losses.times(loss) == 1


def test_what_is_safe_is_not_to_blame():
    losses = Losses()
    ref = CheckpointRef("k", RowRange(0, 30))
    hold(losses, 0, 20, 40)
    losses.heard("u", Sign(0, stored=ref))
    loss = losses.lost(unit((0, 0, 100)))
    assert loss.held == ((0, RowRange(30, 40)),)
    assert loss.stored == {0: (ref,)}


def test_a_death_between_two_fragments_is_nobodys():
    losses = Losses()
    hold(losses, 0, 20, 40)
    losses.passed("u", FragmentResult(0))
    assert losses.lost(unit((0, 0, 100), (1, 0, 100))).held == ()


def test_units_that_came_back_are_forgotten():
    losses = Losses()
    hold(losses, 0, 20, 40)
    losses.ended("u")
    assert losses.lost(unit((0, 0, 100))) == Loss(unit((0, 0, 100)))


def test_deaths_in_vain_come_to_an_end():
    """The death is another row's fault each time, and what came before is never made safe."""
    losses = Losses()
    for at in range(50, 60):
        assert losses.hopeless() == (0, [])
        hold(losses, 0, at, at + 1)
        losses.lost(unit((0, 0, 100)))
    assert losses.hopeless() == (10, [(0, RowRange(0, 51))])
