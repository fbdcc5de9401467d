"""What a function returns becomes the column's type, or is refused: nothing is cut off in silence."""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from leman_executor.worker.value_conversion import CONVERSION_ERRORS, cast, to_array

NAIVE = dt.datetime(2024, 2, 29, 12, 30, 15, 250_000)
ZONED = NAIVE.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
POINT = pa.struct([("a", pa.int8()), ("t", pa.timestamp("s"))])

REFUSED = [
    (300, pa.int8(), "300"),
    (-1, pa.uint16(), "negative"),
    (1 << 64, pa.uint64(), "too large"),
    (1.5, pa.int32(), "1.5 is not a whole number"),
    (np.float32(0.5), pa.int64(), "not a whole number"),
    (math.nan, pa.int64(), "NaN"),
    (Decimal("1.5"), pa.int64(), "not a whole number"),
    (Fraction(1, 3), pa.int8(), "not a whole number"),
    (uuid.UUID(int=5), pa.int64(), "not a whole number"),
    (ipaddress.ip_address("1.2.3.4"), pa.uint64(), "not a whole number"),
    ([Decimal("1.5")], pa.list_(pa.int64()), "not a whole number"),
    (1.5, pa.timestamp("s"), "not a date or time"),
    (5, pa.timestamp("us", "UTC"), "not a date or time"),
    (Decimal("1.5"), pa.duration("s"), "not a date or time"),
    (-1, pa.time32("s"), "not a date or time"),
    (5, pa.date64(), "not a date or time"),
    ([1], pa.list_(pa.date32()), "not a date or time"),
    (np.timedelta64(5, "D"), pa.date32(), "a duration"),
    ("", POINT, "str is not a struct"),
    (b"", pa.map_(pa.string(), pa.int8()), "bytes is not a map"),
    ([("z", 1)], POINT, "no field z"),
    ((1.5, None), POINT, "a: 1.5 is not a whole number"),
    (bytearray(b"ab"), pa.list_(pa.int32()), "bytearray is not a list"),
    ("1", pa.int64(), "'1'"),
    (True, pa.int64(), "bool"),
    (1, pa.bool_(), "1"),
    (1e300, pa.float32(), r"1e\+300 is too large for float"),
    (70_000.0, pa.float16(), "too large for halffloat"),
    ((1 << 53) + 1, pa.float64(), "9007199254740993"),
    (1, pa.string(), "int"),
    (b"\xff", pa.string(), "is bytes, not text: decode"),
    (b"ab", pa.binary(3), "length 3 was 2"),
    (1.5, pa.decimal128(5, 2), "float"),
    (Decimal("1.234"), pa.decimal128(5, 2), "data loss"),
    (NAIVE, pa.timestamp("us", "UTC"), "has no time zone"),
    (NAIVE, pa.timestamp("us", "Europe/Zurich"), "has no time zone"),
    (ZONED, pa.timestamp("us"), "has a time zone"),
    (NAIVE, pa.timestamp("s"), "finer than the unit"),
    (NAIVE.replace(microsecond=1), pa.timestamp("ms"), "finer than the unit"),
    (pd.Timestamp(5), pa.timestamp("us"), "finer than the unit"),
    (NAIVE, pa.date32(), "has a time of day"),
    (NAIVE, pa.date64(), "has a time of day"),
    (dt.time(1, 2, 3, 4), pa.time32("s"), "finer than the unit"),
    (dt.time(1, tzinfo=dt.UTC), pa.time64("us"), "has a time zone"),
    (dt.timedelta(milliseconds=1), pa.duration("s"), "finer than the unit"),
    ([1.0, 2.0, 3.0], pa.list_(pa.float32(), 2), "expected 2"),
    ("ab", pa.list_(pa.string()), "str is not a list"),
    ([1, 2.5], pa.list_(pa.int32()), "2.5 is not a whole number"),
    (np.array([1, 2.5]), pa.list_(pa.int32()), "2.5 is not a whole number"),
    ([[1e300]], pa.list_(pa.list_(pa.float32())), "too large for float"),
    ([NAIVE], pa.list_(pa.date32()), "has a time of day"),
    (3, pa.list_(pa.int32()), "3"),
    ({"a": 1, "z": 2}, POINT, "no field z"),
    ({"a": 1.5}, POINT, "a: 1.5 is not a whole number"),
    ({"t": NAIVE}, POINT, "t: .* finer than"),
    ({"a": 300}, POINT, "300"),
    ([("k", 1.5)], pa.map_(pa.string(), pa.int8()), "not a whole number"),
    ({"k": 1.5}, pa.map_(pa.string(), pa.int8()), "not a whole number"),
    (1.5, pa.dictionary(pa.int8(), pa.int64()), "not a whole number"),
    ({"a": 1}, pa.json_(), "dict"),
    ("{not json", pa.json_(), "property name"),
    ("", pa.json_(), "Expecting value"),
    ('{"a": NaN}', pa.json_(), "NaN is no JSON"),
    ('{"a": 1, "a": 2}', pa.json_(), "a key more than once: a"),
    ('{"id": 123456789012345678901}', pa.json_(), "the integer 123456789012345678901, of more than 64 bits"),
    ("1e400", pa.json_(), "the number 1e400, which no double holds"),
    ('"\\ud83d"', pa.json_(), "half of a surrogate pair"),
    (3.4028235677973366e38, pa.float32(), "too large for float"),
    (np.float64(3.4028235677973366e38), pa.float32(), "too large for float"),
    (65520.0, pa.float16(), "too large for halffloat"),
    (65520, pa.float16(), "too large for halffloat"),
    (np.int32(70000), pa.float16(), "too large for halffloat"),
    (2049, pa.float16(), "cannot be held by halffloat"),
    ([2049], pa.list_(pa.float16()), "cannot be held by halffloat"),
    (np.array([2**24 + 1]), pa.list_(pa.float32()), "cannot be held by float"),
    (2**24 + 1, pa.float32(), "16777217"),
    ([2**24 + 1], pa.list_(pa.float32()), "16777217"),
    (np.array([2**53 + 1]), pa.list_(pa.float64()), "cannot be held by double"),
    ([2**53 + 1], pa.list_(pa.float64(), 1), "9007199254740993"),
    ({"x": 2**53 + 1}, pa.struct([("x", pa.float64())]), "9007199254740993"),
    ({"x": [np.uint64(2**53 + 1)]}, pa.struct([("x", pa.list_(pa.float64()))]), "9007199254740993"),
    ([("k", 2**24 + 1)], pa.map_(pa.string(), pa.float32()), "16777217"),
    (np.array([65520.0]), pa.list_(pa.float16(), 1), "too large for halffloat"),
    ({"x": [3.4028235677973366e38]}, pa.struct([("x", pa.list_(pa.float32()))]), "too large for float"),
    ([("k", 65520.0)], pa.map_(pa.string(), pa.float16()), "too large for halffloat"),
    (Decimal("1.25"), pa.decimal128(5, 1), "data loss"),
    (np.bool_(True), pa.int8(), "a bool is not a number"),
    (np.datetime64(1500, "us"), pa.timestamp("ms"), "finer than the unit of timestamp"),
    (np.datetime64("2024-02-29T12"), pa.date32(), "finer than the unit of date32"),
    (np.datetime64("2500-01-01"), pa.timestamp("ns"), "beyond its range"),
    (np.datetime64("2024-02-29"), pa.timestamp("us", "UTC"), "has no time zone"),
    (np.timedelta64(1, "ns"), pa.duration("us"), "finer than the unit of duration"),
    (np.timedelta64(1, "M"), pa.duration("s"), "depends on the calendar"),
    ([np.datetime64(1, "us")], pa.list_(pa.timestamp("s")), "finer than the unit"),
    (b"short", pa.uuid(), "16"),
    ([1.0], pa.fixed_shape_tensor(pa.float32(), [2, 2]), "expected 4"),
]

