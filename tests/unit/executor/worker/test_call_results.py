"""A result keeps the value that it had when the function returned it, and its values are taken by their position."""

from __future__ import annotations

import ctypes
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_executor.worker.call_results import own_values
from leman_executor.worker.evaluator import Evaluated, Evaluator, JobFailing
from tests.integration.types.type_cases import CASES

SKIP = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
RETRY = ErrorPolicy((ErrorRule(ErrorAction.RETRY, max_attempts=3),))
FLOATS = pa.list_(pa.float32(), 2)


def calls(function, output, *, kind=UdfKind.SCALAR, rows=6, at_once=6, policy=None, column=None) -> list[Evaluated]:
    """Call the function as one unit of work does: all results are kept until the last call."""
    values = pa.array(range(1, rows + 1), pa.int64()) if column is None else column
    evaluator = Evaluator(function, kind, "f", output, ("x",), policy or ErrorPolicy())
    offsets = np.arange(len(values))
    batch = pa.RecordBatch.from_arrays([values], ["x"])
    begins = range(0, len(values), at_once)
    return [evaluator(0, offsets[at : at + at_once], batch.slice(at, at_once)) for at in begins]


def stored(results: list[Evaluated]) -> list:
    return [value for result in results for value in result.values.to_pylist()]


def test_a_batch_that_is_given_again_in_parts_is_reported():
    said: list[str] = []
    notes: Any = SimpleNamespace(batch_split=said.append)

    def odd(x):
        if 3 in x.to_pylist():
            raise ValueError("three")
        return x

    evaluator = Evaluator(odd, UdfKind.ARRAY, "f", pa.int64(), ("x",), SKIP, notes=notes)
    rows = pa.RecordBatch.from_arrays([pa.array(range(8), pa.int64())], ["x"])
    assert evaluator(0, np.arange(8), rows).values.to_pylist() == [0, 1, 2, None, 4, 5, 6, 7]
    assert said[0] == "ValueError: three"
    assert len(said) == 3, "of the whole, of its half and of a quarter"


# one object, filled by each call


class Buffers:
    """Results of a row that are one object each time."""

    def __init__(self) -> None:
        self.array = np.zeros(2, np.float32)
        self.list: list = [0.0, 0.0]
        self.dict: dict = {"a": 0, "b": [bytearray(1)]}
        self.bytes = bytearray(1)
        self.series = pd.Series([0.0, 0.0], dtype="float32")
        self.deque = deque([0.0, 0.0])
        self.objects = [{"a": 0}]

    def by_array(self, x):
        return np.multiply(x, [1, 10], out=self.array, casting="unsafe")

    def by_view(self, x):
        return self.by_array(x)[:]

    def by_arrow(self, x):
        return pa.array(self.by_array(x))

    def by_list(self, x):
        self.list[:] = [1.0 * x, 10.0 * x]
        return self.list

    def by_series(self, x):
        self.series[:] = [1.0 * x, 10.0 * x]
        return self.series

    def by_deque(self, x):
        self.deque.extend([1.0 * x, 10.0 * x])
        while len(self.deque) > 2:
            self.deque.popleft()
        return self.deque

    def by_generator(self, x):
        self.list[:] = [1.0 * x, 10.0 * x]
        return (value for value in self.list)

    def by_dict(self, x):
        self.dict["a"] = x
        self.dict["b"][0][0] = x
        return self.dict

    def by_bytes(self, x):
        self.bytes[0] = x
        return self.bytes

    def by_memory(self, x):
        return memoryview(self.by_bytes(x))

    def by_objects(self, x):
        self.objects[0]["a"] = x
        return self.objects


