"""The maintenance of tables' checkpoints, in threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.plan import CheckpointRef, FragmentTask, Plan, StagedFile
from leman_core.model.work import WorkContext
from leman_core.server.blocking import BlockingPool
from leman_core.storage.checkpoints import LanceCheckpointStore
from leman_core.storage.checkpoints.lance_store import checkpoint_root
from leman_core.storage.checkpoints.leftovers import remove_leftovers
from leman_core.storage.checkpoints.records import forget_file
from leman_executor.jobs.checkpoint_migration import migrate_checkpoints
from leman_executor.jobs.compaction_records import store_traced
from leman_executor.jobs.ports import Comparison
from leman_executor.jobs.unchanged_inputs import compare_inputs
from leman_executor.worker.partial_file import write_partial

_log = structlog.get_logger(__name__)


class LanceCheckpointMaintenance:
    """The `leman_executor.jobs.ports.CheckpointMaintenance` of checkpoints in Lance files."""

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool

    async def migrate(self, plan: Plan, stop: threading.Event) -> int:
        """See the port."""
        return await self._pool.run(migrate_checkpoints, _store(plan.header.uri), plan, stop)

    async def save_traced(self, plan: Plan) -> None:
        """See the port."""
        await self._pool.run(store_traced, _store(plan.header.uri), plan)

    async def compare(self, plan: Plan, stop: threading.Event) -> Comparison:
        """See the port."""

        def compared() -> Comparison:
            store = _store(plan.header.uri)
            found = compare_inputs(store, plan, stop)
            store_traced(store, plan, found.files)
            return found

        return await self._pool.run(compared)

    async def write_partial(
        self, context: WorkContext, task: FragmentTask, checkpoints: Sequence[CheckpointRef], stop: threading.Event
    ) -> StagedFile | None:
        """See the port."""
        return await self._pool.run(write_partial, context, task, checkpoints, _store(context.uri), stop)

    async def forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        """See the port."""
        await self._pool.run(forget_file, _store(uri), task.checkpoint_prefix, task.fragment_id, file)

    async def remove_leftovers(self, uri: str) -> None:
        """See the port."""
        try:
            await self._pool.run(remove_leftovers, uri)
        except (LemanError, OSError) as error:
            _log.warning("what a job left of a table that is gone is still there", uri=uri, error=str(error))


def _store(uri: str) -> LanceCheckpointStore:
    return LanceCheckpointStore(checkpoint_root(uri))