TAKEN = [
    (2.0, pa.int32(), 2),
    (np.int64(7), pa.int8(), 7),
    (Decimal("3.0"), pa.int8(), 3),
    (np.array(7), pa.int8(), 7),
    (pa.scalar(7), pa.int64(), 7),
    (np.timedelta64(2, "s"), pa.duration("s"), dt.timedelta(seconds=2)),
    (pa.scalar(NAIVE), pa.timestamp("us"), NAIVE),
    ([("a", 1)], POINT, {"a": 1, "t": None}),
    ((1, None), POINT, {"a": 1, "t": None}),
    (1, pa.float64(), 1.0),
    (math.inf, pa.float32(), math.inf),
    (65504.0, pa.float16(), 65504.0),
    (3.4028234663852886e38, pa.float32(), 3.4028234663852886e38),
    (3, pa.decimal128(5, 2), Decimal("3.00")),
    (ZONED, pa.timestamp("us", "UTC"), ZONED),
    (ZONED, pa.timestamp("ms", "Europe/Zurich"), ZONED),
    (NAIVE, pa.timestamp("ms"), NAIVE),
    (pd.Timestamp(5), pa.timestamp("ns"), pd.Timestamp(5)),
    (np.datetime64("2024-02-29"), pa.timestamp("ms"), dt.datetime(2024, 2, 29)),
    (np.datetime64("2024-02-29T00"), pa.date32(), dt.date(2024, 2, 29)),
    (np.datetime64("NaT"), pa.timestamp("us"), None),
    (np.timedelta64("NaT", "ns"), pa.duration("s"), None),
    (pd.NaT, pa.timestamp("us", "UTC"), None),
    (pd.NaT, pa.date32(), None),
    (np.timedelta64(2, "D"), pa.duration("s"), dt.timedelta(days=2)),
    (np.array(["2024-02-29", "NaT"], "M8[ns]"), pa.list_(pa.timestamp("us")), [dt.datetime(2024, 2, 29), None]),
    ([np.datetime64("2024-02-29")], pa.list_(pa.date32()), [dt.date(2024, 2, 29)]),
    ([[np.array([1.0]), np.array([2.0])]], pa.list_(pa.list_(pa.list_(pa.float32()))), [[[1.0], [2.0]]]),
    (np.array([[1.0], [2.0]]), pa.list_(pa.list_(pa.float32())), [[1.0], [2.0]]),
    (65519.0, pa.float16(), 65504.0),
    (2048, pa.float16(), 2048.0),
    ("18446744073709551615", pa.json_(), "18446744073709551615"),
    (dt.datetime(2024, 2, 29), pa.date32(), dt.date(2024, 2, 29)),
    (dt.timedelta(seconds=2), pa.duration("s"), dt.timedelta(seconds=2)),
    ((1, 2), pa.list_(pa.int32()), [1, 2]),
    (np.array([1.0, 2.0]), pa.list_(pa.float32(), 2), [1.0, 2.0]),
    (np.array([1.0, 2.0]), pa.list_(pa.int8()), [1, 2]),
    ({"a": 1}, POINT, {"a": 1, "t": None}),
    ({"k": 1}, pa.map_(pa.string(), pa.int8()), [("k", 1)]),
    (uuid.UUID(int=5), pa.uuid(), uuid.UUID(int=5)),
    (True, pa.bool8(), True),
    ('{"a": [1, null]}', pa.json_(), '{"a": [1, null]}'),
    (None, POINT, None),
]


