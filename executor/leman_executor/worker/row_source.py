"""The rows of a fragment that a pass has to look at, chunk by chunk.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.functions.nested_types import relabelled
from leman_core.model.ranges import RowRange, chunks
from leman_core.model.sorted_sets import among
from leman_core.model.udf import UdfKind
from leman_core.model.work import FragmentWork, WorkContext
from leman_core.storage.checkpoints.rows import Piece
from leman_core.storage.scan import CHUNK_ROWS, Chunk
from leman_executor.worker.installed_file import InstalledFile
from leman_executor.worker.sql_source import SqlSource
from leman_executor.worker.unit_runtime import UnitRuntime

#: The least that looking at a row costs, where a filter leaves out nearly all of them.
_BYTES_A_ROW = 64


class RowSource:
    """Reads the rows that the filter matches, or only those of them that are marked as failed."""

    def __init__(self, context: WorkContext, work: FragmentWork, runtime: UnitRuntime, current: InstalledFile) -> None:
        self._context = context
        self._work = work
        self._reader = runtime.reader
        self._meter = runtime.meter
        self._current = current
        self._types = types_given(context.input_schema)

    def chunks(self, covered: RowRange) -> Iterator[Chunk]:
        """Yield chunks in order that together cover the range."""
        source = self._failed(covered) if self._context.failed_only else self._matching(covered)
        first = True
        while True:
            with self._meter.reading() as taken:
                chunk = next(source, None)
            if chunk is None:
                return
            if first:  # the file had to be opened for it
                self._meter.waited(taken(), max(chunk.rows.nbytes, chunk.covered.rows * _BYTES_A_ROW))
            first = False
            yield chunk

    def _failed(self, covered: RowRange) -> Iterator[Chunk]:
        """Yield chunks that cover the range, reading only what lies close to failed rows."""
        nothing = pa.RecordBatch.from_arrays([], names=[])
        for part in chunks(covered, CHUNK_ROWS):
            at = part.start
            for span in self._current.failed_spans(part):
                for chunk in self._matching(span):
                    asked = only(chunk, self._current.failed(chunk.covered))
                    yield replace(asked, covered=RowRange(at, chunk.covered.end))
                    at = chunk.covered.end
            if at < part.end:
                yield Chunk(RowRange(at, part.end), np.empty(0, np.int64), nothing)

    def _matching(self, covered: RowRange) -> Iterator[Chunk]:
        work, context = self._work, self._context
        deletions = work.task.deleted_rows > 0
        if context.udf.kind is UdfKind.SQL:
            return SqlSource(self._reader, context).read(work.fragment_id, covered, deletions=deletions)
        read = self._reader.read(
            work.fragment_id, covered, context.input_columns, deletions=deletions, where=context.where
        )
        return map(self._as_given, read) if self._types else read

    def _as_given(self, chunk: Chunk) -> Chunk:
        return replace(chunk, rows=as_given(chunk.rows, self._types))


def types_given(input_schema: bytes) -> Sequence[pa.DataType]:
    """Return the types of inputs as the function is given them; nothing: as they are read."""
    return pa.ipc.read_schema(pa.py_buffer(input_schema)).types if input_schema else ()


def as_given(rows: pa.RecordBatch, types: Sequence[pa.DataType]) -> pa.RecordBatch:
    """Return inputs with the names of fields of structs that the function is given."""
    if not types:
        return rows
    columns = [relabelled(values, kind) for values, kind in zip(rows.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def only(chunk: Chunk, offsets: npt.NDArray[np.int64]) -> Chunk:
    """Return the chunk with only those rows that are among `offsets`."""
    if not len(chunk.offsets):
        return chunk
    asked = among(chunk.offsets, offsets)
    return Chunk(chunk.covered, chunk.offsets[asked], chunk.rows.filter(pa.array(asked)))


def without(chunk: Chunk, known: Sequence[Piece]) -> Chunk:
    """Return the chunk with only those rows that are not known yet."""
    if not known or not len(chunk.offsets):
        return chunk
    new = ~among(chunk.offsets, np.concatenate([p.offsets for p in known]))
    return Chunk(chunk.covered, chunk.offsets[new], chunk.rows.filter(pa.array(new)))
