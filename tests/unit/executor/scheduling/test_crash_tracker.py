"""Which rows are blamed for the death of workers."""

from __future__ import annotations

from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentResult, FragmentWork, InFlightRows, WorkUnit
from leman_executor.scheduling.crash_tracker import Crash, CrashTracker, rows_in_flight


def unit(*parts: tuple[int, int, int], name: str = "u", slice_rows: int = 0) -> WorkUnit:
    """Of (fragment, start, end); an empty range: the fragment is only to be assembled."""
    works = [
        FragmentWork(
            FragmentTask(fragment, 100, 0, Reason.MISSING, "", "", ()),
            (RowRange(start, end),) if end > start else (),
            finish=True,
        )
        for fragment, start, end in parts
    ]
    return WorkUnit(name, tuple(works), slice_rows=slice_rows)


def hold(crashes: CrashTracker, fragment: int, start: int, end: int, name: str = "u") -> None:
    crashes.heard(name, InFlightRows(fragment, (RowRange(start, end),)))


def test_only_rows_that_were_in_hand_each_time_are_blamed():
    crashes = CrashTracker()
    crashes.lost(unit((0, 0, 100), (1, 0, 100)))
    crashes.lost(unit((0, 0, 60)))
    assert crashes.over_crash_limit() == (0, [])
    crashes.lost(unit((0, 40, 100)))
    assert crashes.over_crash_limit() == (3, [(0, RowRange(40, 60))])


def test_deaths_over_different_rows_of_a_fragment_do_not_add_up():
    crashes = CrashTracker()
    for start in range(0, 100, 10):
        crashes.lost(unit((0, start, start + 10)))
    assert crashes.over_crash_limit() == (0, [])


def test_finished_fragments_are_not_to_blame():
    crashes = CrashTracker()
    for _ in range(2):
        crashes.lost(unit((0, 0, 10), (1, 0, 10)))
        crashes.settled(0)
    crashes.lost(unit((0, 0, 10), (1, 0, 10)))
    assert crashes.over_crash_limit() == (3, [(1, RowRange(0, 10))])


def test_assembling_counts_as_the_whole_fragment():
    assert rows_in_flight(unit((7, 0, 0))) == [(7, RowRange(0, 100))]


def test_what_the_function_was_called_with_is_held():
    crashes = CrashTracker()
    hold(crashes, 0, 10, 20)
    hold(crashes, 0, 20, 30)
    crash = crashes.lost(unit((0, 0, 100), (1, 0, 100)))
    assert crash.held == ((0, RowRange(20, 30)),)
    assert crash.row is None
    assert crashes.over_crash_limit() == (0, [])


def test_a_row_that_is_held_again_and_again_counts():
    crashes = CrashTracker()
    for times in (1, 2, 3):
        hold(crashes, 0, 5, 6)
        crash = crashes.lost(unit((0, 0, 100)))
        assert crash.row == (0, 5)
        assert crashes.times(crash) == times


def test_overrunning_and_dying_are_counted_apart():
    crashes = CrashTracker()
    hold(crashes, 0, 5, 6)
    crashes.lost(unit((0, 0, 100)))
    crashes.heard("u", InFlightRows(0, (RowRange(5, 6),), overran_seconds=2.0))
    crash = crashes.lost(unit((0, 0, 100)))
    assert crash.overran_seconds == 2.0
    assert crashes.times(crash) == 1


def test_what_is_safe_is_not_to_blame():
    crashes = CrashTracker()
    ref = CheckpointRef("k", RowRange(0, 30))
    hold(crashes, 0, 20, 40)
    crashes.heard("u", InFlightRows(0, stored=ref))
    crash = crashes.lost(unit((0, 0, 100)))
    assert crash.held == ((0, RowRange(30, 40)),)
    assert crash.stored == {0: (ref,)}


def test_a_death_between_two_fragments_is_nobodys():
    crashes = CrashTracker()
    hold(crashes, 0, 20, 40)
    crashes.passed("u", FragmentResult(0))
    assert crashes.lost(unit((0, 0, 100), (1, 0, 100))).held == ()


def test_units_that_came_back_are_forgotten():
    crashes = CrashTracker()
    hold(crashes, 0, 20, 40)
    crashes.ended("u")
    assert crashes.lost(unit((0, 0, 100))) == Crash(unit=unit((0, 0, 100)))


def test_deaths_in_vain_come_to_an_end():
    """The death is another row's fault each time, and what came before is never made safe."""
    crashes = CrashTracker()
    for at in range(50, 60):
        assert crashes.over_crash_limit() == (0, [])
        hold(crashes, 0, at, at + 1)
        crashes.lost(unit((0, 0, 100)))
    assert crashes.over_crash_limit() == (10, [(0, RowRange(0, 51))])
