"""Previews a function, in a function process: rows are read, evaluated and converted as a job does it, and told.

Nothing is stored. Imports no gRPC and no Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.errors import INTERNAL_BUG, LemanError
from leman_core.model.ranges import RowRange
from leman_core.model.udf import UdfKind
from leman_core.model.work import RowFailure, WorkContext
from leman_core.storage.object_stores import known
from leman_core.storage.scan import FragmentReader
from leman_executor.worker import preview_rows, preview_values, user_errors
from leman_executor.worker.evaluator import Evaluated, JobFailing, joined
from leman_executor.worker.evaluator_loading import Loaded, load_evaluator
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
    Refused,
    RowCost,
    Rows,
    SetUp,
)
from leman_executor.worker.preview_prints import captured
from leman_executor.worker.preview_rows import Part
from leman_executor.worker.processes import file_descriptors
from leman_executor.worker.processes.process_environment import kept
from leman_executor.worker.sql_source import SqlSource
from leman_executor.worker.watchdog import Watchdog

#: Rows that a SQL expression is timed on: it costs nobody anything, and a few rows say nothing of its speed.
_TIMED_ROWS = 1 << 12
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_tasks, _contexts = msgspec.json.Decoder(PreviewTask), msgspec.json.Decoder(WorkContext)

Tell = Callable[[PreviewMessage], None]


def run(task_json: str, say: Callable[[bytes], None]) -> int:
    """Run a preview and say what comes of it, message by message; return how many rows the function was called with."""
    task = _tasks.decode(task_json)

    def tell(message: PreviewMessage) -> None:
        say(msgspec.json.encode(message))

    with captured(tell):
        try:
            context = _contexts.decode(task.context)
            kept.give(context.env)
            known.use(known.GivenStores(context.stores))
            called = Preview(task, context, tell).run()
            file_descriptors.check()
        except LemanError as error:
            tell(Refused(type(error).__name__, error.reason, error.message, error.facts))
            return 0
        except Exception as error:  # noqa: BLE001 whoever asks is to hear of the bug
            tell(Refused("Internal", INTERNAL_BUG, user_errors.told(error)))
            return 0
    return called


class Preview:
    """One run over the rows of a preview. It tells what it does before and after each call."""

    def __init__(self, task: PreviewTask, context: WorkContext, tell: Tell) -> None:
        self._task = task
        self._context = context
        self._tell = tell
        self._watchdog = Watchdog(context.udf.timeout_seconds, lambda _fragment, _rows, s: tell(Overran(s)))

    def run(self) -> int:
        """Read the rows, set the function up and call it; return how many rows it was called with.

        Raises:
            LemanError: rows cannot be read, or the function cannot be set up.
        """
        context = self._context
        reader = FragmentReader(context.uri, context.read_version)
        found = preview_rows.parts(reader, context, self._task.rows)
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

    def _tell_rows(self, reader: FragmentReader, found: list[Part]) -> None:
        if not found:
            self._tell(Rows((), b""))
            return
        ids = [i for part in found for i in reader.row_ids(part.fragment_id, part.offsets.tolist())]
        places = [(part.fragment_id, int(offset)) for part in found for offset in part.offsets]
        batch = preview_rows.inputs(found, self._context.input_columns)
        columns = [preview_values.texts_of(column) for column in batch.columns]
        texts = list(zip(*columns, strict=True)) or [()] * batch.num_rows
        sent, left_out = preview_values.within(batch)
        rows = tuple(PlacedRow(*place, i, text) for place, i, text in zip(places, ids, texts, strict=True))
        self._tell(Rows(rows, preview_values.stream_of(sent), left_out))

    def _part(self, reader: FragmentReader, loaded: Loaded, part: Part) -> int:
        """Call the function with the rows of a part that are left; return how many these are."""
        called, at = 0, max(0, self._task.skip - part.first)
        while at < len(part.offsets):
            count = self._rows_at_once(part, at)
            offsets, rows = part.offsets[at : at + count], part.rows.slice(at, count)
            self._call(self._evaluate(reader, loaded, part), part, at, offsets, rows)
            called, at = called + count, at + count
        return called

    def _rows_at_once(self, part: Part, at: int) -> int:
        udf, left = self._context.udf, len(part.offsets) - at
        if udf.kind is UdfKind.SCALAR or part.first + at < self._task.alone_before:
            return 1
        return min(udf.batch_size or left, left)

    def _call(
        self, evaluate: _Evaluate, part: Part, at: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch
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
        if values.nbytes > preview_values.MOST_BYTES:
            values = values.slice(0, 0)
        self._tell(Called(first, seconds, attempted, preview_values.stream_of(values)))

    def _one_by_one(
        self, evaluate: _Evaluate, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch, error: JobFailing
    ) -> tuple[Evaluated, tuple[Attempted, ...]]:
        """Find the rows to blame for a call that ends the job; all of them where each passes alone."""
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

    def _evaluate(self, reader: FragmentReader, loaded: Loaded, part: Part) -> _Evaluate:
        """Return what gives the values of rows of a part; Lance computes those of an expression while it reads."""

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
        """Tell what a row of the expression costs, where the first rows of the table say so."""
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
    failures: dict[int, RowFailure] = {failure.offset: failure for failure in result.failures}
    return tuple(
        Attempted(FAILED, failure=failures[int(offset)])
        if int(offset) in failures
        else Attempted(COMPUTED, preview_values.text_of(value))
        for offset, value in zip(offsets, result.values, strict=True)
    )


def _sendable(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values
