"""The turns of batches that may have broken the connection to a remote function's server: one at a time.

A batch that ends its server breaks the connections of all others that the server had at work, and comes back at once,
to end the next server: batches that are not to blame would break again and again with it. So a batch has the turns of
all servers that it may be given to, whichever function it is of. A lock of the kernel gives the turn of a host, a
reservation in Redis that of all hosts. While Redis cannot be reached each host has its own turns.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from leman_core.model import keys
from leman_core.model.ports import Reservations
from leman_core.model.ranges import RowRange

#: What a turn reserves, in a scope of the server's.
_TURN = RowRange(0, 1)
_LOOK_SECONDS = 0.05
#: Of the names of files that say who has the turn of a host. They are empty.
_SUFFIX = ".turn"
#: A reservation that nobody has renewed for so many of its lifetimes counts for nothing.
_LIFETIMES = 2


def scope_of(address: str) -> str:
    """Return the scope in which suspects reserve their turn of a server."""
    return f"suspects:{keys.md5(address)}"


class AllHosts:
    """The turns of servers over all hosts, as reservations; each is taken while these cannot be reached.

    Args:
        ttl_seconds: How long a reservation lasts that is not renewed.
        stopped: Tells whether nobody is to wait any more.
    """

    def __init__(self, reservations: Reservations, ttl_seconds: float, stopped: Callable[[], bool]) -> None:
        self._reservations = reservations
        self._ttl = ttl_seconds
        self._stopped = stopped

    @contextlib.contextmanager
    def one(self, scopes: tuple[str, ...]) -> Iterator[None]:
        """Wait until no suspect of another host is tried; none begins in this block, unless Redis goes meanwhile.

        Args:
            scopes: Those of the turns, which everybody takes in one order: else two would wait for each other.
        """
        holder, over = uuid.uuid4().hex, threading.Event()
        keeper = threading.Thread(target=self._renew, args=(scopes, holder, over), name="suspects", daemon=True)
        keeper.start()
        try:
            for scope in scopes:
                self._wait(scope, holder)
            yield
        finally:
            over.set()
            keeper.join()
            self._reservations.release_all(scopes, holder)

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

    def _renew(self, scopes: tuple[str, ...], holder: str, over: threading.Event) -> None:
        while not over.wait(self._ttl / 3):
            self._reservations.renew(scopes, holder)


class SuspectTurns:
    """The turns of one function's batches, of all processes of this user on a host and of their threads.

    Args:
        addresses: The servers that may be given a batch, as they are registered.
        hosts: The turns over all hosts; None: there is this one alone.
        folder: Where processes of this host lock files.
    """

    def __init__(self, addresses: Iterable[str], hosts: AllHosts | None = None, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"leman-suspects-{os.getuid()}"
        servers = sorted(set(addresses))
        self._files = [self._folder / f"{keys.md5(address)}{_SUFFIX}" for address in servers]
        self._scopes = tuple(map(scope_of, servers))
        self._hosts = hosts
        self._mine = threading.local()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait until no other suspect is tried; none begins in this block. The turn of a process that dies is over."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _remove_left(self._folder)
        with contextlib.ExitStack() as turns:
            for path in self._files:
                turns.enter_context(_locked(path))
            if self._hosts is not None:
                turns.enter_context(self._hosts.one(self._scopes))
            yield

    @property
    def suspected(self) -> bool:
        """Tell whether the next batch of this thread is a part of one that was to blame."""
        return self._rows > 0

    def is_part(self, rows: int) -> bool:
        """Tell whether the next batch is a part of one to blame, and not, as its size tells, that one tried again."""
        return self.suspected and rows != getattr(self._mine, "lost_last", 0)

    def note_lost(self, rows: int) -> None:
        """Note that a batch of this thread is to blame: where the row is looked for, its parts come next."""
        self._mine.rows = max(self._rows, rows) if rows > 1 else max(0, self._rows - 1)
        self._mine.lost_last = rows

    def note_answered(self, rows: int) -> None:
        """Note that a batch of this thread was answered."""
        self._mine.lost_last = 0
        if self._rows:
            self._mine.rows = max(0, self._rows - rows)

    @property
    def _rows(self) -> int:
        rows: int = getattr(self._mine, "rows", 0)
        return rows


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for the lock of a file, which is there for as long as somebody has it, or waits for it."""
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(path, file.fileno()):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_still(path: Path, fd: int) -> bool:
    """Tell whether the file was not removed by the one that had it before."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _remove_left(folder: Path) -> None:
    """Remove the files of processes that died with a turn; who waits for one of them makes another one."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError), path.open() as file:  # it is gone, or somebody has it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, file.fileno()) and not os.fstat(file.fileno()).st_size:
                path.unlink()
