"""What functions print: each line begins with the id of the job that it was printed in, for `leman logs`."""

from __future__ import annotations

import errno
import io
import os
from typing import Any

from leman_executor.worker.processes.masked_values import masked

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


def opened(fd: int) -> tuple[PrintedLines, io.TextIOWrapper]:
    """Return such a stream, and the text stream before it for `sys.stdout`."""
    lines: Any = PrintedLines(fd)
    return lines, io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", write_through=True)
