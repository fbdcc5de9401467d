"""Receive rows from callers, write them next to the table, and commit them once all have arrived.

If a request is repeated with the same id, its rows are read completely and compared with the earlier rows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from leman_coordinator.commits.commit_queue import CommitQueues
from leman_coordinator.commits.commit_requests import CommitResult, MergeRules, RequestMemory, RowsRequest
from leman_coordinator.lance_io.row_rewrites import StagedMerge
from leman_coordinator.lance_io.row_staging import StagedRows
from leman_coordinator.tables.arrow_streams import Incoming
from leman_coordinator.tables.row_digests import ComparedRows
from leman_coordinator.tables.table_changes import table_replaced_error
from leman_core.model.service_errors import Aborted, Internal, LemanError, Unavailable
from leman_core.model.table import SentRows
from leman_core.server.admission import limit_store_calls
from leman_core.server.blocking import STORE, BlockingPool
from leman_core.server.call_streams import with_idle_limit
from leman_core.server.request_messages import check_same_request, rows_of, with_rows
from leman_core.settings import Commit

Pieces = AsyncIterator[bytes | memoryview]


class Reader(Protocol):
    """Reads an upload's rows, in one thread."""

    def write(self, incoming: Incoming) -> SentRows:
        """Read all rows until the stream ends. Return their digest and count."""

    def is_outlived(self) -> bool:
        """Return whether the table was dropped or replaced."""

    def discard(self) -> None:
        """Remove the files."""


class Staged(Reader, Protocol):
    """The rows of one upload to be committed."""

    #: Whether the table refers to these files after the commit.
    stays: bool

    def request(self, request_id: str, body: str) -> RowsRequest:
        """Return the request to commit."""


AReader = TypeVar("AReader", bound=Reader)


class Uploads:
    """All uploads of a process. An upload's files are removed unless its rows are, or may be, in the table."""

    def __init__(self, settings: Commit, queues: CommitQueues, memory: RequestMemory) -> None:
        self._places = limit_store_calls(settings.max_uploads, "TOO_MANY_UPLOADS", "calls that add or merge rows")
        self._idle_seconds = settings.upload_idle_seconds
        self._max_merge_bytes = settings.max_merge_bytes
        self._queues = queues
        self._memory = memory
        # Each upload uses a thread while its rows arrive. After the caller leaves, the thread stays in use until it
        # notices.
        self._writers = BlockingPool(settings.max_uploads, max_queued=settings.max_uploads, name="uploads")
        self._given_up: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until abandoned files are removed."""
        await asyncio.gather(*self._given_up, return_exceptions=True)
        self._writers.close()

    async def append(
        self,
        uri: str,
        request_id: str,
        body: str,
        pieces: Pieces,
        *,
        max_rows_per_fragment: int,
    ) -> CommitResult:
        """Receive rows and add them to a table, all or none.

        Args:
            body: Digest of the request, to detect reuse of its id.
            pieces: The bytes of an Arrow IPC stream.

        Raises:
            LemanError: see `TableService.AppendRows` (protos/leman/v1/tables.proto).
        """
        return await self._committed(uri, request_id, body, pieces, partial(StagedRows, uri, max_rows_per_fragment))

    async def merge(self, uri: str, request_id: str, body: str, rules: MergeRules, pieces: Pieces) -> CommitResult:
        """Receive rows and merge them into a table, all or none.

        Args:
            body: Digest of the request, to detect reuse of its id.
            pieces: The bytes of an Arrow IPC stream.

        Raises:
            LemanError: see `TableService.MergeRows` (protos/leman/v1/tables.proto).
        """
        begin = partial(StagedMerge, uri, rules, self._max_merge_bytes)
        return await self._committed(uri, request_id, body, pieces, begin)

    async def _committed(
        self, uri: str, request_id: str, body: str, pieces: Pieces, begin: Callable[[], Staged]
    ) -> CommitResult:
        known = await self._memory.known((uri, request_id), body)
        with self._places.acquire(STORE.get()):
            if known is not None:
                told, result = known
                _, sent = await self._read(uri, lambda: ComparedRows(rows_of(told)), pieces)
                check_same_request(request_id, told, with_rows(body, sent))
                return result
            staged, sent = await self._read(uri, begin, pieces)
            whole = with_rows(body, sent)
            committing = _Committing(self._queues, self._writers, staged, staged.request(request_id, whole))
            if not sent.rows and staged.stays:  # there is nothing to commit, and the id may come with other rows later
                return await committing.run()
            try:
                return await self._memory.once((uri, request_id), whole, committing.run)
            finally:
                if not committing.began:  # an earlier call with this id is committing
                    await self._writers.run(staged.discard)

    async def _read(self, uri: str, begin: Callable[[], AReader], pieces: Pieces) -> tuple[AReader, SentRows]:
        incoming = Incoming()
        writing = asyncio.ensure_future(self._writers.run(_read_all, uri, begin, incoming))
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

    async def _send(self, pieces: Pieces, incoming: Incoming) -> None:
        async with contextlib.aclosing(with_idle_limit(pieces, self._idle_seconds, "the rows")) as coming:
            async for piece in coming:
                await incoming.put(piece)
        incoming.end()

    def _give_up(self, writing: Awaitable[tuple[Reader, SentRows]]) -> None:
        """Remove a writer's files once the writer ends. A writer that fails removes its files itself."""

        async def removed() -> None:
            with contextlib.suppress(Exception):
                reader, _ = await writing
                await self._writers.run(reader.discard)

        task = asyncio.create_task(removed())
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)


class _Committing:
    """The commit of one upload. It continues if its callers leave, and removes the files that it does not use."""

    def __init__(self, queues: CommitQueues, pool: BlockingPool, staged: Staged, request: RowsRequest) -> None:
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
            unknown = isinstance(error, Internal) or error.reason == "COMMIT_UNKNOWN"
            if not (self._staged.stays and unknown):
                await self._pool.run(self._staged.discard)
            raise
        if result.repeated or not self._staged.stays:
            await self._pool.run(self._staged.discard)
        return result


def _read_all(uri: str, begin: Callable[[], AReader], incoming: Incoming) -> tuple[AReader, SentRows]:
    reader = begin()
    try:
        return reader, reader.write(incoming)
    except BaseException as error:
        reader.discard()
        if isinstance(error, Unavailable) and reader.is_outlived():  # the table's folder vanished during the write
            raise table_replaced_error(uri) from None
        raise