@pytest.mark.parametrize(("value", "kind", "message"), REFUSED, ids=lambda v: repr(v)[:40])
def test_a_value_that_does_not_fit_is_refused(value, kind, message):
    with pytest.raises(CONVERSION_ERRORS, match=message):
        to_array([None, value], kind)
    with pytest.raises(CONVERSION_ERRORS, match=message):
        to_array([value], kind)


@pytest.mark.parametrize(("value", "kind", "expected"), TAKEN, ids=lambda v: repr(v)[:40])
def test_a_value_that_fits_is_taken(value, kind, expected):
    assert to_array([None, value], kind).to_pylist() == [None, expected]
    assert to_array([value], kind).to_pylist() == [expected]


@pytest.mark.parametrize(
    "wrong", [1.5, "3", True, b"5", [6], dt.timedelta(7), 1 << 70, uuid.UUID(int=5), np.timedelta64(5, "ns")]
)
def test_one_value_among_whole_numbers_that_is_none_is_refused(wrong):
    for values in ([1, wrong], [wrong, 1], [1, None, wrong]):
        with pytest.raises(CONVERSION_ERRORS):
            to_array(values, pa.int64())


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()], ids=str)
def test_whole_numbers_are_taken_up_to_the_ends_of_their_type(kind):
    bits = kind.bit_width - pa.types.is_signed_integer(kind)
    ends = [-(1 << bits) if pa.types.is_signed_integer(kind) else 0, (1 << bits) - 1]
    made = to_array([*ends, None], kind)
    assert made.type == kind
    assert made.to_pylist() == [*ends, None]
    assert to_array([1, np.int8(2)], kind).to_pylist() == [1, 2]
    for beyond in (ends[0] - 1, ends[1] + 1):
        with pytest.raises(CONVERSION_ERRORS):
            to_array([0, beyond], kind)


