"""Sets of row ids, offsets and fragment ids as sorted arrays of integers. Pure: numpy in, numpy out.

In place of `np.unique`, `np.union1d`, `np.intersect1d`, `np.setdiff1d` and `np.isin`: numpy 2.3 and later hash where it
would do to sort, which takes half a second for 500,000 distinct integers, and a hundredth of that here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]


def distinct(values: Ints) -> Ints:
    """Return each of the values once, sorted."""
    ordered = np.sort(values)
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if bool(first.all()) else ordered[first]


def union(one: Ints, other: Ints) -> Ints:
    """Return what is in one or the other, each once, sorted."""
    return distinct(np.concatenate([one, other]))


def common(one: Ints, other: Ints) -> Ints:
    """Return what is in both, each once, sorted."""
    return distinct(one[among(one, other)])


def without(values: Ints, others: Ints) -> Ints:
    """Return those of the values that are not among the others, each once, sorted."""
    return distinct(values[~among(values, others)])


def among(values: AnyInts, others: AnyInts) -> Mask:
    """Tell for each of the values whether it is among the others, which are in any order."""
    if not len(values) or not len(others):
        return np.zeros(len(values), np.bool_)
    return contains(np.sort(others), values)


def contains(ordered: AnyInts, values: AnyInts) -> Mask:
    """Tell for each of the values whether it is among the sorted ones."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(ordered, values)
    at[at == len(ordered)] = 0
    return np.asarray(ordered[at] == values, np.bool_)
