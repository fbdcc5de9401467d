"""Manage the environment, secrets and file descriptors of a function process, and reset them between jobs.

Each job starts with the working directory and environment that the process had after loading the function. Values of a
job's `env` are masked in texts for logs and records. Each printed line begins with the id of its job, for `leman logs`.
A function cannot close file descriptors that belong to Leman, Lance or other parts of the process. If it could close
descriptor 1, the next opened file or socket would become descriptor 1, and receive all printed output.
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
#: Shorter values are not masked, because they are not secrets and occur in too many words.
SHORTEST = 6


class MaskedValues:
    """Mask secret values in texts."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._encoded: re.Pattern[bytes] | None = None

    def take(self, values: Iterable[str]) -> None:
        """From now on, mask these values and each of their lines, also as encoded in URLs, JSON and Python source."""
        parts = {part for value in values for part in _parts(value) if len(part) >= SHORTEST}
        forms = sorted({form for part in parts for form in _forms(part)}, key=len, reverse=True)
        if forms:
            self._pattern = re.compile("|".join(map(re.escape, forms)))
            self._encoded = re.compile(b"|".join(re.escape(form.encode()) for form in forms))

    def out_of(self, text: str) -> str:
        """Return a text with the values masked."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def out_of_bytes(self, text: bytes) -> bytes:
        """Return an encoded text with the values masked."""
        return text if self._encoded is None else self._encoded.sub(MASK.encode(), text)


def _parts(value: str) -> Iterator[str]:
    """Yield the parts of a value that a text may contain: the whole value, the value without surrounding space,
    its lines.
    """
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


#: The masked values of this process.
masked = MaskedValues()


#: An unterminated line is written in parts of this size.
_LONGEST = 1 << 16
#: Errors of writing the log when the disk is full or broken.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class PrintedLines(io.RawIOBase):
    """Standard output or error of a function process. Each line is written with one system call."""

    #: The current job of this process.
    job_id = ""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        #: Whether the descriptor leads to the log. False after the function has redirected it.
        self.is_log = True

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor. Child processes write to it directly, so their output has no job id."""
        return self._fd

    def write(self, data: Any, /) -> int:
        """Write the complete lines."""
        given = bytes(data)
        *lines, self._rest = (self._rest + given).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        self._put(lines)
        return len(given)

    def end_line(self) -> None:
        """Write an unterminated line when its job ends."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._put([rest])

    def _put(self, lines: list[bytes]) -> None:
        tag = f"[{PrintedLines.job_id}] ".encode() if PrintedLines.job_id and self.is_log else b""
        text = masked.out_of_bytes(b"".join(tag + line + b"\n" for line in lines))
        try:
            while text:
                try:
                    text = text[os.write(self._fd, text) :]
                except BlockingIOError:  # a function, or its program, made the shared pipe non-blocking
                    if not self.is_log:
                        raise
                    os.set_blocking(self._fd, True)
        except OSError as error:
            if not self.is_log or error.errno not in _NO_ROOM:
                raise
            # A failure to print must not fail the job or end its process.


def open_printed_lines(fd: int) -> tuple[PrintedLines, io.TextIOWrapper]:
    """Return a stream of printed lines for a descriptor, and a text stream on top of it for `sys.stdout`."""
    lines: Any = PrintedLines(fd)
    return lines, io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", write_through=True)


_STANDARD = (0, 1, 2)
_Identity = tuple[int, int]


class Descriptors:
    """The descriptors of one process.

    Call `guard` once, `restore` before each task, and `check` after each unit.
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
        """From now on, protect Leman's descriptors from the function.

        `os.close` and similar functions then do not close descriptors that the function did not open. Closing
        `sys.stdout` does not close descriptor 1.
        """
        sys.stdin = sys.__stdin__ = _text(0, "r")  # type: ignore[misc]  # final in typeshed
        out, sys.stdout = open_printed_lines(1)
        err, sys.stderr = open_printed_lines(2)
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
        self._printed = (out, err)
        os.close, os.closerange, os.dup2 = self.close, self.closerange, self.dup2

    @contextlib.contextmanager
    def keeping(self, fd: int) -> Iterator[None]:
        """In this block, treat the descriptor as Leman's."""
        self._own.add(fd)
        try:
            yield
        finally:
            self._own.discard(fd)

    def close(self, fd: int) -> None:
        """Replace `os.close` for functions. A standard descriptor that they close stays open, but discards output.

        Raises:
            OSError: EBADF, if the descriptor is Leman's.
        """
        if os.getpid() == self._pid:
            if fd in _STANDARD:
                self._lead(self._null, fd)
                return
            if fd in self._own:
                raise OSError(errno.EBADF, "this descriptor is Leman's")
        self._close(fd)

    def closerange(self, fd_low: int, fd_high: int, /) -> None:
        """Replace `os.closerange` for functions. It raises, because the range may contain descriptors of Lance and
        Leman.

        Raises:
            PermissionError: EPERM, in the function's process. In a child process the call works.
        """
        if os.getpid() == self._pid:
            raise PermissionError(
                errno.EPERM, "a function must not close descriptors that it did not open; a child process may"
            )
        self._closerange(fd_low, fd_high)

    def dup2(self, fd: int, fd2: int, inheritable: bool = True) -> int:  # noqa: FBT001, FBT002 as in os
        """Replace `os.dup2` for functions. They may redirect their output until the task ends.

        Raises:
            OSError: EBADF, if `fd2` is Leman's.
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
        """Prefix all lines that are printed in this block with a job's id."""
        PrintedLines.job_id = job_id
        try:
            yield
        finally:
            for printed in self._printed:
                with contextlib.suppress(OSError):
                    printed.end_line()
            PrintedLines.job_id = ""

    def restore(self) -> None:
        """Restore the original targets of the standard descriptors."""
        for fd in _STANDARD:
            self._redirect(self._saved[fd], fd)
        for printed in self._printed:
            printed.is_log = True

    def check(self) -> None:
        """Check that the standard descriptors are the ones that this object opened.

        Raises:
            FailedPrecondition: UDF_BROKE_DESCRIPTORS, if a descriptor was closed in another way and may now be any
                file.
        """
        for fd in _STANDARD:
            try:
                same = _identity(fd) == self._known[fd]
            except OSError:
                same = False
            if not same:
                raise FailedPrecondition(
                    "UDF_BROKE_DESCRIPTORS",
                    f"The function closed descriptor {fd} of its process. A file of Lance may have this number now. "
                    "Redirect sys.stdout and sys.stderr with contextlib, or print to a separate file",
                )

    def _lead(self, source: int, fd: int) -> None:
        """Point a standard descriptor to the target that the function wants."""
        for printed in self._printed:
            if printed.fileno() == fd:
                printed.end_line()
                printed.is_log = False
        self._redirect(source, fd)

    def _redirect(self, source: int, fd: int) -> None:
        self._dup2(source, fd)
        self._known[fd] = _identity(fd)


