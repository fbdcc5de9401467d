"""Call a function on a batch of rows, under its error policy.

Runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman._format.value_casts import relabel, without_programs_own
from leman_core.functions import arrow_values
from leman_core.model.row_ids import isin
from leman_core.model.work import RowError
from leman_executor.worker import call_results, user_errors
from leman_executor.worker import value_conversion as conversion
from leman_executor.worker.call_guards import Call, ForkReturned, Watchdog, forked_children
from leman_executor.worker.call_results import Converted, WrongResult
from leman_executor.worker.user_errors import BatchNotes, BatchTooLarge, FunctionLost, NoServer
from leman_executor.worker.value_conversion import CONVERSION_ERRORS, Converter

_STOPPED = "the function raised it: next() on an empty iterator?"
#: An attempt number that stands for the last attempt, for errors that further attempts would repeat.
_NO_MORE_ATTEMPTS = 1 << 30
#: If a batch ends servers of a remote function, the batch is cut into this number of parts. A server's end costs a
#: restart, a part only a message.
_PARTS_OF_DEADLY = 32
#: Number of rows that are converted at once for a function that takes one row at a time, if the results are easily
#: combined. The objects of more rows would not fit into a core's cache, and Python would not return their memory to the
#: system.
_CONVERTED_ROWS = 1 << 14


class OutputError(ValueError):
    """The function's result has the wrong length or does not have the declared type.

    Args:
        message: What is wrong with the result.
        is_final: Whether the same rows, or fewer of them, would cause the same error.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class InputError(ValueError):
    """A value of an input column has no counterpart in Python."""


