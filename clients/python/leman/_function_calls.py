"""A function as a server calls it: with a batch, whichever kind it is."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import traceback
from collections import abc
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from leman._signature import Kind
from leman._types import type_of
from leman._udf import UDF
from leman.errors import UdfDefinitionError

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_PLAIN = frozenset({"builtins", "__main__"})
#: Types whose values nothing can change.
_LASTING = (type(None), bool, int, float, str, bytes, decimal.Decimal, dt.date, dt.time, dt.timedelta)
_MOST_TEXT = 16_384


class Served:
    """A function with the types that it reads, ready to be called. Made by `served`."""

    def __init__(self, udf: UDF, inputs: pa.Schema, description: str) -> None:
        self.name = udf.name
        self.version = udf.version
        self.inputs = inputs
        self.output = udf.data_type
        self._description = description
        self._kind = udf._signature.kind
        loaded: Any = udf.func
        self._function: Callable[..., Any] = loaded() if udf.stateful else loaded

    def described(self) -> bytes:
        """What the action `describe` answers of it, as JSON."""
        output = pa.schema([pa.field("value", self.output)])
        told = {
            "function": self.name,
            "version": self.version,
            "inputs": base64.b64encode(self.inputs.serialize()).decode(),
            "output": base64.b64encode(output.serialize()).decode(),
        }
        return json.dumps({**told, "description": self._description} if self._description else told).encode()

    def call(self, batch: pa.RecordBatch) -> pa.Array:
        """The values for a batch whose columns are those of `inputs`. Raises whatever the function raises, and
        ValueError or TypeError where its result is not one value of the declared type for each row."""
        if not batch.num_rows:
            return pa.array([], self.output)
        if self._kind is Kind.SCALAR:
            columns = [column.to_pylist() for column in batch.columns]
            return self._values(self._row_by_row(zip(*columns, strict=True)), batch.num_rows)
        if self._kind is Kind.ARRAY:
            return self._values(self._function(*batch.columns), batch.num_rows)
        named = pa.RecordBatch.from_arrays(batch.columns, names=self.inputs.names)
        return self._values(self._function(named), batch.num_rows)

    def _row_by_row(self, rows: Iterable[tuple[Any, ...]]) -> pa.Array:
        return _one_by_one((self._function(*row) for row in rows), self.output)

    def _values(self, result: Any, rows: int) -> pa.Array:
        if isinstance(result, pa.RecordBatch | pa.Table) and result.num_columns == 1:
            result = result.column(0)
        if hasattr(result, "__arrow_c_stream__") and not hasattr(result, "iloc") and not _is_frame(result):
            result = pa.chunked_array(result)
        if isinstance(result, pa.ChunkedArray):
            result = pa.concat_arrays(result.chunks) if result.chunks else pa.array([], result.type)
        if not isinstance(result, pa.Array):
            result = self._from_python(result)
        elif result.type != self.output:
            result = result.cast(self.output)
        if len(result) != rows:
            raise ValueError(f"function '{self.name}' returned {len(result)} values for {rows} rows")
        return pa.concat_arrays([result, result.slice(0, 0)])  # the function may write to its own memory meanwhile

    def _from_python(self, result: Any) -> pa.Array:
        """The values of a batch by their position. Raises TypeError where the result has none for each row."""
        what = "None" if result is None else f"a {type(result).__name__}"
        if _is_frame(result):
            raise TypeError(f"function '{self.name}' returned {what}, which has columns: return one of its columns")
        if isinstance(result, abc.Set):
            raise TypeError(f"function '{self.name}' returned {what}, whose values have no order: return a list")
        if isinstance(result, str | bytes | bytearray | abc.Mapping) or not hasattr(result, "__iter__"):
            raise TypeError(f"function '{self.name}' returned {what}, not one value for each row")
        if getattr(result, "ndim", 0) == 1 and getattr(getattr(result, "dtype", None), "kind", "") in "biufMm":
            return _array(result, self.output)
        if isinstance(result, list | tuple):
            return _array([_in_order(value, self.output) for value in result], self.output)
        return _one_by_one(iter(result), self.output)


def _one_by_one(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array. The next one may be the same object, with other content: such values are converted before."""
    results = [value if isinstance(value, _LASTING) else _array([_in_order(value, kind)], kind) for value in values]
    if not any(isinstance(value, pa.Array) for value in results):
        return _array(results, kind)
    arrays = [value if isinstance(value, pa.Array) else _array([value], kind) for value in results]
    return pa.concat_arrays(arrays)


