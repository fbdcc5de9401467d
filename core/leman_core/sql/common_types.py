"""The one type of values that stand for each other, as the branches of a CASE do.

Lance's own rule takes the coarser unit of two timestamps, and nanoseconds for a date and a timestamp: values would be
cut off, or be out of range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from leman_core.sql.arrow_names import UNITS, rust_name
from leman_core.sql.filters import invalid

_INTEGER = re.compile(r"[\s(]*(-?)\s*(\d+)[\s)]*")
_SORTS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "numbers": (pt.is_integer, pt.is_floating, pt.is_decimal),
    "text": (pt.is_string, pt.is_large_string, pt.is_string_view),
    "bytes": (pt.is_binary, pt.is_large_binary, pt.is_binary_view),
    "dates and timestamps": (pt.is_date, pt.is_timestamp),
    "times of day": (pt.is_time,),
    "durations": (pt.is_duration,),
    "truth values": (pt.is_boolean,),
}
_FINER = list(UNITS)


def sort_of(kind: pa.DataType) -> str:
    """Return what values of a type are, in the words of `_SORTS`.

    Raises:
        InvalidArgument: INVALID_FILTER, for any other type.
    """
    found = next((sort for sort, tests in _SORTS.items() if any(test(kind) for test in tests)), None)
    if found is None:
        raise invalid(f"CASE gives {kind}, which is not supported: numbers, text, bytes, times and truth values are")
    return found


def common_type(
    values: Sequence[str], kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]
) -> pa.DataType:
    """Return the type that has all values of these expressions.

    Args:
        kinds: their types, not all of them NULL's.
        type_of: what Lance gives for an expression.

    Raises:
        InvalidArgument: INVALID_FILTER, where there is none.
    """
    plain = [kind.value_type if pt.is_dictionary(kind) else kind for kind in kinds]
    branches = {(text, kind) for text, kind in zip(values, plain, strict=True) if not pt.is_null(kind)}
    sorts = {sort_of(kind) for _, kind in branches}
    if sorts == {"numbers", "text"}:
        branches, sorts = {(text, kind) for text, kind in branches if sort_of(kind) == "text"}, {"text"}
    if len(sorts) > 1:
        raise invalid(f"CASE gives {' and '.join(sorted(sorts))}: cast its branches to one type")
    distinct = list(dict.fromkeys(kind for kind in plain if kind in {kind for _, kind in branches}))
    if len(distinct) == 1:
        return distinct[0]
    if sorts == {"numbers"}:
        return _number(branches, distinct, type_of)
    return _of_time(distinct) if not sorts & {"text", "bytes"} else _by_lance(distinct, type_of)


def _of_time(kinds: Sequence[pa.DataType]) -> pa.DataType:
    stamps = [kind for kind in kinds if pt.is_timestamp(kind)]
    if not stamps and pt.is_date(kinds[0]):
        return pa.date64()
    unit = max((kind.unit for kind in stamps or kinds), key=_FINER.index)
    if stamps:
        return pa.timestamp(unit, next((kind.tz for kind in stamps if kind.tz), None))
    if pt.is_duration(kinds[0]):
        return pa.duration(unit)
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


def _number(
    branches: Iterable[tuple[str, pa.DataType]], kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]
) -> pa.DataType:
    """Return the common type of numbers.

    Whole numbers that are written out take the type of the other branches, if it has them.
    """
    written = {text: match for text, _ in branches if (match := _INTEGER.fullmatch(text)) is not None}
    others = [kind for kind in kinds if any(kind == of and text not in written for text, of in branches)]
    if others:
        found = _of_numbers(others, type_of)
        if all(_has(found, int(match[1] + match[2])) for match in written.values()):
            return found
    return _of_numbers(kinds, type_of)


def _of_numbers(kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]) -> pa.DataType:
    if any(map(pt.is_floating, kinds)) and any(map(pt.is_decimal, kinds)):
        return pa.float64()
    found = _by_lance(kinds, type_of)
    for kind in kinds:
        if pt.is_decimal(found) and _whole_digits(kind) > found.precision - found.scale:
            raise invalid(
                f"CASE gives {' and '.join(map(str, kinds))}, which no type has: cast its branches to one type"
            )
    return found


def _by_lance(kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]) -> pa.DataType:
    found, *others = kinds
    for kind in others:
        some = f"arrow_cast(NULL, '{rust_name(found)}')"
        found = type_of(f"nvl2({some}, {some}, arrow_cast(NULL, '{rust_name(kind)}'))")
    return found


def _whole_digits(kind: pa.DataType) -> int:
    if pt.is_decimal(kind):
        return int(kind.precision - kind.scale)
    return len(str((1 << (kind.bit_width - pt.is_signed_integer(kind))) - 1))


def _has(kind: pa.DataType, number: int) -> bool:
    if pt.is_decimal(kind):
        return bool(len(str(abs(number))) <= kind.precision - kind.scale)
    if not pt.is_integer(kind):
        return True
    signed = pt.is_signed_integer(kind)
    bits = kind.bit_width - signed
    return bool(-(1 << bits) * signed <= number < 1 << bits)
