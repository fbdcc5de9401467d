"""Columns that a SQL expression computes; Lance evaluates it while it reads. Imports no gRPC and no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.functions.nested_types import differ_in_names, relabelled
from leman_core.model.errors import Unavailable
from leman_core.model.ranges import RowRange
from leman_core.model.udf import ErrorAction, ErrorPolicy
from leman_core.model.work import RowFailure, WorkContext
from leman_core.sql import expressions
from leman_core.storage.scan import Chunk, FragmentReader
from leman_core.storage.storage_errors import said
from leman_executor.worker.chunk_merging import gathered
from leman_executor.worker.evaluator import Evaluated, JobFailing, joined, plain

#: The name of every SQL error in error rules.
SQL_ERROR = "SqlError"
_NAMES = frozenset({SQL_ERROR, "Exception"})
_LAST_ATTEMPT = 1 << 30
_VALUE = "__leman_value"
_ERROR = "__leman_error"
_MESSAGE_CHARS = 500


class SqlSource:
    """Reads fragments with the SQL expression in place of the input columns."""

    def __init__(self, reader: FragmentReader, context: WorkContext) -> None:
        self._reader = reader
        self._context = context
        names = dict(zip(context.udf.input_columns, context.input_columns, strict=True))
        self._projection = {_VALUE: f"({expressions.with_names(context.udf.sql_expression, names)})"}

    def read(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Iterator[Chunk]:
        """Yield chunks as `FragmentReader.read` does.

        A row without a value that the error policy skips is a chunk of its own, with the error's message beside the
        NULL.

        Raises:
            JobFailing: A row has no value and the policy does not skip it, or Lance cannot plan the expression.
        """
        at = covered.start
        try:
            for chunk in self._chunks(fragment_id, covered, deletions=deletions):
                yield chunk
                at = chunk.covered.end
        except Unavailable as error:
            found = error
        else:
            return
        rest = RowRange(at, covered.end)
        self._check_planned(fragment_id, rest)
        if rest.rows == 1:
            yield from self._without_value(fragment_id, rest, found, deletions=deletions)
            return
        middle = rest.start + rest.rows // 2
        yield from self.read(fragment_id, RowRange(rest.start, middle), deletions=deletions)
        yield from self.read(fragment_id, RowRange(middle, rest.end), deletions=deletions)

    def _chunks(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Iterator[Chunk]:
        where = self._context.where
        return gathered(self._reader.read(fragment_id, covered, self._projection, deletions=deletions, where=where))

    def _check_planned(self, fragment_id: int, rows: RowRange) -> None:
        """Raise JobFailing where the expression does not fit this table: no row is to blame for that."""
        try:
            self._reader.schema(self._projection)
        except Unavailable as error:
            raise failing(fragment_id, rows, error) from error

    def _without_value(self, fragment_id: int, row: RowRange, error: Exception, *, deletions: bool) -> Iterator[Chunk]:
        inputs, where = self._context.input_columns, self._context.where
        # raises where the inputs cannot be read, which is no fault of the expression
        read = list(self._reader.read(fragment_id, row, inputs, deletions=deletions, where=where))
        if not any(len(chunk.offsets) for chunk in read):
            raise error
        if not _skips(self._context.udf.error_policy, error):
            raise failing(fragment_id, row, error) from error
        for chunk in read:
            rows = len(chunk.offsets)
            columns = [pa.nulls(rows), pa.array([_said(error)] * rows, pa.string())]
            yield Chunk(chunk.covered, chunk.offsets, pa.RecordBatch.from_arrays(columns, names=[_VALUE, _ERROR]))


class SqlValues:
    """Takes what Lance computed as it is, or cast to the column's type where that differs in its encoding."""

    def __init__(self, output: pa.DataType, policy: ErrorPolicy) -> None:
        self._output = output
        self._policy = policy

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        """Return the values of rows; see `Evaluator`.

        Raises:
            JobFailing: A value does not fit the column, and the policy does not skip it.
        """
        if rows.num_columns > 1:
            texts = rows.column(1).to_pylist()
            failures = [_failure(fragment_id, int(at), text) for at, text in zip(offsets, texts, strict=True)]
            return Evaluated(pa.nulls(len(offsets), self._output), np.ones(len(offsets), np.bool_), tuple(failures))
        values = rows.column(0)
        return self._fitted(fragment_id, offsets, values) if values.type != self._output else plain(values)

    def _fitted(self, fragment_id: int, offsets: npt.NDArray[np.int64], values: pa.Array) -> Evaluated:
        if differ_in_names(values.type, self._output):  # Arrow would cast by name
            return plain(relabelled(values, self._output))
        try:
            return plain(values.cast(self._output))
        except pa.ArrowException as error:
            if len(values) > 1:
                middle = len(values) // 2
                return joined(
                    self._fitted(fragment_id, offsets[:middle], values.slice(0, middle)),
                    self._fitted(fragment_id, offsets[middle:], values.slice(middle)),
                )
            at = int(offsets[0])
            if not _skips(self._policy, error):
                raise failing(fragment_id, RowRange(at, at + 1), error) from error
            failure = _failure(fragment_id, at, _said(error))
            return Evaluated(pa.nulls(1, self._output), np.array([True]), (failure,))


def failing(fragment_id: int, rows: RowRange, error: Exception) -> JobFailing:
    """Return the error that ends the job, with the row to blame."""
    return JobFailing(_failure(fragment_id, rows.start, _said(error)), (rows.start, rows.end))


def _skips(policy: ErrorPolicy, error: Exception) -> bool:
    """Tell whether the row is left out; nothing is tried again, as SQL gives the same error each time."""
    rule = policy.rule_for(_NAMES, _said(error), _LAST_ATTEMPT)
    return rule is not None and rule.action is ErrorAction.SKIP


def _failure(fragment_id: int, offset: int, text: str) -> RowFailure:
    return RowFailure(
        fragment_id=fragment_id, offset=offset, error_type=SQL_ERROR, message=text, traceback="", attempt=1
    )


def _said(error: Exception) -> str:
    text = said(error).partition(", /")[0].partition("\n")[0].removeprefix("External error: ")
    return text.removeprefix("LanceError(Arrow): ")[:_MESSAGE_CHARS]
