"""Whatever a function raises or returns is a row's failure, by policy: never the end of its worker, never a hang."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_executor.worker import user_errors
from leman_executor.worker.evaluator import Evaluated, Evaluator, JobFailing

SKIP_ALL = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Outside(BaseException):
    pass


class Demanding(Exception):
    """Cannot be made again from its text alone."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


class Unreadable:
    """Neither its items nor its looks can be had."""

    def __iter__(self):
        raise RuntimeError("no items")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index):
        raise KeyError(index)

    def __repr__(self) -> str:
        raise RuntimeError("no looks")


def evaluate(function, policy=SKIP_ALL, kind=UdfKind.SCALAR, output=None) -> Evaluated:
    rows = pa.RecordBatch.from_pydict({"x": pa.array(range(8), pa.int64())})
    evaluator = Evaluator(function, kind, "f", output or pa.int64(), ("x",), policy)
    return evaluator(0, np.arange(8), rows)


def raising(error):
    def function(x):
        if x == 3:
            raise error
        return x

    return function


def leaving(x):
    if x == 3:
        sys.exit(2)
    return x


def exhausted(x):
    return next(iter([] if x == 3 else [x]))


CASES = {
    "StopIteration": exhausted,
    "SystemExit": leaving,
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "Outside": raising(Outside("far")),
    "Unspeakable": raising(Unspeakable()),
    "Demanding": raising(Demanding(7, reason="of its own")),
    "ExceptionGroup": raising(ExceptionGroup("several", [ValueError("one"), KeyError("two")])),
    "RuntimeError": raising(RuntimeError(lambda: 0)),  # cannot be pickled
    "ValueError": raising(ValueError("half of a pair: \ud800")),
}


@pytest.mark.parametrize("name", CASES)
def test_each_row_is_evaluated_but_the_one_that_raised(name):
    found = evaluate(CASES[name])
    assert found.values.to_pylist() == [0, 1, 2, None, 4, 5, 6, 7]
    assert found.failed.tolist() == [x == 3 for x in range(8)]
    (failure,) = found.failures
    assert failure.offset == 3
    assert failure.error_type.split(".")[-1] == name
    json.dumps([failure.error_message, failure.traceback]).encode()


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_split_down_to_the_row_that_raised(name):
    def batch(xs):
        return pa.array([CASES[name](x) for x in xs.to_pylist()])

    found = evaluate(batch, kind=UdfKind.ARRAY)
    assert found.values.to_pylist() == [0, 1, 2, None, 4, 5, 6, 7]
    assert [f.offset for f in found.failures] == [3]


@pytest.mark.parametrize("name", ["StopIteration", "SystemExit", "KeyboardInterrupt", "BaseException"])
def test_a_rule_names_what_is_no_exception(name):
    case = CASES.get(name, CASES["Outside"])
    found = evaluate(case, ErrorPolicy((ErrorRule(ErrorAction.SKIP, (name,)),)))
    assert [f.offset for f in found.failures] == [3]
    with pytest.raises(JobFailing):
        evaluate(case, ErrorPolicy((ErrorRule(ErrorAction.SKIP, ("ValueError",)),)))


@pytest.mark.parametrize("output", [pa.int64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str)
def test_an_error_is_the_same_whatever_the_function_returns(output):
    found = evaluate(raising(OSError("no answer")), output=output)
    assert [(f.offset, f.error_type, f.error_message) for f in found.failures if f.offset == 3] == [
        (3, "OSError", "no answer")
    ]


def test_a_row_that_stopped_is_tried_again():
    calls = []

    def flaky(x):
        calls.append(x)
        return next(iter([] if calls.count(3) == 1 and x == 3 else [x]))

    found = evaluate(flaky, ErrorPolicy((ErrorRule(ErrorAction.RETRY, max_attempts=2),)))
    assert found.values.to_pylist() == list(range(8))
    assert calls == [0, 1, 2, 3, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("output", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str)
def test_a_result_that_cannot_be_looked_at_is_a_failed_row(output):
    found = evaluate(lambda x: Unreadable() if x == 3 else None, output=output)
    assert [(f.offset, f.error_type) for f in found.failures] == [(3, "OutputError")]
    assert "an object whose repr raised" in found.failures[0].error_message


def test_a_matrix_is_a_list_for_each_row():
    found = evaluate(
        lambda xs: np.stack([np.arange(2, dtype=np.float32) + x for x in xs.to_numpy()]),
        kind=UdfKind.ARRAY,
        output=pa.list_(pa.float32(), 2),
    )
    assert found.values.to_pylist() == [[x, x + 1.0] for x in range(8)]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returned None, not one value for each row"),
        ("x" * 8, "returned a str"),
        ({"x": range(8)}, "returned a dict"),
        (pa.table({"a": range(8), "b": range(8)}), "returned 2 columns"),
        (pa.array(["{}"] * 7 + ["{"], pa.json_()), "property name"),
    ],
    ids=["none", "str", "dict", "table", "json"],
)
def test_what_is_no_batch_of_values_is_told(result, said):
    output = pa.json_() if isinstance(result, pa.Array) else pa.int64()
    with pytest.raises(JobFailing, match=said):
        evaluate(lambda _: result, ErrorPolicy(), kind=UdfKind.ARRAY, output=output)


