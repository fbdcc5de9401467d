"""What callers put into fields by mistake or on purpose, by the kind of field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

#: Stands in a string for bytes that are no UTF-8; they take its place once the message is bytes.
NOT_UTF8 = "not-utf8-here"
NOT_UTF8_BYTES = b"\xff\xfe\xc0\xaf\xed\xa0\x80\xf5" + b"-here"
#: None of them names a place outside of the test's own in which something could be made.
STRINGS = {
    "empty": "",
    "blank": " ",
    "nul": "a\0b",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7fb",
    "c1": "a\x9b2Jb",
    "not utf8": NOT_UTF8,
    "huge": "x" * 100_000,
    "up": "../../../etc/passwd",
    "a device": "/dev/null",
    "below a device": "/dev/null/lake",
    "file uri": "file:///dev/null",
    "a store that is none": "ftp://127.0.0.1:1/x",
    "slashes": "a/b\\c",
    "dot": ".",
    "own folder": "_leman",
    "invisible": "a\u200bb\u3164",
    "unicode": "\u202eе́\U0001f600\ufffd\u2028",
    "sql": "'; DROP TABLE docs; --",
    "formats": "%s%n${7*7}{{7*7}}$(id)`id`",
    "line ends": "x\r\nX-Evil: 1\n",
    "expression without end": "n + (",
    "deep expression": "(" * 3_000 + "n" + ")" * 3_000,
    "long expression": "n" + " + n" * 3_000,
    "number": "1e999",
    "pattern": "(a+)+$",
}
_INTEGERS = (-1, 0, 1)
_BYTES = {"empty": b"", "zeros": bytes(10), "ones": b"\xff" * 1_000, "megabyte": b"\x10\x00\x00\x00" * 262_144}
_FLOATS = {"negative": -1.0, "nan": math.nan, "infinite": math.inf, "huge": 1e308, "zero": 0.0}
_TIMES = {"before all": (-(10**14), 0), "after all": (10**14, 0), "negative": (-1, 0), "bad nanos": (1, 2 * 10**9)}
_MASKS: dict[str, list[str]] = {
    "unknown": ["nope"],
    "empty path": [""],
    "star": ["*"],
    "many": ["labels"] * 1_000,
    "deep": [".".join(["a"] * 500)],
}
_MAPS = {
    "empty key": {"": ""},
    "huge": {"k" * 10_000: "v" * 10_000},
    "many": {str(n): "v" for n in range(2_000)},
    "controls": {"a\0b": "\r\n", "\u202e": "\ufffd"},
}
_MANY = 2_000


def values_of(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    """(what it is, the value): a scalar, a list for a repeated field, a dict for a map."""
    if _is_map(field):
        yield from _MAPS.items()
    elif field.is_repeated:
        yield from _lists_of(field)
    elif field.message_type is None:
        yield from _scalars_of(field)
    elif field.message_type.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        yield from _TIMES.items()
    elif field.message_type.full_name == "google.protobuf.FieldMask":
        yield from _MASKS.items()


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _lists_of(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    """Lists of messages hold as many empty ones as the value says."""
    if field.message_type is not None:
        yield from {"none": 0, "one empty": 1, "many empty": _MANY}.items()
        return
    yield "none", []
    for name, value in _scalars_of(field):
        yield f"of {name}", [value]
    some = next(value for name, value in _scalars_of(field) if name != "empty")
    yield "many", [some] * _MANY


def _scalars_of(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        yield from (_BYTES if field.type == FieldDescriptor.TYPE_BYTES else STRINGS).items()
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        yield from {"true": True, "false": False}.items()
    elif kind == FieldDescriptor.CPPTYPE_ENUM:
        yield from {"not given": 0, "unknown": 999, "negative": -1}.items()
    elif kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        yield from _FLOATS.items()
    else:
        bits = 63 if kind == FieldDescriptor.CPPTYPE_INT64 else 31
        yield from ((str(n), n) for n in (*_INTEGERS, 2**bits - 1, -(2**bits)))


#: What JSON can have where something else belongs.
JSON_VALUES: dict[str, Any] = {
    "null": None,
    "object": {"x": 1},
    "list": [1, [2]],
    "string": "x",
    "true": True,
    "fraction": 1.5,
    "huge number": 10**400,
    "deep": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],
}
