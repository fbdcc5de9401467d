"""Computed rows before they reach their file: just evaluated, or read back from checkpoints and partial files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core import row_states
from core.domain.plan import CheckpointRef
from core.domain.ranges import RowRange
from core.domain.row_address import addresses_of, offsets_of
from core.lance_io.concatenation import joined
from core.lance_io.scan import CHUNK_ROWS
from core.ports import CheckpointStore
from core.row_states import RowState, States
from core.sorted_sets import among, distinct, without

ROW_ADDRESS = "_rowaddr"
ROW_STATE = "_leman_state"
_CACHED = 2
_CACHED_BYTES = 64 << 20
_STEP_BYTES = 32 << 20
_FIRST_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one fragment with their values."""

    #: Physical offsets, ascending.
    offsets: npt.NDArray[np.int64]
    values: pa.Array
    #: The state of each row; None: all are computed.
    states: States | None = None
    #: Whether the values are those of the column's current file.
    kept: bool = False

    def within(self, covered: RowRange) -> Piece | None:
        """Return the rows in a range; None where there are none."""
        first, last = np.searchsorted(self.offsets, [covered.start, covered.end])
        if first == last:
            return None
        states = None if self.states is None else self.states[first:last]
        return Piece(self.offsets[first:last], self.values.slice(first, last - first), states, self.kept)

    def only(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are among `offsets`; None where there are none."""
        wanted = among(self.offsets, offsets)
        if not wanted.any():
            return None
        states = None if self.states is None else self.states[wanted]
        return Piece(self.offsets[wanted], self.values.filter(pa.array(wanted)), states, self.kept)

    def without(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are not among `offsets`; None where none are left."""
        return self.only(without(self.offsets, offsets))

    def of_own_version(self) -> Piece | None:
        """Return the rows without those of earlier versions, which the column may not keep any more.

        None where no others are left.
        """
        if self.states is None or not row_states.versions(self.states).any():
            return self
        return self.only(self.offsets[row_states.versions(self.states) == 0])

    def of_kept(self, version: int) -> Piece:
        """Return the rows of a checkpoint of an earlier version that have values of it, marked as such.

        Rows on which that version failed are left to the one that came after it.
        """
        states = _computed(self) if self.states is None else self.states
        wanted = states == RowState.COMPUTED
        values = self.values if wanted.all() else self.values.filter(pa.array(wanted))
        offsets = self.offsets[wanted]
        marked = np.full(len(offsets), row_states.of_version(RowState.COMPUTED, version), np.uint8)
        return Piece(offsets, values, marked)

    def known(self) -> Piece | None:
        """Return the rows without those that were deleted when a checkpoint was stored; None where none are left."""
        if self.states is None or not (self.states == RowState.DELETED).any():
            return self
        return self.only(self.offsets[self.states != RowState.DELETED])


def to_checkpoint(fragment_id: int, column: str, pieces: Iterable[Piece], kind: pa.DataType) -> pa.RecordBatch:
    """Return pieces as a checkpoint batch in physical order.

    The batch has the column, `_rowaddr`, and the states where a row failed or is deleted. Where several pieces have
    the same row, the first one is kept. Extension types are stored as their storage type: Lance would write JSON anew,
    and its digest would not match.
    """
    pieces = list(pieces)
    values = joined([p.values for p in pieces]) if pieces else pa.nulls(0, kind)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    offsets = np.concatenate([p.offsets for p in pieces]) if pieces else np.empty(0, np.int64)
    columns = {
        column: values,
        ROW_ADDRESS: pa.array(addresses_of(fragment_id, offsets).astype(np.uint64)),
    }
    if any(p.states is not None for p in pieces):
        columns[ROW_STATE] = pa.array(
            np.concatenate([p.states if p.states is not None else _computed(p) for p in pieces])
        )
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if len(pieces) > 1 and not (np.diff(offsets) > 0).all():
        batch = batch.take(pa.array(np.unique(offsets, return_index=True)[1]))
    return batch


def from_checkpoint(batch: pa.RecordBatch, kind: pa.DataType | None = None) -> Piece:
    """Return the rows of a checkpoint batch.

    Args:
        batch: A batch that `to_checkpoint` made.
        kind: The type of the column, where it differs from that of the stored values.
    """
    offsets = offsets_of(batch.column(ROW_ADDRESS).to_numpy().astype(np.int64))
    states = None
    if ROW_STATE in batch.schema.names:
        states = batch.column(ROW_STATE).to_numpy()
    values = batch.column(0)
    if isinstance(kind, pa.BaseExtensionType):
        values = pa.ExtensionArray.from_storage(kind, values)
    return Piece(offsets, values, states)


def _computed(piece: Piece) -> States:
    return np.full(len(piece.offsets), RowState.COMPUTED, np.uint8)


class CheckpointLost(Exception):
    """A checkpoint that the plan relies on is gone or damaged."""

    def __init__(self, ref: CheckpointRef) -> None:
        super().__init__(ref.key)
        self.ref = ref


class KnownRows:
    """The rows of one fragment that need no evaluation.

    Keeps two checkpoints in memory, or as many as are small.
    """

    def __init__(
        self,
        store: CheckpointStore,
        refs: Iterable[CheckpointRef],
        current: Callable[[RowRange], Piece | None],
        kind: pa.DataType | None = None,
    ) -> None:
        self._kind = kind
        self._store = store
        self._refs = sorted(refs, key=lambda r: r.range)
        self._current = current
        self._loaded: dict[str, Piece] = {}
        self._loaded_bytes = 0
        self._row_bytes = 0.0

    def steps(self, covered: RowRange) -> Iterator[RowRange]:
        """Yield the range in steps, for which `settled` is to be called one after the other.

        Each step has the rows of one checkpoint, or of none; then they are few enough to take no more memory than a
        checkpoint.
        """
        at = covered.start
        for ref in self._refs:
            start, end = max(at, ref.range.start), min(covered.end, ref.range.end)
            if ref.settles and start < end:
                yield from self.small_steps(RowRange(at, start))
                yield RowRange(start, end)
                at = end
        yield from self.small_steps(RowRange(at, covered.end))

    def small_steps(self, covered: RowRange) -> Iterator[RowRange]:
        """Yield steps as `steps` does, for checkpoints that hold few of the rows of their ranges."""
        at = covered.start
        while at < covered.end:
            rows = min(CHUNK_ROWS, max(1, int(_STEP_BYTES / self._row_bytes))) if self._row_bytes else _FIRST_ROWS
            yield RowRange(at, min(at + rows, covered.end))
            at += rows

    def settled(self, covered: RowRange) -> list[Piece]:
        """Return the rows of a range that need no more work for this request.

        These are the rows of the current file and those of the request's own checkpoints. Where two pieces have the
        same row, the later piece wins. A checkpoint's copy of a row of the current file is left out.

        Raises:
            CheckpointLost: A checkpoint is gone or damaged.
        """
        current = self._current(covered)
        pieces = self._stored(covered, settles=True)
        if current is not None:
            pieces = [current, *(new for p in pieces if (new := p.without(current.offsets)) is not None)]
        self._row_bytes = max([self._row_bytes, *(p.values.nbytes / len(p.offsets) for p in pieces)])
        return pieces

    def of_other_filters(self, covered: RowRange, asked: npt.NDArray[np.int64]) -> list[Piece]:
        """Return those of the `asked` rows that were computed under another filter.

        Raises:
            CheckpointLost: A checkpoint is gone or damaged.
        """
        pieces = (p.only(asked) for p in self._stored(covered, settles=False))
        return [p for p in pieces if p is not None]

    def deleted(self, covered: RowRange) -> npt.NDArray[np.int64]:
        """Return the offsets of rows that were deleted when the checkpoints that settle the range were stored.

        A restore may have brought them back since.

        Raises:
            CheckpointLost: A checkpoint is gone or damaged.
        """
        pieces = self._pieces(covered, settles=True)
        gone = [p.offsets[p.states == RowState.DELETED] for p in pieces if p.states is not None]
        return distinct(np.concatenate(gone)) if gone else np.empty(0, np.int64)

    def _stored(self, covered: RowRange, *, settles: bool) -> list[Piece]:
        return [known for p in self._pieces(covered, settles=settles) if (known := p.known()) is not None]

    def _pieces(self, covered: RowRange, *, settles: bool) -> list[Piece]:
        pieces = []
        for ref in self._refs:
            if ref.range.start >= covered.end:
                break
            if ref.range.end > covered.start and ref.settles is settles:
                piece = self._load(ref).within(covered)
                # other rows of a request of its own were kept under another list of versions
                if piece is not None and not (settles or ref.version):
                    piece = piece.of_own_version()
                pieces.append(piece)
        return [p for p in pieces if p is not None]

    def _load(self, ref: CheckpointRef) -> Piece:
        piece = self._loaded.get(ref.key)
        if piece is None:
            try:
                piece = from_checkpoint(self._store[ref.key], self._kind)
            except KeyError:
                raise CheckpointLost(ref) from None
            if ref.version:
                piece = piece.of_kept(ref.version)
            self._loaded[ref.key] = piece
            self._loaded_bytes += piece.values.nbytes
            while len(self._loaded) > _CACHED and self._loaded_bytes > _CACHED_BYTES:
                self._loaded_bytes -= self._loaded.pop(next(iter(self._loaded))).values.nbytes
        return piece
