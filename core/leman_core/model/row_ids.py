"""Sets of row ids as sorted arrays, and the rows and order of a view. Pure: numpy in, numpy out.

The set functions replace `np.unique`, `np.union1d`, `np.intersect1d`, `np.setdiff1d` and `np.isin`. These use hashing
since numpy 2.3, which takes half a second for 500,000 distinct integers. Sorting here takes a hundredth of that.

The order of a shuffled view is public (tests/conformance/vectors/shuffle_order.json): rows are sorted by `mix(mix(seed)
xor id)`, where seed and id are 64-bit two's complement numbers and `mix` is the finaliser of splitmix64. No two ids of
one seed have the same key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]


def distinct(values: Ints) -> Ints:
    """Return the distinct values, sorted."""
    ordered = np.sort(values)
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if bool(first.all()) else ordered[first]


def union(one: Ints, other: Ints) -> Ints:
    """Return the sorted values that are in one of the arrays, or in both."""
    return distinct(np.concatenate([one, other]))


def intersection(one: Ints, other: Ints) -> Ints:
    """Return the sorted values that are in both arrays."""
    return distinct(one[isin(one, other)])


def difference(values: Ints, others: Ints) -> Ints:
    """Return the sorted `values` that are not among `others`."""
    return distinct(values[~isin(values, others)])


def isin(values: AnyInts, others: AnyInts) -> Mask:
    """Return a mask of the `values` that are among `others`. Neither array has to be sorted."""
    if not len(values) or not len(others):
        return np.zeros(len(values), np.bool_)
    return isin_sorted(np.sort(others), values)


def isin_sorted(ordered: AnyInts, values: AnyInts) -> Mask:
    """Return a mask of the `values` that are in `ordered`, which is sorted."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(ordered, values)
    at[at == len(ordered)] = 0
    return np.asarray(ordered[at] == values, np.bool_)


Ids = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

NO_IDS: Ids = np.empty(0, np.int64)

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mix(values: Keys) -> Keys:
    """Apply the finaliser of splitmix64, a bijection."""
    with np.errstate(over="ignore"):
        mixed = values + _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def order_keys(ids: Ids, *, shuffle: bool, seed: int) -> Keys:
    """Return the sort keys of rows: the row id, or with `shuffle` its keyed hash."""
    unsigned = ids.astype(np.int64, copy=False).view(np.uint64)
    if not shuffle:
        return unsigned
    start = mix(np.array([seed & (1 << 64) - 1], np.uint64))
    return mix(unsigned ^ start[0])


def in_order(ids: Ids, *, shuffle: bool, seed: int) -> Ids:
    """Return the ids in the order of a view's rows."""
    return ids[np.argsort(order_keys(ids, shuffle=shuffle, seed=seed), kind="stable")]


def positions(sorted_ids: Ids, ids: Ids) -> Ids:
    """Return the index of each id in `sorted_ids`, or -1 if it is not there."""
    if not len(sorted_ids):
        return np.full(len(ids), -1, np.int64)
    at = np.searchsorted(sorted_ids, ids).astype(np.int64)
    at[at == len(sorted_ids)] = 0
    at[sorted_ids[at] != ids] = -1
    return at


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """The rows of fragments that differ between two versions of a source. Ids are sorted."""

    #: Rows in the first version only.
    gone: Ids
    #: Rows in the second version only.
    fresh: Ids
    #: Rows in both versions whose values may differ.
    changed: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """The changes to the set of matching rows. Ids are sorted."""

    leaving: Ids
    entering: Ids
    #: Changed rows that match before and after.
    kept: Ids


def membership(moves: Moves, matching: Ids, held: Ids) -> Membership:
    """Return the changes to the set of matching rows.

    Args:
        matching: The fresh and changed rows that match the filter at the target, sorted.
        held: The gone and changed rows that matched before, sorted.
    """
    changed_match = moves.changed[isin_sorted(matching, moves.changed)]
    changed_other = moves.changed[~isin_sorted(matching, moves.changed)]
    fresh_match = moves.fresh[isin_sorted(matching, moves.fresh)]
    before = isin_sorted(held, changed_match)
    leaving = union(moves.gone, changed_other)
    return Membership(
        leaving=leaving[isin_sorted(held, leaving)],
        entering=union(fresh_match, changed_match[~before]),
        kept=changed_match[before],
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offset and limit of a view: the part of the matching rows, sorted by id, that it contains."""

    #: Rows to skip.
    offset: int = 0
    #: Rows to take after them; None: all.
    limit: int | None = None

    @property
    def bounded(self) -> bool:
        return self.offset > 0 or self.limit is not None

    def cut(self, ids: Ids) -> Ids:
        """Return the ids that a view contains, given all matching ids, sorted."""
        return ids[self.offset :] if self.limit is None else ids[self.offset : self.offset + self.limit]


@dataclass(frozen=True, slots=True)
class Beyond:
    """Finds rows that match at the target version, outside of the range of ids that the view contains.

    Each function takes an id and a count, and returns at most that many ids, sorted: `below` the greatest ids below the
    given one, `above` the least ids above it.
    """

    below: Callable[[int, int], Ids]
    above: Callable[[int, int], Ids]


def window(held: Ids, change: Membership, bounds: Bounds, beyond: Beyond) -> Ids:
    """Return the sorted ids of the rows that a view with offset or limit contains at the target version.

    From its first row to its last, the view contains all rows that matched. Below its first row, exactly `offset` rows
    matched. Above its last row none did, unless the limit was reached. So only rows that cross one of these two edges
    must be looked up.

    Example: with offset 2 and limit 3 over the matching ids 1 2 | 5 6 9 | 12, the view contains 5 6 9. If 1 stops
    matching, one row too few is below the first edge. So 5 moves there, and the next id `above` 9 enters: 6 9 12. If
    instead 0 starts to match, one row too many is below. So the greatest id `below` 5 enters, and 9 leaves: 2 5 6.

    Args:
        held: The ids of all rows of the view, sorted; at least one.
        change: The changes to the set of matching rows, up to the view's last row.
        bounds: Offset and limit.
        beyond: Finds matching rows below the view's first row and above its last.
    """
    low, high = int(held[0]), int(held[-1])
    full = bounds.limit is not None and len(held) >= bounds.limit
    known = union(held[~isin_sorted(change.leaving, held)], change.entering[change.entering >= low])
    if full:
        known = known[known <= high]
    shift = int(np.count_nonzero(change.entering < low)) - int(np.count_nonzero(change.leaving < low))
    if shift > 0:
        known = np.concatenate([beyond.below(low, shift), known])
    dropped = min(max(-shift, 0), len(known))
    still_to_drop = max(-shift, 0) - dropped
    known = known[dropped:]
    if bounds.limit is None:
        return known
    if full and len(known) < bounds.limit:
        more = beyond.above(high, bounds.limit - len(known) + still_to_drop)
        known = np.concatenate([known, more[still_to_drop:]])
    return known[: bounds.limit]
