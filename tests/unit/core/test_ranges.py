"""Half-open ranges, against sets of offsets."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model.row_positions import RowRange, count_offsets, merge_ranges, split_range, subtract_ranges

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda p: RowRange(*p)), max_size=8)


def offsets(ranges):
    return {offset for r in ranges for offset in range(r.start, r.end)}


@given(RANGES)
def test_merged_ranges_hold_the_same_offsets_once(ranges):
    merged = merge_ranges(ranges)
    assert offsets(merged) == offsets(ranges)
    assert count_offsets(merged) == len(offsets(ranges))
    assert all(a.end < b.start for a, b in itertools.pairwise(merged))


@settings(max_examples=500)
@given(RANGES, RANGES)
def test_subtraction_is_that_of_sets(whole, covered):
    left = subtract_ranges(whole, covered)
    assert offsets(left) == offsets(whole) - offsets(covered)
    assert left == merge_ranges(left)


@given(RANGES, st.integers(1, 50))
def test_chunks_are_consecutive_and_bounded(ranges, size):
    for whole in merge_ranges(ranges):
        pieces = list(split_range(whole, size))
        assert [p.start for p in pieces[1:]] == [p.end for p in pieces[:-1]]
        assert (pieces[0].start, pieces[-1].end) == whole
        assert all(0 < p.rows <= size for p in pieces)


def test_intersection():
    assert RowRange(0, 5).intersect(RowRange(3, 9)) == RowRange(3, 5)
    assert RowRange(0, 5).intersect(RowRange(5, 9)) is None
