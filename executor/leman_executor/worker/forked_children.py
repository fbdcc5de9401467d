"""Children that a function forked, and that came back from its call: they must not go on with its process's work.

A child that returns would compute the rows that are left once more, and write to the files of its parent.
Imports no gRPC and no Spark.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator
from typing import Any, NoReturn

#: The exit code of such a child.
STRAY = 125
#: How long a parent waits for its children to come back, where it has forked some.
_WAIT_SECONDS = 0.25
_LOOK_SECONDS = 0.005


class ForkReturned(RuntimeError):
    """A process that the function forked returned from it."""


class ForkedChildren:
    """The children of one process, since it was made. `forks`: how many there were so far."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._came_back = mmap.mmap(-1, 1)  # shared with all that are forked
        self._arguments: list[list[list[Any]]] = []
        self.is_child = False
        self.forks = 0
        os.register_at_fork(after_in_parent=self._forked, after_in_child=self._begin_child)

    @contextlib.contextmanager
    def calling(self, arguments: list[list[Any]]) -> Iterator[None]:
        """Have a child that returns from a call in this block find no further rows: it gets these lists empty."""
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
        """End this process where it is a child; `error` is what it came back with, if the call raised.

        A child that calls `sys.exit` means to end, and is no mistake of the function.
        """
        if self.is_child or os.getpid() != self._pid:
            self._end(error)

    def _end(self, error: BaseException | None) -> NoReturn:
        if not isinstance(error, SystemExit):
            self._came_back[0] = 1
        os._exit(STRAY)

    def check(self, since: int) -> None:
        """Check that no child has come back.

        Args:
            since: What `forks` was before the function was called.

        Raises:
            ForkReturned: One has.
        """
        if self.forks == since and not self._came_back[0]:
            return
        until = time.monotonic() + _WAIT_SECONDS
        while not self._came_back[0] and _has_children() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        if self._came_back[0]:
            self._came_back[0] = 0
            raise ForkReturned(
                "the function forked a process that returned from it, and was ended. End such a process with "
                "os._exit(), or use multiprocessing or subprocess"
            )


def _has_children() -> bool:
    """Tell whether this process has children, also ended ones that the function has not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


_of_process: list[ForkedChildren] = []


def forked_children() -> ForkedChildren:
    """Return the children of this process; those of the process that it was forked from are not among them."""
    if not _of_process or _of_process[0].is_child:
        _of_process[:] = [ForkedChildren()]
    return _of_process[0]
