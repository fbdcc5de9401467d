"""What the fragments of a unit share: its metrics and spans, the sizes of slices, reader, stores, function.

What a unit of work did when, for the trace of its job: plain data, which the worker's executor makes spans of.

Counts and times of one unit of work, and the progress reports that it sends while it runs.

How many rows a function gets at once: enough to be fast, few enough to stop, checkpoint and report in time.

What the fragments of a unit share.

Runs on Spark workers: imports no gRPC and no Spark.
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

#: Of one unit; what comes after is in none.
_MOST = 256


class SpanRecorder:
    """The stretches of one unit: what lies between two checkpoints is one stretch of each kind.

    Reading and calling take turns many times a second: a stretch lasts from the first to the last of them, and says how
    many there were and how long they took together.
    """

    def __init__(self) -> None:
        self._epoch = time.time_ns() - time.perf_counter_ns()
        self._open: dict[str, WorkSpan] = {}
        self._closed: list[WorkSpan] = []

    def add(self, what: str, begin: float, seconds: float) -> None:
        """Take in something that was done; from any thread.

        Args:
            what: `read`, `call`, `checkpoint`, `write` or `load`.
            begin: On the clock of `time.perf_counter`.
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
        """Begin new stretches: a checkpoint, or a fragment, is done."""
        closed, self._open = self._open, {}
        self._closed += list(closed.values())[: max(0, _MOST - len(self._closed))]

    @property
    def spans(self) -> tuple[WorkSpan, ...]:
        """What was done, also in stretches that still go on."""
        return (*self._closed, *self._open.values())[:_MOST]


_REPORT_SECONDS = 0.25
#: What is timed → what its stretches are called, where that is another word.
_STRETCHES = {"udf": "call"}
#: Reading or storing that takes longer than this allows is waiting for storage to answer, not for bytes.
_BYTES_A_SECOND = 100e6


@dataclass(slots=True, kw_only=True)
class FragmentCounts:
    """Rows of the fragment at hand."""

    evaluated: int = 0
    failed: int = 0
    #: Evaluated rows that are in a checkpoint or a column file.
    safe: int = 0
    #: Those of the `safe` rows that failed.
    failed_safe: int = 0


