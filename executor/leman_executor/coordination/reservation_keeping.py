"""Renews and gives back reservations from an event loop."""

from __future__ import annotations

from collections.abc import Sequence

from leman_core.model.ports import Reservations
from leman_core.server.blocking import BlockingPool


class PooledReservations:
    """Reservations whose calls run in a pool of threads; an `leman_executor.jobs.ports.ReservationKeeping`."""

    def __init__(self, reservations: Reservations, pool: BlockingPool) -> None:
        self._reservations = reservations
        self._pool = pool

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        """Renew what the holder has in the scopes."""
        await self._pool.run(self._reservations.renew, scopes, holder)

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        """Give back what the holder has in the scopes."""
        await self._pool.run(self._reservations.release_all, scopes, holder)
