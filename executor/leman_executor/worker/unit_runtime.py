"""Hold the state that the fragments of a unit share: metrics, spans, slice sizes, reader, stores, function.

Metrics and spans are plain data. Progress reports carry them to the executor, which makes trace spans. A slice is a
number of rows that is large enough to be fast, and small enough to stop, checkpoint and report in time. This module
runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowRange
from leman_core.model.work import (
    CheckpointStore,
    ErrorSink,
    FragmentResult,
    InFlightRows,
    ProgressReport,
    ProgressSink,
    ServerAnswers,
    Timings,
    WorkSpan,
)
from leman_core.storage.scan import FragmentReader
from leman_executor.worker.evaluator import Evaluated

#: Maximum number of spans recorded for one unit. Later spans are dropped.
_MOST = 256


class SpanRecorder:
    """Record the spans of one unit: one span of each kind between two checkpoints.

    Reading and calling alternate many times a second. One span therefore covers all actions of a kind, and has their
    number and total time.
    """

    def __init__(self) -> None:
        self._epoch = time.time_ns() - time.perf_counter_ns()
        self._open: dict[str, WorkSpan] = {}
        self._closed: list[WorkSpan] = []

    def add(self, what: str, begin: float, seconds: float) -> None:
        """Record an action; callable from any thread.

        what: The kind: `read`, `call`, `checkpoint`, `write` or `load`.
            what: `read`, `call`, `checkpoint`, `write` or `load`.
            begin: When the action started, on the clock of `time.perf_counter`.
            seconds: How long it took.
        """
        start = self._epoch + int(begin * 1e9)
        end = start + int(seconds * 1e9)
        before = self._open.get(what)
        if before is None:
            self._open[what] = WorkSpan(what, start, end, seconds, 1)
        else:
            self._open[what] = WorkSpan(what, before.begin, end, before.seconds + seconds, before.times + 1)

    def cut(self) -> None:
        """Start new spans, after a checkpoint or fragment."""
        closed, self._open = self._open, {}
        self._closed += list(closed.values())[: max(0, _MOST - len(self._closed))]

    @property
    def spans(self) -> tuple[WorkSpan, ...]:
        """Return all spans, including those that are still open."""
        return (*self._closed, *self._open.values())[:_MOST]


_REPORT_SECONDS = 0.25
#: The kind of action → the name of its spans, if they differ.
_STRETCHES = {"udf": "call"}
#: The assumed speed of storage. If reading or writing takes longer, the additional time counts as waiting for storage.
_BYTES_A_SECOND = 100e6


@dataclass(slots=True, kw_only=True)
class FragmentCounts:
    """The row counts of the current fragment."""

    evaluated: int = 0
    failed: int = 0
    #: Number of evaluated rows that are in a checkpoint or a column file.
    safe: int = 0
    #: Number of `safe` rows that failed.
    failed_safe: int = 0


class UnitMetrics:
    """The counts and times of one unit. `fragment` has the counts since `begin_fragment`."""

    def __init__(self, unit_id: str, sink: ProgressSink, spans: SpanRecorder | None = None) -> None:
        """Initialize. If `spans` is given, it records when each action happened."""
        self._unit_id = unit_id
        self._spans = spans
        self._sink = sink
        self._seconds = dict.fromkeys(("udf", "read", "checkpoint", "write", "load", "fixed"), 0.0)
        self._reported = time.monotonic()
        self.fragment = FragmentCounts()
        self._done = FragmentCounts()
        self._fragment_id = -1
        self._servers = ServerAnswers()
        self._doubtful = False
        self._split = ""
        self._counting_servers = threading.Lock()
        self._told = ProgressReport(unit_id=unit_id)

    @property
    def timings(self) -> Timings:
        return Timings(**self._seconds)

    @property
    def fixed(self) -> float:
        """Return the seconds of waiting for storage to respond."""
        return self._seconds["fixed"]

    @property
    def worked(self) -> float:
        """Return the seconds of reading inputs and calling the function: the cost of computing the rows again.

        Writing does not count, because an incomplete column file is rewritten in any case.
        """
        return self._seconds["udf"] + self._seconds["read"]

    def begin_fragment(self, fragment_id: int = -1) -> None:
        """Start counting for a fragment. Add the counts of the previous fragment to the unit's sums."""
        if self._spans is not None:
            self._spans.cut()
        self._done = self._sums()
        self.fragment = FragmentCounts()
        self._fragment_id = fragment_id

    def _sums(self) -> FragmentCounts:
        done, now = self._done, self.fragment
        return FragmentCounts(
            evaluated=done.evaluated + now.evaluated,
            failed=done.failed + now.failed,
            safe=done.safe + now.safe,
            failed_safe=done.failed_safe + now.failed_safe,
        )

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[Callable[[], float]]:
        begin = time.perf_counter()
        taken = 0.0
        try:
            yield lambda: taken
        finally:
            taken = time.perf_counter() - begin
            self._seconds[what] += taken
            if self._spans is not None:
                self._spans.add(_STRETCHES.get(what, what), begin, taken)

    def evaluating(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Time a call of the function. After the block, the yielded callable returns the seconds."""
        return self._timed("udf")

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Time the loading of the function, which does not count as a cost of rows.

        Report to the executor that it starts.
        """
        self._sink.in_flight(InFlightRows(self._fragment_id, loading=True))
        with self._timed("load"):
            yield

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Time the work before the first row is read. It does not depend on the number of rows."""
        with self._timed("read") as taken:
            yield
        self.waited(taken(), 0)

    def waited(self, seconds: float, size: int) -> None:
        """Count seconds of reading or storing `size` bytes.

        The part of the time in which storage did not respond counts as a fixed cost, because it does not depend on the
        number of rows.
        """
        self._seconds["fixed"] += max(0.0, seconds - size / _BYTES_A_SECOND)

    def reading(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Time reading inputs."""
        return self._timed("read")

    def checkpointing(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Time writing checkpoints."""
        return self._timed("checkpoint")

    def writing(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Time writing column files."""
        return self._timed("write")

    def evaluated(self, rows: int, failed: int) -> None:
        """Count rows that the function was called with, of which `failed` failed."""
        self.fragment.evaluated += rows
        self.fragment.failed += failed
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self.report()

    def safe(self, rows: int, failed: int) -> None:
        """Count evaluated rows that are now in a checkpoint or a column file, of which `failed` failed."""
        self.fragment.safe += rows
        self.fragment.failed_safe += failed

    def calling(self, fragment_id: int, ranges: Iterable[RowRange]) -> None:
        """Report to the executor that the function will now be called with these rows."""
        self._sink.in_flight(InFlightRows(fragment_id, tuple(ranges)))

    def overran(self, fragment_id: int, rows: RowRange, seconds: float) -> None:
        """Report to the executor that a call took too long and the process will now end."""
        self._sink.in_flight(InFlightRows(fragment_id, (rows,), overran_seconds=seconds))

    def stored(self, fragment_id: int, ref: CheckpointRef, size: int) -> None:
        """Report to the executor that rows are stored in a checkpoint of `size` bytes."""
        if self._spans is not None:
            self._spans.cut()
        self._sink.in_flight(InFlightRows(fragment_id, stored=ref, stored_bytes=size))

    @property
    def has_doubtful_rows(self) -> bool:
        """Return whether rows were recorded as failed after a server of the remote function last answered a batch.

        The server may be the cause. While that is unknown, such rows are not stored, so that they can be computed
        again.
        """
        return self._doubtful

    def batch_answered(self) -> None:
        """Count a batch that a server of the remote function answered. Callable from any thread."""
        with self._counting_servers:
            self._doubtful = False
            self._servers = replace(self._servers, answered=self._servers.answered + 1)

    def connection_broken(self, message: str) -> None:
        """Count, and report at once, a connection that broke over a batch tried alone. Callable from any thread."""
        with self._counting_servers:
            self._servers = replace(self._servers, broken=self._servers.broken + 1, message=message)
        self._tell_of_servers()

    def row_lost(self, message: str) -> None:
        """Count, and report at once, a row that failed because connections broke. Callable from any thread."""
        with self._counting_servers:
            self._doubtful = True
            self._servers = replace(self._servers, lost=self._servers.lost + 1, message=message)
        self._tell_of_servers()

    def server_refused(self, message: str) -> None:
        """Record, and report at once, why a reachable server is not used. Callable from any thread."""
        with self._counting_servers:
            self._servers = replace(self._servers, refusals=(*self._servers.refusals, message))
        self._tell_of_servers()

    def batch_split(self, message: str) -> None:
        """Record that a batch failed and is retried in parts. The next report includes this."""
        self._split = self._split or message

    def _tell_of_servers(self) -> None:
        # Reuse the last sums: only the unit's own thread may compute new ones.
        self._sink.send(replace(self._told, servers=self._servers))

    def report(self, result: FragmentResult | None = None) -> None:
        """Report the unit's progress to the executor. Reports have sums, so the next report makes up for a lost one."""
        self._reported = time.monotonic()
        sums = self._sums()
        self._told = ProgressReport(
            unit_id=self._unit_id,
            rows_evaluated=sums.evaluated,
            rows_safe=sums.safe,
            rows_failed=sums.failed_safe,
            timings=self.timings,
            fragment_id=self._fragment_id,
            servers=self._servers,
            split=self._split,
        )
        self._sink.send(replace(self._told, result=result))


Result = TypeVar("Result")

_TARGET_SECONDS = 0.1
#: The target size of a slice. Allocators map larger memory blocks again for each allocation, so larger slices are
#: slower.
_TARGET_BYTES = 16 << 20
_GROWTH = 4
#: A row may take seconds. Therefore a function that takes one row at a time starts with a slice of one row, which costs
#: nothing extra.
_FIRST_ROWS = {True: 1, False: 16}


class SliceSizer:
    """Adapt the number of rows of a slice to the function.

    A slice starts with a few rows and grows until it takes about a tenth of a second or 16 MB. It shrinks when rows get
    more expensive.
    """

    def __init__(self, *, scalar: bool, most: int, fixed: int = 0) -> None:
        self._most = most
        self._fixed = fixed
        self._rows = min(fixed or _FIRST_ROWS[scalar], most)

    @property
    def rows(self) -> int:
        return self._rows

    def note(self, rows: int, seconds: float, size: int) -> None:
        """Adapt to a slice that took `seconds` to evaluate and gave values of `size` bytes."""
        if self._fixed or rows < self._rows:
            return
        if seconds * _GROWTH < _TARGET_SECONDS:
            self._rows = min(self._rows * _GROWTH, self._most)
        elif seconds > _TARGET_SECONDS:
            self._rows = max(1, int(self._rows * _TARGET_SECONDS / seconds))
        if size * self._rows > _TARGET_BYTES * rows:
            self._rows = max(1, _TARGET_BYTES * rows // size)


class Slices:
    """Evaluate slices in the caller's thread or, with several `threads`, in a thread pool."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="slices") if threads > 1 else None
        #: Number of slices that may be started before the first one returns.
        self.ahead = 2 * threads if threads > 1 else 1

    def __enter__(self) -> Slices:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, call: Callable[[], Result]) -> Future[Result]:
        """Start a call. Return a future with its result or error."""
        if self._pool is not None:
            return self._pool.submit(call)
        done: Future[Result] = Future()
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 the future raises it
            done.set_exception(error)
        return done


class Evaluates(Protocol):
    """An evaluator of rows; see `Evaluator`."""

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRuntime:
    """The objects that the fragments of a unit share."""

    reader: FragmentReader
    store: CheckpointStore
    errors: ErrorSink
    #: Return the evaluator. Loads the function on the first call.
    evaluator: Callable[[], Evaluates]
    sizer: SliceSizer
    meter: UnitMetrics
    #: Return whether the unit should end, because its budget is spent or it was asked to stop.
    out_of_time: Callable[[], bool]
    stopped: Callable[[], bool]
    clock: Callable[[], float]
    #: Return the seconds of work after which a checkpoint is due.
    interval: Callable[[], float]
    slices: Slices
