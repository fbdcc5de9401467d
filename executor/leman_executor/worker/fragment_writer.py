"""Write the column file of one fragment: rows in physical order, gaps filled, memory bounded by one batch.

A file may be complete or partial. A partial file belongs to a fragment that is still being computed. It has the rows
that are stored so far, and its row states show which rows these are. The executor itself writes partial files. This
module also runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.functions.arrow_values import concatenate, equal_rows
from leman_core.model import keys, row_states
from leman_core.model.plan import CheckpointRef, FragmentTask, StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import Mask, RowState, States
from leman_core.model.work import CheckpointStore, FragmentWork, WorkContext
from leman_core.storage import column_files
from leman_core.storage.checkpoint_records import Piece, pieces_within
from leman_core.storage.lance_files import Deletions
from leman_core.storage.scan import FragmentReader, in_parts
from leman_executor.worker.row_checkpoints import CheckpointLost, KnownRows
from leman_executor.worker.row_source import InstalledFile

_EMIT_BYTES = 16 << 20

Live = Callable[[RowRange], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Existing:
    """The column's current file. Rows may keep its values."""

    file: str
    values: Callable[[RowRange], pa.Array]


class FragmentWriter:
    """Write one fragment's column file from contiguous ranges in ascending order.

    The pieces within a range may come in any order. A row that is in no piece keeps its existing value or becomes NULL.
    If such a row is deleted, it needs no value. Otherwise it counts as untouched, which only a selective request
    allows.
    """

    def __init__(
        self,
        uri: str,
        field: pa.Field,
        fingerprint: str,
        physical_rows: int,
        *,
        existing: Existing | None,
        live: Live,
        selective: bool,
        file_format: tuple[int, int] = (2, 2),
    ) -> None:
        self._uri = uri
        self._changed: Mask | None = None
        self._field = field
        self._fingerprint = fingerprint
        self._physical_rows = physical_rows
        self._existing = existing
        self._live = live
        self._selective = selective
        self._writer = column_files.ColumnFileWriter(uri, field, file_format)
        self._attempt = secrets.token_hex(6)
        self._at = 0
        self._states: States | None = None
        self.untouched = 0
        self.rows_older = 0
        self._name = keys.column_file_name(fingerprint, self._attempt, partial=selective)
        self._writer.open(self._name)

    @property
    def row_states(self) -> bytes:
        """Return the encoded states of the finished file (see `row_states.encode`); empty if all rows are computed."""
        return self._writer.row_states

    def emit(self, covered: RowRange, pieces: Sequence[Piece]) -> None:
        """Write the rows of a range.

        Raises:
            ValueError: The range does not begin where the last one ended.
        """
        if covered.start != self._at:
            raise ValueError(f"range {covered} does not follow offset {self._at}")
        self._at = covered.end
        if _in_sequence(covered, pieces):
            for piece in pieces:
                self._writer.write(piece.values)
                at = int(piece.offsets[0])
                part = RowRange(at, at + len(piece.offsets))
                self._note(part, piece.states)
                if self._existing is not None:
                    equal = np.ones(part.rows, np.bool_) if piece.kept else self._equal(part, piece.values)
                    self._keep(part, equal)
            return
        # Kept values may have any width, so write them in parts.
        for part, (values, states) in in_parts(covered, lambda p: self._aligned(p, pieces_within(pieces, p))):
            self._writer.write(values)
            self._note(part, states)

    def _aligned(self, covered: RowRange, pieces: Sequence[Piece]) -> tuple[pa.Array, States]:
        existing = self._existing
        base = pa.nulls(covered.rows, self._field.type) if existing is None else existing.values(covered)
        sources = [base]
        position = np.arange(covered.rows, dtype=np.int64)
        states = np.full(covered.rows, RowState.COMPUTED, np.uint8)
        kept = np.full(covered.rows, existing is not None)
        begin = covered.rows
        for piece in pieces:
            at = piece.offsets - covered.start
            kept[at] = piece.kept
            position[at] = np.arange(begin, begin + len(at))
            states[at] = RowState.COMPUTED if piece.states is None else piece.states
            sources.append(piece.values)
            begin += len(at)
        absent = position < covered.rows
        if absent.any():
            states[self._live(covered) & absent] = RowState.UNTOUCHED
        values = concatenate(sources).take(pa.array(position))
        if existing is not None:
            self._keep(covered, kept | equal_rows(values, base))
        return values, states

    def _equal(self, covered: RowRange, values: pa.Array) -> Mask:
        """Return for each row of a range whether its value is the same as in the replaced file."""
        existing = self._existing
        assert existing is not None

        def equal(part: RowRange) -> Mask:
            return equal_rows(values.slice(part.start - covered.start, part.rows), existing.values(part))

        return np.concatenate([found for _, found in in_parts(covered, equal)])

    def _note(self, covered: RowRange, states: States | None) -> None:
        if states is None or bool((states == RowState.COMPUTED).all()):
            return
        if self._states is None:
            self._states = np.full(self._physical_rows, RowState.COMPUTED, np.uint8)
        self._states[covered.start : covered.end] = states
        self.untouched += int((states == RowState.UNTOUCHED).sum())

    def _keep(self, covered: RowRange, kept: Mask) -> None:
        """Record which rows of a range have the same value as in the replaced file."""
        if not kept.any():
            return
        if self._changed is None:
            self._changed = np.ones(self._physical_rows, np.bool_)
        self._changed[covered.start : covered.end] = ~kept

    def _predecessors(self) -> bytes:
        """Return the predecessors that the file lists; empty if it keeps no rows of the replaced file."""
        if self._changed is None or self._existing is None:
            return b""
        file = self._existing.file
        earlier = column_files.read_predecessors(self._uri, file)
        return row_states.encode_predecessors(row_states.add_predecessor(file, self._changed, earlier))

    @property
    def is_put_at_once(self) -> bool:
        """Whether `finish` uploads the file to an object store in a single request."""
        return self._writer.is_put_at_once

    def finish(
        self,
        filters: frozenset[str],
        deletions: Deletions | None = None,
        older: Sequence[str] = (),
        beside: Callable[[StagedFile], None] | None = None,
    ) -> StagedFile:
        """Publish the file under a name that shows whether it has results for all rows.

        Args:
            filters: The md5 of each filter for which the file has results for all matching rows.
            deletions: The deleted rows, which have no value.
            older: First halves of the fingerprints of earlier versions; see
                `leman_core.model.row_states.encode_states`.
            beside: See `ColumnFileWriter.close`.

        Raises:
            ValueError: Rows are missing.
        """
        if self._at != self._physical_rows:
            raise ValueError(f"{self._at} of {self._physical_rows} rows were written")
        if self.untouched and not self._selective:
            raise ValueError(f"{self.untouched} rows that are not deleted have no value")
        if self._states is not None:
            self.rows_older = int((row_states.state_versions(self._states) > 0).sum())
        name = keys.column_file_name(self._fingerprint, self._attempt, partial=self._states is not None)
        self._writer.predecessors = self._predecessors()
        return self._writer.close(self._states, filters, name, deletions, older, beside)


