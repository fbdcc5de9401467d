"""The memory of requests: the same request again gets the same answer, also while the first is being worked on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from leman_coordinator.requests import CommitResult
from leman_core.server.request_digest import check_body, same_but_for_rows

Key = tuple[str, str]


class RequestMemory:
    """The last requests of one event loop, by table and request id: those of about `capacity` fragments.

    A request that is no longer here, or that came before a restart, is answered from the table: a commit that
    was made is found there. This memory keeps answers stable; exactly-once does not rest on it.

    An answer is one about a table: it is forgotten when the table goes from its place.

    Args:
        holds: says whether the table that an answer is about is still there. It is asked before an answer is given
            again, as others may have dropped the table, or made another one of its name.
    """

    def __init__(self, capacity: int, holds: Callable[[str, CommitResult], Awaitable[bool]] | None = None) -> None:
        self._capacity = capacity
        self._holds = holds
        self._running: dict[Key, tuple[str, asyncio.Task[CommitResult]]] = {}
        self._done: OrderedDict[Key, tuple[str, CommitResult]] = OrderedDict()
        self._size = 0

    async def once(self, key: Key, body: str, work: Callable[[], Coroutine[Any, Any, CommitResult]]) -> CommitResult:
        """Run `work` once for a key and return its result; it goes on when its callers are cancelled.

        An error of `work` is raised to all that wait for it, then forgotten: the request may be sent again. Where other
        rows came under the key and are in work, it waits until it is known what became of them.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – another body came under this key.
        """
        while True:
            answered = await self.known(key, body)
            if answered is not None:
                return answered[1]
            if key not in self._running:  # no await since nothing was found: nobody can have begun in between
                task = asyncio.create_task(work())
                self._running[key] = (body, task)
                task.add_done_callback(lambda ended: self._settle(key, ended))
            known, task = self._running[key]
            if known == body or not same_but_for_rows(known, body):
                check_body(key[1], known, body)
                return await asyncio.shield(task)
            await asyncio.wait([task])

    async def known(self, key: Key, body: str) -> tuple[str, CommitResult] | None:
        """Return the body and the result of a request that was answered, as far as it is remembered.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – another body came under this key.
        """
        kept = await self._kept(key)
        if kept is not None:
            check_body(key[1], kept[0], body)
        return kept

    async def ended(self, key: Key) -> CommitResult | None:
        """Wait for a request if it is in work, and return its result; None: it failed or is not remembered."""
        if key in self._running:
            await asyncio.wait([self._running[key][1]])
        kept = await self._kept(key)
        return kept[1] if kept is not None else None

    def forget(self, uri: str) -> None:
        """Forget the answers about the table at a place, once it is gone from there."""
        for key in [key for key, (_, result) in self._done.items() if result.is_about(uri, key[0])]:
            self._drop(key)

    async def settled(self) -> None:
        """Wait until nothing is being worked on."""
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])

    async def _kept(self, key: Key) -> tuple[str, CommitResult] | None:
        while (kept := self._done.get(key)) is not None:
            if self._holds is None or await self._holds(key[0], kept[1]):
                if key in self._done:
                    self._done.move_to_end(key)
                return kept
            if self._done.get(key) is kept:
                self._drop(key)
        return None

    def _drop(self, key: Key) -> None:
        _, forgotten = self._done.pop(key)
        self._size -= _size(forgotten)

    def _settle(self, key: Key, task: asyncio.Task[CommitResult]) -> None:
        body, _ = self._running.pop(key)
        if task.cancelled() or task.exception() is not None:
            return
        self._done[key] = (body, task.result())
        self._size += _size(task.result())
        while self._size > self._capacity and len(self._done) > 1:
            self._drop(next(iter(self._done)))


def _size(result: CommitResult) -> int:
    return max(1, len(result.outcomes))
