"""Numbers that became infinite, as they are too large for a type: Arrow makes them so without a word. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from core.udf.nested_types import holds, without_extensions

_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)


def infinities(array: pa.Array) -> int:
    """Count the infinite numbers in an array, at any depth of lists, maps and structs."""
    if isinstance(array, pa.ExtensionArray):
        return infinities(array.storage)
    if not holds(without_extensions(array.type), pt.is_floating):
        return 0
    if any(is_list(array.type) for is_list in _LISTS):
        # pyarrow cannot leave out what lies under a NULL where structs hold extension types
        return infinities((array.drop_null() if array.null_count else array).flatten())
    if pt.is_map(array.type):
        present = array.drop_null() if array.null_count else array
        return infinities(present.keys) + infinities(present.items)
    if pt.is_struct(array.type):
        return sum(infinities(child) for child in array.flatten())
    if not pt.is_floating(array.type):
        return 0
    wide = array.cast(pa.float32()) if pt.is_float16(array.type) else array
    return int(pc.sum(pc.is_inf(wide)).as_py() or 0)