@pytest.mark.parametrize(
    "name", ["by_array", "by_view", "by_arrow", "by_list", "by_series", "by_deque", "by_generator"]
)
@pytest.mark.parametrize("kind", [FLOATS, pa.list_(pa.float64()), pa.large_list(pa.float32())])
def test_a_list_that_a_function_fills_again_is_stored_as_each_call_returned_it(name, kind):
    results = calls(getattr(Buffers(), name), kind, at_once=4)
    assert stored(results) == [[1.0 * x, 10.0 * x] for x in range(1, 7)]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (
            "by_dict",
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.binary()))]),
            lambda x: {"a": x, "b": [bytes([x])]},
        ),
        ("by_bytes", pa.binary(), lambda x: bytes([x])),
        ("by_memory", pa.large_binary(), lambda x: bytes([x])),
        ("by_objects", pa.list_(pa.struct([("a", pa.int8())])), lambda x: [{"a": x}]),
        ("by_objects", pa.list_(pa.map_(pa.string(), pa.int8())), lambda x: [[("a", x)]]),
    ],
)
def test_other_objects_that_a_function_fills_again_are_stored_as_each_call_returned_them(name, kind, expected):
    assert stored(calls(getattr(Buffers(), name), kind)) == [expected(x) for x in range(1, 7)]


def test_a_row_that_fails_does_not_end_what_is_kept_of_the_others():
    buffers = Buffers()

    def function(x):
        if x == 3:
            raise ValueError
        return buffers.by_series(x) if x % 2 else None

    results = calls(function, FLOATS, policy=SKIP)
    assert stored(results) == [[1.0, 10.0], None, None, None, [5.0, 50.0], None]
    assert results[0].failed is not None
    assert results[0].failed.tolist() == [False, False, True, False, False, False]


def test_a_result_that_does_not_fit_is_named_as_it_was_returned():
    buffers = Buffers()

    def function(x):
        buffers.list[:] = [x, "x"]
        return buffers.list

    with pytest.raises(JobFailing, match=r"it returned \[1, 'x'\] \(list\)"):
        calls(function, FLOATS)


class Batches:
    """Results of batches that lie in one buffer."""

    def __init__(self) -> None:
        self.buffer = np.zeros(8, np.float32)
        self.bytes = bytearray(32)

    def fill(self, x):
        return np.add(x.to_numpy(), 0, out=self.buffer[: len(x)], casting="unsafe")

    def numpy(self, x):
        return self.fill(x)

    def arrow(self, x):
        return pa.array(self.fill(x))

    def chunked(self, x):
        return pa.chunked_array([self.arrow(x)])

    def batch(self, x):
        return pa.record_batch([self.arrow(x)], names=["v"])

    def series(self, x):
        return pd.Series(self.fill(x), copy=False)

    def memory(self, x):
        self.bytes[: 4 * len(x)] = self.fill(x).tobytes()
        return pa.Array.from_buffers(pa.float32(), len(x), [None, pa.py_buffer(self.bytes)])

    def view(self, x):
        self.fill(x)
        return memoryview(self.buffer)[: len(x)]

    def generator(self, x):
        value = np.zeros(1, np.float32)
        for number in x.to_pylist():
            value[0] = number
            yield value[0]


@pytest.mark.parametrize("name", ["numpy", "arrow", "chunked", "batch", "series", "memory", "view", "generator"])
def test_a_buffer_that_a_batch_function_fills_again_is_stored_as_each_call_returned_it(name):
    results = calls(getattr(Batches(), name), pa.float32(), kind=UdfKind.ARRAY, at_once=2)
    assert stored(results) == [float(x) for x in range(1, 7)]


def test_lists_and_structs_over_a_buffer_are_stored_as_each_call_returned_them():
    batches = Batches()

    def lists(x):
        batches.buffer[: 2 * len(x)] = np.repeat(x.to_numpy(), 2)
        return pa.FixedSizeListArray.from_arrays(pa.array(batches.buffer[: 2 * len(x)]), 2)

    def structs(x):
        return pa.StructArray.from_arrays([batches.arrow(x)], ["a"])

    def texts(x):
        batches.bytes[: len(x)] = bytes(48 + n for n in x.to_pylist())
        ends = pa.py_buffer(np.arange(len(x) + 1, dtype=np.int32))
        return pa.Array.from_buffers(pa.string(), len(x), [None, ends, pa.py_buffer(batches.bytes)])

    def codes(x):
        return pa.DictionaryArray.from_arrays(pa.array([0] * len(x), pa.int8()), texts(x))

    def of(function, kind):
        return stored(calls(function, kind, kind=UdfKind.ARRAY, at_once=2))

    assert of(lists, FLOATS) == [[float(x)] * 2 for x in range(1, 7)]
    assert of(structs, pa.struct([("a", pa.float32())])) == [{"a": float(x)} for x in range(1, 7)]
    assert of(texts, pa.string()) == list("123456")
    assert of(codes, pa.dictionary(pa.int8(), pa.string())) == list("113355")


