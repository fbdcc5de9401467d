"""The turns of batches that may have broken the connection to a remote function's server: one at a time on a host.

A batch that ends its server breaks the connections of all others that the server had at work, and comes back at once,
to end the next server: batches that are not to blame would break again and again with it. Runs on Spark workers:
imports no gRPC and no Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from core import keys


class SuspectTurns:
    """The turns of one function's batches, of all processes of this user on a host and of their threads.

    Args:
        function: Name and version.
    """

    def __init__(self, function: str) -> None:
        folder = Path(tempfile.gettempdir()) / f"leman-suspects-{os.getuid()}"
        self._path = folder / keys.md5(function)
        self._mine = threading.local()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait until no other suspect is tried; none begins in this block. The turn of a process that dies is over."""
        with self._locked():
            try:
                yield
            finally:
                self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        while True:
            with self._path.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._is_still(file.fileno()):
                    yield
                    return

    def _is_still(self, fd: int) -> bool:
        """Tell whether the file was not removed by the one that had it before."""
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False

    @property
    def suspected(self) -> bool:
        """Tell whether the next batch of this thread is a part of one that was to blame."""
        return self._rows > 0

    def note_lost(self, rows: int) -> None:
        """Note that a batch of this thread is to blame: where the row is looked for, its halves come next."""
        self._mine.rows = max(self._rows, rows) if rows > 1 else max(0, self._rows - 1)

    def note_answered(self, rows: int) -> None:
        """Note that a batch of this thread was answered."""
        if self._rows:
            self._mine.rows = max(0, self._rows - rows)

    @property
    def _rows(self) -> int:
        rows: int = getattr(self._mine, "rows", 0)
        return rows