class JobFailing(Exception):
    """An error after which the job must end, because the error policy does not skip it.

    Args:
        failure: The row that caused the error, or the first row of a batch that raised as a whole.
        rows: The offset of the first row that may have caused the error, and the offset after the last such row.
        before: Values of the rows of the same batch that were evaluated before the error; None if there are none.
    """

    def __init__(self, failure: RowError, rows: tuple[int, int], before: Evaluated | None = None) -> None:
        super().__init__(failure.error_message)
        self.failure = failure
        self.rows = rows
        self.before = before


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The values for the rows that the function was called with."""

    #: One value for each row; NULL if the row failed.
    values: pa.Array
    #: True for each failed row; None if no row failed.
    failed: npt.NDArray[np.bool_] | None
    failures: tuple[RowError, ...]


def plain(values: pa.Array) -> Evaluated:
    """Return `values` as the result of rows that all succeeded."""
    return Evaluated(values, None, ())


def joined(*parts: Evaluated) -> Evaluated:
    """Concatenate the parts of a batch."""
    if len(parts) == 1:
        return parts[0]
    values = arrow_values.concatenate([part.values for part in parts])
    if all(part.failed is None for part in parts):
        return plain(values)
    failed = [part.failed if part.failed is not None else np.zeros(len(part.values), np.bool_) for part in parts]
    return Evaluated(values, np.concatenate(failed), tuple(failure for part in parts for failure in part.failures))


class Evaluator:
    """A function with its output type and its error policy. Make one for each unit of work.

    Args:
        notes: Receives notes about batches that are split and retried, and about all batches of a remote function.
    """

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
        notes: BatchNotes | None = None,
    ) -> None:
        self._notes = notes
        self._servers = notes if kind is UdfKind.REMOTE else None
        self._function = function
        self._kind = kind
        self._name = name
        self._output = output
        self._convert = Converter(output)
        self._inputs = input_columns
        self._policy = policy
        #: Whether all results of the current rows are values of `Converter.plain_types`.
        self._are_plain = True
        self._children = forked_children()
        #: Whether the function may get the same batch more than once. (A server gets a copy each time.)
        self._calls_again = kind is not UdfKind.REMOTE and any(r.action is not ErrorAction.FAIL for r in policy.rules)
        self._watchdog = watchdog or Watchdog()

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        """Evaluate all rows.

        Raises:
            JobFailing: A row raised or its result does not have the type, and the error policy does not skip it.
            LemanError: No server of a remote function is available.
        """
        forks = self._children.forks
        evaluated = self._evaluated(fragment_id, offsets, _as_anywhere(rows))
        try:
            self._children.check(forks)
        except ForkReturned as error:
            span = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 1)
            raise JobFailing(user_errors.to_row_failure(error, fragment_id, span[0], 1), span) from error
        return evaluated

    def _evaluated(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        if self._kind is UdfKind.SCALAR:
            size = _CONVERTED_ROWS if pt.is_primitive(self._output) else max(1, rows.num_rows)
            parts: list[Evaluated] = []
            for at in range(0, max(1, rows.num_rows), size):
                try:
                    parts.append(self._scalar(fragment_id, offsets[at : at + size], rows.slice(at, size)))
                except JobFailing as failing:
                    before = [*parts, *([] if failing.before is None else [failing.before])]
                    failing.before = joined(*before) if before else None
                    raise
            return joined(*parts)
        return self._batch(fragment_id, offsets, rows)

    # Functions that take one row at a time.

    def _scalar(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        function, values_of = self._function, _python_values
        arguments = [_python_values(column) for column in rows.columns]
        if any(isinstance(value, InputError) for column in arguments for value in column[:1]):
            function, values_of = _refusing(function), _each_value
            arguments = [_each_value(column) for column in rows.columns]
        results: list[Any] = []
        failures: list[RowError] = []
        self._are_plain = True
        watching = self._watchdog.watching(Call(fragment_id, offsets, results))
        with self._children.calling(arguments), watching as call:
            while len(results) < rows.num_rows:
                stopped: BaseException = StopIteration(_STOPPED)
                try:
                    self._call_rows(function, arguments, results)
                except BaseException as error:  # noqa: BLE001 user code may raise anything
                    stopped = error
                    self._children.end_if_child(error)
                self._children.end_if_child()
                if len(results) < rows.num_rows:
                    at = len(results)

                    def again(place: int = at) -> Any:  # with new arguments: the function may change them
                        return self._kept(function(*(values_of(column.slice(place, 1))[0] for column in rows.columns)))

                    try:
                        value, failure = self._row_again(stopped, again, call, int(offsets[at]))
                    except JobFailing as failing:
                        if at:
                            with contextlib.suppress(JobFailing):  # the conversion of a result may fail
                                failing.before = self._to_arrow(results, failures, fragment_id, offsets[:at])
                        raise
                    results.append(value)
                    if failure is not None:
                        failures.append(failure)
        return self._to_arrow(results, failures, fragment_id, offsets)

    def _call_rows(self, function: Callable[..., Any], arguments: list[list[Any]], results: list[Any]) -> None:
        """Call the function with those rows that have no result in `results` yet. Append the new results to `results`.

        Raises:
            Exception: The function's error for the next row.
        """
        plain, kept, add, begin = self._convert.plain_types, self._kept, results.append, len(results)
        remaining = [itertools.islice(values, begin, None) for values in arguments]
        try:
            if len(remaining) == 1:  # faster than `map`
                for value in remaining[0]:
                    result = function(value)
                    if type(result) not in plain:
                        result = kept(result)
                    add(result)
            else:
                for result in map(function, *remaining):
                    add(result if type(result) in plain else kept(result))
        except StopIteration as error:
            raise StopIteration(*error.args or (_STOPPED,)).with_traceback(error.__traceback__) from None

    def _kept(self, result: Any) -> Any:
        """Return a result in a form that later calls cannot change."""
        if type(result) in self._convert.plain_types:
            return result
        self._are_plain = False
        if type(result) in conversion.LASTING:
            return result
        return call_results.keep_result(result, self._convert, user_errors.format_value)

    def _row_again(
        self, error: BaseException, row: Callable[[], Any], call: Call, offset: int
    ) -> tuple[Any, RowError | None]:
        """Apply the policy to a row that raised. Return the value of a later attempt, or None and the failure."""
        attempt = 1
        while True:
            rule = self._rule(error, attempt)
            if rule is None or rule.action is ErrorAction.FAIL:
                raise JobFailing(
                    user_errors.to_row_failure(error, call.fragment_id, offset, attempt), (offset, offset + 1)
                ) from error
            if rule.action is ErrorAction.SKIP:
                return None, user_errors.to_row_failure(error, call.fragment_id, offset, attempt)
            with call.resting():
                time.sleep(rule.pause(attempt))
            attempt += 1
            try:
                value = row()
            except BaseException as again:  # noqa: BLE001
                error = again
                self._children.end_if_child(error)
            else:
                self._children.end_if_child()
                return value, None

    def _rule(self, error: BaseException, attempt: int) -> ErrorRule | None:
        return self._policy.rule_for(user_errors.error_names(error), user_errors.error_text(error), attempt)

    def _to_arrow(
        self, results: list[Any], failures: list[RowError], fragment_id: int, offsets: npt.NDArray[np.int64]
    ) -> Evaluated:
        try:
            values = call_results.joined(results, self._convert, are_plain=self._are_plain)
        except Exception:  # noqa: BLE001 converting an object calls its methods
            values = self._convert_each(results, failures, fragment_id, offsets)
        if not failures:
            return Evaluated(values, None, ())
        failed = isin(offsets, np.array([f.offset for f in failures], np.int64))
        return Evaluated(values, failed, tuple(failures))

    def _convert_each(
        self, results: list[Any], failures: list[RowError], fragment_id: int, offsets: npt.NDArray[np.int64]
    ) -> pa.Array:
        """Convert each result by itself. Apply the policy to each row whose result does not have the declared type."""
        columns = []
        for value, offset in zip(results, offsets, strict=True):
            one = value if type(value) is Converted else Converted(value, self._convert, user_errors.format_value)
            if one.values is not None:
                columns.append(one.values)
            else:
                wrong = OutputError(
                    f"UDF '{self._name}' failed with type error: it returned {one.shown} "
                    f"({one.name}), its output type is {self._output}: {one.error}"
                )
                rule = self._rule(wrong, _NO_MORE_ATTEMPTS)
                failure = user_errors.to_row_failure(wrong, fragment_id, int(offset), 1)
                if rule is None or rule.action is not ErrorAction.SKIP:
                    raise JobFailing(failure, (int(offset), int(offset) + 1)) from one.error
                failures.append(failure)
                columns.append(pa.nulls(1, self._output))
        try:
            return arrow_values.concatenate(columns)
        except pa.ArrowException as error:  # each converts alone, but together they overflow a dictionary
            wrong = OutputError(f"UDF '{self._name}' failed with type error: {error} (output type {self._output})")
            span = (int(offsets[0]), int(offsets[-1]) + 1)
            raise JobFailing(user_errors.to_row_failure(wrong, fragment_id, span[0], 1), span) from error

    # Functions that take a batch at a time.

    def _batch(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        attempt = 1
        while True:
            given = call_results.own_rows(rows) if self._calls_again else rows
            try:
                values = self._call_batch(fragment_id, offsets, given)
                self._children.end_if_child()
                self._note_answer(None)
                return plain(values)
            except NoServer as nobody:
                raise nobody.error from None
            except BaseException as error:
                self._children.end_if_child(error)
                self._note_answer(error)
                is_final = isinstance(error, OutputError) and error.is_final
                rule = self._rule(error, _NO_MORE_ATTEMPTS if is_final else attempt)
                if rule is None or rule.action is ErrorAction.FAIL:
                    span = (int(offsets[0]), int(offsets[-1]) + 1)
                    raise JobFailing(user_errors.to_row_failure(error, fragment_id, span[0], attempt), span) from error
                if rule.action is ErrorAction.RETRY:
                    time.sleep(rule.pause(attempt))
                    attempt += 1
                    continue
                if rows.num_rows == 1 or is_final:
                    self._note_given_up(error)
                    failures = tuple(user_errors.to_row_failure(error, fragment_id, int(at), attempt) for at in offsets)
                    return Evaluated(pa.nulls(len(offsets), self._output), np.full(len(offsets), True), failures)
                return self._isolate(error, fragment_id, offsets, rows)

    def _note_answer(self, error: BaseException | None) -> None:
        if self._servers is not None and not isinstance(error, FunctionLost | BatchTooLarge):
            self._servers.batch_answered()

    def _note_given_up(self, error: BaseException) -> None:
        if self._servers is not None and isinstance(error, FunctionLost):
            self._servers.row_lost(user_errors.error_text(error))

    def _isolate(
        self, error: BaseException, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch
    ) -> Evaluated:
        """Evaluate the rows in halves.

        If each failing call ends a server, use many parts, because restarts are slow.
        """
        if self._notes is not None:
            self._notes.batch_split(user_errors.describe_error(error).splitlines()[0])
        parts = _PARTS_OF_DEADLY if isinstance(error, FunctionLost) else 2
        size = -(-rows.num_rows // parts)
        begins = range(0, rows.num_rows, size)
        return joined(*(self._batch(fragment_id, offsets[at : at + size], rows.slice(at, size)) for at in begins))

    def _call_batch(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> pa.Array:
        with self._watchdog.watching(Call(fragment_id, offsets)) as call:
            if self._kind is UdfKind.ARRAY:
                result = self._function(*rows.columns)
            else:
                named = pa.RecordBatch.from_arrays(rows.columns, names=list(self._inputs))
                remote = (call.resting,) if self._kind is UdfKind.REMOTE else ()
                result = self._function(named, *remote)
        return self._as_output(result, rows)

    def _as_output(self, result: Any, rows: pa.RecordBatch) -> pa.Array:
        try:
            values = call_results.batch_values(result, self._convert)
            values = conversion.cast(values, self._output)
        except CONVERSION_ERRORS as error:
            raise OutputError(
                f"UDF '{self._name}' failed with type error: {error}\nInput batch schema: "
                f"{', '.join(f'{f.name}: {f.type}' for f in rows.schema)}\n"
                f"UDF expects input_columns: {list(self._inputs)}\nUDF output type: {self._output}",
                is_final=isinstance(error, WrongResult),
            ) from error
        if len(values) != rows.num_rows:
            raise OutputError(
                f"UDF '{self._name}' returned {len(values)} values for {rows.num_rows} rows: "
                "it must return one value for each row of the batch"
            )
        return values


def _as_anywhere(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in a form that does not depend on the modules that the function's process has imported."""
    kinds = [without_programs_own(kind) for kind in rows.schema.types]
    if kinds == rows.schema.types:
        return rows
    columns = [relabel(values, kind) for values, kind in zip(rows.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column. If Python cannot represent one, the list begins with an InputError."""
    try:
        values: list[Any] = column.to_pylist()
    except Exception as error:  # noqa: BLE001 such as dates beyond 9999, unknown time zones
        return [InputError(str(error))]
    return values


def _each_value(column: pa.Array) -> list[Any]:
    """Return the values of a column. Replace each value that Python cannot represent by an InputError."""
    values: list[Any] = []
    for scalar in column:
        try:
            values.append(scalar.as_py())
        except Exception as error:  # noqa: BLE001
            values.append(InputError(f"a value of type {column.type} cannot be given to a function: {error}"))
    return values


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that it raises an InputError that it gets as an argument."""

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, InputError):
                raise argument
        return function(*arguments)

    return call
