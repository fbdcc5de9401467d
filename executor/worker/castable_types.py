"""Which Arrow types hold the same sort of values, so that one may be cast to the other."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

#: Tests for lists of any kind.
LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether two types hold the same sort of values, so that `source` may be cast to `target`."""
    if pt.is_null(source) or source == target:
        return True
    if isinstance(source, pa.BaseExtensionType):
        return castable(source.storage_type, target)
    if isinstance(target, pa.BaseExtensionType):
        return castable(source, target.storage_type)
    if pt.is_dictionary(source) or pt.is_dictionary(target):
        inner = source.value_type if pt.is_dictionary(source) else source
        return castable(inner, target.value_type if pt.is_dictionary(target) else target)
    if any(is_list(target) for is_list in LISTS):
        return any(is_list(source) for is_list in LISTS) and castable(source.value_type, target.value_type)
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
    if pt.is_integer(target) or pt.is_floating(target):
        return bool(pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source))
    for sort in (pt.is_date, pt.is_time, pt.is_duration):
        if sort(target):
            return bool(sort(source))
    return _is_text_or_bytes(source) and _is_text_or_bytes(target)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    wide = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    return bool(text or wide or pt.is_fixed_size_binary(kind))
