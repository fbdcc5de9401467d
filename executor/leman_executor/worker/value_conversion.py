"""Convert Python values and Arrow arrays to a column's type, and reject values that do not fit.

pyarrow itself changes some values without an error. For example, it converts 1.5 to the integer 1, a naive time to UTC,
a date and time to a date, microseconds to seconds, a number to a time, bytes to text and text to bytes, text to a list
of letters or an empty struct, and a number beyond the range of float32 to infinity.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import itertools
import uuid
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman._format.value_casts import (
    LISTS,
    cast_advice,
    castable,
    check_json,
    exact_cast,
    has_floats,
    holds_type,
    infinities,
    is_binary,
    is_text,
    map_inner_fields,
    without_extensions,
)
from leman_executor.worker.user_errors import error_text as user_text

#: The errors that pyarrow raises for a value that it cannot convert.
CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)

#: Microseconds in each unit.
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
#: Types whose values are immutable. Subclasses are not included, because they may convert to something else later.
LASTING = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID),
        *(dt.date, dt.time, dt.datetime, dt.timedelta),
        *(np.bool_, np.str_, np.bytes_, np.datetime64, np.timedelta64, np.float16, np.float32, np.float64),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    }
)
#: For some Arrow types, the Python types whose values pyarrow converts without loss. For half-precision floats, these
#: do not include integers, because pyarrow rounds them.
_SAFE: list[tuple[Callable[[pa.DataType], bool], frozenset[type]]] = [
    (is_text, frozenset({type(None), str})),
    (is_binary, frozenset({type(None), bytes})),
    (pt.is_decimal, frozenset({type(None), int, decimal.Decimal})),
    (pt.is_float16, frozenset({type(None), float, np.float16, np.float32, np.float64})),
]
_WHOLE = (int, np.integer)
_TRUTH = "a bool is not a number: return int(...), or give data_type=pa.bool_()"
_NOT_WHOLE = (bool, np.timedelta64)  # subclasses of integers in Python and numpy
_BYTES = (bytes, bytearray, memoryview)
_TRUTHS = (bool, np.bool_)
_NO_FLOATS = frozenset({*_TRUTHS, decimal.Decimal})
_TIMES = (dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64)
_TEMPORAL = (pt.is_timestamp, pt.is_date, pt.is_time, pt.is_duration)


class Converter:
    """Make arrays of one Arrow type from Python values."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        python_type = _python_type(kind)
        self._bits = isinstance(kind, pa.Bool8Type)
        #: Makes arrays of another type that are then cast. None if pyarrow makes arrays of the type itself.
        self._inner = None if self._bits or python_type == kind else Converter(python_type)
        self._storage = without_extensions(kind)
        #: Whether the type is a list whose items can only be numbers of Python or numpy.
        self.is_flat = _is_list(self._storage) and pt.is_floating(self._storage.value_type)
        lossless = frozenset() if self._inner or self._bits else frozenset(t for t in LASTING if _is_lossless(t, kind))
        self._types_suffice = bool(lossless)
        #: Types whose values are immutable and, with `_types_suffice`, converted by pyarrow without loss.
        self.plain_types = lossless or LASTING
        self._has_floats = has_floats(kind)
        self._has_json = holds_type(kind, lambda inner: isinstance(inner, pa.JsonType))

    def __call__(self, values: Sequence[Any], *, are_plain: bool = False) -> pa.Array:
        """Return Python values as an array.

        Args:
            values: The values.
            are_plain: Whether the types of all values are in `plain_types`.

        Raises:
            Exception: One of CONVERSION_ERRORS, for a value that the type cannot hold.
        """
        kind = self.kind
        if self._bits:
            values = [int(value) if isinstance(value, bool | np.bool_) else value for value in values]
        elif self._inner is not None:
            return self._inner(values).cast(self._storage).cast(kind)
        if not (are_plain and self._types_suffice) and _may_lose(values, kind):
            values = [_in_order(value, kind) for value in values]
            _check_all(values, kind)
        made = pa.array(values, kind)
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if self._has_floats and infinities(made):
            _check_all(values, kind)
        if self._has_json:
            check_json(made)
        if made.type != kind:  # if a dictionary is full, pyarrow widens its index type
            raise ValueError(f"the values need the type {made.type}: use a wider index type")
        return made


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return Python values as an array.

    Raises:
        Exception: One of CONVERSION_ERRORS, for a value that the type cannot hold.
    """
    return Converter(kind)(values)


def refusal(value: Any, kind: pa.DataType, error: Exception) -> str:
    """Explain why a function's return value does not fit the type, with advice for Python users.

    Args:
        value: The value that `to_array` rejected.
        kind: The type.
        error: The error of `to_array`.
    """
    if is_text(kind) and not isinstance(value, str):
        how = "decode() the bytes" if isinstance(value, _BYTES) else "return str(...)"
        return f"a text is expected: {how}, or give another data_type="
    if is_binary(kind) and isinstance(value, str):
        return "bytes are expected: encode() the text, or give another data_type="
    if pt.is_struct(kind) and not isinstance(value, Mapping | tuple):
        made = _as_dict(value)
        if made:
            return f"a dict is expected: return {made}"
    return user_text(error)


def _as_dict(value: Any) -> str:
    """Return how to convert an object with fields to a dict. Return "" if its class is unknown."""
    if callable(getattr(value, "model_dump", None)):
        return "the model's model_dump()"
    if dataclasses.is_dataclass(value):
        return "dataclasses.asdict(...) of it"
    if hasattr(type(value), "__attrs_attrs__"):
        return "attrs.asdict(...) of it"
    return "msgspec.to_builtins(...) of it" if hasattr(type(value), "__struct_fields__") else ""


def cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to another type.

    Raises:
        Exception: One of CONVERSION_ERRORS, if the types cannot be converted or a value would change.
    """
    if array.type == kind:
        check_json(array)
        return array
    if not castable(array.type, kind):
        raise TypeError(f"values of type {array.type} are not converted to {kind}{cast_advice(array.type, kind)}")
    made = exact_cast(array, kind)
    check_json(made)
    return made


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in LISTS)


