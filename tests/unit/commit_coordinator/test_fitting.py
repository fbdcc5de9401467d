"""Rows in the types of a table's columns: in parts of bounded size, however few bytes say them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from leman_coordinator.tables.schema_casting import Fitting
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import TableField

WORD = "x" * (1 << 20)
CODED = pa.dictionary(pa.int32(), pa.string())


def fitted(values: pa.Array, column: pa.DataType) -> list[pa.RecordBatch]:
    batch = pa.RecordBatch.from_arrays([values], names=["a"])
    table = [TableField(pa.field("a", column), (0,))]
    return list(Fitting(batch.schema, table).fitted(batch))


def coded(rows: int, kind: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([WORD], kind or pa.string()))


def views(rows: int) -> pa.Array:
    """The same text n times: each is its length, how it begins, the number of a buffer and a place there."""
    each = np.array([len(WORD), int.from_bytes(b"xxxx", "little"), 0, 0], np.int32)
    buffers = [None, pa.py_buffer(np.tile(each, rows)), pa.py_buffer(WORD.encode())]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (pa.nulls(1 << 21), pa.list_(pa.float32(), 1 << 12)),
        (coded(1 << 12, pa.binary()), pa.binary()),
        (coded(1 << 12, pa.binary()).slice(5, 1 << 11), pa.large_binary()),
        (pa.ListArray.from_arrays(pa.array([0, 2, 1 << 12], pa.int32()), coded(1 << 12)), pa.list_(pa.string())),
        (pa.StructArray.from_arrays([coded(1 << 12)], names=["b"]), pa.struct({"b": pa.string()})),
        (pa.ListArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), pa.nulls(1 << 30)), pa.list_(pa.int64())),
        (views(1 << 12), pa.large_string()),
        (coded(1 << 12), pa.string()),
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), views(1 << 12)), pa.string()),
    ],
    ids=[
        *("NULLs of vectors", "dictionary", "slice", "list", "struct", "NULLs in a list", "views", "text"),
        "a dictionary of views",
    ],
)
def test_what_few_bytes_say_is_refused_before_it_takes_memory(values, column):
    allocated = pa.total_allocated_bytes()
    with pytest.raises(InvalidArgument) as refused:
        fitted(values, column)
    assert refused.value.reason == "BATCH_TOO_LARGE"
    assert pa.total_allocated_bytes() - allocated < 1 << 20


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (pa.nulls(150_000), pa.int64()),
        (pa.array(np.arange(150_000, dtype=np.int32)), pa.int64()),
        (pa.array([b"a", None, b"bc"] * 50_000).dictionary_encode(), pa.binary()),
        (pa.array([1, None, 3] * 50_000).dictionary_encode(), pa.int64()),
        (pa.array(["a", None, "b" * 20] * 50_000, pa.string_view()).slice(1), pa.large_string()),
        (pa.array([["a"], None, []] * 50_000, pa.list_(CODED)), pa.list_(pa.string())),
        (
            pa.array([{"b": "a", "c": None}] * 3, pa.struct({"b": CODED, "c": pa.null()})),
            pa.struct({"b": pa.string(), "c": pa.int8()}),
        ),
        (pa.array([[], None], pa.list_(pa.string_view())), pa.list_(pa.string())),
        (pa.array([[], ["a" * 20, None]], pa.list_(pa.string_view())).slice(1), pa.large_list(pa.string())),
        (pa.array([[]], pa.list_(CODED)), pa.list_(pa.string())),
        (pa.array([[("k", None)]] * 3, pa.map_(pa.string(), pa.null())), pa.map_(pa.string(), pa.int64())),
        (pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)), pa.list_(pa.int64(), 2)),
        (pa.array([], pa.dictionary(pa.int8(), pa.binary())), pa.binary()),
        (pa.array(["a", None, "b" * 20] * 50_000).dictionary_encode(), pa.string()),
        (pa.array(["a", None, "b"]).cast(pa.large_string()).dictionary_encode().slice(1), pa.string()),
        (
            pa.DictionaryArray.from_arrays(
                pa.array([1, None, 2, 0], pa.uint32()), pa.array(["a", "b" * 20, None]).cast(pa.string_view())
            ),
            pa.large_string(),
        ),
        (pa.array(["a", None, "b"]), CODED),
        (pa.array([True, None]).dictionary_encode(), pa.bool_()),
        (pa.array([5, None, -99_999_999]), pa.decimal128(10, 2)),
        (pa.array([5], pa.uint64()).dictionary_encode(), pa.decimal128(3, 2)),
        (pa.array([[5], None, [None]], pa.list_(pa.int8())), pa.large_list(pa.decimal64(10, 2))),
        (pa.array([{"b": 5, "c": "x"}]), pa.struct({"b": pa.decimal256(40, 2), "c": pa.string()})),
        (pa.array([[("k", 5)]], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.decimal128(9, 1))),
        (pa.array([Decimal("1.50")]), pa.decimal128(10, 1)),
    ],
    ids=lambda kind: str(kind.type if isinstance(kind, pa.Array) else kind)[:40],
)
def test_values_are_converted_a_part_at_a_time(values, column):
    parts = fitted(values, column)
    assert all(part.num_rows <= 1 << 16 for part in parts)
    assert [row["a"] for part in parts for row in part.to_pylist()] == values.to_pylist()
    assert {part.schema.field("a").type for part in parts} <= {column}


def test_lists_that_arrow_would_not_convert_whole_are_refused():
    with pytest.raises(FailedPrecondition) as refused:
        fitted(pa.array([[1], [2, 3]], pa.list_view(pa.int64())), pa.list_(pa.int64()))
    assert refused.value.reason == "TYPE_MISMATCH"


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (pa.array(["1"]).dictionary_encode(), pa.int64()),
        (pa.array([1]).dictionary_encode(), pa.string()),
        (pa.array([1]).dictionary_encode(), CODED),
        (pa.array([True]).dictionary_encode(), pa.int8()),
        (pa.array([[1]]), pa.list_(pa.string())),
        (pa.array([["1"]]), pa.list_(pa.int64())),
        (pa.array([["1"]], pa.list_(CODED)), pa.list_(pa.int64())),
        (pa.array([{"w": "1"}]), pa.struct({"w": pa.int64()})),
    ],
    ids=str,
)
def test_text_numbers_and_truth_values_are_not_made_of_one_another_however_they_are_packed(values, column):
    with pytest.raises(FailedPrecondition) as refused:
        fitted(values, column)
    assert refused.value.reason == "TYPE_MISMATCH"


UTC, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (pa.array([1e300]), pa.float32()),
        (pa.array([1.0, -1e39, None]), pa.float32()),
        (pa.array([1e5], pa.float32()), pa.float16()),
        (pa.array([[1.0], [2.0, 1e300]]), pa.list_(pa.float32())),
        (pa.array([[1.0, 1e300]], pa.list_(pa.float64(), 2)), pa.list_(pa.float32(), 2)),
        (pa.array([{"a": 1e300}]), pa.struct({"a": pa.float32()})),
        (pa.array([[("k", 1e300)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.float32())),
        (pa.array([1e300]).dictionary_encode(), pa.float32()),
        (pa.array([16_777_217]), pa.float32()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**63 - 1]), pa.float64()),
        (pa.array([2**64 - 1], pa.uint64()), pa.float64()),
        (pa.array([1.5]), pa.decimal128(10, 2)),
        (pa.array([1.239], pa.float32()).dictionary_encode(), pa.decimal128(10, 2)),
        (pa.array([[1.239]]), pa.list_(pa.decimal128(10, 2))),
        (pa.array([100_000_000]), pa.decimal128(10, 2)),
        (pa.array([Decimal("1.239")]), pa.decimal128(10, 2)),
        (pa.array([0], NAIVE), UTC),
        (pa.array([0], UTC), NAIVE),
        (pa.array([[0]], pa.list_(NAIVE)), pa.list_(UTC)),
        (pa.array([0], pa.date32()), UTC),
        (pa.array([43_200_000_000], NAIVE), pa.date32()),
        (pa.array([0], NAIVE), pa.time64("us")),
        (pa.array([0], NAIVE).dictionary_encode(), pa.date32()),
    ],
    ids=lambda kind: str(kind.type if isinstance(kind, pa.Array) else kind)[:40],
)
def test_what_would_become_another_number_or_another_time_is_refused(values, column):
    with pytest.raises(FailedPrecondition) as refused:
        fitted(values, column)
    assert refused.value.reason == "TYPE_MISMATCH"


@pytest.mark.parametrize(
    ("values", "column", "told"),
    [
        (pa.array([0.1, float("inf"), float("nan"), None]), pa.float32(), [np.float32(0.1), float("inf"), None, None]),
        (pa.array([18_262], pa.date32()), NAIVE, None),
        (pa.array([0], pa.timestamp("us", "Europe/Zurich")), UTC, None),
        (pa.array([0], pa.timestamp("s", "UTC")), UTC, None),
    ],
    ids=["fractions", "a date is its midnight", "another zone is the same moment", "a coarser unit"],
)
def test_what_stays_the_same_is_taken(values, column, told):
    (part,) = fitted(values, column)
    found = part.column(0)
    assert found.type == column
    assert found.null_count == values.null_count
    if told is not None:
        assert found.to_pylist()[:2] == told[:2]
        assert found.to_pylist()[2] != found.to_pylist()[2], "NaN stays NaN"


@pytest.mark.parametrize("column", [pa.float32(), pa.float64()], ids=str)
def test_integers_that_a_float_holds_are_taken_beyond_the_range_in_which_it_holds_all(column):
    values = pa.array([3_000_000_000, None, -(2**62), 2**62], pa.int64())
    for given in (values, values.dictionary_encode()):
        (part,) = fitted(given, column)
        assert part.column(0).to_pylist() == [3e9, None, -(2.0**62), 2.0**62]


def test_a_column_of_dates_takes_the_day_of_now():
    batch = pa.RecordBatch.from_arrays([pa.array([43_200_000_000], UTC)], names=["a"])
    table = [TableField(pa.field("a", pa.date32()), (0,))]
    (part,) = Fitting(batch.schema, table, computed={"a"}, clocks={"a"}).fitted(batch)
    assert part.column(0).to_pylist() == [dt.date(1970, 1, 1)]


@pytest.mark.parametrize(
    ("have", "column", "advice"),
    [
        (pa.float64(), pa.decimal128(10, 2), "like cast('1.5' as decimal(10, 2))"),
        (NAIVE, UTC, "arrow_cast(…, 'Timestamp(Microsecond, Some(\"UTC\"))')"),
        (UTC, NAIVE, "arrow_cast(…, 'Timestamp(Microsecond, None)')"),
        (pa.date32(), UTC, "arrow_cast("),
        (NAIVE, pa.date32(), "cast(… as date)"),
    ],
    ids=str,
)
def test_what_sql_gives_is_converted_no_more_than_rows_are_and_the_error_says_how_to_cast(have, column, advice):
    table = [TableField(pa.field("a", column), (0,))]
    with pytest.raises(FailedPrecondition) as refused:
        Fitting(pa.schema({"a": have}), table, computed={"a"})
    assert refused.value.reason == "TYPE_MISMATCH"
    assert advice in refused.value.message


@pytest.mark.parametrize(
    "text",
    ["", "{bad", "NaN", "1e999", "1" * 30, '{"id": 123456789012345678901}', '"\\ud83d"', '{"a": 1, "a": 2}', "{} x"],
)
@pytest.mark.parametrize("kind", [pa.json_(), pa.json_(pa.large_string())], ids=["string", "large_string"])
def test_json_that_storage_would_change_is_refused_with_its_column(text, kind):
    values = pa.ExtensionArray.from_storage(kind, pa.array(["{}", text], kind.storage_type))
    with pytest.raises(FailedPrecondition, match="column a: a value cannot be stored as JSON") as refused:
        fitted(values, kind)
    assert (refused.value.reason, refused.value.facts["column"]) == ("TYPE_MISMATCH", "a")


def test_json_in_lists_and_structs_is_judged_too():
    row = pa.struct({"j": pa.json_()})
    values = pa.StructArray.from_arrays([pa.array(["NaN"], pa.string()).cast(pa.json_())], fields=[row.field(0)])
    with pytest.raises(FailedPrecondition):
        fitted(values, row)


def test_json_that_a_table_has_already_is_not_judged_again():
    batch = pa.RecordBatch.from_arrays([pa.array(["NaN"], pa.string()).cast(pa.json_())], names=["a"])
    fitting = Fitting(batch.schema, [TableField(pa.field("a", pa.json_()), (0,))], kept=["a"])
    assert next(iter(fitting.fitted(batch))).num_rows == 1
