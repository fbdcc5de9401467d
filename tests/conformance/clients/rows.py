"""Rows of cases: from YAML to Arrow, and what came back compared with what was expected."""

from __future__ import annotations

import base64
import datetime
import decimal
from typing import Any

import pyarrow as pa

_PARAMETERS = {
    "timestamp": lambda unit, zone=None: pa.timestamp(unit, zone),
    "time32": pa.time32,
    "time64": pa.time64,
    "duration": pa.duration,
    "decimal": lambda precision, scale: pa.decimal128(int(precision), int(scale)),
    "fixed_binary": lambda size: pa.binary(int(size)),
}
#: How texts of YAML become values, by type.
_READ = (
    (pa.types.is_decimal, decimal.Decimal),
    (pa.types.is_binary, bytes.fromhex),
    (pa.types.is_fixed_size_binary, bytes.fromhex),
    (pa.types.is_timestamp, datetime.datetime.fromisoformat),
    (pa.types.is_date, datetime.date.fromisoformat),
    (pa.types.is_time, datetime.time.fromisoformat),
    (pa.types.is_floating, float),
)


def type_of(text: Any) -> pa.DataType:
    """An Arrow type: `int64`, `timestamp us UTC`, `decimal 20 3`, `[int64]` a list, `{a: int64}` a struct, a list with
    a number in front (`[3, float32]`) one of that size."""
    if isinstance(text, list):
        return pa.list_(type_of(text[-1]), int(text[0])) if len(text) == 2 else pa.list_(type_of(text[0]))
    if isinstance(text, dict):
        return pa.struct([pa.field(name, type_of(inner)) for name, inner in text.items()])
    name, *parameters = str(text).split()
    if name == "dictionary":
        return pa.dictionary(pa.int32(), pa.utf8())
    return _PARAMETERS[name](*parameters) if name in _PARAMETERS else pa.type_for_alias(name)


def table_of(described: dict[str, Any]) -> pa.Table:
    """Rows as a case describes them: `columns`, names and types; `rows`, a list of rows; or `count`, a number of rows,
    with the number of the row in each column (as text where that is its type)."""
    fields = [pa.field(name, type_of(text)) for name, text in described["columns"].items()]
    if "count" in described:
        numbers = pa.array(range(described.get("first", 0), described.get("first", 0) + described["count"]), pa.int64())
        return pa.table([numbers.cast(field.type) for field in fields], pa.schema(fields))
    values = zip(*described["rows"], strict=True) if described["rows"] else [()] * len(fields)
    arrays = [
        pa.array([_value(field.type, value) for value in column], field.type)
        for field, column in zip(fields, values, strict=True)
    ]
    return pa.table(arrays, pa.schema(fields))


def _value(kind: pa.DataType, value: Any) -> Any:
    """A value of YAML as pyarrow takes it: times are texts there, bytes hexadecimal ones."""
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(kind.value_type, inner) for inner in value]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, value.get(field.name)) for field in kind}
    read = next((read for fits, read in _READ if fits(kind)), None)
    return value if read is None else read(str(value))


def encoded(table: pa.Table) -> str:
    """An Arrow IPC stream in base64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def encoded_schema(table: pa.Table) -> str:
    """Its schema as an IPC message, in base64."""
    return base64.b64encode(table.schema.serialize().to_pybytes()).decode()


def decoded(text: str) -> pa.Table:
    """What a runner read."""
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()


def difference(found: pa.Table, expected: pa.Table) -> str:
    """What is not as expected; empty: nothing. Types have to be the same; batches, metadata and dictionaries need
    not."""
    if found.column_names != expected.column_names:
        return f"columns {found.column_names}, not {expected.column_names}"
    for name in expected.column_names:
        got, wanted = _plain(found[name]), _plain(expected[name])
        if got.type != wanted.type:
            return f"column {name} has type {got.type}, not {wanted.type}"
        if not got.equals(wanted) and got.to_pylist() != wanted.to_pylist():
            pairs = zip(got.to_pylist(), wanted.to_pylist(), strict=False)
            first = next((f"row {i}: {a!r}, not {b!r}" for i, (a, b) in enumerate(pairs) if a != b), "")
            return f"column {name}: {len(got)} rows for {len(wanted)}; {first}"
    return ""


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
