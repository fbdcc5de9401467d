"""Several pieces of asynchronous work that stand and fall together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def all_or_first(*work: Awaitable[None]) -> None:
    """Runs all to the end; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