def test_the_pause_before_a_late_attempt_is_bounded():
    rule = ErrorRule(ErrorAction.RETRY, max_attempts=5000, initial_backoff_seconds=0.5, max_backoff_seconds=60.0)
    assert [rule.pause(attempt) for attempt in (1, 2, 20, 4000)] == [0.5, 1.0, 60.0, 60.0]
    assert ErrorRule(ErrorAction.RETRY, max_attempts=5000).pause(4000) == 0.0


def test_a_module_that_is_missing_is_told_with_the_python_that_lacks_it():
    try:
        import no_such_module  # noqa: F401
    except ImportError as error:
        failed = user_errors.to_row_failure(error, 0, 0, 1)
    assert failed.error_message.startswith(
        f"No module named 'no_such_module' (functions run in {sys.executable}: install it"
    )
    assert "run the services by the Python that has it" in failed.error_message
    assert user_errors.missing_module(ImportError("no")) == ""


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (TypeError("object of type 'NoneType' has no len()"), True),
        (AttributeError("'NoneType' object has no attribute 'split'"), True),
        (TypeError("'int' object is not iterable"), False),
        (ValueError("NoneType"), False),
    ],
)
def test_a_function_that_does_something_with_none_is_told_of_null(error, hint):
    message = user_errors.to_row_failure(error, 0, 0, 1).error_message
    assert message.startswith(str(error))
    assert ("where an input is NULL the function is given None" in message) is hint


ROWS = 50_000


def many(function, policy=SKIP_ALL, output=None) -> Evaluated:
    """Evaluates more rows than are converted at once; their offsets begin at 100."""
    rows = pa.RecordBatch.from_pydict({"x": pa.array(range(ROWS), pa.int64())})
    evaluator = Evaluator(function, UdfKind.SCALAR, "f", output or pa.int64(), ("x",), policy)
    return evaluator(0, np.arange(100, 100 + ROWS), rows)


def raising_at(places):
    def function(x):
        if x in places:
            raise ValueError(f"no {x}")
        return -x

    return function


@pytest.mark.parametrize("output", [pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_rows_that_fail_among_many_keep_their_places(output):
    places = {3, 16_383, 16_384, 20_000, ROWS - 1}
    fails = raising_at(places)
    result = many(fails if output == pa.int64() else lambda x: str(fails(x) % 7), output=output)
    assert [failure.offset - 100 for failure in result.failures] == sorted(places)
    assert set(np.flatnonzero(result.failed)) == places
    values = [None if x in places else -x if output == pa.int64() else str(-x % 7) for x in range(ROWS)]
    assert result.values.type == output
    assert result.values.to_pylist() == values


def test_each_of_many_rows_is_called_once_and_in_order():
    called = []
    result = many(lambda x: called.append(x) or x)
    assert called == list(range(ROWS)) == result.values.to_pylist()
    assert result.failed is None


def test_the_row_that_ends_a_job_is_named_among_many():
    with pytest.raises(JobFailing) as failing:
        many(raising_at({30_000}), policy=ErrorPolicy())
    assert failing.value.rows == (30_100, 30_101)
    assert failing.value.failure.offset == 30_100


def failing_message(function, output=None) -> str:
    return evaluate(function, output=output).failures[0].error_message


def test_a_relative_path_that_is_not_there_is_told_where_functions_run(tmp_path):
    assert "run in another folder: use an absolute path" in failing_message(lambda _: Path("none/x.bin").read_bytes())
    assert "another folder" not in failing_message(lambda _: (tmp_path / "none").read_bytes())
    assert "another folder" not in failing_message(raising(FileNotFoundError("weights")))


def test_a_variable_that_is_not_set_is_told_how_it_is_given():
    advice = "env={'LEMAN_TEST_NOT_SET': os.environ['LEMAN_TEST_NOT_SET']}, or --env LEMAN_TEST_NOT_SET)"
    assert advice in failing_message(lambda _: os.environ["LEMAN_TEST_NOT_SET"])
    assert "env" not in failing_message(lambda _: {}["LEMAN_TEST_NOT_SET"])
    assert "env" not in failing_message(raising(KeyError("LEMAN_TEST_NOT_SET")))


@dataclass
class Record:
    a: int


class Model:
    """As pydantic's are."""

    def model_dump(self) -> dict[str, int]:
        return {"a": 1}


@pytest.mark.parametrize(
    ("value", "output", "words"),
    [
        (1, pa.string(), r"a text is expected: return str\(...\)"),
        (b"x" * 3 + b"\xff", pa.large_string(), r"a text is expected: decode\(\)"),
        (True, pa.int64(), r"a bool is not a number: return int\(...\)"),
        (1.5, pa.int64(), "1.5 is not a whole number"),
        (Record(1), pa.struct([("a", pa.int64())]), r"a dict is expected: return dataclasses.asdict\(...\)"),
        (Model(), pa.struct([("a", pa.int64())]), r"a dict is expected: return the model's model_dump\(\)"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words_of_python(value, output, words):
    said = failing_message(lambda _: value, output)
    assert re.search(words, said)
    assert "Expected bytes" not in said
