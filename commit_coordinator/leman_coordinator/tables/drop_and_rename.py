"""Drop and rename tables and views, one at a time, while no commit to them is running."""

from __future__ import annotations

from functools import partial

from leman_coordinator.commits.commit_queue import CommitQueues
from leman_coordinator.commits.commit_requests import CommitResult, RequestMemory
from leman_coordinator.lance_io import table_removal
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear
from leman_core.model.service_errors import Aborted, Unavailable
from leman_core.server.blocking import BlockingPool
from leman_core.storage.lance_tables import incarnation_at
from leman_core.storage.locations import database_and_table

_THREADS = 2


class Names:
    """Drop and rename tables."""

    def __init__(self, queues: CommitQueues, memory: RequestMemory) -> None:
        self._queues = queues
        self._memory = memory
        self._pool = BlockingPool(_THREADS, name="names")

    def close(self) -> None:
        """Refuse further work."""
        self._pool.close()

    async def drop(self, uri: str, request_id: str, *, force: bool) -> CommitResult:
        """Remove a table.

        Raises:
            LemanError: see `TableService.DropTable` (protos/leman/v1/tables.proto).
        """
        async with self._queues.alone(uri):
            check, remove = (
                partial(table_removal.check_table_drop, uri, force=force),
                partial(table_removal.remove_table, uri),
            )
            await self._pool.run(table_removal.drop_once, uri, request_id, check, remove)
            self._forget(uri)
        return CommitResult(0, operation="DropTable")

    async def drop_view(self, uri: str, request_id: str, *, force: bool) -> CommitResult:
        """Remove a view.

        Raises:
            LemanError: see `CommitService.DropView` (protos/leman/v1/commit.proto).
        """
        database, name = database_and_table(uri)
        async with self._queues.alone(uri):
            check, remove = (
                partial(table_removal.check_view_drop, database, name, force=force),
                partial(table_removal.drop_view, database, name),
            )
            await self._pool.run(table_removal.drop_once, uri, request_id, check, remove)
            self._forget(uri)
        return CommitResult(0, operation="DropView")

    async def rename(self, uri: str, new_uri: str, request_id: str, body: str, *, force: bool) -> CommitResult:
        """Rename a table.

        Args:
            body: Digest of the request, to detect reuse of its id.

        Raises:
            LemanError: see `TableService.RenameTable` (protos/leman/v1/tables.proto).
        """
        table_removal.check_renames(uri)
        first, second = sorted((uri, new_uri))
        async with self._queues.alone(first), self._queues.alone(second):
            version = await self._pool.run(table_removal.renamed_version, new_uri, request_id, body)
            if not version:
                await self._pool.run(partial(table_removal.check_table_drop, uri, force=force))
                version = await self._pool.run(_renamed, uri, new_uri, request_id, body)
                self._forget(uri)
                self._forget(new_uri)
            incarnation = await self._pool.run(incarnation_at, new_uri)
        return CommitResult(version, operation="RenameTable", place=new_uri, incarnation=incarnation or "")

    def _forget(self, uri: str) -> None:
        """Forget cached data about the table that was at a location."""
        self._queues.forget(uri)
        self._memory.forget(uri)


def _renamed(uri: str, new_uri: str, request_id: str, body: str) -> int:
    try:
        return table_removal.rename_table(uri, new_uri, request_id, body)
    except CommitConflict as conflict:
        raise Aborted("CONFLICT", f"Another writer of {uri} came first: {conflict}. Send the call again") from None
    except CommitUnclear as unclear:
        raise Unavailable("COMMIT_UNKNOWN", f"{uri} was not renamed: {unclear}. Send the same call again") from None
