"""Compute one fragment of a unit of work, slice by slice, from its rows to its column file.

Several slices may be evaluated concurrently. The pass writes files and checkpoints, but commits nothing. Runs on Spark
workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model import keys
from leman_core.model.plan import CheckpointRef, StagedFile
from leman_core.model.row_ids import isin
from leman_core.model.row_positions import RowRange, count_offsets, merge_ranges, subtract_ranges
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import Internal, LemanError
from leman_core.model.work import FragmentResult, FragmentWork, RowError, WorkContext
from leman_core.process.crash_points import crash_point
from leman_core.storage.checkpoint_records import FragmentRecord, Piece
from leman_core.storage.scan import Chunk
from leman_executor.worker.evaluator import Evaluated, JobFailing
from leman_executor.worker.fragment_writer import Existing, FragmentWriter, Unwritten
from leman_executor.worker.row_checkpoints import CheckpointLost, Checkpoints, KnownRows
from leman_executor.worker.row_source import InstalledFile, RowSource, only_rows, without_rows
from leman_executor.worker.unit_runtime import UnitRuntime


class Evaluation:
    """Evaluate the rows of one fragment. Pass rows that the error policy skips to `failed`."""

    def __init__(
        self,
        work: FragmentWork,
        runtime: UnitRuntime,
        output: pa.DataType,
        failed: Callable[[Iterable[RowError]], None],
    ) -> None:
        self._work = work
        self._runtime = runtime
        self._meter = runtime.meter
        self._output = output
        self._failed = failed
        #: The time of the function's first call for this fragment, after it was set up. None before that.
        self.began: float | None = None

    def all(self, chunk: Chunk) -> Iterator[Piece]:
        """Evaluate all rows of a chunk, in order, without regard to the time budget."""
        at = 0
        while at < len(chunk.offsets):
            piece = self._end(self._begin(chunk, slice(at, at + self._runtime.sizer.rows), ()))
            at += len(piece.offsets)
            yield piece

    def slices(self, chunk: Chunk, capacity: Callable[[], int], over: Callable[[], bool]) -> Iterator[Piece]:
        """Yield the evaluated slices of a chunk, in order.

        Args:
            chunk: The rows.
            capacity: Returns how many more rows the next checkpoint can take, in addition to the slices that were
                yielded. Slices with more rows are not started.
            over: Returns whether the time is up. From then on, no slice is started, except the first one.
        """
        runtime = self._runtime
        begun: deque[_Slice] = deque()
        at = 0
        try:
            while True:
                while at < len(chunk.offsets) and len(begun) < runtime.slices.ahead:
                    left = capacity() - sum(len(s.offsets) for s in begun)
                    if left <= 0 or (at and over()):
                        break
                    begun.append(self._begin(chunk, slice(at, at + min(runtime.sizer.rows, left)), begun))
                    at += len(begun[-1].offsets)
                if not begun:
                    return
                part = begun.popleft()
                try:
                    piece = self._end(part)
                except JobFailing as failing:
                    if failing.before is not None:  # these rows are already computed
                        yield self._piece(part.offsets[: len(failing.before.values)], failing.before)
                    raise
                yield piece
        finally:
            for left_over in begun:
                left_over.result.cancel()

    def _begin(self, chunk: Chunk, part: slice, before: Iterable[_Slice]) -> _Slice:
        offsets = chunk.offsets[part]
        rows = chunk.rows.slice(part.start, len(offsets))
        fragment_id, quarantined = self._work.fragment_id, self._work.quarantined
        evaluator = self._runtime.evaluator()
        if self.began is None:
            self.began = self._runtime.clock()
        self._meter.calling(fragment_id, (_span(o) for o in (*(s.offsets for s in before), offsets)))

        def call() -> tuple[Evaluated, float]:
            begin = time.perf_counter()
            if quarantined and isin(offsets, np.array([f.offset for f in quarantined], np.int64)).any():
                result = _without_quarantined(evaluator, self._output, quarantined, offsets, rows)
            else:
                result = evaluator(fragment_id, offsets, rows)
            return result, time.perf_counter() - begin

        with self._meter.evaluating():
            return _Slice(offsets, self._runtime.slices.begin(call))

    def _end(self, part: _Slice) -> Piece:
        offsets = part.offsets
        with self._meter.evaluating():
            result, seconds = part.result.result()
        self._runtime.sizer.note(len(offsets), seconds, result.values.nbytes)
        return self._piece(offsets, result)

    def _piece(self, offsets: npt.NDArray[np.int64], result: Evaluated) -> Piece:
        self._meter.evaluated(len(offsets), len(result.failures))
        self._failed(result.failures)
        states = None
        if result.failed is not None:
            states = np.where(result.failed, RowState.FAILED, RowState.COMPUTED).astype(np.uint8)
        return Piece(offsets, result.values, states)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Rows with which the function is called, either now or once a thread is free."""

    offsets: npt.NDArray[np.int64]
    result: Future[tuple[Evaluated, float]]


