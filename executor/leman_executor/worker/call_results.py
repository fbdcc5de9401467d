"""Copy or convert a function's results before its next call.

A function may reuse one buffer, list or dict for the results of all its calls. A result must keep its value until it is
stored, so it is copied or converted at once unless it is immutable. Imports neither gRPC nor Spark.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman._format.value_casts import holds_type, without_extensions
from leman_core.functions import arrow_values
from leman_executor.worker import value_conversion as conversion
from leman_executor.worker.value_conversion import LASTING, Converter

#: Containers that are copied first and converted later, because that is cheaper.
_COPIED = frozenset({list, tuple, dict, np.ndarray})
#: The kinds of numpy dtypes that hold numbers.
_NUMBERS = "biuf"
#: Types whose arrays still share memory after they are concatenated.
_SHARED = (pt.is_dictionary, pt.is_string_view, pt.is_binary_view)


class WrongResult(TypeError):
    """The result of a batch function is not a sequence of values. Retries with fewer rows would not help."""


class Converted:
    """The result of one row: an array with one value, or the error that its conversion raised."""

    __slots__ = ("error", "name", "shown", "values")

    def __init__(self, value: Any, convert: Converter, show: Callable[[object], str]) -> None:
        self.values: pa.Array | None = None
        self.error: Exception | None = None
        self.shown, self.name = "", type(value).__name__
        try:
            self.values = convert([value])
        except Exception as error:  # noqa: BLE001 converting an object calls its methods
            self.shown = show(value)
            self.error = ValueError(conversion.refusal(value, convert.kind, error))


def keep_result(value: Any, convert: Converter, show: Callable[[object], str]) -> Any:
    """Return the result of one row in a form that later calls of the function cannot change.

    Args:
        value: The function's result. Do not call this for values of `LASTING` types, which are immutable.
        convert: Makes arrays of the column's type.
        show: Formats a value for an error message.
    """
    sort = type(value)
    if sort is list and convert.is_flat:
        return value[:]
    if sort not in _COPIED:
        return Converted(value, convert, show)
    try:
        return _copied(value)
    except (_Unknown, RecursionError):
        return Converted(value, convert, show)


class _Unknown(Exception):
    """A value whose type is not one of Python's own containers."""


def _copied(value: Any) -> Any:
    sort = type(value)
    if sort is list or sort is tuple:
        if LASTING.issuperset(map(type, value)):
            return value[:]
        return sort([item if type(item) in LASTING else _copied(item) for item in value])
    if sort is dict:
        if LASTING.issuperset(map(type, value.values())):
            return value.copy()
        return {name: item if type(item) in LASTING else _copied(item) for name, item in value.items()}
    if sort is np.ndarray and value.ndim == 1 and value.dtype.kind in _NUMBERS:
        return value.copy()
    raise _Unknown


def batch_values(result: Any, convert: Converter) -> pa.Array:
    """Return the result of a batch function as an array with its own memory, not yet cast to the column's type.

    The array has the type of a numpy, pandas or Arrow result. A sequence of Python values has no type of its own.

    Raises:
        WrongResult: The result is not a sequence of values.
        Exception: One of CONVERSION_ERRORS, for values that the type cannot hold.
    """
    if isinstance(result, pa.RecordBatch | pa.Table) and result.num_columns == 1:
        result = result.column(0)
    if _is_foreign_column(result):
        result = pa.chunked_array(result)
    if isinstance(result, pa.ChunkedArray):
        result = arrow_values.concatenate(result.chunks or [pa.nulls(0, result.type)])
    if not isinstance(result, pa.Array):
        return _from_python(result, convert)
    result.validate(full=True)  # invalid UTF-8 or offsets would damage the table
    return own_values(result)


def own_values(values: pa.Array) -> pa.Array:
    """Copy values into memory that nothing else refers to."""
    if any(holds_type(without_extensions(values.type), is_kind) for is_kind in _SHARED):
        sent = pa.record_batch([values], schema=pa.schema([pa.field("v", values.type)]))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, sent.schema) as stream:
            stream.write_batch(sent)
        with pa.ipc.open_stream(sink.getvalue()) as received:
            return received.read_next_batch().column(0)
    return pa.concat_arrays([values, values.slice(0, 0)])


def own_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Copy rows into memory that nothing else refers to, because a function may change its arguments in place."""
    return pa.RecordBatch.from_arrays([own_values(column) for column in rows.columns], schema=rows.schema)


def _from_python(result: Any, convert: Converter) -> pa.Array:
    if _is_foreign_array(result):
        result = np.asarray(result)
    if getattr(result, "ndim", 0) == 1 and getattr(getattr(result, "dtype", None), "kind", "") in "biufMm":
        made = pa.array(result)
        made = arrow_values.concatenate(made.chunks) if isinstance(made, pa.ChunkedArray) else made
        return own_values(made)
    if _is_frame(result):
        what = f"{result.num_columns} columns" if isinstance(result, pa.RecordBatch | pa.Table) else _described(result)
        raise WrongResult(f"it returned {what}, not one value for each row: return one of its columns")
    if isinstance(result, abc.Set):
        raise WrongResult(f"it returned {_described(result)}, whose values have no order: return a list")
    if result is None or isinstance(result, str | bytes | bytearray | abc.Mapping):
        raise WrongResult(f"it returned {_described(result)}, not one value for each row")
    try:
        values = iter(result)
    except TypeError:
        raise WrongResult(f"it returned {_described(result)}, not one value for each row") from None
    if isinstance(result, list | tuple):
        return convert(result)
    # An iterator may yield the same object repeatedly, with changed content.
    kept = [value if type(value) in LASTING else keep_result(value, convert, _described) for value in values]
    return joined(kept, convert)


def joined(kept: list[Any], convert: Converter, *, are_plain: bool = False) -> pa.Array:
    """Return the results of many rows as one array.

    Args:
        kept: Values of `LASTING` types, and results of `keep_result`.
        convert: Makes arrays of the column's type.
        are_plain: Whether all values are of `convert.plain_types`.

    Raises:
        Exception: One of CONVERSION_ERRORS, for a value that the type cannot hold.
    """
    if are_plain or Converted not in set(map(type, kept)):
        return convert(kept, are_plain=are_plain)
    parts, plain = [], []
    for value in kept:
        if type(value) is not Converted:
            plain.append(value)
            continue
        if value.values is None:
            raise value.error or ValueError(value.shown)
        if plain:
            parts.append(convert(plain))
            plain = []
        parts.append(value.values)
    if plain or not parts:
        parts.append(convert(plain))
    return arrow_values.concatenate(parts)


def _is_frame(result: Any) -> bool:
    """Return whether a result has columns: a pandas or polars frame, or an Arrow table or batch."""
    return hasattr(result, "columns") and not isinstance(result, np.ndarray)


def _is_foreign_column(result: Any) -> bool:
    """Return whether a result is a column of a library, other than pandas, that exports Arrow."""
    if isinstance(result, pa.ChunkedArray) or hasattr(result, "iloc") or _is_frame(result):
        return False
    return hasattr(result, "__arrow_c_stream__")


def _is_foreign_array(result: Any) -> bool:
    """Return whether a result is an array that numpy can read, such as one of xarray or torch."""
    if isinstance(result, np.ndarray) or _is_frame(result) or not hasattr(result, "__array__"):
        return False
    return not any(hasattr(result, name) for name in ("iloc", "array", "__arrow_array__"))  # these belong to pandas


def _described(result: object) -> str:
    return "None" if result is None else f"a {type(result).__name__}"
