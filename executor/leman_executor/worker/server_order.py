"""Which of several servers of a remote function gets the next batch: the idlest of those that are fast. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeVar

#: A server is as good as the fastest where a batch takes it no longer than so many times, and seconds more.
_TIMES, _SECONDS = 1.5, 0.01
#: A slower one is tried again once this has passed so many times as long as a batch takes it: one may get faster.
_TRIED_AGAIN = 10


class Pace:
    """How fast a server answers a worker: the better of the last two times, as one alone may be anything's fault."""

    def __init__(self) -> None:
        self._seconds_per_row: deque[float] = deque(maxlen=2)
        self._noted = 0.0

    def note(self, rows: int, seconds: float, now: float) -> None:
        """Take in that a batch was answered after so many seconds."""
        self._seconds_per_row.append(seconds / max(rows, 1))
        self._noted = now

    def expected(self, rows: int) -> float:
        """Return the seconds that a batch is expected to take; 0: nothing is known yet."""
        return min(self._seconds_per_row) * rows if len(self._seconds_per_row) == 2 else 0.0

    def is_outdated(self, rows: int, now: float) -> bool:
        """Tell whether it is time to see how fast the server is by now."""
        return now - self._noted >= _TRIED_AGAIN * self.expected(rows)


class Paced(Protocol):
    """A server that may be given a batch."""

    pace: Pace
    #: Batches of this worker that it has at work.
    at_work: int


Server = TypeVar("Server", bound=Paced)


def in_order(servers: Sequence[Server], rows: int, now: float) -> list[Server]:
    """Return the servers in the order in which they are to be asked for a batch; equal ones stay in theirs.

    With a server that needs 0.1 s and another one that needs 2 s for it, the first gets all batches, but for one every
    20 s. As it slows down, because all workers do so, the other one gets more.
    """
    expected = [server.pace.expected(rows) * (server.at_work + 1) for server in servers]
    known = [seconds for seconds in expected if seconds]  # of one that is always away nothing ever is
    good = _TIMES * min(known, default=0.0) + _SECONDS

    def rank(at: int) -> tuple[int, float]:
        server = servers[at]
        if expected[at] <= good:
            return 1, server.at_work
        if not server.at_work and server.pace.is_outdated(rows, now):
            return 0, 0.0
        return 2, expected[at]

    return [servers[at] for at in sorted(range(len(servers)), key=rank)]
