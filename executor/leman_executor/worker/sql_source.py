"""Read the values of a SQL expression, which Lance evaluates while it reads.

Several passes over a fragment, each with its expression, can share one scan. Small chunks are merged if they come fast,
because writing each chunk to the column file has a fixed cost. Imports neither gRPC nor Spark.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from leman._format.stored_functions import ErrorAction, ErrorPolicy
from leman._format.value_casts import differ_in_names, holds_type, relabel
from leman_core.functions.arrow_values import single_batch
from leman_core.model.row_positions import RowAddress, RowRange
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.work import RowError, WorkContext
from leman_core.sql import expressions
from leman_core.storage.scan import CHUNK_BYTES, CHUNK_ROWS, Chunk, Columns, FragmentReader
from leman_core.storage.storage_errors import error_text
from leman_executor.worker.evaluator import Evaluated, JobFailing, joined, plain

_SECONDS = 0.05


def merge_chunks(chunks: Iterator[Chunk], clock: Callable[[], float] = time.monotonic) -> Iterator[Chunk]:
    """Yield the same rows, in chunks of up to 65,536 rows or 16 MB.

    A chunk that took longer than a twentieth of a second is passed on at once, with those before it, so that expensive
    rows are checkpointed and reported as soon as they are computed. Chunks before an error are passed on before it is
    raised.
    """
    waiting: list[Chunk] = []
    begun = clock()
    try:
        for chunk in chunks:
            if waiting and not _fits(waiting, chunk):
                yield _joined(waiting)
                waiting = []
                begun = clock()
            waiting.append(chunk)
            if clock() - begun > _SECONDS:
                yield _joined(waiting)
                waiting = []
                begun = clock()
    except Exception:
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _fits(waiting: Sequence[Chunk], chunk: Chunk) -> bool:
    if any(holds_type(kind, pt.is_dictionary) for kind in chunk.rows.schema.types):
        return False  # chunks of dictionary type cannot be joined: their dictionaries differ
    rows = chunk.covered.end - waiting[0].covered.start
    return rows <= CHUNK_ROWS and sum(part.rows.nbytes for part in (*waiting, chunk)) <= CHUNK_BYTES


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    covered = RowRange(chunks[0].covered.start, chunks[-1].covered.end)
    rows = single_batch(pa.Table.from_batches([chunk.rows for chunk in chunks]))
    return Chunk(covered, np.concatenate([chunk.offsets for chunk in chunks]), rows)


class SharedScan:
    """Share one scan among several members, in lockstep: every member gets a chunk before the next chunk is read.

    Members are passes, each in its own thread. Each reads through its `reader_for`, and must always call `leave`. If
    one expression fails, the scan fails for all members, and each reads the remaining rows itself. If the scan ends
    before the end of the fragment, all members raise, so that none mistakes a part of the fragment for all of it.
    """

    def __init__(self, reader: FragmentReader, fragment_id: int, covered: RowRange, members: int) -> None:
        self._reader = reader
        self._fragment_id = fragment_id
        self._covered = covered
        self._members = set(range(members))
        self._turn = threading.Condition()
        #: The expressions of those members that have started to read.
        self._columns: dict[int, str] = {}
        self._names: dict[int, str] = {}
        #: Members that still process the current chunk.
        self._reading: set[int] = set()
        self._chunk: Chunk | None = None
        self._number = 0
        self._over = False
        self._error: BaseException | None = None

    def reader_for(self, member: int) -> FragmentReader:
        """Return the reader of one member."""
        reader = copy.copy(self._reader)
        shared = _SharedReader.__new__(_SharedReader)
        shared.__dict__ = {**reader.__dict__, "_shared": self, "_member": member}
        return shared

    def is_whole(self, fragment_id: int, covered: RowRange) -> bool:
        """Return whether a read covers exactly the rows of the scan."""
        return (fragment_id, covered) == (self._fragment_id, self._covered)

    def run(self, *, deletions: bool) -> None:
        """Scan once all members have started to read or left. Return when all have received every chunk. Blocks."""
        with self._turn:
            self._turn.wait_for(lambda: self._members <= self._columns.keys())
            self._names = {member: f"c{member}" for member in self._members}
            wanted = {self._names[member]: self._columns[member] for member in sorted(self._members)}
        ended: BaseException | None = _Abandoned()
        try:
            chunks = self._reader.read(self._fragment_id, self._covered, wanted, deletions=deletions) if wanted else ()
            if all(self._hand_out(chunk) for chunk in merge_chunks(iter(chunks))):
                ended = None
        except BaseException as error:  # noqa: BLE001 the members raise it
            ended = error
        with self._turn:
            self._turn.wait_for(lambda: not self._reading)
            self._error, self._over = ended, True
            self._turn.notify_all()

    def _hand_out(self, chunk: Chunk) -> bool:
        """Give a chunk to all members once they are done with the previous one. Return False if no members are left."""
        with self._turn:
            self._turn.wait_for(lambda: not self._reading)
            self._chunk = chunk
            self._number += 1
            self._reading = set(self._members)
            self._turn.notify_all()
            return bool(self._members)

    def chunks(self, member: int, columns: Mapping[str, str]) -> Iterator[Chunk]:
        """Yield the chunks for one member; see `FragmentReader.read`."""
        (name, expression), seen = next(iter(columns.items())), 0
        with self._turn:
            self._columns[member] = expression
            self._turn.notify_all()
        while True:
            with self._turn:
                self._reading.discard(member)
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._over or self._number > seen)  # noqa: B023 - called at once
                if self._number == seen:
                    if self._error is not None:
                        raise _copy_of(self._error) from self._error
                    if member not in self._names:
                        raise _Abandoned
                    return
                seen, chunk = self._number, self._chunk
            if chunk is not None:
                values = chunk.rows.column(self._names[member])
                yield Chunk(chunk.covered, chunk.offsets, pa.RecordBatch.from_arrays([values], names=[name]))

    def leave(self, member: int) -> None:
        """Continue the scan without this member."""
        with self._turn:
            self._members.discard(member)
            self._reading.discard(member)
            self._turn.notify_all()

    def abandon(self) -> None:
        """Remove all members, because some of them may never start."""
        with self._turn:
            self._members.clear()
            self._reading.clear()
            self._turn.notify_all()


class _Abandoned(RuntimeError):
    """All other members have left the scan."""


def _copy_of(error: BaseException) -> BaseException:
    """Return a copy of an error for one thread. Several threads would add their tracebacks to a shared error."""
    if isinstance(error, LemanError):
        found = type(error)(error.reason, error.message)
        found.__dict__.update(error.__dict__)
        return found
    return RuntimeError(f"the scan for several columns failed: {type(error).__name__}: {error}")


class _SharedReader(FragmentReader):
    """A reader whose first read of the whole fragment uses the shared scan."""

    _shared: SharedScan | None
    _member: int

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        scan = self._shared
        if scan is None or where or not isinstance(columns, Mapping) or not scan.is_whole(fragment_id, covered):
            yield from super().read(fragment_id, covered, columns, deletions=deletions, where=where)
            return
        self._shared = None
        yield from scan.chunks(self._member, columns)


#: The name that error rules use for every SQL error.
SQL_ERROR = "SqlError"
_NAMES = frozenset({SQL_ERROR, "Exception"})
_LAST_ATTEMPT = 1 << 30
_VALUE = "__leman_value"
_ERROR = "__leman_error"
_MESSAGE_CHARS = 500


class SqlSource:
    """Read fragments, with the value of the SQL expression instead of the input columns."""

    def __init__(self, reader: FragmentReader, context: WorkContext) -> None:
        self._reader = reader
        self._context = context
        names = dict(zip(context.udf.input_columns, context.input_columns, strict=True))
        self._projection = {_VALUE: f"({expressions.rename_columns(context.udf.sql_expression, names)})"}

    def read(self, fragment_id: int, covered: RowRange, *, deletions: bool) -> Iterator[Chunk]:
        """Yield chunks as `FragmentReader.read` does.

        A row whose evaluation failed, and which the error policy skips, is a chunk of its own. The chunk has the
        error's message next to the NULL.

        Raises:
            JobFailing: A row failed and the policy does not skip it, or Lance cannot plan the expression.
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
        return merge_chunks(self._reader.read(fragment_id, covered, self._projection, deletions=deletions, where=where))

    def _check_planned(self, fragment_id: int, rows: RowRange) -> None:
        """Raise JobFailing if the expression does not fit this table, whatever its rows are."""
        try:
            self._reader.schema(self._projection)
        except Unavailable as error:
            raise expression_failed(fragment_id, rows, error) from error

    def _without_value(self, fragment_id: int, row: RowRange, error: Exception, *, deletions: bool) -> Iterator[Chunk]:
        inputs, where = self._context.input_columns, self._context.where
        # This raises if the inputs cannot be read, which is not the expression's fault.
        read = list(self._reader.read(fragment_id, row, inputs, deletions=deletions, where=where))
        if not any(len(chunk.offsets) for chunk in read):
            raise error
        if not _skips(self._context.udf.error_policy, error):
            raise expression_failed(fragment_id, row, error) from error
        for chunk in read:
            rows = len(chunk.offsets)
            columns = [pa.nulls(rows), pa.array([_said(error)] * rows, pa.string())]
            yield Chunk(chunk.covered, chunk.offsets, pa.RecordBatch.from_arrays(columns, names=[_VALUE, _ERROR]))


