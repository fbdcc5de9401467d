"""Rows that this process reads by itself are those that the services read with the same filter."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import leman

_TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59, tenth * 100_000) for tenth in range(10)] + [dt.datetime(1970, 1, 1)]


@leman.udf(data_type=pa.int64(), version="1")
def same(day: dt.date) -> int:
    return day.year


@pytest.fixture
def table(db):
    instants = [moment.replace(tzinfo=dt.UTC) for moment in _TIMES]
    rows = {
        "id": list(range(11)),
        "plain": pa.array(_TIMES, pa.timestamp("us")),
        "far": pa.array(instants, pa.timestamp("us", "America/Los_Angeles")),
        "day": pa.array([moment.date() for moment in _TIMES]),
        "PartyAbbrev": ["D", "R"] * 5 + ["D"],
    }
    made = db.create_table("t", pa.table(rows))
    made.add_columns({"y": same})
    return made


def read_by_both(table: leman.Table, where: str) -> list[int]:
    here = table.to_arrow(["id"], where)["id"].to_pylist()
    assert here == table.to_batches(["id"], where).read_all()["id"].to_pylist()
    return here


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("plain >= timestamp '1969-12-31 23:59:59.5'", range(5, 11)),
        ("far >= timestamp '1969-12-31 15:59:59.5'", range(5, 11)),
        ("far >= timestamp '1969-12-31 23:59:59.5+00:00'", range(5, 11)),
        ("far >= '1969-12-31 23:59:59.5Z'", range(5, 11)),
        ("day > '1969-12-31' AND id > 3", [10]),
        ("CASE WHEN PartyAbbrev = 'D' THEN id > 7 ELSE false END", [8, 10]),
    ],
)
def test_a_filter_finds_the_same_rows(table, where, found):
    assert read_by_both(table, where) == list(found)


def test_a_filter_of_a_backfill_finds_them_too(table):
    table.backfill("y", where="far >= timestamp '1969-12-31 23:59:59.5+00:00'", progress=False)
    assert table.to_arrow(["y"])["y"].to_pylist() == [None] * 5 + [1969] * 5 + [1970]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("\"PartyAbbrev\" = 'D'", "is text to Lance; to name the column write `PartyAbbrev`"),
        ("id > 3 limit 2", "something follows a complete expression"),
        ("id = 3; drop table t", "unexpected ';'"),
    ],
)
def test_what_lance_takes_for_something_else_is_refused(table, where, words):
    for read in (table.to_arrow, table.to_batches, table.backfill):
        with pytest.raises(leman.errors.InvalidArgument, match=words) as caught:
            read(**({"column": "y"} if read == table.backfill else {}), where=where)
        assert caught.value.reason == "INVALID_FILTER"


def test_a_field_that_a_struct_does_not_have_is_no_missing_table(db):
    table = db.create_table("t", pa.table({"s": [{"CamelCase": 1}]}))
    assert table.to_arrow(where="s.CamelCase = 1").num_rows == 1
    with pytest.raises(leman.errors.InvalidArgument, match="camelcase not found in struct"):
        table.to_arrow(where="s.camelcase = 1")


def test_a_view_is_read_alike(db, table):
    view = db.create_materialized_view("v", table.search(None).select(["id", "far", "PartyAbbrev"]))
    view.refresh(progress=False)
    assert read_by_both(view, "far >= timestamp '1969-12-31 23:59:59.5+00:00'") == list(range(5, 11))
    with pytest.raises(leman.errors.InvalidArgument, match="is text to Lance"):
        view.to_arrow(where="\"PartyAbbrev\" = 'D'")
