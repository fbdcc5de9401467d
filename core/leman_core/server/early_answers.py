"""Calls that are answered before their caller has sent all: what still comes is read for a while.

A client of gRPC that writes while the call ends may take the answer for a broken connection: gRPC's Python client says
"Internal error from Core" then, with the code INTERNAL, and a service that passes the call on is such a client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

#: Seconds that an answer waits for the rest.
_PATIENCE = 1.0


async def hear_out(requests: AsyncIterator[Any]) -> None:
    """Read what else is sent, and forget it: to its end, or for a second. Raises no error."""
    with contextlib.suppress(Exception):  # the second is over; or a read was given up before, and gRPC allows no other
        async with asyncio.timeout(_PATIENCE):
            async for _ in requests:
                pass
