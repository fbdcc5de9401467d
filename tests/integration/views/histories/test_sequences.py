"""Sequences of up to three operations on a source, with views of three shapes: after each operation a refresh, and the
oracle's judgement of rows, order, calls, rows read and files rewritten."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.source import CARE, OPERATIONS
from tests.integration.views.histories.world import World
from tests.shares import LONG

#: Views that outlive a cleaned history. One with an offset is rebuilt: nothing tells which rows lay before it.
KEPT = [shape for shape in SHAPES if not shape.offset]
DEPTH = 3
#: Each operation is followed by each second one; with LEMAN_LONG by each.
SECONDS = 1 if LONG else 2
#: One of the operations that may come third follows each twelfth pair; with LEMAN_LONG all follow each.
EACH_PAIR = 1 if LONG else 12
THIRD = len(OPERATIONS) if LONG else 1
#: Before going back to earlier versions each operation meets itself and some of those after it, in a circle: a
#: tenth of all; with LEMAN_LONG all in both.
SECOND = len(OPERATIONS) if LONG else len(OPERATIONS) // 10


@pytest.mark.parametrize("first", list(OPERATIONS))
def test_every_sequence_of_operations(views_system, quick_folder, first):
    """With what comes after `first`: each second one, and third ones, a share that differs from pair to pair."""
    root = World(views_system, quick_folder / "root")
    root.refresh_and_check()
    steps = _descend(root, quick_folder, [first])
    operations = list(OPERATIONS)
    seconds = [operations.index(second) for second in _following([first])]
    pairs = [second for second in seconds if _has_third(operations.index(first), second)]
    assert steps == 1 + len(seconds) + len(pairs) * THIRD


def _descend(world: World, folder, sequence: list[str]) -> int:
    """One world for each sequence: a copy of the one before, with one more operation."""
    here = world.copy(folder / "-".join(sequence))
    here.change(sequence[-1], len(sequence) * 3 + len(sequence[-1]))
    try:
        here.refresh_and_check()
    except AssertionError as error:
        raise AssertionError(f"after {sequence}: {error}") from error
    steps = 1
    if len(sequence) < DEPTH:
        steps += sum(_descend(here, folder, [*sequence, following]) for following in _following(sequence))
    shutil.rmtree(here.database)
    return steps


def _has_third(first: int, second: int) -> bool:
    return (first + second) % EACH_PAIR == 0


def _following(sequence: list[str]) -> list[str]:
    operations = list(OPERATIONS)
    if len(sequence) < DEPTH - 1:
        return operations[operations.index(sequence[-1]) % SECONDS :: SECONDS]
    if not _has_third(*(operations.index(operation) for operation in sequence)):
        return []
    begin = sum((place + 1) * operations.index(operation) for place, operation in enumerate(sequence))
    return [operations[(begin + n * len(operations) // THIRD) % len(operations)] for n in range(THIRD)]


@pytest.mark.parametrize("first", list(OPERATIONS))
def test_back_to_each_version_and_forth(views_system, quick_folder, first):
    """After `first` and other operations, which differ from one `first` to the next: nothing is computed twice."""
    root = World(views_system, quick_folder / "root", [shape for shape in SHAPES if shape.function or shape.limit])
    root.refresh_and_check()
    root.change(first, len(first))
    root.refresh_and_check()
    operations = list(OPERATIONS)
    begin = operations.index(first)
    for second in [operations[(begin + n) % len(operations)] for n in range(SECOND)]:
        world = root.copy(quick_folder / second)
        world.change(second, 1 + len(second))
        versions = sorted(world.source.versions)
        for version in (0, versions[0], versions[len(versions) // 2], 0):
            try:
                world.refresh_and_check(version)
            except AssertionError as error:
                raise AssertionError(f"after {first}, {second}, to {version} of {versions}: {error}") from error
        shutil.rmtree(world.database)


@pytest.mark.parametrize("care", list(CARE))
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_care_for_a_source_costs_nothing(views_system, quick_folder, operation, care):
    """Whatever the source went through since: an index, tags, compaction, versions that are cleaned away."""
    world = World(views_system, quick_folder / "db", KEPT)
    world.refresh_and_check()
    for number, step in enumerate([care, operation, care], start=1):
        world.change(step, number)
    world.refresh_and_check()
    shutil.rmtree(world.database)


STEPS: Counter[str] = Counter()


def _histories(operations: Collection[str], examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Thirty operations; some refreshes have several of them to catch up with, some go back to an earlier version."""
    refresh = st.sampled_from(["latest", "latest", "earlier", "none"])
    one = st.tuples(st.sampled_from(sorted(operations)), st.integers(0, 1000), refresh)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        profile = settings(
            max_examples=examples * 80 if LONG else examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if LONG else [])],  # it takes minutes
            derandomize=not LONG,
            database=None,
        )
        return profile(given(steps=st.lists(one, min_size=30, max_size=30))(test))

    return decorate


@_histories(OPERATIONS, 2)
def test_long_histories(views_system, tmp_path_factory, steps):
    _live(World(views_system, tmp_path_factory.mktemp("history") / "db"), steps)


@_histories(OPERATIONS | CARE, 2)
def test_long_histories_of_a_source_that_is_cared_for(views_system, tmp_path_factory, steps):
    _live(World(views_system, tmp_path_factory.mktemp("history") / "db", KEPT), steps)


def _live(world: World, steps: Sequence[tuple[str, int, str]]) -> None:
    try:
        world.refresh_and_check()
        for operation, number, refresh in steps:
            STEPS[operation] += 1
            world.change(operation, number)
            if refresh == "earlier":
                world.go_back_and_check(number)
            elif refresh == "latest":
                world.refresh_and_check()
        world.refresh_and_check()
    finally:
        shutil.rmtree(world.database)
