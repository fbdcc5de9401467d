"""Which rows of two arrays have the same value, bit for bit.

Values that a function cannot tell apart are the same; where that is not certain, they are not.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Tell of each row whether both arrays have the same value, or NULL.

    Floats are compared by their bits: 0.0 and -0.0 differ, a NaN equals itself. Of other types, and of types that Arrow
    cannot compare, no row is the same.

    Args:
        left: values.
        right: as many values.
    """
    if left.type != right.type or len(left) != len(right):
        return np.zeros(len(left), np.bool_)
    left, right = _plain(left), _plain(right)
    here, there = _valid(left), _valid(right)
    same: Mask = here == there
    both = here & there
    if both.any():
        rows = np.flatnonzero(both)
        if len(rows) < len(both):
            left, right = left.take(pa.array(rows)), right.take(pa.array(rows))
        same[rows] = _equal_values(left, right)
    return same


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if isinstance(values, pa.DictionaryArray):
        return _plain(values.dictionary_decode())
    return values


def _valid(values: pa.Array) -> Mask:
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    found: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def _equal_values(left: pa.Array, right: pa.Array) -> Mask:
    """Tell of rows of which neither is NULL whether they have the same value."""
    kind = left.type
    if pa.types.is_struct(kind):
        same = np.ones(len(left), np.bool_)
        for mine, other in zip(left.flatten(), right.flatten(), strict=True):
            np.logical_and(same, equal_rows(mine, other), out=same)
        return same
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        if not size:
            return np.ones(len(left), np.bool_)
        items = equal_rows(left.flatten(), right.flatten())
        return np.asarray(items.reshape(-1, size).all(axis=1), np.bool_)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _equal_lists(left, right)
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width // 8]
        mine, other = (values.to_numpy(zero_copy_only=False).view(bits) for values in (left, right))
        return np.asarray(mine == other, np.bool_)
    try:
        equal: Mask = pc.equal(left, right).to_numpy(zero_copy_only=False)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return np.zeros(len(left), np.bool_)
    return equal.astype(np.bool_)


def _equal_lists(left: pa.Array, right: pa.Array) -> Mask:
    mine, other = _lengths(left), _lengths(right)
    same: Mask = mine == other
    rows = np.flatnonzero(same & (mine > 0))
    if len(rows):
        items = equal_rows(_items(left, rows), _items(right, rows))
        same[rows] = np.logical_and.reduceat(items, np.concatenate([[0], np.cumsum(mine[rows])[:-1]]))
    return same


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = np.diff(values.offsets.to_numpy()).astype(np.int64)
    return lengths


def _items(values: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the items of some lists, one list after the other."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    starts, lengths = offsets[:-1][rows], np.diff(offsets)[rows]
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    items = values.values
    if pa.types.is_map(values.type):
        items = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
    return items.take(pa.array(at))
