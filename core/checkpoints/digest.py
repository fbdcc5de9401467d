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
        _update_nested(digest, array)
    elif pt.is_dictionary(array.type):
        _update(digest, array.dictionary_decode())
    elif _has_offsets(array.type):
        wide = array.cast(pa.large_binary())
        digest.update(pc.binary_length(wide).to_numpy(zero_copy_only=False).tobytes())
        data = wide.buffers()[2]
        if data is not None and len(wide):
            offsets = np.frombuffer(wide.buffers()[1], np.int64)
            digest.update(memoryview(data)[offsets[wide.offset] : offsets[wide.offset + len(wide)]])
    elif pt.is_boolean(array.type):
        digest.update(array.cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    else:
        width = array.type.bit_width // 8
        values = array.buffers()[1]
        if values is not None:
            digest.update(memoryview(values)[array.offset * width : (array.offset + len(array)) * width])


def _update_nested(digest: xxhash.xxh3_128, array: pa.Array) -> None:
    if pt.is_struct(array.type):
        for child in array.flatten():
            _update(digest, child)
        return
    if not pt.is_fixed_size_list(array.type):
        lengths = np.diff(array.offsets.to_numpy(zero_copy_only=False))
        digest.update(lengths.astype(np.int64).tobytes())
    if pt.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        _update(digest, array.keys.slice(first, last - first))
        _update(digest, array.items.slice(first, last - first))
        return
    _update(digest, array.flatten())


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(
        pt.is_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_string(kind)
        or pt.is_large_binary(kind)
        or pt.is_string_view(kind)
        or pt.is_binary_view(kind)
    )
