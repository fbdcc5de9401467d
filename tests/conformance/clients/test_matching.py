"""How expectations are read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.clients import rows
from tests.conformance.clients.matching import mismatch


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": "9007199254740993"}, {"a": 9007199254740993}),
        ([1, 2], [1, 2]),
        ({"a": None}, {"a": {"$absent": True}}),
        ({"a": {"b": [{"c": 1, "d": 2}, {"c": 3}]}}, {"a": {"b": {"$has": [{"c": 3}]}}}),
        ("x-1", {"$matches": "^x"}),
        ("7", {"$ge": 7, "$le": 7}),
        (["b", "a"], {"$set": ["a", "b"]}),
        ("B", {"$in": ["A", "B"]}),
        ([0, 3, 3, 8], {"$grows": True}),
        ([{}], {"$size": 1}),
        ([2, 3], {"$end_of": [1, 2, 3]}),
    ],
)
def test_what_is_as_expected(value, expected):
    assert mismatch(value, expected) == ""


@pytest.mark.parametrize(
    ("value", "expected", "where"),
    [
        ({"a": {"b": 2}}, {"a": {"b": 1}}, "a.b"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({"a": [{"n": 1}]}, {"a": [{"n": 2}]}, r"a[0].n"),
        ({}, {"a": 1}, "a"),
        ({"a": True}, {"a": 2}, "a"),
        ([3, 1], {"$grows": True}, "it"),
        ([], {"$grows": True}, "it"),
        ("9007199254740992", 9007199254740993, "it"),
        ({"a": 1}, {"a": {"$absent": True}}, "a"),
        ("A", {"$in": ["B"]}, "it"),
        ([1, 2], {"$end_of": [1, 2, 3]}, "it"),
    ],
)
def test_what_is_not(value, expected, where):
    assert mismatch(value, expected).startswith(f"{where} is")


def test_rows_are_compared_by_type_order_and_value():
    one = rows.table_of({"columns": {"n": "int64", "l": ["int32"]}, "rows": [[1, [1]], [2, None]]})
    assert rows.difference(rows.decoded(rows.encoded(one)), one) == ""
    assert "columns" in rows.difference(one.select(["n"]), one)
    assert "type" in rows.difference(one.set_column(0, "n", pa.array([1, 2], pa.int32())), one)
    assert "row 0" in rows.difference(one.take([1, 0]), one)
    assert "rows for" in rows.difference(one.slice(0, 1), one)
