"""Every sequence of up to three operations on a source, with views of three shapes: after each operation a refresh, and
the oracle's judgement of rows, order, calls, rows read and files rewritten."""

from __future__ import annotations

import os
import shutil
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.views.histories.source import OPERATIONS
from tests.integration.views.histories.world import World

LONG = bool(os.environ.get("LEMAN_LONG"))
DEPTH = 3


@pytest.mark.parametrize("first", list(OPERATIONS))
def test_every_sequence_of_operations(views_system, quick_folder, first):
    """With what comes after `first`, in all combinations."""
    root = World(views_system, quick_folder / "root")
    root.refresh_and_check()
    steps = _descend(root, quick_folder, [first])
    assert steps == sum(len(OPERATIONS) ** n for n in range(DEPTH))


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
        steps += sum(_descend(here, folder, [*sequence, following]) for following in OPERATIONS)
    shutil.rmtree(here.database)
    return steps


STEPS: Counter[str] = Counter()


@settings(
    max_examples=160 if LONG else 8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    derandomize=not LONG,
    database=None,
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 1000), st.sampled_from([True, True, False])),
        min_size=30,
        max_size=30,
    )
)
def test_long_histories(views_system, tmp_path_factory, steps):
    """Thirty operations; some refreshes have several of them to catch up with."""
    world = World(views_system, tmp_path_factory.mktemp("history") / "db")
    try:
        world.refresh_and_check()
        for operation, number, refresh in steps:
            STEPS[operation] += 1
            world.change(operation, number)
            if refresh:
                world.refresh_and_check()
        world.refresh_and_check()
    finally:
        shutil.rmtree(world.database)