class Unwritten:
    """Rows of a chunk that are not written to the column file yet.

    They are written before they take more than `most_bytes` of memory.

    Args:
        writer: Writes the column file. None if there is no such file.
        start: The offset where the chunk begins.
        known: Those rows of the chunk that need no evaluation.
        most_bytes: The maximum memory for these rows.
        left: Returns other rows of a range that are also to be written.
    """

    def __init__(
        self,
        writer: FragmentWriter | None,
        start: int,
        known: Sequence[Piece],
        most_bytes: int,
        left: Callable[[RowRange, Sequence[Piece]], Sequence[Piece]],
    ) -> None:
        self._writer = writer
        self._most = min(_EMIT_BYTES, most_bytes)
        self._at = start
        self._known = known
        self._left = left
        self._pieces: list[Piece] = []
        self._bytes = 0

    def add(self, piece: Piece, covered_to: int) -> None:
        """Add the next evaluated rows. All rows before `covered_to` must be known or added."""
        if self._writer is None:
            return
        self._pieces.append(piece)
        self._bytes += piece.values.nbytes
        if self._bytes >= self._most:
            self.write(covered_to)

    def write(self, covered_to: int) -> None:
        """Write the rows added since the last call."""
        covered = RowRange(self._at, covered_to)
        if self._writer is None or covered.rows <= 0:
            return
        known = pieces_within(self._known, covered)
        pieces = [*known, *self._pieces]
        self._writer.emit(covered, [*pieces, *self._left(covered, pieces)])
        self._at, self._pieces, self._bytes = covered_to, [], 0


def _in_sequence(covered: RowRange, pieces: Sequence[Piece]) -> bool:
    """Return whether the pieces, in this order, are exactly the rows of the range, so that they need no alignment."""
    at = covered.start
    for piece in pieces:
        first, last = int(piece.offsets[0]), int(piece.offsets[-1])
        if first != at or last - first + 1 != len(piece.offsets):
            return False
        at = last + 1
    return at == covered.end


def write_partial(
    context: WorkContext,
    task: FragmentTask,
    checkpoints: Sequence[CheckpointRef],
    store: CheckpointStore,
    stop: threading.Event,
) -> StagedFile | None:
    """Write a file with the rows of the task's current file and of checkpoints. All other rows are NULL, not computed.

    Memory is bounded by two checkpoints and a batch, as when assembling a fragment.

    Args:
        context: The context of a plan without a filter.
        task: The fragment. Its column has no file, or one to which the request adds rows.
        checkpoints: The checkpoints that were stored for the plan's request.
        store: Where the checkpoints are stored.
        stop: If set, writing stops.

    Returns:
        The file, which no table refers to yet. None if a checkpoint is missing or damaged, or if `stop` was set.
    """
    reader = FragmentReader(context.uri, context.read_version, context.manifest)
    field = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0)
    whole = RowRange(0, task.physical_rows)
    refs = sorted((ref for ref in checkpoints if ref.settles), key=lambda ref: (ref.range, ref.key))
    current = InstalledFile(context, FragmentWork.of(task, (), finish=True), reader, field)
    known = KnownRows(store, refs, current.settled, field.type)

    def existing(covered: RowRange) -> pa.Array:
        return reader.values(task.fragment_id, covered, field.name)

    def live(covered: RowRange) -> npt.NDArray[np.bool_]:
        return reader.live(task.fragment_id, covered) if task.deleted_rows else np.ones(covered.rows, np.bool_)

    writer = FragmentWriter(
        context.uri,
        field,
        task.fingerprint,
        task.physical_rows,
        existing=Existing(task.current_file, existing) if task.current_file else None,
        live=live,
        selective=True,
        file_format=reader.file_format,
    )
    try:
        for covered in known.steps(whole):
            if stop.is_set():
                return None
            writer.emit(covered, known.settled(covered))
    except CheckpointLost:
        return None
    deletions = reader.deletions(task.fragment_id) if task.deleted_rows else None
    return writer.finish(current.filters, deletions, context.versions[1:])
