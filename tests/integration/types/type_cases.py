"""One case for each Arrow type: its name in docs/types.md, the type, and values with NULLs in them."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

_MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15)
_S = pa.struct([("a", pa.int32()), ("b", pa.string())])
_NESTED = pa.list_(pa.struct([("a", pa.int32()), ("tags", pa.list_(pa.string()))]))


@dataclass(frozen=True)
class Case:
    """`array`: the values where pyarrow does not make them from Python ones. `since`: the oldest file format that holds
    the type."""

    kind: pa.DataType
    values: tuple[Any, ...] = ()
    array: pa.Array | None = None
    since: tuple[int, int] = (2, 0)
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or str(self.kind)

    def make(self) -> pa.Array:
        return self.array if self.array is not None else pa.array(self.values, self.kind)


def _numbers() -> list[Case]:
    cases = []
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        low = -(1 << (kind.bit_width - 1))
        cases.append(Case(kind, (0, None, low, -low - 1, 7)))
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        cases.append(Case(kind, (0, None, (1 << kind.bit_width) - 1, 7, None)))
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        cases.append(Case(kind, (0.5, None, -2.0, float("inf"), 65504.0)))
    cases.append(
        Case(pa.decimal128(38, 4), (Decimal("1.2500"), None, Decimal("-99999999999999.9999"), Decimal(0), None))
    )
    cases.append(Case(pa.decimal256(76, 2), (Decimal("1.25"), None, Decimal(10) ** 60, Decimal(0), None)))
    return cases


def _times() -> list[Case]:
    cases = [
        Case(pa.date32(), (dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), None)),
        Case(pa.date64(), (dt.date(2024, 2, 29), None, dt.date(1970, 1, 1), dt.date(1969, 12, 31), None)),
    ]
    for unit in ("s", "ms", "us", "ns"):
        time = (pa.time32 if unit in ("s", "ms") else pa.time64)(unit)
        cases.append(Case(time, (dt.time(1, 2, 3), None, dt.time(0), dt.time(23, 59, 59), None)))
        cases.append(
            Case(pa.duration(unit), (dt.timedelta(days=1), None, dt.timedelta(0), -dt.timedelta(hours=1), None))
        )
        cases.append(Case(pa.timestamp(unit), (_MOMENT, None, dt.datetime(1969, 12, 31), _MOMENT, None)))
        for zone in ("UTC", "Europe/Zurich", "+02:00"):
            cases.append(Case(pa.timestamp(unit, zone), (_MOMENT.replace(tzinfo=dt.UTC), None, None, None, None)))
    return cases


def _text_and_bytes() -> list[Case]:
    cases = [
        Case(kind, ("a", None, "", "é", "x" * 1000)) for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    kinds = (pa.binary(), pa.large_binary(), pa.binary_view())
    cases += [Case(kind, (b"a", None, b"", b"\xff\0", b"x" * 1000)) for kind in kinds]
    return [
        Case(pa.bool_(), (True, None, False, True, None)),
        *cases,
        Case(pa.binary(3), (b"abc", None, b"\0\0\0", b"x" * 3, None)),
    ]


def _lists() -> list[Case]:
    floats = ([1.0, None], None, [], [2.5], None)
    pairs = ([1.0, 2.0], None, [3.0, None], [5.0, 6.0], None)
    deep = ([{"a": 1, "tags": ["x", None]}, None], None, [], [{"a": None, "tags": None}], [{"a": 2, "tags": []}])
    return [
        Case(pa.list_(pa.float32()), floats),
        Case(pa.large_list(pa.float32()), floats),
        Case(pa.list_(pa.int8()), ([1, None], None, [], [-128], None)),
        Case(pa.list_(pa.string()), (["a", None], None, [], [""], None)),
        Case(pa.list_(pa.list_(pa.int64())), ([[1], None, []], None, [], [[2, None]], None)),
        Case(pa.list_(pa.string_view()), (["a", None], None, [], [""], None)),
        Case(pa.list_(pa.float32(), 2), pairs),
        Case(pa.list_(pa.float16(), 2), pairs),
        Case(pa.list_(pa.bool_(), 2), ([True, None], None, [False, True], None, None)),
        Case(pa.list_(pa.list_(pa.float32(), 2), 2), ([[1.0, 2.0], [3.0, 4.0]], None, None, None, None)),
        Case(pa.list_(pa.list_(pa.float32(), 2)), ([[1.0, 2.0], None], None, [], None, None)),
        Case(_S, ({"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}, None), since=(2, 1)),
        Case(pa.struct([("s", _S)]), ({"s": {"a": 1, "b": "x"}}, None, {"s": None}, None, None), since=(2, 1)),
        Case(_NESTED, deep, since=(2, 1)),
        Case(pa.map_(pa.string(), pa.int32()), ([("a", 1)], None, [], [("b", None)], None), since=(2, 2)),
        Case(pa.map_(pa.string(), _S), ([("a", {"a": 1, "b": "x"})], None, [], [("b", None)], None), since=(2, 2)),
    ]


def _dictionaries() -> list[Case]:
    cases = []
    for index in (pa.int8(), pa.int32(), pa.uint16(), pa.int64()):
        cases.append(Case(pa.dictionary(index, pa.string()), ("a", None, "b", "a", None)))
    cases.append(Case(pa.dictionary(pa.int8(), pa.string(), ordered=True), ("a", None, "b", "a", None)))
    cases.append(Case(pa.dictionary(pa.int16(), pa.large_string()), ("a", None, "b", "a", None)))
    cases.append(Case(pa.dictionary(pa.int8(), pa.binary()), (b"a", None, b"b", b"a", None)))
    cases.append(Case(pa.dictionary(pa.int8(), pa.int64()), (1, None, 2, 1, None)))
    cases.append(Case(pa.dictionary(pa.int8(), pa.float64()), (1.5, None, 2.5, 1.5, None)))
    cases.append(Case(pa.list_(pa.dictionary(pa.int8(), pa.string())), (["a"], None, ["b", None], [], None)))
    struct = pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])
    cases.append(Case(struct, ({"d": "a"}, None, {"d": None}, {"d": "b"}, None), since=(2, 1)))
    return cases


def _extensions() -> list[Case]:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    ids = tuple(uuid.UUID(int=n) if n % 2 else None for n in (1, 2, 3, 4, 5))
    return [
        Case(pa.uuid(), ids),
        Case(pa.json_(), ('{"a":1}', None, "[1,2]", "null", '"x"')),
        Case(pa.bool8(), (1, None, 0, 1, None)),
        Case(
            tensor,
            ([1.0, 2.0, 3.0, 4.0], None, [0.0] * 4, None, None),
            name="fixed-shape tensor (arrow.fixed_shape_tensor)",
        ),
        Case(
            pa.opaque(pa.binary(), "thing", "maker"),
            array=pa.ExtensionArray.from_storage(
                pa.opaque(pa.binary(), "thing", "maker"), pa.array([b"a", None, b"", b"b", None])
            ),
        ),
    ]


CASES = [
    Case(pa.null(), (None,) * 5),
    *_numbers(),
    *_times(),
    *_text_and_bytes(),
    *_lists(),
    *_dictionaries(),
    *_extensions(),
]

_TS = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array([0], pa.timestamp("us")))
_DEC = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array([Decimal("1.00")], pa.decimal128(5, 2)))

_HALVES = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array([0.5], pa.float16()))
_PAIR = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]

#: Types that no table of the newest file format holds.
REFUSED = [
    Case(pa.decimal32(5, 2), (Decimal("1.25"), None)),
    Case(pa.decimal64(10, 2), (Decimal("1.25"), None)),
    Case(pa.month_day_nano_interval(), (pa.MonthDayNano([1, 2, 3]), None)),
    Case(pa.list_view(pa.float32()), ([1.0], None)),
    Case(pa.large_list_view(pa.float32()), ([1.0], None)),
    Case(pa.list_(pa.string(), 2), (["a", "b"], None)),
    Case(pa.list_(pa.list_(pa.int32()), 2), ([[1], [2]], None)),
    Case(pa.list_(pa.struct([("a", pa.list_(pa.int8()))]), 2), ([{"a": [1]}, {"a": None}], None)),
    Case(pa.list_(_S, 2), (_PAIR, None)),
    Case(pa.list_(pa.list_(_S, 2), 1), ([_PAIR], None)),
    Case(pa.list_(pa.list_(_S, 2)), ([_PAIR], None)),
    Case(pa.list_(pa.dictionary(pa.int8(), pa.string()), 2), (["a", "b"], None)),
    Case(pa.list_(pa.int32(), 0), ([], None)),
    Case(pa.struct([]), ({}, None)),
    Case(pa.map_(pa.string(), pa.int32(), keys_sorted=True), ([("a", 1)], None)),
    Case(pa.dictionary(pa.int8(), pa.binary(2)), (b"ab", None)),
    Case(_TS.type, array=_TS),
    Case(_DEC.type, array=_DEC),
    Case(_HALVES.type, array=_HALVES),
    Case(
        pa.run_end_encoded(pa.int32(), pa.int64()),
        array=pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([1, None])),
    ),
    Case(
        pa.sparse_union([pa.field("0", pa.int32())]),
        array=pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, None], pa.int32())]),
    ),
    Case(
        pa.dense_union([pa.field("0", pa.int32())]),
        array=pa.UnionArray.from_dense(
            pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, None], pa.int32())]
        ),
    ),
]