class UnitMetrics:
    """The counts and times of one unit; `fragment` counts since `begin_fragment`."""

    def __init__(self, unit_id: str, sink: ProgressSink, spans: SpanRecorder | None = None) -> None:
        """`spans`: where it is told when what was done; None: nowhere."""
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
        """Return the seconds in which storage did not answer."""
        return self._seconds["fixed"]

    @property
    def worked(self) -> float:
        """Return the seconds of reading inputs and calling the function: the cost of doing the rows so far again.

        Writing is no part of it: a column file that was cut short is written anew, whether or not its rows are stored.
        """
        return self._seconds["udf"] + self._seconds["read"]

    def begin_fragment(self, fragment_id: int = -1) -> None:
        """Start counting for a fragment; the counts of the one before are added to the unit's sums."""
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
        """Time the function; the value returns the seconds once the block is left."""
        return self._timed("udf")

    def loading(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Time setting the function up, which is no cost of a row."""
        return self._timed("load")

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Time what comes before the first row is read, and takes as long for few rows as for many."""
        with self._timed("read") as taken:
            yield
        self.waited(taken(), 0)

    def waited(self, seconds: float, size: int) -> None:
        """Count seconds of reading or storing `size` bytes.

        The part in which storage did not answer counts as fixed: fewer rows would not have made it shorter.
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
        """Count rows that were given to the function, of which `failed` have failed."""
        self.fragment.evaluated += rows
        self.fragment.failed += failed
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self.report()

    def safe(self, rows: int, failed: int) -> None:
        """Count evaluated rows that are in a checkpoint or a column file, `failed` of them as failed."""
        self.fragment.safe += rows
        self.fragment.failed_safe += failed

    def calling(self, fragment_id: int, ranges: Iterable[RowRange]) -> None:
        """Tell the executor that the function is about to be called with these rows."""
        self._sink.in_flight(InFlightRows(fragment_id, tuple(ranges)))

    def overran(self, fragment_id: int, rows: RowRange, seconds: float) -> None:
        """Tell the executor that a call took too long, and that the process is about to end."""
        self._sink.in_flight(InFlightRows(fragment_id, (rows,), overran_seconds=seconds))

    def stored(self, fragment_id: int, ref: CheckpointRef, size: int) -> None:
        """Tell the executor that rows are safe in a checkpoint of so many bytes."""
        if self._spans is not None:
            self._spans.cut()
        self._sink.in_flight(InFlightRows(fragment_id, stored=ref, stored_bytes=size))

    @property
    def has_doubtful_rows(self) -> bool:
        """Tell whether rows were given up since a server of the remote function last answered a batch.

        It may be at fault itself: rows that are to be computed again then are stored nowhere until it is known.
        """
        return self._doubtful

    def batch_answered(self) -> None:
        """Count a batch that a server of the remote function answered; from any thread."""
        with self._counting_servers:
            self._doubtful = False
            self._servers = replace(self._servers, answered=self._servers.answered + 1)

    def connection_broken(self, message: str) -> None:
        """Count a connection that broke over a batch that was tried by itself, and tell at once; from any thread."""
        with self._counting_servers:
            self._servers = replace(self._servers, broken=self._servers.broken + 1, message=message)
        self._tell_of_servers()

    def row_lost(self, message: str) -> None:
        """Count a row that was given up, as connections to servers broke over it, and tell at once; from any thread."""
        with self._counting_servers:
            self._doubtful = True
            self._servers = replace(self._servers, lost=self._servers.lost + 1, message=message)
        self._tell_of_servers()

    def server_refused(self, message: str) -> None:
        """Note why a server is left out that is there, and tell at once; from any thread."""
        with self._counting_servers:
            self._servers = replace(self._servers, refusals=(*self._servers.refusals, message))
        self._tell_of_servers()

    def batch_split(self, message: str) -> None:
        """Note that a batch failed and is given to the function again in parts, for the next report."""
        self._split = self._split or message

    def _tell_of_servers(self) -> None:
        self._sink.send(replace(self._told, servers=self._servers))  # new sums are for the unit's own thread to make

    def report(self, result: FragmentResult | None = None) -> None:
        """Tell the executor how far the unit is, in sums: the next report makes up for a lost one."""
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
#: Memory beyond the allocators' limits is mapped anew each time, so that larger slices are slower.
_TARGET_BYTES = 16 << 20
_GROWTH = 4
#: A function that takes a row at a time loses nothing by beginning with one row, and may take seconds for it.
_FIRST_ROWS = {True: 1, False: 16}


class SliceSizer:
    """The size of slices, adapted to the function.

    It grows from a few rows to what takes about a tenth of a second or 16 MB, and shrinks when rows get dearer.
    """

    def __init__(self, *, scalar: bool, most: int, fixed: int = 0) -> None:
        self._most = most
        self._fixed = fixed
        self._rows = min(fixed or _FIRST_ROWS[scalar], most)

    @property
    def rows(self) -> int:
        return self._rows

    def note(self, rows: int, seconds: float, size: int) -> None:
        """Adapt to a slice that was evaluated in `seconds`, to values of `size` bytes."""
        if self._fixed or rows < self._rows:
            return
        if seconds * _GROWTH < _TARGET_SECONDS:
            self._rows = min(self._rows * _GROWTH, self._most)
        elif seconds > _TARGET_SECONDS:
            self._rows = max(1, int(self._rows * _TARGET_SECONDS / seconds))
        if size * self._rows > _TARGET_BYTES * rows:
            self._rows = max(1, _TARGET_BYTES * rows // size)


class Slices:
    """Where slices are evaluated: at once by whoever begins them, or in `threads` threads."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="slices") if threads > 1 else None
        #: How many slices may be begun before the first of them has come back.
        self.ahead = 2 * threads if threads > 1 else 1

    def __enter__(self) -> Slices:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a call; return a future with its result, or with what it raised."""
        if self._pool is not None:
            return self._pool.submit(call)
        done: Future[Result] = Future()
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 raised again by whoever asks for the result
            done.set_exception(error)
        return done


class Evaluates(Protocol):
    """What returns the values of rows; see `Evaluator`."""

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRuntime:
    """What the fragments of a unit share."""

    reader: FragmentReader
    store: CheckpointStore
    errors: ErrorSink
    #: Returns the evaluator; loads the function when it is first called.
    evaluator: Callable[[], Evaluates]
    sizer: SliceSizer
    meter: UnitMetrics
    #: Tells whether the unit is to end, as its budget is spent or as it was `stopped`.
    out_of_time: Callable[[], bool]
    stopped: Callable[[], bool]
    clock: Callable[[], float]
    #: Returns the seconds of work after which a checkpoint is due.
    interval: Callable[[], float]
    slices: Slices
