"""The turns of batches that may have broken the connection to a remote function's server: one at a time.

A batch that ends its server breaks the connections of all others that the server had at work, and comes back at once,
to end the next server: batches that are not to blame would break again and again with it. A lock of the kernel gives
the turn of a host, a reservation in Redis that of all hosts. While Redis cannot be reached each host has its own turn.
Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from core import keys
from core.domain.ranges import RowRange
from core.ports import Reservations

#: What a turn reserves, in a scope of the function's.
_TURN = RowRange(0, 1)
_LOOK_SECONDS = 0.05
#: A reservation that nobody has renewed for so many of its lifetimes counts for nothing.
_LIFETIMES = 2


def scope_of(function: str) -> str:
    """Return the scope in which the suspects of a function reserve their turn."""
    return f"suspects:{keys.md5(function)}"


class AllHosts:
    """The turn of a function's suspects over all hosts, as a reservation; each is taken while these cannot be reached.

    Args:
        ttl_seconds: How long a reservation lasts that is not renewed.
        stopped: Tells whether nobody is to wait any more.
    """

    def __init__(self, reservations: Reservations, ttl_seconds: float, stopped: Callable[[], bool]) -> None:
        self._reservations = reservations
        self._ttl = ttl_seconds
        self._stopped = stopped

    @contextlib.contextmanager
    def one(self, scope: str) -> Iterator[None]:
        """Wait until no suspect of another host is tried; none begins in this block, unless Redis goes meanwhile."""
        holder, over = uuid.uuid4().hex, threading.Event()
        self._wait(scope, holder)
        keeper = threading.Thread(target=self._renew, args=(scope, holder, over), name="suspects", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
            self._reservations.release(scope, (_TURN,), holder, finished=False)

    def _wait(self, scope: str, holder: str) -> None:
        seen: dict[str, float] = {}  # a hold that is renewed has another mark
        pause = threading.Event()
        ignored: tuple[str, ...] = ()
        while not self._stopped():
            grant = self._reservations.reserve(scope, (_TURN,), holder, ignored)
            if grant.granted:
                return
            now = time.monotonic()
            seen = {hold: seen.get(hold, now) for hold in grant.holds}
            ignored = tuple(hold for hold, since in seen.items() if now - since > _LIFETIMES * self._ttl)
            pause.wait(_LOOK_SECONDS)

    def _renew(self, scope: str, holder: str, over: threading.Event) -> None:
        while not over.wait(self._ttl / 3):
            self._reservations.renew((scope,), holder)


class SuspectTurns:
    """The turns of one function's batches, of all processes of this user on a host and of their threads.

    Args:
        function: Name and version.
        hosts: The turn over all hosts; None: there is this one alone.
        folder: Where processes of this host lock a file.
    """

    def __init__(self, function: str, hosts: AllHosts | None = None, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir()) / f"leman-suspects-{os.getuid()}"
        self._path = folder / keys.md5(function)
        self._scope = scope_of(function)
        self._hosts = hosts
        self._mine = threading.local()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait until no other suspect is tried; none begins in this block. The turn of a process that dies is over."""
        with self._locked():
            try:
                with self._hosts.one(self._scope) if self._hosts is not None else contextlib.nullcontext():
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
