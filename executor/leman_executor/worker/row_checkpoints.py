"""Store checkpoints of a fragment's computed rows during the computation, and read them to write the column file.

This module decides when rows are stored, and tracks which rows are in no checkpoint yet. Known rows come from
checkpoints and partial files. It runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model import keys
from leman_core.model.plan import CheckpointRef
from leman_core.model.row_ids import distinct
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.work import CheckpointStore, FragmentWork, RowError, WorkContext
from leman_core.process.crash_points import crash_point
from leman_core.storage.checkpoint_records import Piece, from_checkpoint, pieces_within, to_checkpoint
from leman_core.storage.scan import CHUNK_ROWS, in_parts
from leman_executor.worker.unit_runtime import UnitRuntime

_CACHED = 2
_CACHED_BYTES = 64 << 20
_STEP_BYTES = 32 << 20
_FIRST_ROWS = 4096


class CheckpointLost(Exception):
    """A checkpoint on which the plan relies is missing or damaged."""

    def __init__(self, ref: CheckpointRef) -> None:
        super().__init__(ref.key)
        self.ref = ref


class KnownRows:
    """The rows of one fragment that need no evaluation.

    Keeps the last two checkpoints in memory, or more of them if they are small.
    """

    def __init__(
        self,
        store: CheckpointStore,
        refs: Iterable[CheckpointRef],
        current: Callable[[RowRange], list[Piece]],
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
        """Yield the range in steps. Call `settled` for the steps in order.

        A step has rows of at most one checkpoint, so it takes no more memory than a checkpoint.
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
        """Yield steps as `steps` does, for checkpoints that have only a few of the rows of their ranges."""
        at = covered.start
        while at < covered.end:
            rows = min(CHUNK_ROWS, max(1, int(_STEP_BYTES / self._row_bytes))) if self._row_bytes else _FIRST_ROWS
            yield RowRange(at, min(at + rows, covered.end))
            at += rows

    def settled(self, covered: RowRange) -> list[Piece]:
        """Return the rows of a range that need no more work for this request.

        They come from the current file and from the checkpoints of this request. If two pieces have the same row, the
        later piece wins. A checkpoint's copy of a row of the current file is left out.

        Raises:
            CheckpointLost: A checkpoint is missing or damaged.
        """
        current = self._current(covered)
        pieces = self._stored(covered, settles=True)
        if current:
            held = np.concatenate([piece.offsets for piece in current])
            pieces = [*current, *(new for p in pieces if (new := p.without(held)) is not None)]
        self._row_bytes = max([self._row_bytes, *(p.values.nbytes / len(p.offsets) for p in pieces)])
        return pieces

    def of_other_filters(self, covered: RowRange, asked: npt.NDArray[np.int64]) -> list[Piece]:
        """Return those of the rows in `asked` that were computed under another filter.

        Raises:
            CheckpointLost: A checkpoint is missing or damaged.
        """
        pieces = (p.only(asked) for p in self._stored(covered, settles=False))
        return [p for p in pieces if p is not None]

    def deleted(self, covered: RowRange) -> npt.NDArray[np.int64]:
        """Return the offsets of rows that were deleted when the checkpoints with the range's results were stored.

        Since then, a restore may have brought these rows back.

        Raises:
            CheckpointLost: A checkpoint is missing or damaged.
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
                # A checkpoint with a version has rows of this request that were stored under another list of versions.
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


#: Rows that are in the column file may skip the checkpoint if they take at least this many bytes …
_WIDE_BYTES = 16 << 20
#: … and if each second of work produced at least this many bytes of them.
_WIDE_BYTES_A_SECOND = 64 << 20


class Checkpoints:
    """The checkpoints of one pass over a fragment.

    A checkpoint is due after an interval of work, or earlier if its rows take too much memory. Wide rows cost less to
    recompute than to store twice. Once such rows are in the column file, they *skip the checkpoint*, and are safe only
    when that file is finished. The rows that skip the checkpoint and the rows for the next checkpoint together never
    cost more than one interval of work.
    """

    def __init__(self, context: WorkContext, work: FragmentWork, runtime: UnitRuntime, field: pa.Field) -> None:
        self._context = context
        self._work = work
        self._runtime = runtime
        self._field = field
        self._written = False
        self._skipped_seconds = 0.0
        self._skipped_failed = 0
        #: Whether some evaluated rows are in the column file only.
        self.has_skipped = False
        self._pending = _Pending(0, runtime.meter.worked)
        self._failures: list[RowError] = []
        #: The stored checkpoints.
        self.refs: list[CheckpointRef] = []

    @property
    def capacity(self) -> int:
        """Return the number of further rows that the next checkpoint can take."""
        return self._context.checkpoint.at_most - self._pending.rows

    @property
    def failed_unstored(self) -> int:
        """Return the number of failed rows that are in no checkpoint."""
        return self._skipped_failed + self._pending.failed

    def begin(self, start: int, *, written: bool) -> None:
        """Store the rows collected so far, then start to collect rows at a physical offset.

        Args:
            start: The offset of the first row that may be added next.
            written: Whether rows are already in the column file when they are added.
        """
        self.flush()
        self._written = written
        self._pending = _Pending(start, self._runtime.meter.worked)

    def add(self, piece: Piece, covered_to: int) -> None:
        """Add evaluated rows, and store them if a checkpoint is due.

        Args:
            piece: The evaluated rows.
            covered_to: The offset before which no rows remain to be evaluated.
        """
        self._pending.add(piece, covered_to, doubtful=self._runtime.meter.has_doubtful_rows)
        if self._may_skip_checkpoint():
            self._skip_checkpoint()
        elif self._due():
            self.flush()

    def add_known(self, pieces: Sequence[Piece]) -> None:
        """Add known rows between the evaluated ones, which the checkpoint must also contain."""
        self._pending.add_known(pieces)

    def cover(self, covered_to: int) -> None:
        """Record that no rows before an offset remain to be evaluated. Store the rows if they take much memory."""
        self._pending.covered_to = covered_to
        if self._may_skip_checkpoint():
            self._skip_checkpoint()
        elif self._pending.bytes >= self._context.checkpoint_max_bytes:
            self.flush()

    def failed(self, failures: Iterable[RowError]) -> None:
        """Add rows on which the function failed. They are stored before a checkpoint or file marks them as failed."""
        self._failures.extend(failures)

    def _due(self) -> bool:
        pending, context = self._pending, self._context
        if pending.rows >= context.checkpoint.at_most:
            return True
        if pending.bytes >= context.checkpoint_max_bytes:
            return True
        if self._runtime.meter.has_doubtful_rows:
            return False
        worked = self._skipped_seconds + self._runtime.meter.worked - pending.since
        return pending.rows >= context.checkpoint.at_least and worked >= self._runtime.interval()

    def _may_skip_checkpoint(self) -> bool:
        """Return whether the collected rows may skip the checkpoint.

        They may not skip it if the request sets the size of checkpoints, or if they cost more than half an interval.
        """
        pending, bounds = self._pending, self._context.checkpoint
        if not self._written or bounds.asked or pending.bytes < min(_WIDE_BYTES, self._context.checkpoint_max_bytes):
            return False
        work = self._runtime.meter.worked - pending.since
        return (
            work * _WIDE_BYTES_A_SECOND <= pending.bytes
            and self._skipped_seconds + work <= self._runtime.interval() / 2
        )

    def _skip_checkpoint(self) -> None:
        pending, worked = self._pending, self._runtime.meter.worked
        self._skipped_seconds += worked - pending.since
        self._skipped_failed += pending.failed
        self.has_skipped = True
        self._pending = _Pending(pending.covered_to, worked, pending.known)

    def flush_certain(self) -> None:
        """Store evaluated rows as `flush` does, when a pass ends early. Leave doubtful rows out."""
        if self._runtime.meter.has_doubtful_rows:
            self._pending.drop_doubtful()
            self._failures = [f for f in self._failures if f.offset < self._pending.covered_to]
        self.flush()

    def flush(self) -> None:
        """Store the rows evaluated since the last checkpoint or, if a range had no rows to evaluate, store that fact.

        Between the evaluated rows, there may be rows that are known from checkpoints of other filters or from the
        current file. The checkpoint also gets these rows. When the fragment is assembled later, it is no longer known
        which rows these were, and another function's file may have replaced the current file.
        """
        pending = self._pending
        covered = RowRange(pending.start, pending.covered_to)
        if not covered.rows:
            return
        work, meter = self._work, self._runtime.meter
        with meter.checkpointing() as taken:
            self.store_failures()
            # Deleted rows come first, so that later pieces win: a partial file has deleted rows as computed.
            pieces = [*self._deleted(covered), *pending.pieces, *pending.known_within(covered)]
            stored = list(self._stored(covered, pieces))
        meter.waited(taken(), sum(size for _, size in stored))
        crash_point("worker.checkpoint_stored")
        for ref, size in stored:
            self.refs.append(ref)
            meter.stored(work.fragment_id, ref, size)
        meter.safe(pending.rows, pending.failed)
        self._pending = _Pending(covered.end, meter.worked, pending.known)

    def _stored(self, covered: RowRange, pieces: Sequence[Piece]) -> Iterator[tuple[CheckpointRef, int]]:
        """Store the rows of a range, in several checkpoints if one cannot hold the values. Yield each checkpoint with
        its size in bytes.
        """
        work = self._work

        def checkpoint(part: RowRange) -> pa.RecordBatch:
            return to_checkpoint(work.fragment_id, self._field.name, pieces_within(pieces, part), self._field.type)

        for part, batch in in_parts(covered, checkpoint):
            key = keys.range_key(work.task.checkpoint_prefix, work.fragment_id, part)
            self._runtime.store[key] = batch
            yield CheckpointRef(key, part), batch.nbytes

    def _deleted(self, covered: RowRange) -> list[Piece]:
        """Return the deleted rows of a range. Checkpoints list deleted rows, to distinguish them from missing rows."""
        if not self._work.task.deleted_rows:
            return []
        offsets = covered.start + np.flatnonzero(~self._runtime.reader.live(self._work.fragment_id, covered))
        states = np.full(len(offsets), RowState.DELETED, np.uint8)
        return [Piece(offsets, pa.nulls(len(offsets), self._field.type), states)] if len(offsets) else []

    def store_failures(self) -> None:
        """Write failed rows to the error store, with their row ids in the version that was read."""
        if self._failures:
            found = self._runtime.reader.located(self._work.fragment_id, [f.offset for f in self._failures])
            self._runtime.errors.store([f.moved_to(*place) for f, place in zip(self._failures, found, strict=True)])
            self._failures = []

    def forget(self, key: str) -> None:
        """Drop a damaged checkpoint, so that the pass can start again."""
        self._skipped_seconds, self._skipped_failed, self.has_skipped = 0.0, 0, False
        self.refs = [ref for ref in self.refs if ref.key != key]


class _Pending:
    """Evaluated rows that are in no checkpoint yet, from the physical offset `start` up to `covered_to`.

    Args:
        start: The physical offset of the first row.
        since: The seconds of work when the first row was started.
        known: Known rows, from `start` on, that the checkpoint must also contain.
    """

    def __init__(self, start: int, since: float, known: Iterable[Piece] = ()) -> None:
        self.start = start
        self.covered_to = start
        self.pieces: list[Piece] = []
        self.known = [piece for piece in known if piece.offsets[-1] >= start]
        self.rows = 0
        self.failed = 0
        self.bytes = 0
        self.since = since
        #: Number of pieces before the doubtful ones, and the offset at which the doubtful ones begin.
        self._certain = 0, start

    def drop_doubtful(self) -> None:
        """Drop the doubtful pieces at the end."""
        count, covered_to = self._certain
        kept, self.pieces = self.pieces[:count], []
        self.rows = self.failed = 0
        for piece in kept:
            self._take(piece)
        self.covered_to = covered_to

    def add(self, piece: Piece, covered_to: int, *, doubtful: bool = False) -> None:
        self._take(piece)
        self.covered_to = covered_to
        self.bytes += piece.values.nbytes
        if not doubtful:
            self._certain = len(self.pieces), covered_to

    def _take(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.rows += len(piece.offsets)
        self.failed += 0 if piece.states is None else int(np.count_nonzero(piece.states == RowState.FAILED))

    def add_known(self, pieces: Sequence[Piece]) -> None:
        self.known.extend(pieces)
        self.bytes += sum(piece.values.nbytes for piece in pieces)

    def known_within(self, covered: RowRange) -> list[Piece]:
        return pieces_within(self.known, covered)
