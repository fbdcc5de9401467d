"""Counts and times of one unit of work, and the progress reports that it sends while it runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from leman_core.model.plan import CheckpointRef
from leman_core.model.ports import ProgressSink
from leman_core.model.ranges import RowRange
from leman_core.model.work import FragmentResult, InFlightRows, ProgressReport, ServerAnswers, Timings
from leman_executor.worker.span_recorder import SpanRecorder

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


class Meter:
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
