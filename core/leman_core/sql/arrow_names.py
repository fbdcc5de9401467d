"""Names of Arrow types as `arrow_cast` in SQL has them: `Timestamp(Microsecond, None)`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_PLAIN = {
    **{
        pa.type_for_alias(f"{sign}int{bits}"): f"{sign.upper()}Int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    pa.float16(): "Float16",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.string_view(): "Utf8View",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.binary_view(): "BinaryView",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}


def rust_name(kind: pa.DataType) -> str:
    """Return the name of a type of numbers, text, bytes, dates or times."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pt.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"Timestamp({UNITS[kind.unit]}, {zone})"
    name = "Duration" if pt.is_duration(kind) else "Time32" if pt.is_time32(kind) else "Time64"
    return f"{name}({UNITS[kind.unit]})"
