"""The compaction watch: it looks now and then whether tables were compacted, and records where computed rows are now.

The next job may come when the table's history, which tells, has been cleaned.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Protocol

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.plan import BackfillSpec
from leman_core.server.blocking import STORE, in_job_thread
from leman_core.storage.locations import store_of, table_uri
from leman_executor.jobs.ports import CheckpointMaintenance, Planner

_log = structlog.get_logger(__name__)

#: (database, table, column).
Column = tuple[str, str, str]


class KnownColumns(Protocol):
    """The list of known columns."""

    def columns(self) -> Iterable[Column]:
        """Return all computed columns that somebody asked for."""
        ...


class Tables(Protocol):
    """The versions of tables."""

    def latest_version(self, uri: str) -> int:
        """Return the latest version of a table; blocks."""
        ...


class CompactionWatch:
    """The watch over the columns that `known` has; it plans for a column when its table has a new version."""

    def __init__(
        self, planner: Planner, checkpoints: CheckpointMaintenance, known: KnownColumns, tables: Tables
    ) -> None:
        self._planner = planner
        self._checkpoints = checkpoints
        self._known = known
        self._tables = tables
        self._seen: dict[Column, int] = {}

    async def run(self, interval_seconds: float) -> None:
        """Look every so many seconds, for ever."""
        while True:
            await asyncio.sleep(interval_seconds)
            await self.look()

    async def look(self) -> None:
        """Plan for the columns whose table has a new version, and record what the plans found out."""
        for column in sorted(self._known.columns()):
            try:
                await self._look_at(column)
            except LemanError as error:  # dropped, out of reach: a job of it would say so
                _log.info("not looked at for compactions", column=column, error=str(error))
            except Exception:  # noqa: BLE001 - one table is not to keep the others from being looked at
                _log.exception("not looked at for compactions", column=column)

    async def _look_at(self, column: Column) -> None:
        database, table, name = column
        STORE.set(store_of(database))
        version = await in_job_thread(self._tables.latest_version, table_uri(database, table))
        if self._seen.get(column) == version:
            return
        plan = await self._planner.create_plan(BackfillSpec(database, table, name))
        if plan.traced:
            await self._checkpoints.save_traced(plan)
            _log.info("compaction recorded", table=table, version=version, files=len(plan.traced))
        if plan.compared:
            found = await self._checkpoints.compare(plan, threading.Event())
            _log.info("rewritten rows compared", table=table, version=version, files=len(found.files))
        self._seen[column] = version
