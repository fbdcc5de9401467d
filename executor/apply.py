"""Computes a unit of work: read, evaluate, checkpoint, column file.

Runs on Spark workers: imports no gRPC and no Spark. It never commits.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from core import keys, row_states
from core.checkpoints.records import FragmentRecord
from core.crash import crash_point
from core.domain.plan import CheckpointRef
from core.domain.ranges import RowRange, merge, subtract
from core.domain.udf import UdfKind
from core.domain.work import FragmentResult, FragmentWork, RowFailure, WorkContext
from core.errors import Internal
from core.lance_io import column_files
from core.lance_io.scan import Chunk, FragmentReader
from core.ports import CheckpointStore, ErrorSink
from core.row_states import RowState, States
from executor.evaluate import Evaluated, without_condemned
from executor.fragment_writer import FragmentWriter, Unwritten
from executor.meter import Meter
from executor.pieces import CheckpointLost, KnownRows, Piece, current_rows, to_checkpoint
from executor.slices import Slices, SliceSizer
from executor.sql import SqlSource


class OutOfBudget(Exception):
    """The unit's time is up; `at` is the first physical offset that is not safe yet."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Evaluates(Protocol):
    """Gives the values of rows; see `Evaluator`."""

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What the fragments of a unit share. `evaluator` loads the function when it is first called; `interval` is the
    seconds of work after which a checkpoint is due."""

    reader: FragmentReader
    store: CheckpointStore
    errors: ErrorSink
    evaluator: Callable[[], Evaluates]
    sizer: SliceSizer
    meter: Meter
    out_of_time: Callable[[], bool]
    interval: Callable[[], float]
    slices: Slices


class FragmentPass:
    """One pass over one fragment in physical order.

    Rows are evaluated where the work asks for it and copied from checkpoints elsewhere; every checkpoint interval the
    rows evaluated since are stored. A fragment that is finished within one interval needs no checkpoint: its column
    file is one.
    """

    def __init__(self, context: WorkContext, work: FragmentWork, tools: Tools) -> None:
        self._context = context
        self._work = work
        self._tools = tools
        self._reader = tools.reader
        self._store = tools.store
        self._meter = tools.meter
        self._field = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0)
        self._checkpoints: list[CheckpointRef] = []
        self._pending = _Pending(0)
        self._failures: list[RowFailure] = []
        self._writer: FragmentWriter | None = None
        self._known = self._known_rows()

    def run(self) -> FragmentResult:
        """Does the work, or as much of it as the budget allows. Raises JobFailing by the error policy, after storing
        what was evaluated before."""
        while True:
            try:
                return self._run()
            except CheckpointLost as lost:
                self._flush()
                self._forget(lost.ref)

    def _run(self) -> FragmentResult:
        work = self._work
        if work.finish:
            self._check_covered(work)
            self._writer = self._new_writer()
        done: list[RowRange] = []
        try:
            for covered, compute in _segments(work):
                if compute:
                    self._compute(covered)
                    done.append(covered)
                else:
                    self._copy(covered)
        except OutOfBudget as stop:
            self._writer = None
            done.append(RowRange(0, stop.at))
            return self._result(left=subtract(work.ranges, done))
        except BaseException:
            self._writer = None
            with contextlib.suppress(OSError):
                self._flush()
            raise
        return self._finish() if self._writer is not None else self._result(left=[])

    def _check_covered(self, work: FragmentWork) -> None:
        """A fragment is finished only when every row is computed here or stored: never a NULL in place of a value."""
        stored = [r.range for r in work.checkpoints if r.settles]
        open_ranges = subtract([RowRange(0, work.physical_rows)], [*work.ranges, *stored])
        if open_ranges:
            raise Internal("RANGE_LOST", f"nobody computed rows {open_ranges} of fragment {work.fragment_id}")

    def _result(self, left: Sequence[RowRange], **more: object) -> FragmentResult:
        counts = self._meter.fragment
        return FragmentResult(
            self._work.fragment_id,
            checkpoints=tuple(self._checkpoints),
            left=tuple(left),
            rows_evaluated=counts.evaluated,
            rows_computed=counts.evaluated - counts.failed,
            rows_failed=counts.failed,
            **more,  # type: ignore[arg-type]
        )

    def _finish(self) -> FragmentResult:
        """Publishes the column file, then the record that lets a later run find it before it is committed."""
        writer, work, context = self._writer, self._work, self._context
        if writer is None:
            raise RuntimeError("finish without a writer")
        with self._meter.writing():
            deletions = self._reader.deletions(work.fragment_id) if work.deleted_rows else None
            staged = writer.finish(self._settled_filters(), deletions)
        crash_point("worker.file_written")
        record = FragmentRecord(
            file=staged.file,
            src_data_files=work.input_files,
            output_field_ids=context.output_field_ids,
            column_id=context.column_id,
            fingerprint=work.fingerprint,
            size_bytes=staged.size_bytes,
            digest=staged.digest,
            physical_rows=staged.physical_rows,
            rows_computed=staged.rows_computed,
            rows_failed=staged.rows_failed,
            replaces=work.current_file,
        )
        with self._meter.checkpointing():
            self._store_failures()
            self._store[keys.record_key(work.checkpoint_prefix, work.fragment_id)] = record.to_batch()
        crash_point("worker.record_stored")
        self._meter.safe(self._meter.fragment.evaluated - self._meter.fragment.safe)
        return self._result(left=[], staged=staged, rows_skipped=writer.untouched)

    def _settled_filters(self) -> frozenset[str]:
        """md5 of the filters whose matching rows are all settled once this pass is through."""
        if not self._context.where:
            return frozenset()
        filters = frozenset({keys.filter_id(self._work.checkpoint_prefix)})
        if self._work.row_states:
            filters |= row_states.decode_summary(self._work.row_states).filters
        elif self._work.extend_current:
            summary = column_files.read_state_summary(self._context.uri, self._work.current_file)
            filters |= summary.filters if summary is not None else frozenset()
        return filters

    # segments

    def _copy(self, covered: RowRange) -> None:
        """Rows that are known: from checkpoints and the current file to the new file."""
        if self._writer is None:
            return
        for chunk in self._known.steps(covered):
            with self._meter.writing():
                pieces = self._known.settled(chunk)
            pieces += self._came_back(chunk, pieces)
            with self._meter.writing():
                self._writer.emit(chunk, pieces)

    def _came_back(self, covered: RowRange, known: Sequence[Piece]) -> list[Piece]:
        """Rows that were deleted when the checkpoints of a range were stored and that a restore has brought back."""
        gone = self._known.deleted(covered)
        if not len(gone):
            return []
        found: list[Piece] = []
        for chunk in self._chunks(covered):
            asked = _only(_without(chunk, known), gone)
            others = self._known.of_other_filters(chunk.covered, asked.offsets)
            found += [*others, *self._evaluate_all(_without(asked, others))]
        return found

    def _evaluate_all(self, chunk: Chunk) -> Iterator[Piece]:
        at = 0
        while at < len(chunk.offsets):
            piece = self._end(self._begin(chunk, slice(at, at + self._tools.sizer.rows), ()))
            at += len(piece.offsets)
            yield piece

    def _compute(self, covered: RowRange) -> None:
        self._flush()
        self._pending = _Pending(covered.start)
        for chunk in self._chunks(covered):
            others = self._known.of_other_filters(chunk.covered, chunk.offsets)
            known = [*self._known.settled(chunk.covered), *others]
            self._pending.add_known(known)
            unwritten = Unwritten(self._writer, chunk.covered.start, known, self._context.checkpoint_max_bytes)
            self._evaluate_chunk(_without(chunk, known), covered.end, unwritten)
            self._pending.covered_to = chunk.covered.end
            if self._pending.bytes >= self._context.checkpoint_max_bytes:
                self._flush()
            with self._meter.writing():
                unwritten.write(chunk.covered.end)
        if self._writer is None:
            self._flush()

    def _chunks(self, covered: RowRange) -> Iterator[Chunk]:
        source = self._source(covered)
        while True:
            with self._meter.reading():
                chunk = next(source, None)
            if chunk is None:
                return
            yield chunk

    def _source(self, covered: RowRange) -> Iterator[Chunk]:
        work, context = self._work, self._context
        deletions = work.deleted_rows > 0
        if context.udf.kind is UdfKind.SQL:
            return SqlSource(self._reader, context).read(work.fragment_id, covered, deletions=deletions)
        return self._reader.read(
            work.fragment_id, covered, context.input_columns, deletions=deletions, where=context.where
        )

    def _evaluate_chunk(self, chunk: Chunk, end: int, unwritten: Unwritten) -> None:
        """Evaluates a chunk slice by slice. Raises OutOfBudget at a safe point with work left."""
        at = safe_to = 0
        for piece in self._evaluated(chunk):
            at += len(piece.offsets)
            safe_to = int(chunk.offsets[at]) if at < len(chunk.offsets) else chunk.covered.end
            self._pending.add(piece, safe_to)
            with self._meter.writing():
                unwritten.add(piece, safe_to)
            if self._checkpoint_due():
                self._flush()
        if at and safe_to < end and (at < len(chunk.offsets) or self._tools.out_of_time()):
            self._flush()
            raise OutOfBudget(safe_to)

    def _evaluated(self, chunk: Chunk) -> Iterator[Piece]:
        """Slices in order, of which several may be at work at once. Begins none once time is up."""
        tools, bounds = self._tools, self._context.checkpoint
        begun: deque[_Slice] = deque()
        at = 0
        try:
            while True:
                while at < len(chunk.offsets) and len(begun) < tools.slices.ahead:
                    room = bounds.at_most - self._pending.rows - sum(len(s.offsets) for s in begun)
                    if room <= 0 or (at and tools.out_of_time()):
                        break
                    begun.append(self._begin(chunk, slice(at, at + min(tools.sizer.rows, room)), begun))
                    at += len(begun[-1].offsets)
                if not begun:
                    return
                yield self._end(begun.popleft())
        finally:
            for left in begun:
                left.result.cancel()

    def _begin(self, chunk: Chunk, part: slice, before: Iterable[_Slice]) -> _Slice:
        offsets = chunk.offsets[part]
        rows = chunk.rows.slice(part.start, len(offsets))
        fragment_id, condemned = self._work.fragment_id, self._work.condemned
        with self._meter.evaluating():
            evaluator = self._tools.evaluator()
        self._meter.holds(fragment_id, (_span(o) for o in (*(s.offsets for s in before), offsets)))

        def call() -> tuple[Evaluated, float]:
            begin = time.perf_counter()
            if condemned and np.isin(offsets, [f.offset for f in condemned]).any():
                result = without_condemned(evaluator, self._field.type, condemned, offsets, rows)
            else:
                result = evaluator(fragment_id, offsets, rows)
            return result, time.perf_counter() - begin

        with self._meter.evaluating():
            return _Slice(offsets, self._tools.slices.begin(call))

    def _end(self, part: _Slice) -> Piece:
        offsets = part.offsets
        with self._meter.evaluating():
            result, seconds = part.result.result()
        self._tools.sizer.note(len(offsets), seconds)
        self._meter.evaluated(len(offsets), len(result.failures))
        self._failures.extend(result.failures)
        states = None
        if result.failed is not None:
            states = np.where(result.failed, RowState.FAILED, RowState.COMPUTED).astype(np.uint8)
        return Piece(offsets, result.values, states)

    # checkpoints

    def _checkpoint_due(self) -> bool:
        pending, context = self._pending, self._context
        if pending.rows >= context.checkpoint.at_most:
            return True
        if pending.bytes >= context.checkpoint_max_bytes:
            return True
        return (
            pending.rows >= context.checkpoint.at_least and time.monotonic() - pending.since >= self._tools.interval()
        )

    def _flush(self) -> None:
        """Stores what was evaluated since the last checkpoint, even where that is only the news that a range holds
        nothing to evaluate. With it go the rows in between that are known from other filters' checkpoints and from the
        current file: which those are is not known any more when the fragment is assembled, and another function's
        file may have taken the current one's place by then."""
        pending = self._pending
        covered = RowRange(pending.start, pending.covered_to)
        if not covered.rows:
            return
        work = self._work
        key = keys.range_key(work.checkpoint_prefix, work.fragment_id, covered)
        with self._meter.checkpointing():
            self._store_failures()
            # deleted rows first: a partial file has them as computed
            pieces = [*self._deleted(covered), *pending.pieces, *pending.known_within(covered)]
            self._store[key] = to_checkpoint(work.fragment_id, self._field.name, pieces, self._field.type)
        crash_point("worker.checkpoint_stored")
        self._checkpoints.append(CheckpointRef(key, covered))
        self._meter.stored(work.fragment_id, self._checkpoints[-1])
        self._meter.safe(pending.rows)
        self._pending = _Pending(covered.end, pending.known)

    def _deleted(self, covered: RowRange) -> list[Piece]:
        """The deleted rows of a range, so that a checkpoint tells them from rows that it does not hold."""
        if not self._work.deleted_rows:
            return []
        offsets = covered.start + np.flatnonzero(~self._reader.live(self._work.fragment_id, covered))
        states = np.full(len(offsets), RowState.DELETED, np.uint8)
        return [Piece(offsets, pa.nulls(len(offsets), self._field.type), states)] if len(offsets) else []

    def _store_failures(self) -> None:
        if self._failures:
            ids = self._reader.row_ids(self._work.fragment_id, [f.offset for f in self._failures])
            self._tools.errors.store([replace(f, row_id=i) for f, i in zip(self._failures, ids, strict=True)])
            self._failures = []

    def _forget(self, lost: CheckpointRef) -> None:
        """A checkpoint turned out damaged: its rows are computed after all."""
        kept = tuple(r for r in (*self._work.checkpoints, *self._checkpoints) if r.key != lost.key)
        covered = [r.range for r in kept if r.settles]
        again = subtract([lost.range], covered) if lost.settles else []
        ranges = subtract([*self._work.ranges, *again], [r.range for r in self._checkpoints if r.key != lost.key])
        self._work = replace(self._work, checkpoints=kept, ranges=tuple(merge(ranges)))
        self._checkpoints = [r for r in self._checkpoints if r.key != lost.key]
        self._known = self._known_rows()

    # what is there already

    def _known_rows(self) -> KnownRows:
        work, context = self._work, self._context
        current = None
        if work.extend_current and work.current_file:
            if work.row_states:
                states: States | None = row_states.decode(work.row_states)
            else:
                states = column_files.read_states(context.uri, work.current_file)
            current = current_rows(self._reader, work.fragment_id, self._field.name, states)
        return KnownRows(self._store, work.checkpoints, current, self._field.type)

    def _new_writer(self) -> FragmentWriter:
        work, context = self._work, self._context
        keeps_others = bool(work.current_file) and (bool(context.where) or work.extend_current)
        return FragmentWriter(
            context.uri,
            self._field,
            work.fingerprint,
            work.physical_rows,
            existing=self._existing if keeps_others else None,
            live=self._live,
            selective=bool(context.where),
            file_format=self._reader.file_format,
        )

    def _existing(self, covered: RowRange) -> pa.Array:
        return self._reader.values(self._work.fragment_id, covered, self._field.name)

    def _live(self, covered: RowRange) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not self._work.deleted_rows:
            return np.ones(covered.rows, np.bool_)
        return self._reader.live(self._work.fragment_id, covered)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Rows that the function has been given, or will be as soon as a thread is free."""

    offsets: npt.NDArray[np.int64]
    result: Future[tuple[Evaluated, float]]


class _Pending:
    """Evaluated rows that no checkpoint holds yet, from physical offset `start` up to `covered_to`. `known`: rows from
    there on that are known from elsewhere and that the checkpoint has to hold too."""

    def __init__(self, start: int, known: Iterable[Piece] = ()) -> None:
        self.start = start
        self.covered_to = start
        self.pieces: list[Piece] = []
        self.known = [piece for piece in known if piece.offsets[-1] >= start]
        self.rows = 0
        self.bytes = 0
        self.since = time.monotonic()

    def add(self, piece: Piece, covered_to: int) -> None:
        self.pieces.append(piece)
        self.covered_to = covered_to
        self.rows += len(piece.offsets)
        self.bytes += piece.values.nbytes

    def add_known(self, pieces: Sequence[Piece]) -> None:
        self.known.extend(pieces)
        self.bytes += sum(piece.values.nbytes for piece in pieces)

    def known_within(self, covered: RowRange) -> list[Piece]:
        return [held for piece in self.known if (held := piece.within(covered)) is not None]


def _span(offsets: npt.NDArray[np.int64]) -> RowRange:
    return RowRange(int(offsets[0]), int(offsets[-1]) + 1)


def _segments(work: FragmentWork) -> Iterator[tuple[RowRange, bool]]:
    """Ranges in order, with whether to compute them; the whole fragment where it is to be finished."""
    if not work.finish:
        yield from ((r, True) for r in merge(work.ranges))
        return
    at = 0
    for covered in merge(work.ranges):
        if covered.start > at:
            yield RowRange(at, covered.start), False
        yield covered, True
        at = covered.end
    if at < work.physical_rows:
        yield RowRange(at, work.physical_rows), False


def _only(chunk: Chunk, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Chunk:
    """Those of the chunk's rows that are among `offsets`."""
    asked = np.isin(chunk.offsets, offsets)
    return Chunk(chunk.covered, chunk.offsets[asked], chunk.rows.filter(pa.array(asked)))


def _without(chunk: Chunk, known: Sequence[Piece]) -> Chunk:
    """The chunk's rows that are not known yet."""
    if not known:
        return chunk
    new = ~np.isin(chunk.offsets, np.concatenate([p.offsets for p in known]))
    return Chunk(chunk.covered, chunk.offsets[new], chunk.rows.filter(pa.array(new)))
