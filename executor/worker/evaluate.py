"""Calls a function on a batch of rows, under its error policy.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core.domain.udf import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from core.domain.work import RowFailure
from executor.worker import values as conversion
from executor.worker.values import CONVERSION_ERRORS
from executor.worker.watchdog import Call, Watchdog

_MESSAGE_CHARS = 2048
_TRACEBACK_CHARS = 4096
_PLAIN = frozenset({"builtins", "__main__", __name__})  # modules that say nothing in front of a class name


class OutputError(ValueError):
    """The function's result cannot be used: wrong length, or not of the declared type."""


class InputError(ValueError):
    """A value of an input column has no counterpart in Python."""


class JobFailing(Exception):
    """An error that the policy does not forgive. `row` is the row to blame; None where a whole batch raised."""

    def __init__(self, failure: RowFailure, rows: tuple[int, int]) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Evaluated:
    """`values` has one entry for each row given, NULL where it failed; `failed` marks those, or is None."""

    values: pa.Array
    failed: npt.NDArray[np.bool_] | None
    failures: tuple[RowFailure, ...]


class Evaluator:
    """A function, its output type and its error policy. One instance per unit of work."""

    def __init__(
        self,
        function: Callable[..., Any],
        kind: UdfKind,
        name: str,
        output: pa.DataType,
        input_columns: tuple[str, ...],
        policy: ErrorPolicy,
        *,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._function = function
        self._kind = kind
        self._name = name
        self._output = output
        self._inputs = input_columns
        self._policy = policy
        self._watchdog = watchdog or Watchdog()

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        """Evaluates all rows. Raises JobFailing by policy."""
        if self._kind is UdfKind.SCALAR:
            return self._scalar(fragment_id, offsets, rows)
        return self._batch(fragment_id, offsets, rows)

    # one row at a time

    def _scalar(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        function, arguments = self._function, [_python_values(column) for column in rows.columns]
        if any(isinstance(value, InputError) for column in arguments for value in column[:1]):
            function, arguments = _refusing(function), [_each_value(column) for column in rows.columns]
        results: list[Any] = []
        failures: list[RowFailure] = []
        with self._watchdog.watching(Call(fragment_id, offsets, results)) as call:
            while len(results) < rows.num_rows:
                begin = len(results)
                try:
                    # extend keeps what came before the exception, so that no row is called twice
                    results.extend(map(function, *(a[begin:] if begin else a for a in arguments)))
                except Exception as error:  # noqa: BLE001 whatever user code raises
                    at = len(results)
                    row = functools.partial(function, *(a[at] for a in arguments))
                    value, failure = self._row_again(error, row, call, int(offsets[at]))
                    results.append(value)
                    if failure is not None:
                        failures.append(failure)
        return self._to_arrow(results, failures, fragment_id, offsets)

    def _row_again(
        self, error: Exception, row: Callable[[], Any], call: Call, offset: int
    ) -> tuple[Any, RowFailure | None]:
        """Applies the policy to a row that raised: the value of a later attempt, or None and the failure."""
        attempt = 1
        while True:
            rule = self._rule(error, attempt)
            if rule is None or rule.action is ErrorAction.FAIL:
                raise JobFailing(_failure(error, call.fragment_id, offset, attempt), (offset, offset + 1)) from error
            if rule.action is ErrorAction.SKIP:
                return None, _failure(error, call.fragment_id, offset, attempt)
            with call.resting():
                time.sleep(rule.pause(attempt))
            attempt += 1
            try:
                return row(), None
            except Exception as again:  # noqa: BLE001
                error = again

    def _rule(self, error: Exception, attempt: int) -> ErrorRule | None:
        return self._policy.rule_for(_names(error), str(error), attempt)

    def _to_arrow(
        self, results: list[Any], failures: list[RowFailure], fragment_id: int, offsets: npt.NDArray[np.int64]
    ) -> Evaluated:
        try:
            values = conversion.to_array(results, self._output)
        except CONVERSION_ERRORS:
            values = self._convert_each(results, failures, fragment_id, offsets)
        if not failures:
            return Evaluated(values, None, ())
        failed = np.isin(offsets, [f.offset for f in failures])
        return Evaluated(values, failed, tuple(failures))

    def _convert_each(
        self, results: list[Any], failures: list[RowFailure], fragment_id: int, offsets: npt.NDArray[np.int64]
    ) -> pa.Array:
        """Finds the rows whose result is not of the declared type; the policy decides about each."""
        columns = []
        for value, offset in zip(results, offsets, strict=True):
            try:
                columns.append(conversion.to_array([value], self._output))
            except CONVERSION_ERRORS as error:
                wrong = OutputError(
                    f"UDF '{self._name}' failed with type error: it returned {_short(value)} "
                    f"({type(value).__name__}), its output type is {self._output}: {error}"
                )
                rule = self._rule(wrong, attempt=1 << 30)
                failure = _failure(wrong, fragment_id, int(offset), 1)
                if rule is None or rule.action is not ErrorAction.SKIP:
                    raise JobFailing(failure, (int(offset), int(offset) + 1)) from error
                failures.append(failure)
                columns.append(pa.nulls(1, self._output))
        try:
            return pa.concat_arrays(columns)
        except pa.ArrowException as error:  # each fits, all together do not: a dictionary is full
            wrong = OutputError(f"UDF '{self._name}' failed with type error: {error} (output type {self._output})")
            span = (int(offsets[0]), int(offsets[-1]) + 1)
            raise JobFailing(_failure(wrong, fragment_id, span[0], 1), span) from error

    # a batch at a time

    def _batch(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        attempt = 1
        while True:
            try:
                return Evaluated(self._call_batch(fragment_id, offsets, rows), None, ())
            except Exception as error:
                rule = self._rule(error, attempt)
                if rule is None or rule.action is ErrorAction.FAIL:
                    span = (int(offsets[0]), int(offsets[-1]) + 1)
                    raise JobFailing(_failure(error, fragment_id, span[0], attempt), span) from error
                if rule.action is ErrorAction.RETRY:
                    time.sleep(rule.pause(attempt))
                    attempt += 1
                    continue
                if rows.num_rows == 1:
                    failure = _failure(error, fragment_id, int(offsets[0]), attempt)
                    return Evaluated(pa.nulls(1, self._output), np.array([True]), (failure,))
                return self._bisect(fragment_id, offsets, rows)

    def _bisect(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        middle = rows.num_rows // 2
        left = self._batch(fragment_id, offsets[:middle], rows.slice(0, middle))
        right = self._batch(fragment_id, offsets[middle:], rows.slice(middle))
        failed = [
            part.failed if part.failed is not None else np.zeros(len(part.values), np.bool_) for part in (left, right)
        ]
        values = pa.concat_arrays([left.values, right.values])
        return Evaluated(values, np.concatenate(failed), left.failures + right.failures)

    def _call_batch(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> pa.Array:
        with self._watchdog.watching(Call(fragment_id, offsets)):
            if self._kind is UdfKind.ARRAY:
                result = self._function(*rows.columns)
            else:
                named = pa.RecordBatch.from_arrays(rows.columns, names=list(self._inputs))
                result = self._function(named)
        return self._as_output(result, rows)

    def _as_output(self, result: Any, rows: pa.RecordBatch) -> pa.Array:
        if isinstance(result, pa.RecordBatch | pa.Table) and result.num_columns == 1:
            result = result.column(0)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        try:
            if not isinstance(result, pa.Array):
                result = self._from_python(result)
            result = conversion.cast(result, self._output)
        except CONVERSION_ERRORS as error:
            raise OutputError(
                f"UDF '{self._name}' failed with type error: {error}\nInput batch schema: "
                f"{', '.join(f'{f.name}: {f.type}' for f in rows.schema)}\n"
                f"UDF expects input_columns: {list(self._inputs)}\nUDF output type: {self._output}"
            ) from error
        if len(result) != rows.num_rows:
            raise OutputError(
                f"UDF '{self._name}' returned {len(result)} values for {rows.num_rows} rows: "
                "it must return one value for each row of the batch"
            )
        return result

    def _from_python(self, result: Any) -> pa.Array:
        """What is no Arrow array: numpy and pandas know their type, lists do not."""
        if getattr(result, "dtype", None) is not None and result.dtype.kind in "biufMm":
            made = pa.array(result)
            return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
        return conversion.to_array(list(result), self._output)


def _python_values(column: pa.Array) -> list[Any]:
    """The values of a column; where there is one that Python cannot hold, a list that begins with an InputError."""
    try:
        values: list[Any] = column.to_pylist()
    except Exception as error:  # noqa: BLE001 -- dates beyond the year 9999, unknown time zones, and what comes next
        return [InputError(str(error))]
    return values


def _each_value(column: pa.Array) -> list[Any]:
    """As `_python_values`, one by one: an InputError in place of each value that Python cannot hold."""
    values: list[Any] = []
    for scalar in column:
        try:
            values.append(scalar.as_py())
        except Exception as error:  # noqa: BLE001
            values.append(InputError(f"a value of type {column.type} cannot be given to a function: {error}"))
    return values


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises an InputError that it is given."""

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, InputError):
                raise argument
        return function(*arguments)

    return call


def _names(error: Exception) -> set[str]:
    return {n for c in type(error).__mro__ for n in (c.__name__, f"{c.__module__}.{c.__qualname__}")}


def _failure(error: Exception, fragment_id: int, offset: int, attempt: int) -> RowFailure:
    kind = type(error)
    name = kind.__name__ if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
    # our own frame comes first; the author wants theirs
    frames = traceback.format_exception(kind, error, error.__traceback__.tb_next if error.__traceback__ else None)
    text = "".join(frames)
    return RowFailure(fragment_id, offset, name, _short(error), text[-_TRACEBACK_CHARS:], attempt)


def _short(value: object) -> str:
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 1] + "…"
