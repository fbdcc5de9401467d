"""Annotations and Arrow types."""

from __future__ import annotations

import datetime
import functools
import inspect
import sys
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


@functools.cache
def _python_types() -> dict[Any, pa.DataType]:
    """The Arrow types of Python's."""
    return {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bytes: pa.binary(),
        datetime.datetime: pa.timestamp("us"),
        datetime.date: pa.date32(),
        datetime.time: pa.time64("us"),
        datetime.timedelta: pa.duration("us"),
    }


@functools.cache
def _array_types() -> dict[Any, pa.DataType]:
    """The types of Arrow's arrays."""
    return {
        pa.BooleanArray: pa.bool_(),
        pa.Int8Array: pa.int8(),
        pa.Int16Array: pa.int16(),
        pa.Int32Array: pa.int32(),
        pa.Int64Array: pa.int64(),
        pa.UInt8Array: pa.uint8(),
        pa.UInt16Array: pa.uint16(),
        pa.UInt32Array: pa.uint32(),
        pa.UInt64Array: pa.uint64(),
        pa.HalfFloatArray: pa.float16(),
        pa.FloatArray: pa.float32(),
        pa.DoubleArray: pa.float64(),
        pa.StringArray: pa.string(),
        pa.LargeStringArray: pa.large_string(),
        pa.StringViewArray: pa.string_view(),
        pa.BinaryArray: pa.binary(),
        pa.LargeBinaryArray: pa.large_binary(),
        pa.BinaryViewArray: pa.binary_view(),
        pa.Date32Array: pa.date32(),
        pa.Date64Array: pa.date64(),
        pa.NullArray: pa.null(),
    }


@functools.cache
def _families() -> dict[Any, tuple[Callable[[pa.DataType], bool], ...]]:
    """What else a value of a Python type may be stored as."""
    return {
        bool: (pa.types.is_boolean,),
        int: (pa.types.is_integer,),
        float: (pa.types.is_floating, pa.types.is_integer),
        str: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        bytes: (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        ),
        datetime.datetime: (pa.types.is_timestamp,),
        datetime.date: (pa.types.is_date,),
        datetime.time: (pa.types.is_time,),
        datetime.timedelta: (pa.types.is_duration,),
    }


def _is_list(type_: pa.DataType) -> bool:
    is_variable = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return bool(is_variable or pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


#: What is a class, for Python, and says nothing of values.
_SAYS_NOTHING = (inspect.Parameter.empty, object, Any)
BLOB_KEY = b"lance-encoding:blob"
_EXTENSION_KEY = b"ARROW:extension:name"
_BLOB_EXTENSION = "lance.blob.v2"


def is_blob(field: pa.Field) -> bool:
    """Whether a column's values are blobs, of either kind that Lance has."""
    metadata = field.metadata or {}
    name = metadata.get(_EXTENSION_KEY, b"").decode() or getattr(field.type, "extension_name", "")
    return name == _BLOB_EXTENSION or metadata.get(BLOB_KEY) == b"true"


def values_type(field: pa.Field) -> pa.DataType:
    """Type of a column's values as a function is given them: blobs are bytes."""
    return pa.large_binary() if is_blob(field) else field.type


def type_of(annotation: Any) -> pa.DataType | None:
    """The Arrow type for an annotation; None where it says nothing definite."""
    try:
        known = _python_types().get(annotation) or _array_types().get(annotation)
    except TypeError:  # not hashable
        return None
    known = known or _numpy_type(annotation)
    if known is not None:
        return known
    others = _without_none(annotation)
    if others is not annotation:
        return type_of(others)
    if _is_list_annotation(annotation):
        inner = type_of(typing.get_args(annotation)[0])
        return None if inner is None else pa.list_(inner)
    return None


def _numpy_type(annotation: Any) -> pa.DataType | None:
    """The Arrow type of numpy's numbers, truth values, texts and bytes. Nobody names these without numpy."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(annotation, type) or not issubclass(annotation, numpy.generic):
        return None
    try:
        kind = numpy.dtype(annotation).kind
        if kind in "US":
            return pa.string() if kind == "U" else pa.binary()
        return pa.from_numpy_dtype(annotation) if kind in "biuf" else None
    except (TypeError, pa.ArrowNotImplementedError):  # no definite type, or numbers of more than 64 bits
        return None


def accepts(annotation: Any, actual: pa.DataType) -> bool:
    """Whether a scalar function's annotation allows values of an Arrow type; True where it says nothing."""
    if pa.types.is_dictionary(actual):
        return accepts(annotation, actual.value_type)
    if isinstance(actual, pa.BaseExtensionType):
        return _accepts_extension(annotation, actual)
    annotation = _without_none(annotation)
    if pa.types.is_map(actual) and (annotation is list or _is_list_annotation(annotation)):
        return _accepts_pairs(annotation, actual)
    if _is_list_annotation(annotation):
        is_list = _is_list(actual)
        return is_list and accepts(typing.get_args(annotation)[0], actual.value_type)
    if annotation is list:
        return _is_list(actual)
    families = _families().get(annotation) if isinstance(annotation, type) else None
    return families is None or any(is_kind(actual) for is_kind in families)


def gives(annotation: Any, output: pa.DataType) -> bool:
    """Whether what a scalar function's annotation says that it returns fits an Arrow type; True where it says nothing.
    Whole numbers fit where others do."""
    if _without_none(annotation) is int and (pa.types.is_floating(output) or pa.types.is_decimal(output)):
        return True
    if isinstance(output, pa.UuidType):
        return _without_none(annotation) is bytes or accepts(annotation, output)
    return accepts(annotation, output)


def _accepts_extension(annotation: Any, actual: pa.BaseExtensionType) -> bool:
    """As `accepts`: JSON is given as text, a tensor as a list, others as their own Python type or that of their
    storage."""
    if isinstance(actual, pa.UuidType):
        annotation = _without_none(annotation)
        said = isinstance(annotation, type) and annotation not in _SAYS_NOTHING
        return not said or annotation is uuid.UUID
    if isinstance(actual, pa.Bool8Type):
        return accepts(annotation, pa.bool_())
    return accepts(annotation, actual.storage_type)


def _accepts_pairs(annotation: Any, actual: pa.MapType) -> bool:
    """As `accepts`: a map is given as a list of pairs."""
    pair = next(iter(typing.get_args(annotation)), Any)
    if typing.get_origin(pair) is not tuple:
        return pair is tuple or pair in _SAYS_NOTHING
    kinds = typing.get_args(pair)
    return len(kinds) == 2 and accepts(kinds[0], actual.key_type) and accepts(kinds[1], actual.item_type)


def _without_none(annotation: Any) -> Any:
    """`X` for `X | None`; anything else as it is."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    others = [argument for argument in typing.get_args(annotation) if argument is not types.NoneType]
    return others[0] if len(others) == 1 else annotation


def _is_list_annotation(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (list, Sequence) and len(typing.get_args(annotation)) == 1
