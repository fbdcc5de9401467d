"""The memory of requests: the same request again gives the same job, also while the job is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from leman_core.model.job import Job
from leman_core.server.request_digest import check_body

_Key = tuple[str, str]


class JobRequests:
    """The jobs that are being made.

    Each is made in a task of its own: it is made as a whole or not at all, also where its callers go away.
    """

    def __init__(self) -> None:
        self._making: dict[_Key, tuple[str, asyncio.Task[Job]]] = {}
        self._tasks: set[asyncio.Task[Job]] = set()

    async def once(
        self,
        key: _Key,
        body: str,
        known: Callable[[], Job | None],
        make: Callable[[], Coroutine[Any, Any, Job]],
    ) -> Job:
        """Return the job of a request, made where there is none yet.

        Args:
            key: Database and request id; without an id every request is a new one.
            body: Digest of the request.
            known: Looks among the jobs that there are.
            make: Makes the job.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – the id was given with another body.
            LemanError: what `make` raises.
        """
        if not key[1]:
            return await asyncio.shield(self._apart(make()))
        if key in self._making:
            asked, task = self._making[key]
            check_body(key[1], asked, body)
            return await asyncio.shield(task)
        job = known()
        if job is not None:
            check_body(key[1], job.request_body, body)
            return job
        task = self._apart(make())
        self._making[key] = body, task
        task.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """End the making of jobs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _apart(self, work: Coroutine[Any, Any, Job]) -> asyncio.Task[Job]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
