"""The lanes of all tables, one for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from commit_coordinator.commit_queue import Lane, Limits
from commit_coordinator.file_checks import FileChecks
from commit_coordinator.gate import Gate
from commit_coordinator.requests import CommitRequest, CommitResult
from commit_coordinator.views.checks import ViewChecks
from core.rpc.blocking import BlockingPool

COMMIT_THREADS = 8
CHECK_THREADS = 8
#: The lanes bound what waits; a pool that refused would lose the outcome of a commit.
UNBOUNDED = 1 << 40


class Lanes:
    """All lanes of a process: made when a table is first written to, gone when it was idle for a while."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._commits = BlockingPool(COMMIT_THREADS, max_queued=UNBOUNDED, name="commit")
        self._checks = BlockingPool(CHECK_THREADS, max_queued=UNBOUNDED, name="check")
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()

    async def submit(self, request: CommitRequest) -> CommitResult:
        """See `Lane.submit`."""
        async with self._gate(request.uri).together():
            return await self._lane(request).submit(request)

    @contextlib.asynccontextmanager
    async def alone(self, uri: str) -> AsyncIterator[None]:
        """While nothing of a table is checked or committed here: between the two a file must not vanish."""
        async with self._gate(uri).alone():
            yield

    def _gate(self, uri: str) -> Gate:
        return self._gates.setdefault(uri, Gate())

    def _lane(self, request: CommitRequest) -> Lane:
        lane = self._lanes.get(request.uri)
        if lane is None:
            uri = request.uri
            files, view_files = (
                FileChecks(uri, self._checks, CHECK_THREADS),
                ViewChecks(uri, self._checks, CHECK_THREADS),
            )
            lane = self._lanes[uri] = Lane(uri, self._limits, self._commits, files, view_files)
            task = asyncio.create_task(self._serve(uri, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return lane

    @property
    def tables(self) -> frozenset[str]:
        """Uris of the tables that have a lane now."""
        return frozenset(self._lanes)

    async def close(self) -> None:
        """Ends the lanes. What is being committed is: wait for it before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._commits.close()
        self._checks.close()

    async def _serve(self, uri: str, lane: Lane) -> None:
        try:
            await lane.serve()
        finally:  # no await since the lane found itself idle: nothing can have come in between
            del self._lanes[uri]
