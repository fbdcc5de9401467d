"""A value is stored as it is or refused, by one rule on every way in: results of functions, arrays, and rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from leman import errors, local
from leman_coordinator.tables.schema_casting import Fitting
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import TableField
from leman_executor.worker.value_conversion import CONVERSION_ERRORS, cast, to_array

NOON = dt.datetime(2024, 7, 1, 12)
ZONED = NOON.replace(tzinfo=dt.UTC)
DAY = dt.date(2024, 7, 1)
MOMENT, MOMENT_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
PRICE = pa.decimal128(10, 2)

REFUSED = [
    (b"abc", pa.string()),
    (b"abc", pa.large_string()),
    ("abc", pa.binary()),
    ("abc", pa.large_binary()),
    ("abc", pa.binary(3)),
    (b"abc", pa.dictionary(pa.int8(), pa.string())),
    (True, pa.int64()),
    (True, pa.float64()),
    (True, PRICE),
    (1, pa.bool_()),
    (1, pa.string()),
    ("1", pa.int64()),
    ("1.5", pa.float64()),
    ("1.5", PRICE),
    (1.25, PRICE),
    (Decimal("1.25"), pa.float64()),
    (Decimal("1.239"), PRICE),
    (1.5, pa.int64()),
    (300, pa.int8()),
    (1e300, pa.float32()),
    (1e300, pa.dictionary(pa.int8(), pa.float32())),
    (2049, pa.float16()),
    ((1 << 53) + 1, pa.float64()),
    (5, MOMENT),
    (5, pa.duration("s")),
    (NOON, pa.int64()),
    (NOON, MOMENT_UTC),
    (ZONED, MOMENT),
    (DAY, MOMENT_UTC),
    (NOON, pa.date32()),
    (NOON.replace(microsecond=5), pa.timestamp("s")),
    (dt.timedelta(milliseconds=5), pa.duration("s")),
    (dt.time(1, microsecond=5), pa.time32("s")),
]
TAKEN = [
    ("abc", pa.large_string()),
    (b"abc", pa.large_binary()),
    (1, pa.float64()),
    (2.0, pa.int64()),
    (5, PRICE),
    (Decimal("1.25"), PRICE),
    (Decimal("3.00"), pa.int8()),
    (0.5, pa.float32()),
    (True, pa.bool_()),
    (DAY, pa.date32()),
    (NOON, pa.timestamp("s")),
    (ZONED, pa.timestamp("ms", "Europe/Zurich")),
    (dt.timedelta(seconds=5), pa.duration("s")),
]


def in_list(value, kind):
    return [value], pa.list_(kind)


def in_struct(value, kind):
    return {"a": value}, pa.struct({"a": kind})


def in_map(value, kind):
    return [("k", value)], pa.map_(pa.string(), kind)


def in_key(value, kind):
    return [(value, "v")], pa.map_(kind, pa.string())


def plain(value, kind):
    return value, kind


def fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([values], names=["a"])
    (part,) = Fitting(batch.schema, [TableField(pa.field("a", kind), (0,))]).fitted(batch)
    return part.column(0)


def added(values, kind: pa.DataType) -> pa.Array:
    return local.as_arrow({"a": values}, pa.schema({"a": kind}))["a"].combine_chunks()


def added_rows(values, kind: pa.DataType) -> pa.Array:
    rows = local.as_arrow([{"a": value} for value in values], pa.schema({"a": kind}))
    return rows["a"].combine_chunks()


def read_on(values: pa.Array, kind: pa.DataType) -> pa.Array:
    reader = pa.table({"a": values}).to_reader()
    return local.as_arrow(reader, pa.schema({"a": kind})).read_all()["a"].combine_chunks()


def arrow_of(lift, value) -> pa.Array:
    """The value in the type that Arrow gives it, in the same container."""
    own = pa.array([value]).type
    content, kind = lift(value, own)
    return pa.array([None, content], kind)


FAULTS = (*CONVERSION_ERRORS, FailedPrecondition, errors.TypeMismatch)
FROM_PYTHON = [to_array, added, added_rows]
FROM_ARROW = [cast, fitted, added, read_on]


@pytest.mark.parametrize("lift", [plain, in_list, in_struct, in_map, in_key])
@pytest.mark.parametrize(("value", "kind"), REFUSED, ids=str)
def test_what_would_be_changed_is_refused_on_every_way_in(value, kind, lift):
    content, column = lift(value, kind)
    for way in FROM_PYTHON:
        with pytest.raises(FAULTS):
            way([None, content], column)
    for way in FROM_ARROW:
        with pytest.raises(FAULTS):
            way(arrow_of(lift, value), column)


@pytest.mark.parametrize("lift", [plain, in_list, in_struct, in_map, in_key])
@pytest.mark.parametrize(("value", "kind"), TAKEN, ids=str)
def test_what_stays_the_same_is_taken_on_every_way_in(value, kind, lift):
    content, column = lift(value, kind)
    wanted = pa.array([None, content], column).to_pylist()
    for way in FROM_PYTHON:
        assert way([None, content], column).to_pylist() == wanted
    for way in FROM_ARROW:
        assert way(arrow_of(lift, value), column).to_pylist() == wanted


def list_of(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(range(len(values) + 1), values)


def struct_of(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], ["a"])


@pytest.mark.parametrize("way", FROM_ARROW)
@pytest.mark.parametrize("within", [lambda values: values, list_of, struct_of], ids=["plain", "list", "struct"])
def test_numbers_in_a_dictionary_are_refused_where_they_would_be_infinite(way, within):
    kind = within(pa.array([0.0], pa.float32()).dictionary_encode()).type
    with pytest.raises(FAULTS):
        way(within(pa.array([0.5, 1e300]).dictionary_encode()), kind)
    infinite = within(pa.array([0.5, float("inf")]).dictionary_encode())
    assert way(infinite, kind).to_pylist() == infinite.to_pylist()


@pytest.mark.parametrize("way", FROM_ARROW)
def test_what_a_type_rests_on_or_has_in_its_dictionary_is_what_counts(way):
    texts, counts = pa.array(["a", None, "a"]).dictionary_encode(), pa.array([5, None]).dictionary_encode()
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    assert way(texts, pa.large_string()).to_pylist() == ["a", None, "a"]
    assert way(counts, PRICE).to_pylist() == [Decimal(5), None]
    assert way(ids, pa.binary(16)).equals(ids.storage)
    assert way(ids.storage, pa.uuid()).equals(ids)
    for values, kind in [(texts, pa.binary()), (counts, pa.bool_()), (ids, pa.string()), (pa.array(["a"]), pa.uuid())]:
        with pytest.raises(FAULTS):
            way(values, kind)


@pytest.mark.parametrize("way", FROM_PYTHON)
def test_a_date_is_its_midnight_where_there_is_no_zone(way):
    for values in ([DAY], [None, DAY, NOON], [NOON, DAY]):
        midnight = dt.datetime.combine(DAY, dt.time())
        assert way(values, MOMENT).to_pylist() == [midnight if value is DAY else value for value in values]


@pytest.mark.parametrize("way", FROM_PYTHON)
def test_one_value_of_another_kind_among_others_is_refused(way):
    mixed = [
        (["a", b"b"], pa.string()),
        ([b"b", "a"], pa.binary()),
        ([1, True], pa.int64()),
        ([1.0, True], pa.float64()),
        ([DAY, NOON], pa.date32()),
        ([NOON, ZONED], MOMENT_UTC),
    ]
    for values, kind in mixed:
        with pytest.raises(FAULTS):
            way(values, kind)


@pytest.mark.parametrize(
    ("value", "kind", "advice"),
    [(b"abc", pa.string(), r"decode"), ("abc", pa.binary(), r"encode"), (Decimal("1.5"), pa.float64(), "float")],
    ids=str,
)
def test_the_refusal_says_how_to_convert(value, kind, advice):
    for way in FROM_PYTHON:
        with pytest.raises(FAULTS, match=advice):
            way([value], kind)
    for way in FROM_ARROW:
        with pytest.raises(FAULTS, match=advice):
            way(pa.array([value]), kind)
