"""The program `leman`: the command line as a process that starts and ends faster than plain Python.

In a command that reads some tables, a tenth of the time was garbage collection during imports, although these create no
garbage. A fifth was the shutdown of Python: Python frees memory object by object, while the system would free all of it
at once.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from typing import Any, TextIO

_ALLOCATIONS = 50_000
"""New objects before a garbage collection: many times Python's default, as most commands are short."""
_FAILED = 1


class OutputFailed(OSError):
    """Standard output cannot be written, although the process that reads it has not closed it."""

    def __str__(self) -> str:
        return (
            f"standard output cannot be written: {self.strerror}. The command has done its work; redirect its output "
            "to a place with free space [OUTPUT_FAILED]"
        )


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from None


class _Remarks(io.FileIO):
    """Standard error. Errors of writing are ignored, so that a command works even if its remarks cannot be written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def main() -> None:
    """Run the command that the arguments name, and end this process."""
    gc.set_threshold(_ALLOCATIONS)
    _open_streams()
    from leman.cli import main as run  # noqa: PLC0415 - after the settings above, as this takes time

    try:
        run()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise
    _end(0)


def _open_streams() -> None:
    """Make errors of standard output recognizable, and ignore those of standard error.

    A descriptor that the caller has closed is opened on the null device. Otherwise the next file or socket would get
    its number.
    """
    stdout, stderr = sys.stdout, sys.stderr
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stderr = _text(_Remarks(2, "w", closefd=False), stderr, by_line=True)
    if stdout is None:
        sys.stderr.write("leman: standard output is closed. Redirect it to a file or to /dev/null [OUTPUT_FAILED]\n")
        os._exit(_FAILED)
    sys.stdout = _text(_Output(1, "w", closefd=False), stdout, by_line=stdout.isatty())


def _text(raw: io.FileIO, before: TextIO | None, *, by_line: bool) -> TextIO:
    """Return a stream that can write any text in the encoding of the environment."""
    encoding = "utf-8" if before is None else before.encoding
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=by_line)


def _end(code: int) -> None:
    """Run the exit handlers and end at once, unless Python has to wait for threads."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        code = code or _FAILED
    except OutputFailed as error:
        sys.stderr.write(f"leman: {error}\n")
        code = code or _FAILED
    os._exit(code)
