"""Many or one: commits of a table go on together, the removal of its files goes alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Gate:
    """For one event loop. Whoever wants to be alone goes before those that come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._turn = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Inside with others, while nobody is alone."""
        async with self._turn:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Inside alone, when all others have left."""
        async with self._turn:
            await self._empty.wait()
            yield