def test_an_iterator_that_gives_one_object_again_and_again_gives_its_contents():
    def function(x):
        pair = [0.0, 0.0]
        for number in x.to_pylist():
            pair[:] = [number, 2.0 * number]
            yield pair

    assert stored(calls(function, FLOATS, kind=UdfKind.ARRAY)) == [[float(x), 2.0 * x] for x in range(1, 7)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_memory_of_its_own_holds_the_values_of_every_type(case):
    values = case.make()
    assert own_values(values).equals(values)
    assert own_values(values).type == values.type
    assert not _addresses(own_values(values)) & _addresses(values)


def _addresses(values: pa.Array) -> set[int]:
    own_ones = {buffer.address for buffer in values.buffers() if buffer is not None and buffer.size}
    return own_ones | (_addresses(values.dictionary) if isinstance(values, pa.DictionaryArray) else set())


# each attempt has objects of its own


def test_a_row_that_is_tried_again_gets_its_arguments_as_they_are_stored():
    seen: set[str] = set()

    def last_word(words):
        word = words.pop()
        if words[0] not in seen:
            seen.add(words[0])
            raise ConnectionError
        return word

    words = pa.array([["a", "b", "c"], ["x", "y", "z"]])
    assert stored(calls(last_word, pa.string(), column=words, policy=RETRY)) == ["c", "z"]


def _writable(values: pa.Array) -> np.ndarray:
    """Return the memory of an argument, which libraries such as torch write to although it is not theirs."""
    pointer = values.buffers()[1].address + 8 * values.offset
    return np.ctypeslib.as_array((ctypes.c_int64 * len(values)).from_address(pointer))


def test_a_batch_that_is_tried_again_gets_its_columns_as_they_are_stored():
    attempts: list[list[int]] = []

    def function(x):
        attempts.append(x.to_pylist())
        memory = _writable(x)
        memory *= 2
        if len(attempts) == 1:
            raise ConnectionError
        return memory

    assert stored(calls(function, pa.int64(), kind=UdfKind.ARRAY, policy=RETRY)) == [2, 4, 6, 8, 10, 12]
    assert attempts == [[1, 2, 3, 4, 5, 6]] * 2


def test_rows_of_a_failed_batch_are_tried_with_columns_as_they_are_stored():
    def function(x):
        memory = _writable(x)
        memory *= 2
        if 8 in memory:
            raise ValueError
        return memory

    results = calls(function, pa.int64(), kind=UdfKind.ARRAY, policy=SKIP)
    assert stored(results) == [2, 4, 6, None, 10, 12]


# containers


@pytest.mark.parametrize(
    "ranked",
    [
        lambda xs: pd.Series(xs).sort_values(ascending=False),
        lambda xs: pd.Series(xs).nlargest(3),
        lambda xs: pd.Index(sorted(xs, reverse=True)),
        lambda xs: deque(sorted(xs, reverse=True)),
        lambda xs: (x for x in sorted(xs, reverse=True)),
        lambda xs: dict.fromkeys(sorted(xs, reverse=True), 0.0) and iter(sorted(xs, reverse=True)),
        lambda xs: {-x: x for x in sorted(xs, reverse=True)}.values(),
        lambda xs: np.ma.masked_array(sorted(xs, reverse=True)),
    ],
)
def test_the_items_of_a_row_s_list_are_taken_by_their_position(ranked):
    column = pa.array([[1.0, 3.0, 2.0], [5.0, 4.0, 9.0]])
    kinds = (pa.list_(pa.float64()), pa.list_(pa.float32(), 3))
    assert all(stored(calls(ranked, kind, column=column)) == [[3.0, 2.0, 1.0], [9.0, 5.0, 4.0]] for kind in kinds)


def test_the_items_of_lists_inside_of_others_are_taken_by_their_position():
    def function(x):
        return {"xs": [pd.Series([1.0, 2.0], index=[1, 0])]}

    kind = pa.struct([("xs", pa.list_(pa.list_(pa.float64())))])
    assert stored(calls(function, kind, rows=1)) == [{"xs": [[1.0, 2.0]]}]


def test_what_is_masked_is_null():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    assert stored(calls(lambda x: masked, pa.list_(pa.float64()), rows=1)) == [[1.0, None]]
    assert stored(calls(lambda x: masked, pa.float64(), rows=2, kind=UdfKind.ARRAY)) == [1.0, None]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1.0, 2.0}, "a set is not a list, as its items have no order"),
        (frozenset({1.0}), "a frozenset is not a list"),
        ({1.0: 2.0}, "a dict is not a list"),
        ({1.0: 2.0}.keys(), "a dict_keys is not a list"),
        (pd.DataFrame({"a": [1.0]}), "a DataFrame is not a list, as it has columns"),
        (pa.table({"a": [1.0]}), "a Table is not a list, as it has columns"),
    ],
)
def test_a_container_without_order_is_no_list_of_a_row(value, words):
    with pytest.raises(JobFailing, match=words):
        calls(lambda x: value, pa.list_(pa.float64()), rows=1)
    with pytest.raises(JobFailing, match=words):
        calls(lambda x: [value], pa.list_(pa.list_(pa.float64())), rows=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: pd.DataFrame({"s": x.to_pylist()}), "it returned a DataFrame"),
        (lambda x: pa.table({"a": x, "b": x}), "it returned 2 columns"),
        (lambda x: set(x.to_pylist()), "it returned a set, whose values have no order"),
        (lambda x: frozenset(x.to_pylist()), "it returned a frozenset"),
        (lambda x: dict.fromkeys(x.to_pylist()), "it returned a dict"),
        (lambda x: dict.fromkeys(x.to_pylist()).keys(), "it returned a dict_keys"),
        (lambda x: bytearray(len(x)), "it returned a bytearray"),
        (lambda x: 5, "it returned a int"),
        (lambda x: None, "it returned None"),
    ],
)
@pytest.mark.parametrize("policy", [ErrorPolicy(), SKIP, RETRY], ids=["fail", "skip", "retry"])
def test_a_batch_result_of_the_wrong_kind_is_refused_and_no_row_is_tried_by_itself(make, words, policy):
    called = []

    def function(x):
        called.append(len(x))
        return make(x)

    if policy is SKIP:
        (result,) = calls(function, pa.int64(), kind=UdfKind.ARRAY, rows=3, policy=policy)
        assert stored([result]) == [None] * 3
        assert [words in failure.error_message for failure in result.failures] == [True] * 3
    else:
        with pytest.raises(JobFailing, match=words):
            calls(function, pa.int64(), kind=UdfKind.ARRAY, rows=3, policy=policy)
    assert called == [3]


