"""Sets of integers as sorted arrays, against Python's own sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model import row_ids

INTS = st.lists(st.one_of(st.integers(-20, 20), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=40).map(
    lambda values: np.array(values, np.int64)
)


@given(INTS)
def test_distinct(values):
    found = row_ids.distinct(values)
    assert found.tolist() == sorted(set(values.tolist()))
    assert found.dtype == np.int64


@given(INTS, INTS)
def test_two_sets(one, other):
    ones, others = set(one.tolist()), set(other.tolist())
    assert row_ids.union(one, other).tolist() == sorted(ones | others)
    assert row_ids.intersection(one, other).tolist() == sorted(ones & others)
    assert row_ids.difference(one, other).tolist() == sorted(ones - others)


@given(INTS, INTS)
def test_membership_keeps_the_order_that_is_asked_in(values, others):
    expected = [value in set(others.tolist()) for value in values.tolist()]
    assert row_ids.isin(values, others).tolist() == expected
    assert row_ids.isin_sorted(np.sort(others), values).tolist() == expected


def test_nothing_is_changed_in_place():
    values, others = np.array([3, 1, 3]), np.array([2, 1])
    for function in (row_ids.union, row_ids.intersection, row_ids.difference, row_ids.isin):
        function(values, others)
    row_ids.distinct(values)
    assert (values.tolist(), others.tolist()) == ([3, 1, 3], [2, 1])
