"""Arrow values: concatenation, comparison and digests. Pure.

Lance keeps no checksums, and returns a wrong value for most flipped bits. So Leman computes a digest of each batch. The
digest depends only on values: slices, bytes under NULLs and validity bitmaps without NULLs do not change it, because
they do not survive a round trip through a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from leman._format.value_casts import holds_type


def concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate at least one array; all are of the same type.

    pyarrow cannot join arrays whose dictionaries contain NULL, and Lance returns such arrays from file format 2.0. This
    function can.
    """
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(
        [_tidy(array) for array in arrays] if holds_type(arrays[0].type, pt.is_dictionary) else arrays
    )


def single_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table in one batch."""
    columns = [concatenate(column.chunks or [pa.nulls(0, column.type)]) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _tidy(array: pa.Array) -> pa.Array:
    """Return the same values, without NULL in any dictionary."""
    if pt.is_dictionary(array.type):
        return _without_null(array)
    if not holds_type(array.type, pt.is_dictionary):
        return array
    if pt.is_struct(array.type):
        fields = [_tidy(array.field(at)) for at in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=array.is_null())
    own = 1 if pt.is_fixed_size_list(array.type) else 2  # its own buffers come first, then those of its values
    buffers, values = array.buffers()[:own], [_tidy(array.values)]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset, children=values)


def _without_null(array: pa.DictionaryArray) -> pa.DictionaryArray:
    held = array.dictionary
    if not held.null_count:
        return array
    valid = held.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, array.type.index_type, mask=~valid)
    return pa.DictionaryArray.from_arrays(places.take(array.indices), held.drop_null(), ordered=array.type.ordered)


Mask: TypeAlias = npt.NDArray[np.bool_]
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Return a mask of the rows with the same value, or NULL, in both arrays.

    Floats are compared by their bits: 0.0 and -0.0 differ, a NaN equals itself. Rows of different types, or of types
    that Arrow cannot compare, count as different.

    Args:
        left: Values.
        right: The same number of values.
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
    """Return a mask of equal values among rows that are not NULL in either array."""
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
    """Return the concatenated items of some lists."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    starts, lengths = offsets[:-1][rows], np.diff(offsets)[rows]
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    items = values.values
    if pa.types.is_map(values.type):
        items = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
    return items.take(pa.array(at))


def batch_digest(batch: pa.RecordBatch) -> str:
    """Return xxh3-128 over names, types, validity and values, as hex."""
    digest = xxhash.xxh3_128()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        digest.update(f"{field.name}\0{field.type}\0{len(column)}\0".encode())
        _update(digest, column)
    return digest.hexdigest()


def leaf_parts(array: pa.Array) -> tuple[bytes | memoryview, ...]:
    """Return the bytes of the values, preceded by their lengths if values of this type differ in length.

    Args:
        array: Values without NULLs, neither nested nor in a dictionary.
    """
    if _has_offsets(array.type):
        wide = array.cast(pa.large_binary())
        lengths = pc.binary_length(wide).to_numpy(zero_copy_only=False).tobytes()
        data = wide.buffers()[2]
        if data is None or not len(wide):
            return (lengths,)
        offsets = np.frombuffer(wide.buffers()[1], np.int64)
        return lengths, memoryview(data)[offsets[wide.offset] : offsets[wide.offset + len(wide)]]
    if pt.is_boolean(array.type):
        return (array.cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes(),)
    width = array.type.bit_width // 8
    values = array.buffers()[1]
    return () if values is None else (memoryview(values)[array.offset * width : (array.offset + len(array)) * width],)


def nested_parts(array: pa.Array) -> tuple[bytes, tuple[pa.Array, ...]]:
    """Return the lengths of the lists, if lists of this type differ in length, and the arrays of nested values.

    Args:
        array: Nested values without NULLs.
    """
    if pt.is_struct(array.type):
        return b"", tuple(array.flatten())
    if pt.is_fixed_size_list(array.type):
        return b"", (array.flatten(),)
    lengths = np.diff(array.offsets.to_numpy(zero_copy_only=False)).astype(np.int64).tobytes()
    if pt.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        return lengths, (array.keys.slice(first, last - first), array.items.slice(first, last - first))
    return lengths, (array.flatten(),)


def _update(digest: xxhash.xxh3_128, array: pa.Array) -> None:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_null(array.type):
        return
    if array.null_count:
        digest.update(np.packbits(pc.is_valid(array).to_numpy(zero_copy_only=False)).tobytes())
        array = array.drop_null()
    digest.update(b"%d:" % len(array))
    if pt.is_nested(array.type):
        lengths, inner = nested_parts(array)
        digest.update(lengths)
        for values in inner:
            _update(digest, values)
    elif pt.is_dictionary(array.type):
        _update(digest, array.dictionary_decode())
    else:
        for part in leaf_parts(array):
            digest.update(part)


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(
        pt.is_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_string(kind)
        or pt.is_large_binary(kind)
        or pt.is_string_view(kind)
        or pt.is_binary_view(kind)
    )