def test_the_values_of_a_batch_are_taken_by_their_position():
    def series(x):
        return pd.Series(x.to_pylist()).sort_values(ascending=False)

    def texts(x):
        return pd.Series([str(n) for n in x.to_pylist()], index=range(len(x), 0, -1))

    assert stored(calls(series, pa.int64(), kind=UdfKind.ARRAY)) == [6, 5, 4, 3, 2, 1]
    assert stored(calls(texts, pa.string(), kind=UdfKind.ARRAY)) == list("123456")


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.float64(), 2)])
def test_an_array_of_another_library_is_taken_as_numpy_reads_it(kind):
    class Array:  # as of torch and xarray: its items are arrays again
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return self.values

        def __iter__(self):
            return map(Array, self.values)

    shape = (3,) if pa.types.is_floating(kind) else (3, 2)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert stored(calls(lambda x: Array(values), kind, kind=UdfKind.ARRAY, rows=3)) == values.tolist()


def test_a_column_of_another_library_is_taken_as_arrow():
    class Column:
        def __init__(self, values: pa.Array) -> None:
            self.values = values

        def __arrow_c_stream__(self, schema=None):
            return pa.chunked_array([self.values]).__arrow_c_stream__(schema)

    double = calls(lambda x: Column(pc.multiply(x, 2)), pa.int64(), kind=UdfKind.ARRAY)
    assert stored(double) == [2, 4, 6, 8, 10, 12]
