"""Computed rows of a fragment before they reach its file, read back from checkpoints and partial files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.plan import CheckpointRef
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.sorted_sets import distinct
from leman_core.storage.checkpoints.rows import Piece, from_checkpoint
from leman_core.storage.scan import CHUNK_ROWS

_CACHED = 2
_CACHED_BYTES = 64 << 20
_STEP_BYTES = 32 << 20
_FIRST_ROWS = 4096


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