def _python_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with which pyarrow makes arrays from Python values.

    This differs from `kind` for nested extension types, and for extension types that pyarrow does not know, because
    pyarrow cannot make arrays of these types.
    """
    if isinstance(kind, pa.OpaqueType):
        return without_extensions(kind)
    return map_inner_fields(kind, lambda field: field.with_type(_inner_python_type(field.type)))


def _inner_python_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.bool_() if isinstance(kind, pa.Bool8Type) else without_extensions(kind)
    return _python_type(kind)


def _check_all(values: Iterable[Any], kind: pa.DataType) -> None:
    for value in values:
        fault = _fault(value, kind)
        if fault:
            raise ValueError(fault)


def _may_lose(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Return whether pyarrow might change a value without an error. Cheap for values of the plain Python type."""
    kind = _bare(kind)
    if pt.is_nested(kind):
        return _nested_may_lose([value for value in values if value is not None], kind)
    if pt.is_temporal(kind):
        return _times_may_lose([value for value in values if value is not None], kind)
    return _may_lose_any(set(map(type, values)), kind)


def _bare(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves, without extension types and dictionaries."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return _bare(kind.value_type) if pt.is_dictionary(kind) else kind


def _nested_may_lose(present: list[Any], kind: pa.DataType) -> bool:
    if _is_list(kind):
        return _lists_may_lose(present, kind.value_type)
    return _structs_may_lose(present, kind) if pt.is_struct(kind) else True


def _in_order(value: Any, kind: pa.DataType) -> Any:
    """Replace all containers in a value by Python lists and dicts, and convert times to the type's unit.

    Otherwise pyarrow would read the items of a pandas Series by label, those of a set in any order, and a data frame as
    its column names.

    Raises:
        TypeError: A container has no order, or it has columns.
    """
    kind = without_extensions(kind)
    if pt.is_dictionary(kind):
        return _in_order(value, kind.value_type)
    if value is None or isinstance(value, pa.Scalar):
        return value
    if _is_list(kind):
        items = _items_of(value)
        return value if items is None else [_in_order(item, kind.value_type) for item in items]
    if pt.is_struct(kind):
        return _fields_in_order(value, kind)
    if pt.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else _items_of(value)
        return value if pairs is None else [_pair_in_order(pair, kind) for pair in pairs]
    if any(is_kind(kind) for is_kind in _TEMPORAL):
        return _in_unit(value, kind)
    return value


def _fields_in_order(value: Any, kind: pa.StructType) -> Any:
    if isinstance(value, Mapping):
        types = {field.name: field.type for field in kind}
        return {name: _in_order(v, types[name]) if name in types else v for name, v in value.items()}
    if isinstance(value, tuple) and len(value) == kind.num_fields:
        return tuple(_in_order(v, field.type) for v, field in zip(value, kind, strict=True))
    return value


def _pair_in_order(pair: Any, kind: pa.DataType) -> Any:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return pair
    return _in_order(pair[0], kind.key_type), _in_order(pair[1], kind.item_type)


def _items_of(value: Any) -> Iterable[Any] | None:
    """Return the items of a list-like value by position. Return None if it is not list-like.

    Raises:
        TypeError: The value has no order, or it has columns.
    """
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | bytearray):
        return None
    name = type(value).__name__
    if isinstance(value, abc.Set | Mapping):
        raise TypeError(f"a {name} is not a list, as its items have no order: return a list")
    if hasattr(value, "columns") and not isinstance(value, np.ndarray):
        raise TypeError(f"a {name} is not a list, as it has columns: return one of its columns")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return list(value.to_pylist())
    if isinstance(value, np.ma.MaskedArray):
        return list(value.tolist())  # `tolist` turns masked items into None
    if hasattr(value, "__array__"):  # numpy, or convertible to it: pandas, xarray, torch
        value = np.asarray(value)
        value = value.tolist() if value.ndim == 1 and value.dtype.kind not in "mM" else value
    try:
        return list(value)
    except TypeError:
        return None


