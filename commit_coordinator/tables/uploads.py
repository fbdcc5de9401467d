"""Rows that callers send: received, written beside the table, and committed once all are there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable

from commit_coordinator.commit_queues import CommitQueues
from commit_coordinator.lance_io.row_staging import StagedRows
from commit_coordinator.request_deduplication import RequestMemory
from commit_coordinator.requests import CommitResult
from commit_coordinator.tables.changes import APPEND, replaced
from commit_coordinator.tables.incoming import Incoming
from commit_coordinator.tables.requests import AppendRowsRequest
from core.config import Commit
from core.errors import Aborted, Internal, LemanError, Unavailable
from core.rpc.blocking import BlockingPool
from core.rpc.concurrency_limit import CallPlaces
from core.rpc.idle_limit import arriving


class Uploads:
    """All uploads of a process. A file is removed unless its rows are in the table, or that is not known."""

    def __init__(self, settings: Commit, queues: CommitQueues, memory: RequestMemory) -> None:
        self._places = CallPlaces(settings.max_uploads, "TOO_MANY_UPLOADS", "calls that add rows")
        self._idle_seconds = settings.upload_idle_seconds
        self._queues = queues
        self._memory = memory
        # each upload holds a thread while its rows come; one that was given up, until its thread has heard of it
        self._writers = BlockingPool(settings.max_uploads, max_queued=settings.max_uploads, name="uploads")
        self._given_up: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until what was given up is removed."""
        await asyncio.gather(*self._given_up, return_exceptions=True)
        self._writers.close()

    async def append(
        self,
        uri: str,
        request_id: str,
        body: str,
        pieces: AsyncIterator[bytes | memoryview],
        *,
        max_rows_per_fragment: int,
    ) -> CommitResult:
        """Take rows and add them to a table, all or none.

        Args:
            body: tells the request from another one under the same id.
            pieces: the bytes of an Arrow IPC stream.

        Raises:
            LemanError: what `TableService.AppendRows` (protos/leman/v1/tables.proto) names.
        """
        result = await self._added(uri, request_id, body, pieces, max_rows_per_fragment)
        # what else comes of a call that is answered already: not every client reads while it writes
        async for _ in arriving(pieces, self._idle_seconds, "the rows"):
            pass
        return result

    async def _added(
        self, uri: str, request_id: str, body: str, pieces: AsyncIterator[bytes | memoryview], max_rows: int
    ) -> CommitResult:
        answered = await self._memory.answered((uri, request_id), body)
        if answered is not None:
            return answered
        with self._places.one():
            staged = await self._staged(uri, max_rows, pieces)
            if not staged.files:
                return CommitResult(staged.version, operation=APPEND)
            request = AppendRowsRequest(uri, request_id, body, staged.incarnation, staged.columns, tuple(staged.files))
            committing = _Committing(self._queues, self._writers, staged, request)
            result = await self._memory.once((uri, request_id), body, committing.run)
            if not committing.began:  # an earlier call with this id does it
                await self._writers.run(staged.discard)
            return result

    async def _staged(self, uri: str, rows: int, pieces: AsyncIterator[bytes | memoryview]) -> StagedRows:
        incoming = Incoming()
        writing = asyncio.ensure_future(self._writers.run(_stage, uri, rows, incoming))
        sending = asyncio.ensure_future(self._send(pieces, incoming))
        try:
            await asyncio.wait({writing, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                sending.result()
            return await asyncio.shield(writing)
        except BaseException:
            incoming.end(Aborted("UPLOAD_ENDED", "The call ended before all rows were sent: send them again"))
            self._give_up(writing)
            raise
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await sending

    async def _send(self, pieces: AsyncIterator[bytes | memoryview], incoming: Incoming) -> None:
        """Hand on what comes, to the end."""
        async with contextlib.aclosing(arriving(pieces, self._idle_seconds, "the rows")) as coming:
            async for piece in coming:
                await incoming.put(piece)
        incoming.end()

    def _give_up(self, writing: Awaitable[StagedRows]) -> None:
        """Remove what a writer has made, once it has ended; one that fails removes its files itself."""

        async def removed() -> None:
            with contextlib.suppress(Exception):
                staged = await writing
                await self._writers.run(staged.discard)

        task = asyncio.create_task(removed())
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)


class _Committing:
    """The commit of one upload. It runs to its end, whoever waits for it, and removes files that it leaves unused."""

    def __init__(
        self, queues: CommitQueues, pool: BlockingPool, staged: StagedRows, request: AppendRowsRequest
    ) -> None:
        self._queues = queues
        self._pool = pool
        self._staged = staged
        self._request = request
        self.began = False

    async def run(self) -> CommitResult:
        self.began = True
        try:
            result = await self._queues.submit(self._request)
        except LemanError as error:
            if not (isinstance(error, Internal) or error.reason == "COMMIT_UNKNOWN"):
                await self._pool.run(self._staged.discard)
            raise
        if result.repeated:
            await self._pool.run(self._staged.discard)
        return result


def _stage(uri: str, rows: int, incoming: Incoming) -> StagedRows:
    staged = StagedRows(uri, rows)
    try:
        staged.write(incoming)
    except BaseException as error:
        staged.discard()
        if isinstance(error, Unavailable) and staged.is_outlived():  # its folder went while files were written
            raise replaced(uri) from None
        raise
    return staged
