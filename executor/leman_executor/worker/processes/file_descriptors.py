"""Keeps a function from closing descriptors that Leman, Lance and the rest of its process rely on.

A descriptor 1 that is closed goes to the next file or socket that is opened, which then gets everything that is
printed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator

from leman_core.model.errors import FailedPrecondition
from leman_executor.worker.processes import printed_lines
from leman_executor.worker.processes.printed_lines import PrintedLines

_STANDARD = (0, 1, 2)
_Identity = tuple[int, int]


class Descriptors:
    """The descriptors of one process.

    Call `guard` once, `restore` before each task, `check` after each unit.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._null = _high(os.open(os.devnull, os.O_RDWR))
        os.dup2(self._null, 0)
        self._saved = [_high(os.dup(fd)) for fd in _STANDARD]
        self._own = {self._null, *self._saved}
        self._known: list[_Identity] = [_identity(fd) for fd in _STANDARD]
        self._printed: tuple[PrintedLines, ...] = ()
        self._close, self._closerange, self._dup2 = os.close, os.closerange, os.dup2

    def guard(self) -> None:
        """Protect Leman's descriptors from the function, from now on.

        `os.close` and its like leave alone what is not the function's, and closing `sys.stdout` does not close
        descriptor 1.
        """
        sys.stdin = sys.__stdin__ = _text(0, "r")  # type: ignore[misc]  # typeshed has them final
        out, sys.stdout = printed_lines.opened(1)
        err, sys.stderr = printed_lines.opened(2)
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
        self._printed = (out, err)
        os.close, os.closerange, os.dup2 = self.close, self.closerange, self.dup2

    @contextlib.contextmanager
    def keeping(self, fd: int) -> Iterator[None]:
        """Count the descriptor as Leman's in this block."""
        self._own.add(fd)
        try:
            yield
        finally:
            self._own.discard(fd)

    def close(self, fd: int) -> None:
        """Stand in for `os.close` in functions: a standard descriptor leads nowhere afterwards, but stays open.

        Raises:
            OSError: EBADF, where the descriptor is Leman's.
        """
        if os.getpid() == self._pid:
            if fd in _STANDARD:
                self._lead(self._null, fd)
                return
            if fd in self._own:
                raise OSError(errno.EBADF, "this descriptor is Leman's")
        self._close(fd)

    def closerange(self, fd_low: int, fd_high: int, /) -> None:
        """Stand in for `os.closerange` in functions, and refuse: their descriptors are among those of Lance and Leman.

        Raises:
            PermissionError: EPERM, in the function's process; a child process may call it.
        """
        if os.getpid() == self._pid:
            raise PermissionError(
                errno.EPERM, "a function must not close descriptors that it did not open; a child process may"
            )
        self._closerange(fd_low, fd_high)

    def dup2(self, fd: int, fd2: int, inheritable: bool = True) -> int:  # noqa: FBT001, FBT002 as in os
        """Stand in for `os.dup2` in functions: they may redirect what they print, until their task ends.

        Raises:
            OSError: EBADF, where `fd2` is Leman's.
        """
        if os.getpid() == self._pid:
            if fd2 in self._own:
                raise OSError(errno.EBADF, "this descriptor is Leman's")
            if fd2 in _STANDARD:
                self._lead(fd, fd2)
                return fd2
        return self._dup2(fd, fd2, inheritable)

    @contextlib.contextmanager
    def printing(self, job_id: str) -> Iterator[None]:
        """Have what is printed in this block begin with a job's id."""
        PrintedLines.job_id = job_id
        try:
            yield
        finally:
            for printed in self._printed:
                with contextlib.suppress(OSError):
                    printed.end_line()
            PrintedLines.job_id = ""

    def restore(self) -> None:
        """Make the standard descriptors lead where they led at first."""
        for fd in _STANDARD:
            self._redirect(self._saved[fd], fd)
        for printed in self._printed:
            printed.is_log = True

    def check(self) -> None:
        """Check that the standard descriptors are those that were set here.

        Raises:
            FailedPrecondition: UDF_BROKE_DESCRIPTORS, where one was closed in another way, and may be anything now.
        """
        for fd in _STANDARD:
            try:
                same = _identity(fd) == self._known[fd]
            except OSError:
                same = False
            if not same:
                raise FailedPrecondition(
                    "UDF_BROKE_DESCRIPTORS",
                    f"The function closed descriptor {fd} of its process, which may be a file of Lance by now. "
                    "Redirect sys.stdout and sys.stderr with contextlib, or print to a file of its own",
                )

    def _lead(self, source: int, fd: int) -> None:
        """Have a standard descriptor lead where the function wants it."""
        for printed in self._printed:
            if printed.fileno() == fd:
                printed.end_line()
                printed.is_log = False
        self._redirect(source, fd)

    def _redirect(self, source: int, fd: int) -> None:
        self._dup2(source, fd)
        self._known[fd] = _identity(fd)


#: The guarded descriptors of this process; empty where none are guarded.
_guarded: list[Descriptors] = []


def guard() -> Descriptors:
    """Guard the descriptors of this process, for good."""
    guarded = Descriptors()
    guarded.guard()
    _guarded.append(guarded)
    return guarded


def keeping(fd: int) -> contextlib.AbstractContextManager[None]:
    """Count the descriptor as Leman's in this block; see `Descriptors.keeping`."""
    return _guarded[0].keeping(fd) if _guarded else contextlib.nullcontext()


def check() -> None:
    """Check the standard descriptors where they are guarded; see `Descriptors.check`."""
    for guarded in _guarded:
        guarded.check()


def _identity(fd: int) -> _Identity:
    stat = os.fstat(fd)
    return stat.st_dev, stat.st_ino


def _high(fd: int) -> int:
    """Move a descriptor to a number that nobody closes by habit."""
    import fcntl  # noqa: PLC0415 not everywhere

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return high


def _text(fd: int, mode: str) -> io.TextIOWrapper:
    opened: Callable[..., io.TextIOWrapper] = open
    return opened(fd, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