class SqlValues:
    """Return the values that Lance computed. If their type is not the column's, cast them."""

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
        if differ_in_names(values.type, self._output):  # Arrow would match fields by name
            return plain(relabel(values, self._output))
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
                raise expression_failed(fragment_id, RowRange(at, at + 1), error) from error
            failure = _failure(fragment_id, at, _said(error))
            return Evaluated(pa.nulls(1, self._output), np.array([True]), (failure,))


def expression_failed(fragment_id: int, rows: RowRange, error: Exception) -> JobFailing:
    """Return the error that ends the job, with the row that caused it."""
    return JobFailing(_failure(fragment_id, rows.start, _said(error)), (rows.start, rows.end))


def _skips(policy: ErrorPolicy, error: Exception) -> bool:
    """Return whether the policy skips the row. There are no retries, because SQL would fail again."""
    rule = policy.rule_for(_NAMES, _said(error), _LAST_ATTEMPT)
    return rule is not None and rule.action is ErrorAction.SKIP


def _failure(fragment_id: int, offset: int, text: str) -> RowError:
    return RowError(
        row_address=RowAddress(fragment_id, offset).to_int(),
        error_type=SQL_ERROR,
        error_message=text,
        traceback="",
        attempt=1,
    )


def _said(error: Exception) -> str:
    text = error_text(error).partition(", /")[0].partition("\n")[0].removeprefix("External error: ")
    return text.removeprefix("LanceError(Arrow): ")[:_MESSAGE_CHARS]
