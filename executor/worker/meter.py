"""Counts and times of one unit of work, and the progress reports that it sends while it runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from core.domain.plan import CheckpointRef
from core.domain.ranges import RowRange
from core.domain.work import FragmentResult, InFlightRows, ProgressReport, Timings
from core.ports import ProgressSink

_REPORT_SECONDS = 0.25
#: What takes longer to read or store than this is waiting for storage to answer, not for bytes.
_BYTES_A_SECOND = 100e6


@dataclass(slots=True)
class FragmentCounts:
    """Rows of the fragment at hand. `failed_safe`: those that failed, of the `safe` ones."""

    evaluated: int = 0
    failed: int = 0
    safe: int = 0
    failed_safe: int = 0


class Meter:
    """One for each unit. `fragment` counts since `begin_fragment`."""

    def __init__(self, unit_id: str, sink: ProgressSink) -> None:
        self._unit_id = unit_id
        self._sink = sink
        self._seconds = dict.fromkeys(("udf", "read", "checkpoint", "write", "load", "fixed"), 0.0)
        self._reported = time.monotonic()
        self.fragment = FragmentCounts()
        self._done = FragmentCounts()
        self._fragment_id = -1

    @property
    def timings(self) -> Timings:
        return Timings(**self._seconds)

    @property
    def fixed(self) -> float:
        """Seconds in which storage did not answer."""
        return self._seconds["fixed"]

    @property
    def worked(self) -> float:
        """Seconds of reading inputs and calling the function: what it would cost to do the rows so far again. Writing
        is no part of it: a column file that was cut short is written anew, whether or not its rows are stored."""
        return self._seconds["udf"] + self._seconds["read"]

    def begin_fragment(self, fragment_id: int = -1) -> None:
        """Counts of the fragment before are kept in the unit's sums."""
        self._done = self._sums()
        self.fragment = FragmentCounts()
        self._fragment_id = fragment_id

    def _sums(self) -> FragmentCounts:
        done, now = self._done, self.fragment
        return FragmentCounts(
            done.evaluated + now.evaluated,
            done.failed + now.failed,
            done.safe + now.safe,
            done.failed_safe + now.failed_safe,
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

    def evaluating(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Times the function; the value yields the seconds once the block is left."""
        return self._timed("udf")

    def loading(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Times setting the function up: it is nothing that a row costs."""
        return self._timed("load")

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Times what comes before the first row is read, and is the same however few are."""
        with self._timed("read") as taken:
            yield
        self.waited(taken(), 0)

    def waited(self, seconds: float, size: int) -> None:
        """So many seconds of reading or storing went by for `size` bytes: with fewer rows it would have been less, but
        for the time in which storage did not answer."""
        self._seconds["fixed"] += max(0.0, seconds - size / _BYTES_A_SECOND)

    def reading(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Times reading inputs."""
        return self._timed("read")

    def checkpointing(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Times writing checkpoints."""
        return self._timed("checkpoint")

    def writing(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        """Times writing column files."""
        return self._timed("write")

    def evaluated(self, rows: int, failed: int) -> None:
        """Rows were given to the function; it did not get through `failed` of them."""
        self.fragment.evaluated += rows
        self.fragment.failed += failed
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self.report()

    def safe(self, rows: int, failed: int) -> None:
        """Evaluated rows are in a checkpoint or a column file; `failed` of them as such."""
        self.fragment.safe += rows
        self.fragment.failed_safe += failed

    def calling(self, fragment_id: int, ranges: Iterable[RowRange]) -> None:
        """The function is about to be called with these rows."""
        self._sink.in_flight(InFlightRows(fragment_id, tuple(ranges)))

    def overran(self, fragment_id: int, rows: RowRange, seconds: float) -> None:
        """A call took too long, and the process is about to end."""
        self._sink.in_flight(InFlightRows(fragment_id, (rows,), overran_seconds=seconds))

    def stored(self, fragment_id: int, ref: CheckpointRef) -> None:
        """Rows are safe in a checkpoint."""
        self._sink.in_flight(InFlightRows(fragment_id, stored=ref))

    def report(self, result: FragmentResult | None = None) -> None:
        """Tells the executor how far the unit is; the sums, so that a lost report is made good by the next."""
        self._reported = time.monotonic()
        sums = self._sums()
        self._sink.send(
            ProgressReport(
                self._unit_id, sums.evaluated, sums.safe, sums.failed_safe, result, self.timings, self._fragment_id
            )
        )
