"""Calls that change something run to their end, even where their callers go away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from leman_core.model.errors import ResourceExhausted
from leman_core.server.activity import Activity

_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)


class Outliving:
    """Tasks that go on without their callers.

    gRPC cancels a handler when its caller hangs up or its deadline passes, at whichever `await` it stands. What only
    reads may end there; a change would be left half made. So changes run in tasks of their own.

    Args:
        most: so many of one method at once, those of callers that went away included.
        activity: counts them until they end.
    """

    def __init__(self, most: int, activity: Activity) -> None:
        self._most = most
        self._activity = activity
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._at_work: Counter[str] = Counter()

    async def run(self, method: str, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what the work returns or raises; cancelling the caller does not stop it.

        Raises:
            ResourceExhausted: TOO_MANY_CALLS.
        """
        if self._at_work[method] >= self._most:
            work.close()
            raise ResourceExhausted("TOO_MANY_CALLS", f"{self._most} calls of {method} are at work: try again later")
        task = asyncio.create_task(work)
        self._tasks[task] = method
        self._at_work[method] += 1
        self._activity.begin()
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                _log.info("a call goes on without its caller", method=method)
                task.add_done_callback(_say)
            raise

    async def stop(self) -> None:
        """End what is still at work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._at_work[self._tasks.pop(task)] -= 1
        self._activity.end()


def _say(task: asyncio.Task[Any]) -> None:
    """Log what a task raised whose answer is not waited for any more."""
    if not task.cancelled() and task.exception() is not None:
        _log.warning("a call whose caller had gone failed", error=str(task.exception()))