def _span(offsets: npt.NDArray[np.int64]) -> RowRange:
    return RowRange(int(offsets[0]), int(offsets[-1]) + 1)


def _without_quarantined(
    evaluate: Callable[[int, npt.NDArray[np.int64], pa.RecordBatch], Evaluated],
    output: pa.DataType,
    quarantined: Sequence[RowError],
    offsets: npt.NDArray[np.int64],
    rows: pa.RecordBatch,
) -> Evaluated:
    """Evaluate the rows of a fragment. Quarantined rows are left out: they become NULL and count as failed."""
    here = [f for f in quarantined if (offsets == f.offset).any()]
    doomed = isin(offsets, np.array([f.offset for f in here], np.int64))
    if doomed.all():
        return Evaluated(pa.nulls(len(offsets), output), doomed, tuple(here))
    rest = evaluate(here[0].fragment_id, offsets[~doomed], rows.filter(pa.array(~doomed)))
    places = pa.array(np.cumsum(~doomed) - 1, mask=doomed)
    failed = doomed.copy()
    if rest.failed is not None:
        failed[~doomed] = rest.failed
    return Evaluated(rest.values.take(places), failed, (*rest.failures, *here))


#: Seconds by which a unit may exceed its budget in order to finish a fragment. If it returned the fragment instead,
#: another unit would have to assemble it.
_GRACE_SECONDS = 0.25


class OutOfBudget(Exception):
    """The unit's time is up. Rows that are in no checkpoint remain to be computed."""


