"""Reservations that the workers of a job leave behind: other jobs wait for a fragment until its file is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from core.domain.plan import FragmentTask
from core.domain.work import WorkContext, scope_of
from executor.jobs.ports import ReservationKeeping


class LeftReservations:
    """Those of one plan. Only a job with a filter leaves any: another filter's job has no use for its file before."""

    def __init__(self, keeping: ReservationKeeping, context: WorkContext) -> None:
        self._keeping = keeping
        self._context = context
        self._scopes: dict[int, str] = {}

    def note_staged(self, task: FragmentTask) -> None:
        """A fragment's file is complete, and waits for its commit."""
        if self._context.where:
            self._scopes[task.fragment_id] = scope_of(task)

    async def keep_until(self, done: asyncio.Future[None]) -> None:
        """Renew them, three times in a lifetime, until `done`."""
        while not (await asyncio.wait((done,), timeout=self._context.lease_seconds / 3))[0]:
            if self._scopes:
                await self._keeping.keep(self._context.holder, list(self._scopes.values()))

    async def give_back(self, fragment_ids: Collection[int]) -> None:
        """There is an answer for these fragments: whoever waits for them plans again."""
        scopes = [self._scopes.pop(i) for i in fragment_ids if i in self._scopes]
        if scopes:
            await self._keeping.release(self._context.holder, scopes)

    async def give_all_back(self, others: Sequence[str]) -> None:
        """The job ends early: with them go `others`, which its workers may have reserved."""
        await self._keeping.release(self._context.holder, [*others, *self._scopes.values()])
