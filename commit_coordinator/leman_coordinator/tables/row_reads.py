"""Rows that callers read: in threads, and for so many calls at once."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

from leman_coordinator.lance_io import row_reading
from leman_coordinator.lance_io.row_reading import Rows
from leman_coordinator.tables.requests import ReadRequest
from leman_core.server.blocking import SLOW_STORE_SECONDS, UNBOUNDED, BlockingPool
from leman_core.server.concurrency_limit import CallPlaces

#: Threads that read rows. A call holds one only while it makes its next piece.
_THREADS = 4
#: A call that reads checkpoints takes the memory of so many others: it holds one or two of them, of 128 MB at the most.
_PLAIN_READS = 8
#: Each call that reads rows has one piece in work.
_MOST_PIECES = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class RowReads:
    """All reads of a process, for one event loop.

    Args:
        most: calls that may read rows at once.
    """

    def __init__(self, most: int) -> None:
        self._places = CallPlaces(most, "TOO_MANY_READS", "calls that read rows")
        few = max(1, most // _PLAIN_READS)
        self._with_checkpoints = CallPlaces(few, "TOO_MANY_READS", "calls that read rows with checkpointed values")
        self._pool = BlockingPool(_THREADS, max_queued=_MOST_PIECES, name="rows")
        # with threads of its own: a store that does not answer shows here, before there are rows to hold
        self._opening = BlockingPool(_THREADS, max_queued=UNBOUNDED, name="opening", slow_seconds=SLOW_STORE_SECONDS)

    def close(self) -> None:
        """Drop what waits."""
        self._opening.close()
        self._pool.close()

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function returns or raises that looks at tables, and reads no rows."""
        return await self._opening.run(function, *args, **kwargs)

    async def each(
        self, wanted: ReadRequest, made: Callable[[Rows], Iterator[T]]
    ) -> AsyncGenerator[tuple[Rows, T], None]:
        """Read rows, and yield what is made of them: the next item is made while the caller works with one.

        Raises:
            LemanError: what `row_reading.open_rows` raises; ResourceExhausted (TOO_MANY_READS).
        """
        with self._places.one(), self._with_checkpoints.one() if wanted.include_checkpointed else nullcontext():
            rows = await self._opening.run(row_reading.open_rows, wanted, now())
            items: AsyncGenerator[Any, None] = self._pool.each(made(rows))
            async with contextlib.aclosing(items):
                async for item in items:
                    yield rows, item


def now() -> dt.datetime:
    """Return what `now()` means in a filter that comes now."""
    return dt.datetime.now(dt.UTC)
