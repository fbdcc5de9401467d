"""Read the rows of a pass, chunk by chunk, with what the column's current file shows about them.

A column's inputs come from its own table. The columns of a scratch table instead read the inputs from the source table,
by the source row ids that the scratch table has. Therefore ordinary backfills of a scratch table compute a view's
function columns without copying the inputs. This module runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman._format.column_bindings import InputSource
from leman._format.stored_functions import UdfKind
from leman._format.value_casts import relabel
from leman._format.view_definitions import SOURCE_ROW_ID
from leman_core.model import keys, row_states
from leman_core.model.row_ids import difference, isin
from leman_core.model.row_positions import RowAddress, RowRange, split_range
from leman_core.model.row_states import RowState, States
from leman_core.model.work import FragmentWork, WorkContext
from leman_core.storage import column_files
from leman_core.storage.checkpoint_records import Piece
from leman_core.storage.scan import CHUNK_ROWS, Chunk, Columns, FragmentReader
from leman_core.storage.source_rows import SourceRows, plain_columns
from leman_executor.worker.sql_source import SqlSource
from leman_executor.worker.unit_runtime import UnitRuntime

Offsets = npt.NDArray[np.int64]

#: Failed rows that are at most this far apart are read as one range.
_GAP_ROWS = 4096


class InstalledFile:
    """The rows of one fragment in the column's current file, and whether this function version must evaluate them.

    A row is settled if it needs no evaluation. A row that failed under an earlier version is not settled, because this
    version was not called with it. If a request asks for failed rows only, no failed row is settled, and rows that were
    never computed are left out.
    """

    def __init__(self, context: WorkContext, work: FragmentWork, reader: FragmentReader, column: pa.Field) -> None:
        self._reader = reader
        self._fragment_id = work.fragment_id
        self._column = column
        self.filters: frozenset[str] = frozenset()
        self._states: States | None = None
        self._settled = np.empty(0, np.bool_)
        self._failed = np.empty(0, np.bool_)
        buffer, own = _buffer(context, work)
        if buffer is None:
            return
        accepted = context.versions or (own,)
        self.filters = row_states.summary_for_version(row_states.decode_state_summary(buffer), own, accepted).filters
        states = self._states = row_states.decode_states_for(buffer, own, accepted)
        if work.task.deleted_rows:  # deleted rows have no state or value to copy
            live = reader.live(work.fragment_id, RowRange(0, work.task.physical_rows))
            states = self._states = np.where(live, states, np.uint8(RowState.UNTOUCHED))
        self._failed = row_states.state_kinds(states) == RowState.FAILED
        again = self._failed if context.failed_only else self._failed & (row_states.state_versions(states) > 0)
        self._settled = (states != RowState.UNTOUCHED) & ~again

    @property
    def failed_before(self) -> int:
        """Return the number of rows that failed under this version and that this request does not retry."""
        return int(np.count_nonzero(self._settled & self._failed))

    def settled(self, covered: RowRange) -> list[Piece]:
        """Return the rows of a range that need no evaluation. Return several pieces if one array cannot hold them."""
        return self._pieces(covered, np.flatnonzero(self._settled[covered.start : covered.end]) + covered.start)

    def failed(self, covered: RowRange) -> Offsets:
        """Return the offsets of those rows of a range that are marked as failed."""
        found: Offsets = np.flatnonzero(self._failed[covered.start : covered.end]) + covered.start
        return found

    def failed_spans(self, covered: RowRange) -> Iterator[RowRange]:
        """Yield a few ranges, in order, that together contain all failed rows of a range."""
        offsets = self.failed(covered)
        if len(offsets):
            for run in np.split(offsets, np.flatnonzero(np.diff(offsets) > _GAP_ROWS) + 1):
                yield RowRange(int(run[0]), int(run[-1]) + 1)

    def still_failed(self, covered: RowRange, known: Sequence[Piece], live: npt.NDArray[np.bool_]) -> list[Piece]:
        """Return those rows of a range that are marked as failed and were not retried.

        Args:
            covered: The range.
            known: Rows that were retried.
            live: For each row of the range, whether it exists (True) or is deleted.
        """
        tried = [p.offsets for p in known]
        offsets = difference(self.failed(covered), np.concatenate(tried) if tried else np.empty(0, np.int64))
        return self._pieces(covered, offsets[live[offsets - covered.start]])

    def _pieces(self, covered: RowRange, offsets: Offsets) -> list[Piece]:
        if self._states is None or not len(offsets):
            return []
        found: list[Piece] = []
        for part, values in self._reader.values_in_parts(self._fragment_id, covered, self._column.name):
            own = offsets[slice(*np.searchsorted(offsets, [part.start, part.end]))]
            if len(own):
                found.append(Piece(own, values.take(pa.array(own - part.start)), self._states[own], kept=True))
        return found


def _buffer(context: WorkContext, work: FragmentWork) -> tuple[bytes | None, str]:
    """Return the stored row states and the version of their file."""
    own = keys.function_of(work.task.fingerprint)
    if not (work.task.extend_current and work.task.current_file):
        return None, own
    if work.task.row_states:
        return work.task.row_states, own
    name = keys.parse_column_file_name(work.task.current_file)
    buffer = column_files.read_states_buffer(context.uri, work.task.current_file)
    return buffer, own if name is None else name.function_part


#: Rows read at first, while their width is unknown.
_FIRST_ROWS = 64
_ADDRESS = "_rowaddr"
_CHUNK_BYTES = 64 << 20


class SourcedReader(FragmentReader):
    """Read a scratch table's fragments, with the columns of its source instead of its own."""

    def __init__(self, uri: str, version: int, source: InputSource) -> None:
        super().__init__(uri, version)
        self._source = SourceRows(source.uri, source.version)
        self._rows = _FIRST_ROWS

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        """Yield chunks in order that together cover `covered`, of at most 65,536 rows and about 64 MB each.

        A scratch table has no deleted rows, and its columns are filled without a filter.

        Raises:
            Aborted: SOURCE_ROW_GONE, if a row is no longer in the source.
            ValueError: A filter, deletions or expressions are requested.
        """
        if where or deletions or isinstance(columns, Mapping):
            raise ValueError("a scratch table is read without filter, deletions and expressions")
        wanted = plain_columns(columns)
        at = covered.start
        while at < covered.end:
            ids = self._ids(fragment_id, RowRange(at, min(at + self._rows, covered.end)))
            ids = ids[: self._source.within(ids, wanted, _CHUNK_BYTES)]
            rows = self._source.take_first(ids, wanted)
            piece = RowRange(at, at + rows.num_rows)
            self._rows = rows_within(_CHUNK_BYTES, rows)
            yield Chunk(piece, np.arange(piece.start, piece.end, dtype=np.int64), rows)
            at = piece.end

    def located(self, fragment_id: int, offsets: Sequence[int]) -> list[tuple[int, RowAddress]]:
        """Return (row id, row address) of rows in the source, as `FragmentReader.located` does.

        The scratch table's own row ids are meaningless outside this job.
        """
        if not offsets:
            return []
        low = min(offsets)
        ids = self._ids(fragment_id, RowRange(low, max(offsets) + 1))[np.asarray(offsets) - low]
        addresses = self._source.take(ids, {_ADDRESS: _ADDRESS}).column(_ADDRESS).to_pylist()
        stable = self._source.stable_row_ids
        return [
            (int(i) if stable else -1, RowAddress.from_int(address)) for i, address in zip(ids, addresses, strict=True)
        ]

    def _ids(self, fragment_id: int, covered: RowRange) -> npt.NDArray[np.int64]:
        values = self.values(fragment_id, covered, SOURCE_ROW_ID)
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def first_rows(most_bytes: int, schema: pa.Schema) -> int:
    """Return how many rows of a schema to read first: only a few if the width of its values is not known."""
    if not all(pa.types.is_primitive(field.type) for field in schema):
        return _FIRST_ROWS
    bits = sum(int(field.type.bit_width) + 1 for field in schema)
    return max(1, min(CHUNK_ROWS, 8 * most_bytes // max(1, bits)))


def rows_within(most_bytes: int, like: pa.RecordBatch) -> int:
    """Return how many rows like these take about `most_bytes`: at least 1, and at most the rows of a chunk."""
    if not like.num_rows:
        return _FIRST_ROWS
    return max(1, min(CHUNK_ROWS, int(most_bytes * like.num_rows / max(1, like.nbytes))))


#: The assumed minimum cost of a row, in bytes, if a filter excludes nearly all rows.
_BYTES_A_ROW = 64


class RowSource:
    """Read the rows that the filter matches, or only those of them that failed."""

    def __init__(self, context: WorkContext, work: FragmentWork, runtime: UnitRuntime, current: InstalledFile) -> None:
        self._context = context
        self._work = work
        self._reader = runtime.reader
        self._meter = runtime.meter
        self._current = current
        self._types = function_input_types(context.input_schema)

    def chunks(self, covered: RowRange) -> Iterator[Chunk]:
        """Yield chunks, in order, that together cover the range."""
        source = self._failed(covered) if self._context.failed_only else self._matching(covered)
        first = True
        while True:
            with self._meter.reading() as taken:
                chunk = next(source, None)
            if chunk is None:
                return
            if first:  # this also opens the file
                self._meter.waited(taken(), max(chunk.rows.nbytes, chunk.covered.rows * _BYTES_A_ROW))
            first = False
            yield chunk

    def _failed(self, covered: RowRange) -> Iterator[Chunk]:
        """Yield chunks that cover the range. Read only rows near failed rows."""
        nothing = pa.RecordBatch.from_arrays([], names=[])
        for part in split_range(covered, CHUNK_ROWS):
            at = part.start
            for span in self._current.failed_spans(part):
                for chunk in self._matching(span):
                    asked = only_rows(chunk, self._current.failed(chunk.covered))
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
        return replace(chunk, rows=as_function_inputs(chunk.rows, self._types))


def function_input_types(input_schema: bytes) -> Sequence[pa.DataType]:
    """Return the types that the function expects of its inputs.

    Return no types if it takes the inputs as they are read.
    """
    return pa.ipc.read_schema(pa.py_buffer(input_schema)).types if input_schema else ()


def as_function_inputs(rows: pa.RecordBatch, types: Sequence[pa.DataType]) -> pa.RecordBatch:
    """Cast inputs to the types that the function expects, including the field names of structs."""
    if not types:
        return rows
    columns = [relabel(values, kind) for values, kind in zip(rows.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def only_rows(chunk: Chunk, offsets: npt.NDArray[np.int64]) -> Chunk:
    """Return the chunk with only the rows at `offsets`."""
    if not len(chunk.offsets):
        return chunk
    asked = isin(chunk.offsets, offsets)
    return Chunk(chunk.covered, chunk.offsets[asked], chunk.rows.filter(pa.array(asked)))


def without_rows(chunk: Chunk, known: Sequence[Piece]) -> Chunk:
    """Return the chunk without the known rows."""
    if not known or not len(chunk.offsets):
        return chunk
    new = ~isin(chunk.offsets, np.concatenate([p.offsets for p in known]))
    return Chunk(chunk.covered, chunk.offsets[new], chunk.rows.filter(pa.array(new)))