def array(value: object, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([value, None], kind)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (array(300), pa.int8()),
        (array(1.5), pa.int64()),
        (array("12"), pa.int64()),
        (array(12), pa.string()),
        (array(True), pa.int64()),
        (array(2), pa.bool_()),
        (array(1e300), pa.float32()),
        (array(3.4028235677973366e38), pa.float32()),
        (array(65520.0), pa.float16()),
        (array(2049), pa.float16()),
        (array([2049]), pa.list_(pa.float16())),
        (array(2**24 + 1), pa.float32()),
        (array(2**53 + 1), pa.float64()),
        (array(2**64 - 1, pa.uint64()), pa.float64()),
        (array([2**24 + 1]), pa.list_(pa.float32())),
        (array([[2**24 + 1]]), pa.large_list(pa.list_(pa.float32()))),
        (array([2**53 + 1]), pa.list_(pa.float64(), 1)),
        (array({"a": 2**24 + 1}), pa.struct([("a", pa.float32())])),
        (array({"a": {"b": [2**53 + 1]}}), pa.struct([("a", pa.struct([("b", pa.list_(pa.float64()))]))])),
        (array([(2**24 + 1, 0)], pa.map_(pa.int64(), pa.int8())), pa.map_(pa.float32(), pa.int8())),
        (array([("k", 2**24 + 1)], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.float32())),
        (array([1e300]), pa.list_(pa.float32())),
        (array({"a": 1e300}), pa.struct([("a", pa.float32())])),
        (array(1.234), pa.decimal128(5, 2)),
        (array(NAIVE), pa.timestamp("us", "UTC")),
        (array(ZONED), pa.timestamp("us")),
        (array(NAIVE), pa.timestamp("s")),
        (array(NAIVE), pa.date32()),
        (array(5), pa.timestamp("us")),
        (array(NAIVE), pa.int64()),
        (array(dt.timedelta(microseconds=1)), pa.duration("s")),
        (array([1.0, 2.0, 3.0]), pa.list_(pa.float32(), 2)),
        (array([300]), pa.list_(pa.int8())),
        (array({"a": 1, "z": 2}), pa.struct([("a", pa.int64())])),
        (array(b"\xff"), pa.string()),
        (array([("a", "b")], pa.map_(pa.string(), pa.string())), pa.map_(pa.string(), pa.int64())),
        (array("a").dictionary_encode(), pa.int64()),
        (array("x"), pa.uuid()),
    ],
    ids=str,
)
def test_an_array_that_does_not_fit_is_refused(given, kind):
    with pytest.raises(CONVERSION_ERRORS):
        cast(given, kind)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (array(100), pa.int8()),
        (array(1), pa.float32()),
        (array(2**25), pa.float32()),
        (array([2**25, None]), pa.list_(pa.float32())),
        (array([{"a": 2**60}]), pa.list_(pa.struct([("a", pa.float64())]))),
        (array([("k", -(2**25))], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.float32())),
        (array([2**11], pa.list_(pa.int16())), pa.list_(pa.float16())),
        (array(math.inf), pa.float32()),
        (array("a"), pa.large_string()),
        (array("a"), pa.dictionary(pa.int8(), pa.string())),
        (array("a").dictionary_encode(), pa.string()),
        (array([1.0, 2.0]), pa.list_(pa.float32(), 2)),
        (array([1.0, 2.0]), pa.fixed_shape_tensor(pa.float32(), [2])),
        (array("{}"), pa.json_()),
        (array(dt.datetime(2024, 1, 1)), pa.timestamp("s")),
        (array(ZONED), pa.timestamp("us", "Europe/Zurich")),
        (array({"a": 1}), pa.struct([("a", pa.int8()), ("b", pa.string())])),
        (pa.nulls(2), POINT),
    ],
    ids=str,
)
def test_an_array_that_fits_is_taken(given, kind):
    made = cast(given, kind)
    assert made.type == kind
    wanted = [value | {"b": None} if isinstance(value, dict) else value for value in given.to_pylist()]
    assert made.to_pylist() == wanted


