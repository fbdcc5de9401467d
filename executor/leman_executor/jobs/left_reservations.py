"""Reservations that a job's workers leave behind: other jobs wait for a fragment until its file is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from leman_core.model.plan import FragmentTask
from leman_core.model.work import WorkContext, scope_of
from leman_executor.jobs.ports import ReservationKeeping


class LeftReservations:
    """The reservations that are left of one plan.

    Only a job with a filter leaves any: a job with another filter cannot use its file before the commit.
    """

    def __init__(self, keeping: ReservationKeeping, context: WorkContext) -> None:
        self._keeping = keeping
        self._context = context
        self._scopes: dict[int, str] = {}

    def note_staged(self, task: FragmentTask) -> None:
        """Keep the reservation of a fragment whose file is complete and waits for its commit."""
        if self._context.where:
            self._scopes[task.fragment_id] = scope_of(task)

    async def keep_until(self, done: asyncio.Future[None]) -> None:
        """Renew the reservations, three times in a lifetime, until `done`."""
        while not (await asyncio.wait((done,), timeout=self._context.reservation_ttl / 3))[0]:
            if self._scopes:
                await self._keeping.keep(self._context.holder, list(self._scopes.values()))

    async def give_back(self, fragment_ids: Collection[int]) -> None:
        """Give back the reservations of fragments whose commit was answered; jobs that wait for them plan again."""
        await self.give_back_scopes([self._scopes.pop(i) for i in fragment_ids if i in self._scopes])

    async def give_back_scopes(self, scopes: Sequence[str]) -> None:
        """Give back what is reserved in scopes that no worker has any more, such as those of workers that died."""
        if scopes:
            await self._keeping.release(self._context.holder, scopes)

    async def give_all_back(self, others: Sequence[str]) -> None:
        """Give back all reservations as the job ends early, with `others` that its workers may have made."""
        await self._keeping.release(self._context.holder, [*others, *self._scopes.values()])
