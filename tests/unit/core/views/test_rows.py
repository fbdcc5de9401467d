"""Order, sets and windows of rows, against plain Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.row_ids import (
    Beyond,
    Bounds,
    Moves,
    in_order,
    isin_sorted,
    membership,
    mix,
    order_keys,
    positions,
    window,
)

VECTORS = Path(__file__).parents[3] / "conformance" / "vectors" / "shuffle_order.json"
IDS = st.sets(st.integers(0, 30)).map(sorted)


def ids(values):
    return np.array(sorted(values), np.int64)


def test_mix_is_the_published_function():
    """The first values of splitmix64 with seed 1234567, as its authors print them."""
    step = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * step) % 2**64 for i in range(3)], np.uint64)
    assert mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("case", json.loads(VECTORS.read_text()), ids=lambda case: f"seed {case['seed']}")
def test_shuffles_have_the_published_order(case):
    found = in_order(np.array(case["ids"], np.int64), shuffle=True, seed=case["seed"])
    assert found.tolist() == case["order"]


@given(seed=st.integers(-(2**63), 2**63 - 1), values=st.sets(st.integers(0, 2**63 - 1), max_size=50))
def test_a_shuffle_loses_nothing_and_does_not_depend_on_the_layout(seed, values):
    given_order = np.array(list(values), np.int64)
    found = in_order(given_order, shuffle=True, seed=seed)
    assert found.tolist() == in_order(given_order[::-1], shuffle=True, seed=seed).tolist()
    assert sorted(found.tolist()) == sorted(values)
    assert len(set(order_keys(found, shuffle=True, seed=seed).tolist())) == len(values)


def test_without_shuffle_rows_are_sorted():
    assert in_order(np.array([3, 1, 2], np.int64), shuffle=False, seed=9).tolist() == [1, 2, 3]


@given(some=IDS, others=st.lists(st.integers(0, 30)))
def test_sets(some, others):
    asked = np.array(others, np.int64)
    assert isin_sorted(ids(some), asked).tolist() == [i in some for i in others]
    assert positions(ids(some), asked).tolist() == [some.index(i) if i in some else -1 for i in others]


@given(
    before=st.dictionaries(st.integers(0, 30), st.booleans()),
    after=st.dictionaries(st.integers(0, 30), st.booleans()),
    offset=st.integers(0, 6),
    limit=st.one_of(st.none(), st.integers(1, 12)),
)
def test_windows_are_those_of_the_target(before, after, offset, limit):
    """`before` and `after`: id to whether it matches. Rows of both are changed where that differs."""
    bounds = Bounds(offset, limit)
    held = bounds.cut(ids(i for i, matches in before.items() if matches))
    if not len(held):
        return
    moves = Moves(
        gone=ids(before.keys() - after.keys()),
        fresh=ids(after.keys() - before.keys()),
        changed=ids(i for i in before.keys() & after.keys() if before[i] != after[i]),
    )
    low, high = int(held[0]), int(held[-1])
    full = limit is not None and len(held) == limit
    matching = ids(i for i, matches in after.items() if matches)
    asked = matching[matching <= high] if full else matching
    known = ids(i for i in {*moves.gone.tolist(), *moves.changed.tolist()} if before[i] and (i <= high or not full))
    change = membership(moves, asked, known)
    beyond = Beyond(
        below=lambda at, count: matching[matching < at][-count:],
        above=lambda at, count: matching[matching > at][:count],
    )
    assert window(held, change, bounds, beyond).tolist() == bounds.cut(matching).tolist()
    assert low in held


def test_a_window_reads_beyond_its_end_only_when_it_runs_short():
    def no_reading(_at, _count):
        raise AssertionError("nothing is to be read")

    nothing = ids([])
    change = membership(Moves(nothing, ids([2, 90]), nothing), ids([2]), nothing)
    found = window(ids([1, 5, 7]), change, Bounds(0, 3), Beyond(no_reading, no_reading))
    assert found.tolist() == [1, 2, 5]
