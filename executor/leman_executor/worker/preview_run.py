"""Preview a function in a function process: read rows, call the function, and report its values and printed output.

Rows are read, evaluated and converted as in a job, but nothing is stored. Printed output goes only to the caller.
Imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman._format.stored_functions import UdfKind
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import INTERNAL_BUG, LemanError
from leman_core.model.work import RowError, WorkContext
from leman_core.storage import object_stores
from leman_core.storage.scan import CHUNK_ROWS, FragmentReader
from leman_executor.worker import preview_messages, process_environment, user_errors
from leman_executor.worker.call_guards import Watchdog
from leman_executor.worker.evaluator import Evaluated, JobFailing, joined
from leman_executor.worker.function_loading import LoadedEvaluator, load_evaluator
from leman_executor.worker.preview_messages import (
    COMPUTED,
    FAILED,
    FAILS,
    Attempted,
    Called,
    Calling,
    Overran,
    PlacedRow,
    PreviewMessage,
    PreviewTask,
    Printed,
    Refused,
    RowCost,
    Rows,
    SetUp,
)
from leman_executor.worker.process_environment import kept_environment
from leman_executor.worker.row_source import as_function_inputs, function_input_types
from leman_executor.worker.sql_source import SqlSource

#: While the filter matches no rows, the number of rows read grows by this factor in each step.
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class PreviewPart:
    """Consecutive rows of the preview that are in one fragment."""

    fragment_id: int
    has_deletions: bool
    #: Their physical offsets.
    offsets: npt.NDArray[np.int64]
    #: Their inputs.
    rows: pa.RecordBatch
    #: Number of rows of the preview before this part.
    first: int


def preview_parts(reader: FragmentReader, context: WorkContext, rows: int) -> list[PreviewPart]:
    """Return the first rows of the table that the filter matches, one part for each stretch within a fragment.

    Raises:
        LemanError: As `FragmentReader.read` raises.
    """
    found: list[PreviewPart] = []
    missing = rows
    for part in _all(reader, context, rows):
        taken = min(len(part.offsets), missing)
        if not taken:
            continue
        first = rows - missing
        found.append(
            PreviewPart(part.fragment_id, part.has_deletions, part.offsets[:taken], part.rows.slice(0, taken), first)
        )
        missing -= taken
        if not missing:
            break
    return found


def _all(reader: FragmentReader, context: WorkContext, rows: int) -> Iterator[PreviewPart]:
    step, types = rows, function_input_types(context.input_schema)
    for fragment_id, physical, deleted in reader.sizes():
        at = 0
        while at < physical:
            covered = RowRange(at, min(at + step, physical))
            read = reader.read(fragment_id, covered, context.input_columns, deletions=deleted > 0, where=context.where)
            for chunk in read:
                yield PreviewPart(fragment_id, deleted > 0, chunk.offsets, as_function_inputs(chunk.rows, types), 0)
            at = covered.end
            step = min(step * _GROWTH, CHUNK_ROWS)


def preview_inputs(found: list[PreviewPart], names: tuple[str, ...]) -> pa.RecordBatch:
    """Return the inputs of all parts as one batch, with these column names."""
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(names, found[0].rows.schema, strict=True)])
    batches = [pa.RecordBatch.from_arrays(part.rows.columns, schema=schema) for part in found]
    return pa.concat_batches(batches)


#: Maximum number of printed bytes that are kept. Further output is read and dropped, so that printing never blocks the
#: function.
KEPT_BYTES = 16 << 10
#: Seconds to wait until the pipe is closed. Programs that the function started may keep it open.
_END_SECONDS = 0.5
_PIECE = 1 << 16


@contextlib.contextmanager
def capture_prints(tell: Callable[[Printed], None]) -> Iterator[None]:
    """Report what this process prints in this block. Discard its output after the block."""
    source, sink = os.pipe()
    reader = threading.Thread(target=_tell_all, args=(source, tell), name="prints", daemon=True)
    for fd in (1, 2):
        os.dup2(sink, fd)
    os.close(sink)
    reader.start()
    try:
        yield
    finally:
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.close(null)
        reader.join(_END_SECONDS)


def _tell_all(source: int, tell: Callable[[Printed], None]) -> None:
    total = 0
    with contextlib.suppress(OSError):  # the executor may have ended
        while piece := os.read(source, _PIECE):
            kept = piece[: max(0, KEPT_BYTES - total)]
            total += len(piece)
            tell(Printed(kept.decode(errors="replace"), total))
    with contextlib.suppress(OSError):
        os.close(source)


#: Number of rows on which a SQL expression is timed. Timing is cheap, and fewer rows do not show the speed.
_TIMED_ROWS = 1 << 12
#: Made at import, in one thread: msgspec crashes if two threads are the first to decode a type.
_tasks, _contexts = msgspec.json.Decoder(PreviewTask), msgspec.json.Decoder(WorkContext)

Tell = Callable[[PreviewMessage], None]


def run_preview(task_json: str, say: Callable[[bytes], None]) -> int:
    """Run a preview and send its messages. Return the number of rows that the function was called with."""
    task = _tasks.decode(task_json)

    def tell(message: PreviewMessage) -> None:
        say(msgspec.json.encode(message))

    with capture_prints(tell):
        try:
            context = _contexts.decode(task.context)
            kept_environment.give(context.env)
            object_stores.set_store_source(object_stores.GivenStores(context.stores))
            called = Preview(task, context, tell).run()
            process_environment.check_descriptors()
        except LemanError as error:
            tell(Refused(type(error).__name__, error.reason, error.message, error.facts))
            return 0
        except Exception as error:  # noqa: BLE001 bugs are reported to the caller
            tell(Refused("Internal", INTERNAL_BUG, user_errors.describe_error(error)))
            return 0
    return called


class Preview:
    """One preview of a function with some rows. It sends a message before and after each call."""

    def __init__(self, task: PreviewTask, context: WorkContext, tell: Tell) -> None:
        self._task = task
        self._context = context
        self._tell = tell
        self._watchdog = Watchdog(context.udf.timeout_seconds, lambda _fragment, _rows, s: tell(Overran(s)))

    def run(self) -> int:
        """Read the rows, load the function and call it. Return the number of rows that it was called with.

        Raises:
            LemanError: Rows cannot be read, or the function cannot be loaded.
        """
        context = self._context
        reader = FragmentReader(context.uri, context.read_version)
        found = preview_parts(reader, context, self._task.rows)
        if not self._task.skip:
            self._tell_rows(reader, found)
        if not found:
            return 0
        with contextlib.ExitStack() as connections, self._watchdog:
            begin = time.perf_counter()
            loaded = load_evaluator(context, self._watchdog, connections, self._task.bundle)
            self._tell(SetUp(time.perf_counter() - begin))
            called = sum(self._part(reader, loaded, part) for part in found)
            if loaded.remote is not None:
                loaded.remote.finish()
        if context.udf.kind is UdfKind.SQL:
            self._time_expression(reader)
        return called

    def _tell_rows(self, reader: FragmentReader, found: list[PreviewPart]) -> None:
        if not found:
            self._tell(Rows((), b""))
            return
        ids = [i for part in found for i in reader.row_ids(part.fragment_id, part.offsets.tolist())]
        places = [(part.fragment_id, int(offset)) for part in found for offset in part.offsets]
        batch = preview_inputs(found, self._context.input_columns)
        columns = [preview_messages.value_texts(column) for column in batch.columns]
        texts = list(zip(*columns, strict=True)) or [()] * batch.num_rows
        sent, left_out = preview_messages.fit_columns(batch)
        rows = tuple(PlacedRow(*place, i, text) for place, i, text in zip(places, ids, texts, strict=True))
        self._tell(Rows(rows, preview_messages.to_arrow_stream(sent), left_out))

    def _part(self, reader: FragmentReader, loaded: LoadedEvaluator, part: PreviewPart) -> int:
        """Call the function with the remaining rows of a part. Return their number."""
        called, at = 0, max(0, self._task.skip - part.first)
        while at < len(part.offsets):
            count = self._rows_at_once(part, at)
            offsets, rows = part.offsets[at : at + count], part.rows.slice(at, count)
            self._call(self._evaluate(reader, loaded, part), part, at, offsets, rows)
            called, at = called + count, at + count
        return called

    def _rows_at_once(self, part: PreviewPart, at: int) -> int:
        udf, left = self._context.udf, len(part.offsets) - at
        if udf.kind is UdfKind.SCALAR or part.first + at < self._task.alone_before:
            return 1
        return min(udf.batch_size or left, left)

    def _call(
        self, evaluate: _Evaluate, part: PreviewPart, at: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch
    ) -> None:
        first, count = part.first + at, len(offsets)
        self._tell(Calling(first, count))
        begin = time.perf_counter()
        try:
            result = evaluate(offsets, rows)
            seconds = time.perf_counter() - begin
            attempted = _attempted(result, offsets)
        except JobFailing as error:
            seconds = time.perf_counter() - begin
            result, attempted = self._one_by_one(evaluate, offsets, rows, error)
        values = pa.RecordBatch.from_arrays([_sendable(result.values)], names=["output"])
        if values.nbytes > preview_messages.MOST_BYTES:
            values = values.slice(0, 0)
        self._tell(Called(first, seconds, attempted, preview_messages.to_arrow_stream(values)))

    def _one_by_one(
        self, evaluate: _Evaluate, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch, error: JobFailing
    ) -> tuple[Evaluated, tuple[Attempted, ...]]:
        """Call the function separately with each row of a call that would end a job.

        If no row fails alone, all rows count as failed.
        """
        output = pa.ipc.read_schema(pa.py_buffer(self._context.output_schema)).field(0).type
        nothing = Evaluated(pa.nulls(1, output), None, ())
        results: list[Evaluated] = []
        attempted: list[Attempted] = []
        for at in range(len(offsets)):
            if len(offsets) == 1:
                failing: JobFailing | None = error
            else:
                failing = None
                try:
                    results.append(evaluate(offsets[at : at + 1], rows.slice(at, 1)))
                    attempted.extend(_attempted(results[-1], offsets[at : at + 1]))
                except JobFailing as alone:
                    failing = alone
            if failing is not None:
                results.append(nothing)
                attempted.append(Attempted(FAILS, failure=failing.failure))
        if all(row.state != FAILS for row in attempted):
            attempted = [Attempted(FAILS, failure=error.failure)] * len(offsets)
            results = [nothing] * len(offsets)
        whole = results[0]
        for result in results[1:]:
            whole = joined(whole, result)
        return whole, tuple(attempted)

    def _evaluate(self, reader: FragmentReader, loaded: LoadedEvaluator, part: PreviewPart) -> _Evaluate:
        """Return a callable that evaluates rows of a part. Lance computes a SQL expression's values while it reads."""

        def called(offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated:
            return loaded.evaluator(part.fragment_id, offsets, rows)

        def read(offsets: npt.NDArray[np.int64], _rows: pa.RecordBatch) -> Evaluated:
            covered = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
            chunks = SqlSource(reader, self._context).read(part.fragment_id, covered, deletions=part.has_deletions)
            pieces = [loaded.evaluator(part.fragment_id, c.offsets, c.rows) for c in chunks if len(c.offsets)]
            whole = pieces[0]
            for piece in pieces[1:]:
                whole = joined(whole, piece)
            return whole

        return read if self._context.udf.kind is UdfKind.SQL else called

    def _time_expression(self, reader: FragmentReader) -> None:
        """Report the expression's cost per row, if the first rows of the table show it."""
        source = SqlSource(reader, self._context)
        with contextlib.suppress(LemanError, JobFailing):
            for fragment_id, physical, deleted in reader.sizes():
                covered = RowRange(0, min(physical, _TIMED_ROWS))
                begin = time.perf_counter()
                for _ in source.read(fragment_id, covered, deletions=deleted > 0):
                    pass
                self._tell(RowCost((time.perf_counter() - begin) / covered.rows))
                return


_Evaluate = Callable[[npt.NDArray[np.int64], pa.RecordBatch], Evaluated]


def _attempted(result: Evaluated, offsets: npt.NDArray[np.int64]) -> tuple[Attempted, ...]:
    failures: dict[int, RowError] = {failure.offset: failure for failure in result.failures}
    return tuple(
        Attempted(FAILED, failure=failures[int(offset)])
        if int(offset) in failures
        else Attempted(COMPUTED, preview_messages.value_text(value))
        for offset, value in zip(offsets, result.values, strict=True)
    )


def _sendable(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values