def _in_unit(value: Any, kind: pa.DataType) -> Any:
    """Convert a time for pyarrow: a numpy time to the type's unit, a date to its midnight, NaT to None.

    Raises:
        ValueError: The type's unit cannot represent the time.
    """
    if type(value).__name__ == "NaTType":
        return None
    if type(value) is dt.date and pt.is_timestamp(kind) and kind.tz is None:
        return dt.datetime.combine(value, dt.time())
    moment, duration = isinstance(value, np.datetime64), isinstance(value, np.timedelta64)
    if not moment and not duration:
        return value
    if np.isnat(value):
        return None
    if duration != pt.is_duration(kind) or pt.is_time(kind) or (pt.is_timestamp(kind) and kind.tz is not None):
        return value  # `_temporal_fault` reports it
    unit = "D" if pt.is_date(kind) else kind.unit
    if duration and np.datetime_data(value.dtype)[0] in "YM":
        raise ValueError(f"{value!r} is not a duration of {kind}: its length depends on the calendar")
    exact = value.astype(f"{'M8' if moment else 'm8'}[{unit}]")
    if exact.astype(value.dtype) != value:
        raise ValueError(f"{value!r} is finer than the unit of {kind}, or beyond its range")
    return exact.item() if pt.is_date(kind) else exact


def _is_lossless(sort: type, kind: pa.DataType) -> bool:
    """Return whether pyarrow either converts every value of a Python type to an Arrow type exactly or rejects it."""
    if pt.is_nested(kind) or pt.is_temporal(kind) or pt.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return False
    return not _may_lose_any(frozenset({sort}), kind)


def _may_lose_any(found: abc.Set[type], kind: pa.DataType) -> bool:
    """Return whether pyarrow might change a value of these types without an error.

    `kind` is neither nested nor a time.
    """
    if pt.is_integer(kind):
        return not all(sort is type(None) or _is_whole(sort) for sort in found)
    for is_kind, safe in _SAFE:
        if is_kind(kind):
            return not found <= safe
    return not pt.is_boolean(kind) and not found.isdisjoint(_NO_FLOATS)