class FragmentPass:
    """One pass over one fragment in physical order.

    The pass evaluates the rows that the work asks for, and copies all other rows from checkpoints. After each
    checkpoint interval, it stores the rows evaluated since the last checkpoint. A fragment that is finished within one
    interval needs no checkpoint, because its column file serves as a checkpoint. The budget therefore does not end a
    pass if some rows are only in that file (see `Checkpoints`), or if the pass is almost done.
    """

    def __init__(self, context: WorkContext, work: FragmentWork, runtime: UnitRuntime) -> None:
        self._context = context
        self._work = work
        self._runtime = runtime
        self._reader = runtime.reader
        self._meter = runtime.meter
        self._field = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0)
        self._fixed_before = runtime.meter.fixed
        self._writer: FragmentWriter | None = None
        self._left_out = 0
        self._current = InstalledFile(context, work, runtime.reader, self._field)
        self._known = self._known_rows()
        self._rows = RowSource(context, work, runtime, self._current)
        self._checkpoints = Checkpoints(context, work, runtime, self._field)
        self._evaluation = Evaluation(work, runtime, self._field.type, self._checkpoints.failed)

    def run(self) -> FragmentResult:
        """Run the pass until it is done or the budget is spent.

        Raises:
            JobFailing: A row failed and the error policy ends the job. The rows evaluated before it are stored.
            Internal: RANGE_LOST, if the fragment should be finished but some rows are neither stored nor computed here.
        """
        while True:
            try:
                return self._run()
            except CheckpointLost as lost:
                self._checkpoints.flush()
                self._forget(lost.ref)

    def _run(self) -> FragmentResult:
        work = self._work
        self._left_out = 0
        if work.finish:
            self._check_covered(work)
            self._writer = self._new_writer()
        try:
            for covered, compute in _segments(work):
                if compute:
                    self._compute(covered)
                else:
                    self._copy(covered)
        except OutOfBudget:
            self._writer = None
            return self._result(left=subtract_ranges(work.ranges, [ref.range for ref in self._checkpoints.refs]))
        except BaseException:
            self._writer = None
            with contextlib.suppress(LemanError):
                self._checkpoints.flush_certain()
            raise
        return self._finish() if self._writer is not None else self._result(left=[])

    def _check_covered(self, work: FragmentWork) -> None:
        """Check that all rows are computed here or stored, so that no row of the finished file is NULL by mistake."""
        stored = [r.range for r in work.checkpoints if r.settles]
        open_ranges = subtract_ranges([RowRange(0, work.task.physical_rows)], [*work.ranges, *stored])
        if open_ranges:
            raise Internal("RANGE_LOST", f"no unit computed rows {open_ranges} of fragment {work.fragment_id}")

    def _result(self, left: Sequence[RowRange], **more: object) -> FragmentResult:
        counts = self._meter.fragment
        return FragmentResult(
            self._work.fragment_id,
            checkpoints=tuple(self._checkpoints.refs),
            left=tuple(left),
            rows_evaluated=counts.evaluated,
            rows_computed=counts.evaluated - counts.failed,
            rows_failed=counts.failed_safe,
            **more,  # type: ignore[arg-type]
        )

    def _finish(self) -> FragmentResult:
        """Publish the column file. Then store a record by which later runs find the file before it is committed.

        In an object store, a small file and its record are uploaded concurrently, because neither depends on the other.
        Planners ignore a record whose file does not exist. If the file is rejected, the record is deleted.
        """
        writer, work = self._writer, self._work
        if writer is None:
            raise RuntimeError("finish without a writer")
        if at_once := writer.is_put_at_once:
            with self._meter.checkpointing():
                self._checkpoints.store_failures()
        with self._meter.writing() as taken:
            deletions = self._reader.deletions(work.fragment_id) if work.task.deleted_rows else None
            beside = partial(self._store_record, writer) if at_once else None
            staged = writer.finish(self._settled_filters(), deletions, self._context.versions[1:], beside)
        self._meter.waited(taken(), staged.size_bytes)
        crash_point("worker.file_written")
        if not at_once:
            with self._meter.checkpointing() as taken:
                self._checkpoints.store_failures()
                self._store_record(writer, staged)
            self._meter.waited(taken(), 0)
        crash_point("worker.record_stored")
        counts = self._meter.fragment
        self._meter.safe(counts.evaluated - counts.safe, self._checkpoints.failed_unstored)
        failed_before = self._current.failed_before + self._left_out
        return self._result(left=[], staged=staged, failed_before=failed_before)

    def _store_record(self, writer: FragmentWriter, staged: StagedFile) -> None:
        key = keys.record_key(self._work.task.checkpoint_prefix, self._work.fragment_id)
        self._runtime.store[key] = self._record(staged, writer).to_batch()

    def _record(self, staged: StagedFile, writer: FragmentWriter) -> FragmentRecord:
        work, context = self._work, self._context
        return FragmentRecord(
            file=staged.file,
            src_data_files=work.task.input_files,
            output_field_ids=context.output_field_ids,
            column_id=context.column_id,
            fingerprint=work.task.fingerprint,
            size_bytes=staged.size_bytes,
            digest=staged.digest,
            physical_rows=staged.physical_rows,
            rows_computed=staged.rows_computed,
            rows_failed=staged.rows_failed,
            replaces=work.task.current_file,
            states=writer.row_states,
            rows_older=writer.rows_older,
        )

    def _settled_filters(self) -> frozenset[str]:
        """Return the md5 of each filter for which all matching rows have results after this pass."""
        if self._context.failed_only:
            return self._current.filters
        if not self._context.selective:
            return frozenset()
        return self._current.filters | {keys.filter_id(self._work.task.checkpoint_prefix)}

    # The segments of the fragment.

    def _copy(self, covered: RowRange) -> None:
        """Copy rows from checkpoints and from the current file to the new file."""
        if self._writer is None:
            return
        # The checkpoints of a retry have few rows of long ranges.
        steps = self._known.small_steps if self._context.failed_only else self._known.steps
        for chunk in steps(covered):
            with self._meter.writing() as taken:
                pieces = self._known.settled(chunk)
            self._meter.waited(taken(), sum(piece.values.nbytes for piece in pieces))
            pieces += self._came_back(chunk, pieces)
            with self._meter.writing():
                self._writer.emit(chunk, [*pieces, *self._left_failed(chunk, pieces)])

    def _came_back(self, covered: RowRange, known: Sequence[Piece]) -> list[Piece]:
        """Return rows that were deleted when the range's checkpoints were stored, and that a restore has
        brought back.
        """
        gone = self._known.deleted(covered)
        if not len(gone):
            return []
        found: list[Piece] = []
        for chunk in self._rows.chunks(covered):
            asked = only_rows(without_rows(chunk, known), gone)
            others = self._known.of_other_filters(chunk.covered, asked.offsets)
            found += [*others, *self._evaluation.all(without_rows(asked, others))]
        return found

    def _compute(self, covered: RowRange) -> None:
        self._checkpoints.begin(covered.start, written=self._writer is not None)
        for chunk in self._rows.chunks(covered):
            others = self._known.of_other_filters(chunk.covered, chunk.offsets)
            known = [*self._known.settled(chunk.covered), *others]
            if not self._context.failed_only:  # a retry's keys name the file, so its known rows are certain
                self._checkpoints.add_known(known)
            unwritten = Unwritten(
                self._writer, chunk.covered.start, known, self._context.checkpoint_max_bytes, self._left_failed
            )
            self._evaluate_chunk(without_rows(chunk, known), covered.end, unwritten)
            self._checkpoints.cover(chunk.covered.end)
            with self._meter.writing():
                unwritten.write(chunk.covered.end)
        if self._writer is None:
            self._checkpoints.flush()

    def _left_failed(self, covered: RowRange, pieces: Sequence[Piece]) -> list[Piece]:
        """Return rows that the filter excludes and that failed under any version of the function. They stay failed."""
        if not self._context.selective:
            return []
        left = self._current.still_failed(covered, pieces, self._live(covered))
        for piece in left:
            if piece.states is not None:
                self._left_out += int(np.count_nonzero(piece.states == RowState.FAILED))
        return left

    def _evaluate_chunk(self, chunk: Chunk, end: int, unwritten: Unwritten) -> None:
        """Evaluate a chunk slice by slice.

        Raises:
            OutOfBudget: The time is up, and rows remain to be evaluated. The rows evaluated so far are stored.
        """
        at = safe_to = 0
        for piece in self._evaluation.slices(chunk, lambda: self._checkpoints.capacity, self._time_is_up):
            at += len(piece.offsets)
            safe_to = int(chunk.offsets[at]) if at < len(chunk.offsets) else chunk.covered.end
            with self._meter.writing():
                unwritten.add(piece, safe_to)
            self._checkpoints.add(piece, safe_to)
        if at and safe_to < end and (at < len(chunk.offsets) or self._time_is_up()):
            self._checkpoints.flush_certain()
            raise OutOfBudget

    def _time_is_up(self) -> bool:
        if self._runtime.stopped():
            return True
        if not self._runtime.out_of_time() or self._meter.has_doubtful_rows:
            return False
        return not self._checkpoints.has_skipped and self._seconds_left() > max(_GRACE_SECONDS, self._seconds_again)

    @property
    def _seconds_again(self) -> float:
        """Return the seconds that another unit would need to reach this point, including reading stored rows."""
        return self._meter.fixed - self._fixed_before if self._writer is not None else 0.0

    def _seconds_left(self) -> float:
        """Estimate the remaining seconds at the pace since the first call, as if all rows left needed evaluation."""
        evaluated, began = self._meter.fragment.evaluated, self._evaluation.began
        spent = self._runtime.clock() - began if began is not None else 0.0
        return (count_offsets(self._work.ranges) - evaluated) * spent / max(1, evaluated)

    def _forget(self, lost: CheckpointRef) -> None:
        """Drop a damaged checkpoint, so that its rows are computed again."""
        self._checkpoints.forget(lost.key)
        stored = self._checkpoints.refs
        kept = tuple(r for r in (*self._work.checkpoints, *stored) if r.key != lost.key)
        covered = [r.range for r in kept if r.settles]
        again = subtract_ranges([lost.range], covered) if lost.settles else []
        ranges = subtract_ranges([*self._work.ranges, *again], [r.range for r in stored])
        self._work = replace(self._work, checkpoints=kept, ranges=tuple(merge_ranges(ranges)))
        self._known = self._known_rows()

    # Stored rows.

    def _known_rows(self) -> KnownRows:
        return KnownRows(self._runtime.store, self._work.checkpoints, self._current.settled, self._field.type)

    def _new_writer(self) -> FragmentWriter:
        work, context = self._work, self._context
        keeps_others = bool(work.task.current_file) and (context.selective or work.task.extend_current)
        return FragmentWriter(
            context.uri,
            self._field,
            work.task.fingerprint,
            work.task.physical_rows,
            existing=Existing(work.task.current_file, self._existing) if keeps_others else None,
            live=self._live,
            selective=context.selective or context.failed_only,
            file_format=self._reader.file_format,
        )

    def _existing(self, covered: RowRange) -> pa.Array:
        return self._reader.values(self._work.fragment_id, covered, self._field.name)

    def _live(self, covered: RowRange) -> npt.NDArray[np.bool_]:
        if not self._work.task.deleted_rows:
            return np.ones(covered.rows, np.bool_)
        return self._reader.live(self._work.fragment_id, covered)


def _segments(work: FragmentWork) -> Iterator[tuple[RowRange, bool]]:
    """Yield ranges in order, each with True if its rows are to be computed.

    To finish a fragment, the ranges cover all of it.
    """
    if not work.finish:
        yield from ((r, True) for r in merge_ranges(work.ranges))
        return
    at = 0
    for covered in merge_ranges(work.ranges):
        if covered.start > at:
            yield RowRange(at, covered.start), False
        yield covered, True
        at = covered.end
    if at < work.task.physical_rows:
        yield RowRange(at, work.task.physical_rows), False