def _is_frame(result: Any) -> bool:
    return hasattr(result, "columns") and type(result).__module__.partition(".")[0] != "numpy"


def _in_order(value: Any, kind: pa.DataType) -> Any:
    """A value whose lists are Python's own: pyarrow takes the items of a pandas Series by their labels, those of a set
    in any order, and of a frame the names of its columns. Raises TypeError for the latter two."""
    if value is None or isinstance(value, pa.Scalar):
        return value
    if pa.types.is_struct(kind) and isinstance(value, abc.Mapping):
        types = {field.name: field.type for field in kind}
        return {name: _in_order(item, types[name]) if name in types else item for name, item in value.items()}
    is_list = pa.types.is_nested(kind) and hasattr(kind, "value_type")
    if not is_list or isinstance(value, str | bytes | bytearray):
        return value
    if isinstance(value, list | tuple) and not pa.types.is_nested(kind.value_type):
        return value
    what = type(value).__name__
    if isinstance(value, abc.Set | abc.Mapping):
        raise TypeError(f"a {what} is no list, as its items have no order: return a list")
    if _is_frame(value):
        raise TypeError(f"a {what} is no list, as it has columns: return one of its columns")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = value.to_pylist()
    if getattr(value, "ndim", 0) == 1 and type(value).__module__.partition(".")[0] == "numpy":
        return value.tolist() if type(value).__name__ == "MaskedArray" else value
    return [_in_order(item, kind.value_type) for item in value] if hasattr(value, "__iter__") else value


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Python values as an array; pyarrow by itself takes 1.5 for an integer as 1."""
    made = pa.array(values).cast(kind) if pa.types.is_integer(kind) else pa.array(values, kind)
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        _check_finite(values, made)
    return made


def _check_finite(values: Any, made: pa.Array) -> None:
    """Raise ValueError where a number became infinite, as it is too large for its type."""
    for value, number in zip(values, made.cast(pa.float64()).to_pylist(), strict=True):
        if number is not None and math.isinf(number) and not math.isinf(float(value)):
            raise ValueError(f"{value} is too large for {made.type}")


def served(udf: UDF, *, input_types: Sequence[pa.DataType] | None = None, description: str = "") -> Served:
    """A function for a server.

    `input_types`: one for each of its `input_columns`; needed where its annotations are not definite, such as
    `pa.RecordBatch`. `description`: what the function does, for those who look for one.

    Raises UdfDefinitionError.
    """
    if not isinstance(udf, UDF):
        raise UdfDefinitionError(
            f"functions of a server are made by leman.udf, or by leman.functions.served: {_called(udf)} is"
            " not, decorate it with @leman.udf"
        )
    if udf.blob:
        raise UdfDefinitionError(f"UDF '{udf.name}' gives blobs, which a remote function cannot")
    types = list(input_types) if input_types is not None else _declared(udf)
    if len(types) != len(udf.input_columns) or not all(isinstance(each, pa.DataType) for each in types):
        raise UdfDefinitionError(f"UDF '{udf.name}': input_types are Arrow types, one for each of {udf.input_columns}")
    return Served(udf, pa.schema(list(zip(udf.input_columns, types, strict=True))), description)


def _called(given: object) -> str:
    name = getattr(given, "__name__", None)
    return f"'{name}'" if isinstance(name, str) else f"a {type(given).__name__}"


def _declared(udf: UDF) -> list[pa.DataType]:
    signature = udf._signature
    if signature.kind is Kind.ARRAY:
        types: list[pa.DataType | None] = list(signature.input_types)
    else:
        types = [type_of(annotation) for annotation in signature.input_values] or [None]
    if None in types:
        raise UdfDefinitionError(
            f"UDF '{udf.name}' does not say which Arrow types it reads: served(..., input_types=[...])"
        )
    return [type_ for type_ in types if type_ is not None]


def error_metadata(error: BaseException) -> bytes:
    """What a caller is told of a batch for which the function raised, as JSON."""
    kind = type(error)
    bases = [_name(base) for base in kind.__mro__[1:] if base not in (object, BaseException, Exception)]
    trace = "".join(traceback.format_exception(kind, error, error.__traceback__))
    told = {"type": _name(kind), "bases": bases, "message": _text(error), "traceback": trace[-_MOST_TEXT:]}
    return json.dumps({"error": told}).encode()


def _name(kind: type[BaseException]) -> str:
    return kind.__name__ if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except Exception:  # noqa: BLE001 its class may be anybody's
        return f"<no message: {type(error).__name__}.__str__ raised>"
