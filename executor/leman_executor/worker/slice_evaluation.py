"""Evaluates the rows of chunks slice by slice; several slices may be evaluated at once.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.sorted_sets import among
from leman_core.model.work import FragmentWork, RowFailure
from leman_core.storage.checkpoints.rows import Piece
from leman_core.storage.scan import Chunk
from leman_executor.worker.evaluator import Evaluated, JobFailing
from leman_executor.worker.unit_runtime import UnitRuntime


class Evaluation:
    """The evaluation of one fragment's rows; it calls `failed` with the rows that the policy skips."""

    def __init__(
        self,
        work: FragmentWork,
        runtime: UnitRuntime,
        output: pa.DataType,
        failed: Callable[[Iterable[RowFailure]], None],
    ) -> None:
        self._work = work
        self._runtime = runtime
        self._meter = runtime.meter
        self._output = output
        self._failed = failed
        #: When the function was called first for this fragment, and set up before; None: not yet.
        self.began: float | None = None

    def all(self, chunk: Chunk) -> Iterator[Piece]:
        """Evaluate every row of a chunk, one slice after the other, without regard to the time."""
        at = 0
        while at < len(chunk.offsets):
            piece = self._end(self._begin(chunk, slice(at, at + self._runtime.sizer.rows), ()))
            at += len(piece.offsets)
            yield piece

    def slices(self, chunk: Chunk, capacity: Callable[[], int], over: Callable[[], bool]) -> Iterator[Piece]:
        """Yield the evaluated slices of a chunk in order.

        Args:
            chunk: The rows.
            capacity: Returns how many rows the next checkpoint may still take after the slices yielded so far; slices
                beyond that are not begun.
            over: Tells whether the time is up; then no slice but the first is begun.
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
                    if failing.before is not None:  # they were paid for
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
            if quarantined and among(offsets, np.array([f.offset for f in quarantined], np.int64)).any():
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
    """Rows that the function has been called with, or will be as soon as a thread is free."""

    offsets: npt.NDArray[np.int64]
    result: Future[tuple[Evaluated, float]]


def _span(offsets: npt.NDArray[np.int64]) -> RowRange:
    return RowRange(int(offsets[0]), int(offsets[-1]) + 1)


def _without_quarantined(
    evaluate: Callable[[int, npt.NDArray[np.int64], pa.RecordBatch], Evaluated],
    output: pa.DataType,
    quarantined: Sequence[RowFailure],
    offsets: npt.NDArray[np.int64],
    rows: pa.RecordBatch,
) -> Evaluated:
    """Evaluate the rows of a fragment except the quarantined ones, which become NULL and failed."""
    here = [f for f in quarantined if (offsets == f.offset).any()]
    doomed = among(offsets, np.array([f.offset for f in here], np.int64))
    if doomed.all():
        return Evaluated(pa.nulls(len(offsets), output), doomed, tuple(here))
    rest = evaluate(here[0].fragment_id, offsets[~doomed], rows.filter(pa.array(~doomed)))
    places = pa.array(np.cumsum(~doomed) - 1, mask=doomed)
    failed = doomed.copy()
    if rest.failed is not None:
        failed[~doomed] = rest.failed
    return Evaluated(rest.values.take(places), failed, (*rest.failures, *here))
