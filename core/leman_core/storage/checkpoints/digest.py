"""A digest over the values of a batch. Lance keeps no checksums: most flipped bits read back as wrong values.

The digest is logical: how a batch is sliced, what lies under its NULLs and whether an all-valid column has a validity
bitmap make no difference, because a round trip through a file changes all of these.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash


def batch_digest(batch: pa.RecordBatch) -> str:
    """Return xxh3-128 over names, types, validity and values, as hex."""
    digest = xxhash.xxh3_128()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        digest.update(f"{field.name}\0{field.type}\0{len(column)}\0".encode())
        _update(digest, column)
    return digest.hexdigest()


def leaf_parts(array: pa.Array) -> tuple[bytes | memoryview, ...]:
    """Return what values consist of: their lengths where these differ, and their bytes.

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
    """Return the lengths of lists, where these differ, and the arrays of what is in nested values.

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
