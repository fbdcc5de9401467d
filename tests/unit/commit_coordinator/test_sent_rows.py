"""Which rows were sent: the same however they are cut and encoded, and different for any difference."""

from __future__ import annotations

import asyncio
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from leman_coordinator.tables import row_digests, schema_casting
from leman_coordinator.tables.row_digests import RowsDigest
from leman_coordinator.tables.row_uploads import Uploads
from leman_core.model.service_errors import AlreadyExists, InvalidArgument, LemanError
from leman_core.model.table import SentRows
from leman_core.server.request_messages import check_same_request, rows_of, with_rows
from leman_core.settings import Commit
from tests.integration.types.type_cases import CASES

TEXT = pa.array(["a", None, "", "bc", "a", "bc" * 9])
LISTS = pa.array([["a"], None, [], ["b", None], ["a", "a"], ["c"]])


def sent(*parts: pa.Table | pa.RecordBatch) -> SentRows:
    digest = RowsDigest(parts[0].schema)
    for part in parts:
        for batch in part.to_batches() if isinstance(part, pa.Table) else [part]:
            digest.add(batch)
    return digest.sent()


def column(values: pa.Array) -> SentRows:
    return sent(pa.record_batch({"x": values}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_rows_of_all_types_are_the_same_in_other_batches(case):
    values = case.make()
    whole = pa.record_batch({"x": values, "n": pa.array(range(len(values)))})
    expected = sent(whole)
    assert expected.rows == len(values)
    for at in range(len(values) + 1):
        assert sent(whole.slice(0, at), whole.slice(at)) == expected, at
    assert sent(*(whole.slice(at, 1) for at in range(len(values)))) == expected
    if not pa.types.is_null(values.type):  # each other case has a NULL in its second place, and none before
        swapped = pa.concat_arrays([values.slice(1, 1), values.slice(0, 1), values.slice(2)])
        assert sent(whole.set_column(0, "x", swapped)).values != expected.values


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (TEXT, [TEXT.cast(pa.large_string()), TEXT.cast(pa.string_view()), TEXT.dictionary_encode()]),
        (TEXT, [TEXT.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.large_string()))]),
        (TEXT.cast(pa.binary()), [TEXT.cast(pa.large_binary()), TEXT.cast(pa.binary()).dictionary_encode()]),
        (pa.array([1, None, 1]), [pa.array([1, None, 1]).dictionary_encode()]),
        (
            LISTS,
            [
                LISTS.cast(pa.large_list(pa.string())),
                LISTS.cast(pa.list_(pa.large_string())),
                pa.array(LISTS.to_pylist(), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
                pa.array(LISTS.to_pylist(), pa.list_(pa.field("named", pa.string(), nullable=False))),
            ],
        ),
        (
            pa.array([{"w": "a"}, None]),
            [pa.array([{"w": "a"}, None], pa.struct({"w": pa.dictionary(pa.int8(), pa.string())}))],
        ),
    ],
)
def test_other_encodings_of_the_same_values_are_the_same(values, others):
    for other in others:
        assert column(other) == column(values), other.type


def test_a_dictionary_may_be_another_one_in_each_batch_and_have_nulls_of_its_own():
    kind = pa.dictionary(pa.int8(), pa.string())
    first = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), pa.array(["b", "a"]))
    second = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([None, "a"]))
    batches = [pa.record_batch({"x": values.cast(kind)}) for values in (first, second)]
    assert sent(*batches) == column(pa.array(["a", "b", "a", None, "a"]))


def test_the_order_of_columns_and_batches_without_rows_say_nothing():
    rows = pa.table({"b": LISTS, "a": TEXT})
    empty = rows.schema.empty_table().to_batches() or [pa.record_batch([[], []], schema=rows.schema)]
    assert sent(*empty, rows.select(["a", "b"]).to_batches()[0], *empty) == sent(rows)
    assert sent(*empty) == RowsDigest(rows.schema).sent()