def test_a_dictionary_that_is_full_is_refused():
    words = [str(n) for n in range(300)]
    with pytest.raises(ValueError, match=r"indices=int16.* use a wider index type"):
        to_array(words, pa.dictionary(pa.int8(), pa.string()))
    with pytest.raises(ValueError, match=r"indices=uint16.* use a wider index type"):
        to_array([[w] for w in words], pa.list_(pa.dictionary(pa.uint8(), pa.string())))
    assert to_array(words, pa.dictionary(pa.int16(), pa.string())).to_pylist() == words
    assert to_array(words[:128], pa.dictionary(pa.int8(), pa.string())).to_pylist() == words[:128]


def test_text_that_is_no_json_is_refused_inside_of_lists_and_structs():
    texts = pa.array(["[1]", "[1"], pa.json_())
    for nested in (pa.ListArray.from_arrays([0, 2], texts), pa.StructArray.from_arrays([texts], ["j"])):
        assert cast(nested.slice(0, 0), nested.type).equals(nested.slice(0, 0))
        with pytest.raises(CONVERSION_ERRORS, match="Expecting"):
            cast(nested, nested.type)


def test_json_may_be_deeper_than_python_reads_it():
    deep = "[" * 5000 + "]" * 5000
    assert to_array([deep], pa.json_()).to_pylist() == [deep]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([uuid.UUID(int=5), None], pa.list_(pa.uuid())),
        ({"u": uuid.UUID(int=5)}, pa.struct([("u", pa.uuid())])),
        ([("k", uuid.UUID(int=5))], pa.map_(pa.string(), pa.uuid())),
        ([True, None, False], pa.list_(pa.bool8())),
        ([[1.0, 2.0]], pa.list_(pa.fixed_shape_tensor(pa.float32(), [2]))),
        (b"x", pa.opaque(pa.binary(), "thing", "maker")),
        ({"o": [b"x"]}, pa.struct([("o", pa.list_(pa.opaque(pa.binary(), "thing", "maker")))])),
    ],
    ids=str,
)
def test_extension_types_inside_of_others_are_made_of_python_values(value, kind):
    made = to_array([value, None], kind)
    assert made.type == kind
    assert made.to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (["not sixteen bytes"], pa.list_(pa.uuid())),
        ([2.5], pa.list_(pa.bool8())),
        ([b"x"], pa.opaque(pa.binary(), "thing", "maker")),
        ({"v": uuid.UUID(int=5)}, pa.struct([("u", pa.uuid())])),
    ],
    ids=str,
)
def test_what_does_not_fit_them_is_refused(value, kind):
    with pytest.raises(CONVERSION_ERRORS):
        to_array([value], kind)


def test_values_under_null_do_not_matter_whatever_they_are():
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, b"1" * 16, None], pa.binary(16)))
    structs = pa.StructArray.from_arrays([ids, pa.array([math.inf, 1.0, 2.0], pa.float32())], ["u", "f"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), structs, mask=pa.array([True, False]))
    assert cast(lists, lists.type).to_pylist() == [None, [{"u": None, "f": 2.0}]]
