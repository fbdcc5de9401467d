"""Guard the calls of a function: enforce its time limit, and end forked children that return from a call.

A call that does not return can only be stopped by ending its process. A forked child that returned from a call would
compute the remaining rows a second time, and write to its parent's files. This module runs on Spark workers, so it
imports neither gRPC nor Spark.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sized
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from leman_core.model.row_positions import RowRange

EXIT_CODE = 124
_LONGEST_TICK = 1.0
_STDERR = 2


class Call:
    """A call with a batch, or consecutive calls with one row each. `results` grows by one item with each row."""

    def __init__(self, fragment_id: int, offsets: npt.NDArray[np.int64], results: Sized | None = None) -> None:
        self.fragment_id = fragment_id
        self._offsets = offsets
        self._results = results
        self._rests = 0
        self._resting = False
        self._seen = (-1, -1)
        self._since = 0.0

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Do not count the time in this block, a pause between two attempts, towards the time limit."""
        self._resting = True
        try:
            yield
        finally:
            self._rests += 1
            self._resting = False

    def rows(self) -> RowRange:
        """Return the rows of the current function call: one row, or the batch."""
        if self._results is None:
            return RowRange(int(self._offsets[0]), int(self._offsets[-1]) + 1)
        at = int(self._offsets[min(len(self._results), len(self._offsets) - 1)])
        return RowRange(at, at + 1)

    def stuck_for(self, now: float) -> float:
        """Return the seconds since the watchdog first saw the call at this row and attempt."""
        seen = (0 if self._results is None else len(self._results), self._rests)
        if self._resting or seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since


class Watchdog:
    """Watch calls from a separate thread, at no cost to the calls.

    Args:
        seconds: How long a call may take; 0 disables the watchdog.
        tell: Called before the process ends, with the fragment id, the rows and the seconds.
    """

    def __init__(self, seconds: float = 0.0, tell: Callable[[int, RowRange, float], None] | None = None) -> None:
        self._seconds = seconds
        self._tell = tell
        self._tick = min(max(seconds / 10, 0.005), _LONGEST_TICK)
        self._calls: dict[int, Call] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Watchdog:
        return self

    def _start(self) -> None:
        """Start the thread with the first call, so that the time to set the function up does not count."""
        with self._starting:
            if self._thread is None:
                self._guard()
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def watching(self, call: Call) -> Iterator[Call]:
        """Watch the call made in this block."""
        if not self._seconds:
            yield call
            return
        if self._thread is None:
            self._start()
        self._calls[id(call)] = call
        try:
            yield call
        finally:
            del self._calls[id(call)]

    def _run(self) -> None:
        while not self._stop.wait(self._tick):
            self._guard()
            now = time.monotonic()
            for call in list(self._calls.values()):
                if call.stuck_for(now) > self._seconds:
                    self._end(call)

    def _guard(self) -> None:
        # Native code that holds the GIL also stops our thread. In that case a C thread ends the process.
        faulthandler.dump_traceback_later(2 * self._seconds + 1, exit=True, file=_STDERR)

    def _end(self, call: Call) -> None:
        with contextlib.suppress(OSError):
            if self._tell is not None:
                self._tell(call.fragment_id, call.rows(), self._seconds)
        os._exit(EXIT_CODE)


#: The exit code of a forked child that returned from a call.
STRAY = 125
#: Seconds that a parent waits for forked children to return.
_WAIT_SECONDS = 0.25
_LOOK_SECONDS = 0.005


class ForkReturned(RuntimeError):
    """A process that the function forked returned from the call."""


class ForkedChildren:
    """The children that this process has forked so far; `forks` counts them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._came_back = mmap.mmap(-1, 1)  # shared with all forked processes
        self._arguments: list[list[list[Any]]] = []
        self.is_child = False
        self.forks = 0
        os.register_at_fork(after_in_parent=self._forked, after_in_child=self._begin_child)

    @contextlib.contextmanager
    def calling(self, arguments: list[list[Any]]) -> Iterator[None]:
        """In a forked child that returns from a call in this block, empty `arguments`, so that it has no more rows."""
        self._arguments.append(arguments)
        try:
            yield
        finally:
            self._arguments.remove(arguments)

    def _forked(self) -> None:
        self.forks += 1

    def _begin_child(self) -> None:
        self.is_child = True
        for columns in self._arguments:
            for column in columns:
                column.clear()

    def end_if_child(self, error: BaseException | None = None) -> None:
        """End this process if it is a forked child. `error` is the exception that the call raised, if any.

        If a child called `sys.exit`, that is not reported as an error, because the child ends as intended.
        """
        if self.is_child or os.getpid() != self._pid:
            self._end(error)

    def _end(self, error: BaseException | None) -> NoReturn:
        if not isinstance(error, SystemExit):
            self._came_back[0] = 1
        os._exit(STRAY)

    def check(self, since: int) -> None:
        """Check that no forked child has returned from a call.

        Args:
            since: The value of `forks` before the function was called.

        Raises:
            ForkReturned: A child has returned.
        """
        if self.forks == since and not self._came_back[0]:
            return
        until = time.monotonic() + _WAIT_SECONDS
        while not self._came_back[0] and _has_children() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        if self._came_back[0]:
            self._came_back[0] = 0
            raise ForkReturned(
                "the function forked a process, which returned from the function and was ended. End such a process "
                "with os._exit(), or use multiprocessing or subprocess"
            )


def _has_children() -> bool:
    """Return whether this process has child processes, including dead ones that were not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


_of_process: list[ForkedChildren] = []


def forked_children() -> ForkedChildren:
    """Return the children of this process. A forked process starts with none."""
    if not _of_process or _of_process[0].is_child:
        _of_process[:] = [ForkedChildren()]
    return _of_process[0]
