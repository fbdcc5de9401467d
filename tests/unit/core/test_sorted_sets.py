"""Sets of integers as sorted arrays, against Python's own sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model import sorted_sets

INTS = st.lists(st.one_of(st.integers(-20, 20), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=40).map(
    lambda values: np.array(values, np.int64)
)


@given(INTS)
def test_distinct(values):
    found = sorted_sets.distinct(values)
    assert found.tolist() == sorted(set(values.tolist()))
    assert found.dtype == np.int64


@given(INTS, INTS)
def test_two_sets(one, other):
    ones, others = set(one.tolist()), set(other.tolist())
    assert sorted_sets.union(one, other).tolist() == sorted(ones | others)
    assert sorted_sets.common(one, other).tolist() == sorted(ones & others)
    assert sorted_sets.without(one, other).tolist() == sorted(ones - others)


@given(INTS, INTS)
def test_membership_keeps_the_order_that_is_asked_in(values, others):
    expected = [value in set(others.tolist()) for value in values.tolist()]
    assert sorted_sets.among(values, others).tolist() == expected
    assert sorted_sets.contains(np.sort(others), values).tolist() == expected


def test_nothing_is_changed_in_place():
    values, others = np.array([3, 1, 3]), np.array([2, 1])
    for function in (sorted_sets.union, sorted_sets.common, sorted_sets.without, sorted_sets.among):
        function(values, others)
    sorted_sets.distinct(values)
    assert (values.tolist(), others.tolist()) == ([3, 1, 3], [2, 1])
