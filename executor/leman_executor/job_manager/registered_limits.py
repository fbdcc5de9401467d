"""What registrations of databases say of their jobs: read now and then, and told to the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from leman_core.model.database import NO_LIMITS, DatabaseLimits, Registrations
from leman_core.model.errors import LemanError

_log = structlog.get_logger(__name__)


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations.

        Raises:
            LemanError: they cannot be read.
        """
        ...


class RegisteredLimits:
    """The limits of registered databases, by place, as they were read last; a database without any has none."""

    def __init__(self) -> None:
        self._by_place: Mapping[str, DatabaseLimits] = {}

    def of(self, database: str) -> DatabaseLimits:
        """Return the limits of the database at a place."""
        return self._by_place.get(database, NO_LIMITS)

    def running(self, database: str) -> int | None:
        """Return how many jobs of a database may run at once; None: it has no limit of its own."""
        return self.of(database).max_running_jobs

    def waiting(self, database: str) -> int | None:
        """Return how many jobs of a database may wait; None: it has no limit of its own."""
        return self.of(database).max_waiting_jobs

    def set(self, registrations: Registrations) -> bool:
        """Go by these registrations from now on; False: they say what was known."""
        found = {each.root: each.limits for each in registrations.by_name.values() if each.limits != NO_LIMITS}
        changed = found != self._by_place
        self._by_place = found
        return changed


async def follow(registry: Registry, limits: RegisteredLimits, seconds: float, changed: Callable[[], None]) -> None:
    """Read the registrations every so many seconds, until it is cancelled.

    Where they cannot be read, what is known holds.

    Args:
        changed: called when limits are others than before: jobs that waited for them may have their turn.
    """
    while True:
        try:
            if limits.set(await asyncio.to_thread(registry.read)):
                changed()
        except LemanError as error:
            _log.warning("limits of databases cannot be read", reason=error.reason, error=error.message)
        await asyncio.sleep(seconds)
