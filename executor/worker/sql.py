"""Columns that a SQL expression computes: Lance evaluates it while it reads. Imports no gRPC and no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core.domain.ranges import RowRange
from core.domain.work import RowFailure, WorkContext
from core.lance_io import expressions
from core.lance_io.scan import Chunk, FragmentReader
from executor.worker.evaluate import Evaluated, JobFailing

_VALUE = "__leman_value"
_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
_MESSAGE_CHARS = 500


class SqlSource:
    """Reads fragments with the expression in place of the input columns."""

    def __init__(self, reader: FragmentReader, context: WorkContext) -> None:
        self._reader = reader
        self._context = context
        names = dict(zip(context.udf.input_columns, context.input_columns, strict=True))
        self._projection = {_VALUE: f"({expressions.with_names(context.udf.sql_expression, names)})"}

    def read(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Iterator[Chunk]:
        """As `FragmentReader.read`. Raises JobFailing for the first row for which there is no value."""
        at = covered.start
        try:
            for chunk in self._chunks(fragment_id, covered, deletions=deletions):
                yield chunk
                at = chunk.covered.end
        except _ERRORS as error:
            raise self._blamed(fragment_id, RowRange(at, covered.end), error, deletions=deletions) from error

    def _chunks(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Iterator[Chunk]:
        return self._reader.read(fragment_id, covered, self._projection, deletions=deletions, where=self._context.where)

    def _blamed(self, fragment_id: int, rest: RowRange, error: Exception, *, deletions: bool) -> Exception:
        """The error as it is where no single row is to blame: the storage may be."""
        while rest.rows > 1:
            half = RowRange(rest.start, rest.start + rest.rows // 2)
            if self._fails(fragment_id, half, deletions=deletions) is None:
                half = RowRange(half.end, rest.end)
            rest = half
        found = self._fails(fragment_id, rest, deletions=deletions)
        return error if found is None else failing(fragment_id, rest, found)

    def _fails(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Exception | None:
        inputs, where = self._context.input_columns, self._context.where
        for _ in self._reader.read(fragment_id, covered, inputs, deletions=deletions, where=where):
            pass  # what cannot be read is no fault of the expression
        try:
            for _ in self._chunks(fragment_id, covered, deletions=deletions):
                pass
        except _ERRORS as error:
            return error
        return None


class SqlValues:
    """Takes what Lance computed as it is, or as the column's type where that differs in its encoding."""

    def __init__(self, output: pa.DataType) -> None:
        self._output = output

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
        """See `Evaluator`. Raises JobFailing where values do not fit the column."""
        values = rows.column(0)
        if values.type != self._output:
            try:
                values = values.cast(self._output)
            except pa.ArrowException as error:
                raise failing(fragment_id, RowRange(int(offsets[0]), int(offsets[-1]) + 1), error) from error
        return Evaluated(values, None, ())


def failing(fragment_id: int, rows: RowRange, error: Exception) -> JobFailing:
    """The end of the job, with the row to blame."""
    text = str(error).partition(", /")[0].partition("\n")[0].removeprefix("External error: ")
    row = RowFailure(fragment_id, rows.start, "SqlError", text[:_MESSAGE_CHARS], "", 1)
    return JobFailing(row, (rows.start, rows.end))