@pytest.mark.parametrize(
    ("given", "other", "differs"),
    [
        ({"x": [1, 2]}, {"x": [1, 2, 3]}, "rows"),
        ({"x": [1, 2]}, {"x": [1, 3]}, "values"),
        ({"x": [1, 2]}, {"x": [2, 1]}, "values"),
        ({"x": [1, 2]}, {"y": [1, 2]}, "columns"),
        ({"x": [1, 2]}, {"x": [1.0, 2.0]}, "columns"),
        ({"x": [1], "y": [2]}, {"x": [2], "y": [1]}, "values"),
        ({"x": ["ab", "c"]}, {"x": ["a", "bc"]}, "values"),
        ({"x": ["", None]}, {"x": [None, ""]}, "values"),
        ({"x": [[1], [2, 3]]}, {"x": [[1, 2], [3]]}, "values"),
        ({"x": [[1], []]}, {"x": [[1], None]}, "values"),
        ({"x": [[["a"]], [[], ["b"]]]}, {"x": [[["a"], []], [["b"]]]}, "values"),
        ({"x": [{"a": 1, "b": 2}]}, {"x": [{"a": 2, "b": 1}]}, "values"),
        ({"x": [{"a": 1}]}, {"x": [{"b": 1}]}, "columns"),
        ({"x": [True, False]}, {"x": [False, True]}, "values"),
        ({"x": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}, {"x": [[1, 2]]}, "columns"),
    ],
)
def test_other_rows_are_known_and_said_to_be_other(given, other, differs):
    first, now = sent(pa.table(given)), sent(pa.table(other))
    assert (first.rows != now.rows, first.columns != now.columns) == (differs == "rows", differs == "columns")
    assert differs in first.difference(now)
    with pytest.raises(AlreadyExists, match=differs) as refused:
        check_same_request("mine", with_rows("header", first), with_rows("header", now))
    assert refused.value.reason == "REQUEST_ID_REUSED"
    assert "new id" in str(refused.value)


def test_rows_are_compared_where_both_sides_tell_them():
    first = sent(pa.table({"x": [1]}))
    whole = with_rows("header", first)
    assert (rows_of(whole), rows_of("header")) == (first, None)
    for known, asked in ((whole, whole), ("header", whole), (whole, "header"), ("header of a later release", whole)):
        check_same_request("mine", known, asked)
    with pytest.raises(AlreadyExists, match="another request"):
        check_same_request("mine", whole, with_rows("another", first))


def test_what_a_dictionary_says_takes_bounded_memory(monkeypatch):
    word = "x" * (1 << 20)
    coded = pa.DictionaryArray.from_arrays(np.zeros(1 << 9, np.int32), pa.array([word]))
    allocated, most = pa.total_allocated_bytes(), 0
    update = row_digests.leaf_parts

    def watched(array):
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - allocated)
        return update(array)

    monkeypatch.setattr(row_digests, "leaf_parts", watched)
    digest = column(coded)
    assert 0 < most < 64 << 20
    assert digest == column(pa.array([word] * (1 << 9)))
    monkeypatch.setattr(row_digests, "_MOST_DECODED_BYTES", 1 << 28)
    with pytest.raises(InvalidArgument) as refused:
        column(coded)
    assert refused.value.reason == "BATCH_TOO_LARGE"


def test_parts_have_a_value_at_least_and_all_values_once():
    values = pa.array(["a" * 9, "b", "c", None, "d" * 3, "e"]).dictionary_encode()
    parts = [part.to_pylist() for part in schema_casting.in_parts(values, 4, 100)]
    assert parts == [["a" * 9], ["b", "c", None], ["d" * 3, "e"]]
    assert list(schema_casting.in_parts(values.slice(0, 0), 4, 100)) == []


def test_an_upload_that_ends_early_ends_its_writer_which_removes_its_files():
    ended: list[LemanError] = []

    class Written:
        stays = True

        def write(self, incoming):
            try:
                incoming.read(1 << 20)
            except LemanError as error:
                ended.append(error)
                raise

        def discard(self):
            ended.append(LemanError("DISCARDED", ""))

    async def pieces():
        yield b"half"
        raise ConnectionResetError

    async def scenario():
        uploads = Uploads(Commit(), mock.Mock(), mock.Mock())
        with pytest.raises(ConnectionResetError):
            await uploads._read("/t.lance", Written, pieces())
        await uploads.close()

    asyncio.run(scenario())
    assert [error.reason for error in ended] == ["UPLOAD_ENDED", "DISCARDED"]
