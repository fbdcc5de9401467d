"""Whether a service is in use: what graceful stop waits for and what an idle embedded system ends by."""

from __future__ import annotations

import asyncio
import time


class Activity:
    """What counts the calls that run, health checks and reflection left out."""

    def __init__(self) -> None:
        self._running = 0
        self._last = time.monotonic()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def begin(self) -> None:
        """Note that a call has come in."""
        self._running += 1
        self._quiet.clear()

    def end(self) -> None:
        """Note that a call is over."""
        self._running -= 1
        self._last = time.monotonic()
        if not self._running:
            self._quiet.set()

    def touch(self) -> None:
        """Note that the service is at work on its own."""
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return seconds since the last call ended; 0 while one runs."""
        return 0.0 if self._running else time.monotonic() - self._last

    async def quiet(self) -> None:
        """Return as soon as no call runs."""
        await self._quiet.wait()