#: The guarded descriptors of this process; empty if none are guarded.
_guarded: list[Descriptors] = []


def guard_descriptors() -> Descriptors:
    """Guard the descriptors of this process permanently."""
    guarded = Descriptors()
    guarded.guard()
    _guarded.append(guarded)
    return guarded


def keep_descriptor(fd: int) -> contextlib.AbstractContextManager[None]:
    """In this block, treat the descriptor as Leman's; see `Descriptors.keeping`."""
    return _guarded[0].keeping(fd) if _guarded else contextlib.nullcontext()


def check_descriptors() -> None:
    """Check the standard descriptors if they are guarded; see `Descriptors.check`."""
    for guarded in _guarded:
        guarded.check()


def _identity(fd: int) -> _Identity:
    stat = os.fstat(fd)
    return stat.st_dev, stat.st_ino


def _high(fd: int) -> int:
    """Move a descriptor to a high number, because user code may close low numbers by habit."""
    import fcntl  # noqa: PLC0415 not available on every platform

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return high


def _text(fd: int, mode: str) -> io.TextIOWrapper:
    opened: Callable[..., io.TextIOWrapper] = open
    return opened(fd, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """A snapshot of working directory, environment and umask."""

    folder: str
    environment: dict[str, str]
    umask: int

    @classmethod
    def here(cls) -> ProcessEnvironment:
        """Return a snapshot of this process."""
        umask = os.umask(0o022)
        os.umask(umask)
        try:
            folder = os.getcwd()  # noqa: PTH109 a string is enough
        except FileNotFoundError:
            folder = ""
        return cls(folder, dict(os.environ), umask)

    def restore(self) -> None:
        """Restore the snapshot in this process. Ignore a working directory that no longer exists."""
        os.umask(self.umask)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)


class EnvironmentKeeper:
    """Keep the environment to which a function process returns before each job."""

    def __init__(self) -> None:
        self._kept: ProcessEnvironment | None = None
        self._loaded = False

    def begin(self) -> None:
        """Begin a job: undo the changes that the previous job made."""
        if self._kept is None:
            self._kept = ProcessEnvironment.here()
        else:
            self._kept.restore()

    def give(self, variables: Mapping[str, str]) -> None:
        """Set the job's environment variables before its function is loaded. Only the first call has an effect.

        All jobs of a process have the same variables (see `WorkContext.process_name`).
        """
        if not self._loaded:
            os.environ.update(variables)
            masked.take(variables.values())

    def loaded(self) -> None:
        """Keep the environment as it is after the function was loaded. Only the first call has an effect."""
        if self._kept is not None and not self._loaded:
            self._kept, self._loaded = ProcessEnvironment.here(), True


#: The environment of this process. Before `begin` is called, nothing is kept or restored.
kept_environment = EnvironmentKeeper()
