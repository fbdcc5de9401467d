"""The commit queues of all tables, one for each table."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from leman_coordinator.commit_queue import CommitQueue, Limits
from leman_coordinator.file_checks import FileChecks
from leman_coordinator.measured_commits import measured
from leman_coordinator.removal_gate import Gate
from leman_coordinator.requests import CommitRequest, CommitResult
from leman_coordinator.views.preparation import ViewChecks
from leman_core.server.blocking import BlockingPool
from leman_core.storage.incarnations import incarnation_at
from leman_core.telemetry import measures

COMMIT_THREADS = 8
CHECK_THREADS = 8
#: The commit queues bound what waits; a pool that refused would lose the outcome of a commit.
UNBOUNDED = 1 << 40


class CommitQueues:
    """All commit queues of a process: each is made when its table is first written to, and ends when it is idle."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._commits = BlockingPool(COMMIT_THREADS, max_queued=UNBOUNDED, name="commit")
        self._checks = BlockingPool(CHECK_THREADS, max_queued=UNBOUNDED, name="check")
        self._queues: dict[str, CommitQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()
        measures.COMMIT_QUEUE.show(lambda: [(float(sum(queue.open for queue in list(self._queues.values()))), {})])

    async def submit(self, request: CommitRequest) -> CommitResult:
        """Submit a request to its table's queue; see `CommitQueue.submit`."""
        with measured(request) as take:
            async with self._gate(request.uri).together():
                return take(await self._queue(request).submit(request))

    async def holds(self, uri: str, result: CommitResult) -> bool:
        """Tell whether the table is still there that the answer to a request for `uri` is about.

        Raises:
            LemanError: what `incarnation_at` raises: it is not known.
        """
        place = result.place or uri
        if not result.is_about(place, uri):
            return True
        now = await self._checks.run(incarnation_at, place)
        return now is not None and (not result.incarnation or now == result.incarnation)

    def forget(self, uri: str) -> None:
        """Open a table anew for its next request; call it inside `alone`, once the table is gone or another one."""
        if uri in self._queues:
            self._queues[uri].forget_table()

    @contextlib.asynccontextmanager
    async def alone(self, uri: str) -> AsyncIterator[None]:
        """Hold back checks and commits of a table while inside: a checked file must not vanish before its commit."""
        async with self._gate(uri).alone():
            yield

    def _gate(self, uri: str) -> Gate:
        return self._gates.setdefault(uri, Gate())

    def _queue(self, request: CommitRequest) -> CommitQueue:
        queue = self._queues.get(request.uri)
        if queue is None:
            uri = request.uri
            files, view_files = (
                FileChecks(uri, self._checks, CHECK_THREADS),
                ViewChecks(uri, self._checks, CHECK_THREADS),
            )
            queue = self._queues[uri] = CommitQueue(uri, self._limits, self._commits, files, view_files)
            task = asyncio.create_task(self._serve(uri, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return queue

    @property
    def tables(self) -> frozenset[str]:
        """The uris of the tables that have a commit queue now."""
        return frozenset(self._queues)

    async def close(self) -> None:
        """End the commit queues at once; wait for running commits before (`RequestMemory.settled`)."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._commits.close()
        self._checks.close()

    async def _serve(self, uri: str, queue: CommitQueue) -> None:
        try:
            await queue.serve()
        finally:  # no await since the commit queue found itself idle: nothing can have come in between
            del self._queues[uri]
