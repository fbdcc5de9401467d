"""Casts of Arrow arrays that lose nothing but what lies beyond the precision of a float. Pure.

Arrow alone makes numbers that are too large for a type infinite, and converts no integer to a decimal that has no room
for every integer. It rounds floats to the scale of a decimal: who casts these says so.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from core.udf.nested_types import holds, rebuilt, without_extensions

_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)
#: Digits of the longest 64-bit integer.
_INTEGER_DIGITS = 20


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type.

    Raises:
        pa.ArrowException, OverflowError: The types have nothing in common, or a value would be changed.
    """
    made = values.cast(_on_the_way(values.type, kind)).cast(kind)
    if infinities(made) > infinities(values):
        raise OverflowError(f"a number is too large for {kind}")
    return made


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


def _on_the_way(have: pa.DataType, want: pa.DataType) -> pa.DataType:
    """Return a type that values are cast to first: decimals of their own for integers that become decimals."""
    if pt.is_integer(have) and pt.is_decimal(want):
        return pa.decimal128(_INTEGER_DIGITS, 0)
    if pt.is_struct(have) and pt.is_struct(want):
        kinds = {field.name: field.type for field in want}
        return rebuilt(have, lambda field: _field_on_the_way(field, kinds.get(field.name, field.type)))
    if pt.is_map(have) and pt.is_map(want):
        key, item = have.key_field, have.item_field
        return pa.map_(_field_on_the_way(key, want.key_type), _field_on_the_way(item, want.item_type), have.keys_sorted)
    if any(is_list(have) for is_list in _LISTS) and any(is_list(want) for is_list in _LISTS):
        return rebuilt(have, lambda field: _field_on_the_way(field, want.value_type))
    return have


def _field_on_the_way(field: pa.Field, want: pa.DataType) -> pa.Field:
    return field.with_type(_on_the_way(field.type, want))
