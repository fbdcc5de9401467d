"""Casts of Arrow arrays that lose nothing but what lies beyond the precision of a float. Pure.

Arrow alone takes bytes for text, counts for times and times without a zone for UTC. It makes numbers that are too large
for a type infinite, rounds floats to the scale of a decimal, and converts no integer to a decimal without room for
every integer.

There are two copies of this module, `leman_core.functions.exact_casts` and `leman._exact_casts`: the SDK writes tables
without the services.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from leman_core.functions.nested_types import holds, rebuilt, without_extensions

#: Tests for lists of any kind.
LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)
#: Digits of the longest 64-bit integer.
_INTEGER_DIGITS = 20


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether two types hold the same sort of values, so that `source` may be cast to `target`.

    Text and bytes are two sorts, and so are counts and times, times with and without a zone, and truth values and
    numbers. Floats and decimals are not cast to each other; a date is cast to its midnight where there is no zone.
    """
    if pt.is_null(source) or source == target:
        return True
    if isinstance(source, pa.BaseExtensionType):
        return castable(source.storage_type, target)
    if isinstance(target, pa.BaseExtensionType):
        return castable(source, target.storage_type)
    if pt.is_dictionary(source) or pt.is_dictionary(target):
        inner = source.value_type if pt.is_dictionary(source) else source
        return castable(inner, target.value_type if pt.is_dictionary(target) else target)
    if _is_list(target):
        return _is_list(source) and castable(source.value_type, target.value_type)
    if pt.is_struct(target):
        fields = {field.name: field.type for field in target}
        return pt.is_struct(source) and all(f.name in fields and castable(f.type, fields[f.name]) for f in source)
    if pt.is_map(target):
        inside = pt.is_map(source) and castable(source.key_type, target.key_type)
        return bool(inside and castable(source.item_type, target.item_type))
    return _same_sort(source, target)


def _same_sort(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_timestamp(target):
        zoned = pt.is_timestamp(source) and (source.tz is None) == (target.tz is None)
        return zoned or (pt.is_date(source) and target.tz is None)
    if pt.is_decimal(target):
        return bool(pt.is_decimal(source) or pt.is_integer(source))
    if pt.is_integer(target):
        return bool(pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source))
    if pt.is_floating(target):
        return bool(pt.is_integer(source) or pt.is_floating(source))
    return any(sort(source) and sort(target) for sort in (pt.is_date, pt.is_time, pt.is_duration, is_text, is_binary))


def advice(source: pa.DataType, target: pa.DataType) -> str:
    """Return how values that are not castable are converted, as the end of a sentence; empty where no way is known."""
    return next((f": {how}" for have, want, how in _ADVICE if have(source) and want(target)), "")


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds text."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Tell whether a type holds bytes."""
    wide = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    return bool(wide or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in LISTS)


def convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether `exact_cast` casts `source` to `target`, where no value is changed by that."""
    if source == target or pt.is_null(source):
        return True
    if not castable(source, target):
        return False
    plain = source.value_type if pt.is_dictionary(source) and not pt.is_dictionary(target) else source
    try:
        exact_cast(pa.array([], plain), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_clock_time(kind: pa.DataType) -> bool:
    return bool(pt.is_date(kind) or (pt.is_timestamp(kind) and kind.tz is None))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.tz is not None)


_ADVICE: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], str]] = [
    (is_binary, is_text, "decode the bytes"),
    (is_text, is_binary, "encode the text"),
    (pt.is_boolean, _is_number, "convert the truth values to numbers"),
    (pt.is_floating, pt.is_decimal, "floats would be rounded, make decimals of them"),
    (pt.is_decimal, pt.is_floating, "decimals would be rounded, make floats of them"),
    (_is_clock_time, _is_moment, "give the times a zone"),
    (_is_moment, pt.is_timestamp, "take the zone off the times"),
    (pt.is_timestamp, pt.is_date, "take the time of day off"),
]


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type.

    Raises:
        pa.ArrowException, OverflowError, ValueError: The types have nothing in common, or a value would be changed.
    """
    if isinstance(values, pa.DictionaryArray) and not pt.is_dictionary(kind):
        return exact_cast(values.dictionary, kind).take(values.indices)  # each value is converted once
    made = values.cast(_on_the_way(values.type, kind)).cast(kind)
    if infinities(made) > infinities(values):
        raise OverflowError(f"a number is too large for {kind}")
    if holds(kind, pt.is_float16) and holds(values.type, pt.is_integer) and not made.cast(values.type).equals(values):
        raise ValueError(f"an integer is no number that {kind} holds: it would be rounded")
    return made


def has_floats(kind: pa.DataType) -> bool:
    """Tell whether a type holds floats, at any depth of lists, maps, structs and dictionaries."""
    return holds(
        without_extensions(kind), lambda inner: pt.is_floating(inner.value_type if pt.is_dictionary(inner) else inner)
    )


def infinities(array: pa.Array) -> int:
    """Count the infinite numbers in an array, at any depth of lists, maps, structs and dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        return infinities(array.storage)
    if not has_floats(array.type):
        return 0
    if isinstance(array, pa.DictionaryArray):
        return infinities(array.dictionary_decode())
    if _is_list(array.type):
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
    if _is_list(have) and _is_list(want):
        return rebuilt(have, lambda field: _field_on_the_way(field, want.value_type))
    return have


def _field_on_the_way(field: pa.Field, want: pa.DataType) -> pa.Field:
    return field.with_type(_on_the_way(field.type, want))
