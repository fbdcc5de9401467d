"""Jobs that nobody has: looked for without being asked, so that a dead executor's jobs go on although nobody calls.

The leases say which jobs are open and which of them nobody holds. What they forgot, as Redis was emptied, is in the
histories of registered databases; other databases are looked into when somebody asks for one of their jobs.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import structlog

from leman_core.model.database import Registrations
from leman_core.model.errors import LemanError
from leman_core.storage.database_roots import DatabaseRoots
from leman_executor.coordination.leases import JobLeases

_log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Seconds between two looks into the histories of registered databases.
_HISTORY_SECONDS = 60.0
#: Seconds for which a database is left alone that could not be read.
_REST_SECONDS = 120.0
#: Seconds that one database may take: others wait for it.
_PLACE_SECONDS = 20.0


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
        self._rests: dict[str, float] = {}

    async def follow(self, seconds: float) -> None:
        """Look every so many seconds, and once a minute into histories, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.look_into_histories, _HISTORY_SECONDS))
            group.create_task(self._again_and_again(self.look, seconds))

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await look()
            except Exception:  # noqa: BLE001 - the next look may find what this one did not
                _log.exception("abandoned jobs are not looked for")
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Take over the jobs that nobody had in this look and in the one before.

        Two looks, as an executor that is late with its lease takes it again when it finds that out.
        """
        noted = await self._leases.open_jobs()
        candidates = self._left | (noted or {})
        free = None if noted is None else await self._leases.without_holder(candidates)
        if free is None:  # then nobody can tell whether an executor is dead
            self._seen.clear()
            return
        abandoned, self._seen = _by_place(candidates, free & self._seen), free
        await asyncio.gather(*(self._take_over(place, job_ids) for place, job_ids in abandoned.items()))

    async def look_into_histories(self) -> None:
        """Find open jobs of registered databases that other executors have or had: Redis may have forgotten them."""
        if self._registry is None:
            return
        try:
            known = await asyncio.to_thread(self._registry.read)
        except LemanError as error:
            _log.warning("the registry of databases cannot be read", reason=error.reason, error=error.message)
            return
        found: dict[str, str] = {}
        for root in sorted({database.root for database in known.by_name.values()}):
            left = await self._of_place(root, functools.partial(self._takeovers.left_in, root))
            found |= dict.fromkeys(left or (), root)
        self._left = found

    async def _take_over(self, place: str, job_ids: list[str]) -> None:
        await self._of_place(place, functools.partial(self._takeovers.take_over_abandoned, place, job_ids))
        for job_id in job_ids:
            self._left.pop(job_id, None)

    async def _of_place(self, place: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do what is about one database; where that fails or takes long, it is left alone for a while."""
        if self._is_at_rest(place):
            return None
        try:
            self._roots.check(place)
            async with asyncio.timeout(_PLACE_SECONDS):
                return await work()
        except (LemanError, TimeoutError) as error:
            _log.warning("jobs of a database are not looked for", database=place, error=str(error) or "it takes long")
        except Exception:  # noqa: BLE001 - others are looked at all the same
            _log.exception("jobs of a database are not looked for", database=place)
        self._rests[place] = self._clock() + _REST_SECONDS
        return None

    def _is_at_rest(self, place: str) -> bool:
        return self._clock() < self._rests.get(place, float("-inf"))


def _by_place(jobs: dict[str, str], wanted: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for job_id in sorted(wanted):
        found[jobs[job_id]].append(job_id)
    return found
