"""Which rows have the same value, type by type."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from leman_core.functions.arrow_values import equal_rows

NAN = float("nan")
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
PAIRS = [
    (pa.int64(), [1, 2, None, None], [1, 3, None, 0]),
    (pa.float64(), [0.0, NAN, 1.5, None], [0.0, NAN, 1.25, None]),
    (pa.float32(), [0.0, NAN], [-0.0, NAN]),
    (pa.float16(), [np.float16(1), np.float16(0)], [np.float16(1), np.float16(2)]),
    (pa.bool_(), [True, False, None], [True, True, False]),
    (pa.string(), ["a", "b", "", None], ["a", "c", None, None]),
    (pa.large_string(), ["a", "b"], ["a", "B"]),
    (pa.string_view(), ["a", "b"], ["a", "B"]),
    (pa.binary(), [b"\0", b"ab"], [b"", b"ab"]),
    (pa.binary(2), [b"ab", b"cd"], [b"ab", b"ce"]),
    (pa.decimal128(9, 2), [decimal.Decimal("1.10"), None], [decimal.Decimal("1.10"), decimal.Decimal("0.00")]),
    (pa.timestamp("us", "UTC"), [NOON, NOON], [NOON, None]),
    (pa.date32(), [dt.date(2020, 1, 1)], [dt.date(2020, 1, 2)]),
    (pa.duration("s"), [dt.timedelta(1)], [dt.timedelta(1)]),
    (pa.list_(pa.int64()), [[1, 2], [], None, [1], [None]], [[1, 2], None, None, [1, 1], [0]]),
    (pa.list_(pa.string()), [["a", "b"], [], ["x"]], [["a", "c"], [], ["x"]]),
    (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [0.0, 1.0]], [[1.0, 2.0], [0.0, 0.0], [-0.0, 1.0]]),
    (pa.large_list(pa.int64()), [[1, 2], [], None], [[1, 3], [], None]),
    (pa.list_(pa.int8(), 0), [[], None], [[], []]),
    (pa.list_(pa.list_(pa.int8())), [[[1], [2, 3]], [[]]], [[[1], [2, 4]], [[]]]),
    (pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
     [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": None, "b": "z"}]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 1)], []], [[("a", 1)], [("a", 2)], []]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], ["a", "a", None]),
    (pa.null(), [None, None], [None, None]),
]  # fmt: skip


def same(left, right):
    """What equals what in Python, floats by their bits."""

    def key(value):
        if isinstance(value, float | np.floating):
            return np.float64(value).tobytes()
        if isinstance(value, list | tuple):
            return [key(v) for v in value]
        return {k: key(v) for k, v in value.items()} if isinstance(value, dict) else value

    return [key(a) == key(b) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize(("kind", "left", "right"), PAIRS, ids=[str(p[0]) for p in PAIRS])
def test_rows_are_equal_where_their_values_are_the_same_bit_for_bit(kind, left, right):
    mine, other = pa.array(left, kind), pa.array(right, kind)
    assert equal_rows(mine, other).tolist() == same(left, right)
    doubled = pa.concat_arrays([other, other]) if not pa.types.is_null(kind) else pa.nulls(2 * len(other))
    assert equal_rows(mine, doubled.slice(len(other))).tolist() == same(left, right)
    assert equal_rows(mine, mine).all()


def test_values_of_other_types_are_never_equal():
    assert not equal_rows(pa.array([1], pa.int32()), pa.array([1], pa.int64())).any()


def test_dictionaries_with_other_codes_for_the_same_values_are_equal():
    mine = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b"]))
    other = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["b", "a"]))
    assert equal_rows(mine, other).all()


def test_values_below_a_null_do_not_count():
    mine = pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([False, True]))
    other = pa.StructArray.from_arrays([pa.array([1, 3])], ["a"], mask=pa.array([False, True]))
    assert equal_rows(mine, other).all()


def test_a_type_that_arrow_cannot_compare_is_never_equal():
    kind = pa.list_view(pa.int64())
    assert not equal_rows(pa.array([[1]], kind), pa.array([[1]], kind)).any()


def test_what_lies_in_dictionaries_and_extension_types_is_compared():
    left = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 2], pa.int8()), pa.array(["a", "b", None]))
    right = pa.DictionaryArray.from_arrays(pa.array([1, 1, 2, None], pa.int8()), pa.array(["b", "a", None]))
    assert equal_rows(left, right).tolist() == [True, False, True, True]
    first, second = pa.array([b"a" * 16, b"b" * 16, None], pa.binary(16)), pa.array([b"a" * 16] * 3, pa.binary(16))
    ids = [pa.ExtensionArray.from_storage(pa.uuid(), values) for values in (first, second)]
    assert equal_rows(*ids).tolist() == [True, False, False]


def test_arrays_of_other_lengths_have_no_row_in_common():
    assert equal_rows(pa.array([1, 2]), pa.array([1, 2, 3])).tolist() == [False, False]
