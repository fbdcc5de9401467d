"""The gate of one table: commits pass it together, the removal of the table's files passes it alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Gate:
    """A gate for many or for one, on one event loop; who wants to be alone goes before those that come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._turn = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Enter with others, as soon as nobody is alone inside."""
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
        """Enter alone, as soon as all others have left."""
        async with self._turn:
            await self._empty.wait()
            yield
