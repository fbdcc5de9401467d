"""The environment, secrets and file descriptors of a function process, and how they are reset between jobs.

Values of a job's environment: they are in no text that goes from the process of a function to logs or records.

What functions print: each line begins with the id of the job that it was printed in, for `leman logs`.

Keeps a function from closing descriptors that Leman, Lance and the rest of its process rely on.

A descriptor 1 that is closed goes to the next file or socket that is opened, which then gets everything that is
printed.

Working directory and environment of a function process: each job finds those in which the function was loaded.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

from leman_core.model.service_errors import FailedPrecondition

MASK = "***"
#: What is shorter is no secret, and part of too many words.
SHORTEST = 6


class MaskedValues:
    """The values that are taken out of texts."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._encoded: re.Pattern[bytes] | None = None

    def take(self, values: Iterable[str]) -> None:
        """Take these values out from now on, and their lines, also as urls, JSON and Python's source have them."""
        parts = {part for value in values for part in _parts(value) if len(part) >= SHORTEST}
        forms = sorted({form for part in parts for form in _forms(part)}, key=len, reverse=True)
        if forms:
            self._pattern = re.compile("|".join(map(re.escape, forms)))
            self._encoded = re.compile(b"|".join(re.escape(form.encode()) for form in forms))

    def out_of(self, text: str) -> str:
        """Return a text without the values."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def out_of_bytes(self, text: bytes) -> bytes:
        """Return an encoded text without the values."""
        return text if self._encoded is None else self._encoded.sub(MASK.encode(), text)


def _parts(value: str) -> Iterator[str]:
    """Return what a text may have of a value: all of it, without the space around it, or single lines."""
    yield value
    yield value.strip()
    yield from (line.strip() for line in value.splitlines())


def _forms(part: str) -> Iterator[str]:
    yield part
    yield repr(part)[1:-1]
    yield json.dumps(part)[1:-1]
    yield json.dumps(part, ensure_ascii=False)[1:-1]
    yield quote(part)
    yield quote(part, safe="")
    yield quote_plus(part)


#: Those of this process.
masked = MaskedValues()


#: A line without an end is written in parts of this size.
_LONGEST = 1 << 16
#: What the log's disk says where it takes no more.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class PrintedLines(io.RawIOBase):
    """Standard output or error of a function process, line by line, each in one write."""

    #: The job at hand, in this process.
    job_id = ""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        #: The descriptor leads to the log, and not where the function had it lead.
        self.is_log = True

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor: what a program below this one prints has no job's id."""
        return self._fd

    def write(self, data: Any, /) -> int:
        """Write the lines that are whole."""
        given = bytes(data)
        *lines, self._rest = (self._rest + given).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        self._put(lines)
        return len(given)

    def end_line(self) -> None:
        """Write what has no end, as its job is over."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._put([rest])

    def _put(self, lines: list[bytes]) -> None:
        tag = f"[{PrintedLines.job_id}] ".encode() if PrintedLines.job_id and self.is_log else b""
        text = masked.out_of_bytes(b"".join(tag + line + b"\n" for line in lines))
        try:
            while text:
                text = text[os.write(self._fd, text) :]
        except OSError as error:
            if not self.is_log or error.errno not in _NO_ROOM:
                raise
            # no reason for a job to fail, or for its process to end


def open_printed_lines(fd: int) -> tuple[PrintedLines, io.TextIOWrapper]:
    """Return such a stream, and the text stream before it for `sys.stdout`."""
    lines: Any = PrintedLines(fd)
    return lines, io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", write_through=True)


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
        out, sys.stdout = open_printed_lines(1)
        err, sys.stderr = open_printed_lines(2)
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


def guard_descriptors() -> Descriptors:
    """Guard the descriptors of this process, for good."""
    guarded = Descriptors()
    guarded.guard()
    _guarded.append(guarded)
    return guarded


def keep_descriptor(fd: int) -> contextlib.AbstractContextManager[None]:
    """Count the descriptor as Leman's in this block; see `Descriptors.keeping`."""
    return _guarded[0].keeping(fd) if _guarded else contextlib.nullcontext()


def check_descriptors() -> None:
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


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """Working directory, environment and umask as they were at one moment."""

    folder: str
    environment: dict[str, str]
    umask: int

    @classmethod
    def here(cls) -> ProcessEnvironment:
        """Return those of this process."""
        umask = os.umask(0o022)
        os.umask(umask)
        try:
            folder = os.getcwd()  # noqa: PTH109 a Path has no use for it
        except FileNotFoundError:
            folder = ""
        return cls(folder, dict(os.environ), umask)

    def restore(self) -> None:
        """Make them those of this process again; a folder that is gone stays gone."""
        os.umask(self.umask)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)


class EnvironmentKeeper:
    """The environment that a function process goes back to before each job."""

    def __init__(self) -> None:
        self._kept: ProcessEnvironment | None = None
        self._loaded = False

    def begin(self) -> None:
        """Begin a job: undo what the last one changed."""
        if self._kept is None:
            self._kept = ProcessEnvironment.here()
        else:
            self._kept.restore()

    def give(self, variables: Mapping[str, str]) -> None:
        """Set environment variables of the job, before its function is loaded; afterwards they are what was kept.

        All jobs of a process have the same ones (see `WorkContext.process_name`).
        """
        if not self._loaded:
            os.environ.update(variables)
            masked.take(variables.values())

    def loaded(self) -> None:
        """Keep what the function set up while it was loaded, as it belongs to it; only the first time counts."""
        if self._kept is not None and not self._loaded:
            self._kept, self._loaded = ProcessEnvironment.here(), True


#: The environment of this process; without `begin` nothing is kept or restored.
kept_environment = EnvironmentKeeper()
