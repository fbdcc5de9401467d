"""Jobs that nobody has: looked for without being asked, so that a dead executor's jobs go on although nobody calls.

The leases say which jobs are open and which of them nobody holds. What they forgot, as Redis was emptied, is in the
histories of registered databases; other databases are looked into when somebody asks for one of their jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from core.database_roots import DatabaseRoots
from core.domain.database import Registrations
from core.errors import LemanError
from executor.coordination.leases import JobLeases

_log = structlog.get_logger(__name__)

#: Seconds between two looks into the histories of registered databases.
_HISTORY_SECONDS = 60.0
#: Seconds for which a database is left alone that could not be read.
_REST_SECONDS = 30.0


class TakesOver(Protocol):
    """What takes jobs over."""

    async def take_over_abandoned(self, path: str, job_ids: Iterable[str]) -> None:
        """Take over jobs of a database that nobody has."""
        ...

    async def left_in(self, path: str) -> list[str]:
        """Return the ids of a database's open jobs that are not this executor's."""
        ...


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations."""
        ...


class AbandonedJobs:
    """The search of one executor, for one event loop.

    Args:
        registry: None: no database is registered.
        roots: where databases may lie: others are another executor's business.
        clock: returns seconds.
    """

    def __init__(
        self,
        takeovers: TakesOver,
        leases: JobLeases,
        registry: Registry | None,
        roots: DatabaseRoots,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._takeovers = takeovers
        self._leases = leases
        self._registry = registry
        self._roots = roots
        self._clock = clock
        self._seen: set[str] = set()
        self._left: dict[str, str] = {}
        self._histories_at = float("-inf")
        self._rests: dict[str, float] = {}

    async def follow(self, seconds: float) -> None:
        """Look every so many seconds, until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - the next look may find what this one did not
                _log.exception("abandoned jobs are not looked for")
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Take over the jobs that nobody had in this look and in the one before.

        Two looks, as an executor that is late with its lease takes it again when it finds that out.
        """
        if self._clock() - self._histories_at >= _HISTORY_SECONDS:
            self._histories_at = self._clock()
            self._left = await self._left_in_histories()
        noted = await self._leases.open_jobs()
        if noted is None:  # then nobody can tell whether an executor is dead
            self._seen.clear()
            return
        candidates = self._left | noted
        free = await self._leases.without_holder(candidates)
        if free is None:
            self._seen.clear()
            return
        for place, job_ids in _by_place(candidates, free & self._seen).items():
            await self._take_over(place, job_ids)
        self._seen = free

    async def _take_over(self, place: str, job_ids: list[str]) -> None:
        if self._is_at_rest(place):
            return
        try:
            self._roots.check(place)
            await self._takeovers.take_over_abandoned(place, job_ids)
        except LemanError as error:
            _log.warning(
                "jobs that nobody has are not taken over", database=place, reason=error.reason, error=error.message
            )
            self._rests[place] = self._clock() + _REST_SECONDS
        for job_id in job_ids:
            self._left.pop(job_id, None)

    async def _left_in_histories(self) -> dict[str, str]:
        """Return the open jobs of registered databases that other executors have or had, with their databases."""
        if self._registry is None:
            return {}
        found: dict[str, str] = {}
        try:
            known = await asyncio.to_thread(self._registry.read)
        except LemanError as error:
            _log.warning("the registry of databases cannot be read", reason=error.reason, error=error.message)
            return {}
        for root in sorted({database.root for database in known.by_name.values()}):
            if self._is_at_rest(root):
                continue
            try:
                self._roots.check(root)
                found |= dict.fromkeys(await self._takeovers.left_in(root), root)
            except LemanError as error:
                _log.warning(
                    "jobs of a database cannot be read", database=root, reason=error.reason, error=error.message
                )
                self._rests[root] = self._clock() + _REST_SECONDS
        return found

    def _is_at_rest(self, place: str) -> bool:
        return self._clock() < self._rests.get(place, float("-inf"))


def _by_place(jobs: dict[str, str], wanted: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job_id in sorted(wanted):
        found[jobs[job_id]].append(job_id)
    return found