def _is_whole(sort: type) -> bool:
    return issubclass(sort, _WHOLE) and not issubclass(sort, _NOT_WHOLE)


def _structs_may_lose(present: list[Any], kind: pa.DataType) -> bool:
    if set(map(type, present)) - {dict}:
        return True
    names = {field.name for field in kind}
    if not all(value.keys() <= names for value in present):
        return True
    return any(_may_lose([value.get(field.name) for value in present], field.type) for field in kind)


def _times_may_lose(present: list[Any], kind: pa.DataType) -> bool:
    found = set(map(type, present))
    if found <= {dt.date} and pt.is_date(kind):
        return False
    unit = 1 if pt.is_date(kind) else _MICROSECONDS[kind.unit]
    if found <= {dt.timedelta} and pt.is_duration(kind):
        return unit > 1 and any(value.microseconds % unit for value in present)
    if not (found <= {dt.datetime} and pt.is_timestamp(kind)) and not (found <= {dt.time} and pt.is_time(kind)):
        return True
    zoned = pt.is_timestamp(kind) and kind.tz is not None
    if any((value.tzinfo is None) is zoned for value in present):
        return True
    return unit > 1 and any(value.microsecond % unit for value in present)


def _lists_may_lose(lists: list[Any], kind: pa.DataType) -> bool:
    found = set(map(type, lists))
    if any(issubclass(sort, str | bytes | bytearray) for sort in found):
        return True
    if np.ndarray in found:
        checked = "f" if pt.is_floating(kind) else "iu" if pt.is_integer(kind) else "?"
        return found != {np.ndarray} or not all(a.ndim == 1 and a.dtype.kind in checked for a in lists)
    if not found <= {list, tuple}:
        return True
    if pt.is_boolean(kind):
        return False
    if pt.is_float32(kind) or pt.is_float64(kind):  # checking each number would take as long as converting it
        return any(value and type(value[0]) in _TRUTHS for value in lists)
    try:
        return _may_lose(itertools.chain.from_iterable(lists), kind)
    except TypeError:  # not a list: pyarrow reports that
        return False


def _fault(value: Any, kind: pa.DataType) -> str:
    """Describe what a value would lose by conversion. Return "" if it would lose nothing, or if pyarrow rejects it."""
    if isinstance(kind, pa.BaseExtensionType):
        return _fault(value, kind.storage_type)
    if pt.is_dictionary(kind):
        return _fault(value, kind.value_type)
    for is_kind, find in _FAULTS:
        if is_kind(kind):
            return "" if value is None else find(value, kind)
    return ""


def _integer_fault(value: Any, _kind: pa.DataType) -> str:
    value = _plain(value)
    # `int` also accepts addresses and UUIDs, and truncates floats and decimals.
    if isinstance(value, _TRUTHS):
        return _TRUTH
    whole = _is_whole(type(value)) or (not isinstance(value, (str, bytes, *_NOT_WHOLE)) and bool(int(value) == value))
    return "" if whole else f"{value!r} is not a whole number"


def _text_fault(value: Any, _kind: pa.DataType) -> str:
    return f"{_plain(value)!r} is bytes, not text: decode() it" if isinstance(_plain(value), _BYTES) else ""


def _binary_fault(value: Any, _kind: pa.DataType) -> str:
    return f"{_plain(value)!r} is text, not bytes: encode() it" if isinstance(_plain(value), str) else ""


def _decimal_fault(value: Any, _kind: pa.DataType) -> str:
    value = _plain(value)
    if isinstance(value, float | np.floating):
        return f"{value!r} is a float, which a decimal would round: return decimal.Decimal(...)"
    return _TRUTH if isinstance(value, _TRUTHS) else ""


