"""Looks now and then whether tables were compacted, and records what became of their computed rows: the next job may
come after the history that tells was cleaned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from core.domain.plan import BackfillSpec, Plan
from core.errors import LemanError

_log = structlog.get_logger(__name__)

#: (database, table, column).
Column = tuple[str, str, str]


class Planner(Protocol):
    """Makes plans."""

    async def create_plan(self, spec: BackfillSpec) -> Plan: ...


class CompactionWatch:
    """`columns` are looked at; `latest_version(database, table)` tells whether that is worth a plan."""

    def __init__(
        self,
        planner: Planner,
        save_traced: Callable[[Plan], Awaitable[None]],
        columns: Callable[[], Iterable[Column]],
        latest_version: Callable[[str, str], Awaitable[int]],
    ) -> None:
        self._planner = planner
        self._save_traced = save_traced
        self._columns = columns
        self._latest_version = latest_version
        self._seen: dict[Column, int] = {}

    async def run(self, interval_seconds: float) -> None:
        """Looks every so many seconds, for ever."""
        while True:
            await asyncio.sleep(interval_seconds)
            await self.look()

    async def look(self) -> None:
        """Plans for those columns whose table has a new version, and records what the plans found out."""
        for column in sorted(self._columns()):
            try:
                await self._look_at(column)
            except LemanError as error:  # dropped, out of reach: a job of it would say so
                _log.info("not looked at for compactions", column=column, error=str(error))
            except Exception:  # noqa: BLE001 - one table is not to keep the others from being looked at
                _log.exception("not looked at for compactions", column=column)

    async def _look_at(self, column: Column) -> None:
        database, table, name = column
        version = await self._latest_version(database, table)
        if self._seen.get(column) == version:
            return
        plan = await self._planner.create_plan(BackfillSpec(database, table, name))
        if plan.traced:
            await self._save_traced(plan)
            _log.info("compaction recorded", table=table, version=version, files=len(plan.traced))
        self._seen[column] = version