def _plain(value: Any) -> Any:
    """Convert a pyarrow scalar to a Python value. Return other values unchanged."""
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _float_fault(value: Any, kind: pa.DataType) -> str:
    if isinstance(_plain(value), _TRUTHS):
        return _TRUTH
    if isinstance(_plain(value), decimal.Decimal):
        return f"{value} is a decimal, which a float would round: return float(...)"
    if not isinstance(value, float | int | np.floating | np.integer):
        return ""
    narrow = kind.to_pandas_dtype()
    try:
        with np.errstate(over="ignore"):
            made = narrow(value)
    except OverflowError:
        return f"{value} is too large for {kind}"
    if np.isinf(made) and not np.isinf(float(value)):
        return f"{value} is too large for {kind}"
    if isinstance(value, int | np.integer) and int(made) != value:
        return f"{value} cannot be held by {kind}: it would become {made}"
    return ""


def _list_fault(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str | bytes | bytearray):
        return f"a {type(value).__name__} is not a list"
    try:
        items = value.tolist() if isinstance(value, np.ndarray) else list(value)
    except TypeError:
        return ""
    return next(filter(None, (_fault(item, kind.value_type) for item in items)), "")


def _struct_fault(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str | bytes):
        return f"a {type(value).__name__} is not a struct"
    fields = {field.name: field.type for field in kind}
    if isinstance(value, tuple):  # a tuple has the fields in order
        value = dict(zip(fields, value, strict=True))
    elif isinstance(value, list):
        value = dict(value)
    elif not isinstance(value, Mapping):
        return ""
    unknown = [str(name) for name in value if name not in fields]
    if unknown:
        return f"the type has no field {', '.join(unknown)}"
    faults = ((name, _fault(inner, fields[name])) for name, inner in value.items())
    return next((f"{name}: {fault}" for name, fault in faults if fault), "")


def _temporal_fault(value: Any, kind: pa.DataType) -> str:
    value = _plain(value)
    if not isinstance(value, _TIMES):
        return f"{value!r} is not a date or time: pyarrow would count units of {kind} from 1970 on"
    if isinstance(value, np.timedelta64) and not pt.is_duration(kind):
        return f"{value!r} is a duration, not {kind}"
    if pt.is_date(kind):
        timed = isinstance(value, dt.datetime) and (value.time() != dt.time() or value.tzinfo is not None)
        return f"{value} has a time of day, which {kind} does not hold" if timed else ""
    if pt.is_timestamp(kind) and isinstance(value, dt.date | np.datetime64):
        zone = getattr(value, "tzinfo", None)
        if kind.tz is None and zone is not None:
            return f"{value} has a time zone, {kind} has none: return the time without it, or give a data_type with tz="
        if kind.tz is not None and zone is None:
            return f"{value} has no time zone, {kind} has one: return a time with a time zone"
    if pt.is_time(kind) and isinstance(value, dt.time) and value.tzinfo is not None:
        return f"{value} has a time zone, {kind} has none"
    if not isinstance(value, dt.datetime | dt.time | dt.timedelta):
        return ""
    fine = value.microseconds if isinstance(value, dt.timedelta) else value.microsecond
    nanoseconds = getattr(value, "nanosecond", getattr(value, "nanoseconds", 0))
    lost = fine % _MICROSECONDS[kind.unit] or (nanoseconds and kind.unit != "ns")
    return f"{value} is finer than the unit of {kind}" if lost else ""


def _map_fault(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str | bytes):
        return f"a {type(value).__name__} is not a map"
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    faults = (_fault(k, kind.key_type) or _fault(v, kind.item_type) for k, v in pairs)
    return next(filter(None, faults), "")


_FAULTS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], str]]] = [
    (pt.is_integer, _integer_fault),
    (pt.is_floating, _float_fault),
    (pt.is_decimal, _decimal_fault),
    (is_text, _text_fault),
    (is_binary, _binary_fault),
    *((is_kind, _temporal_fault) for is_kind in _TEMPORAL),
    *((is_list, _list_fault) for is_list in LISTS),
    (pt.is_struct, _struct_fault),
    (pt.is_map, _map_fault),
]


def _items(lists: pa.Array) -> pa.Array:
    """Return the values in lists, except NULL lists. pyarrow cannot do this if structs contain extension types."""
    return (lists.drop_null() if lists.null_count else lists).flatten()
