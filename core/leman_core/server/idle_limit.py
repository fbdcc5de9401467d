"""Streams of requests that have to go on: one of which nothing comes any more is ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

from leman_core.model.errors import Aborted

_Piece = TypeVar("_Piece")


async def arriving(pieces: AsyncIterator[_Piece], idle_seconds: float, what: str) -> AsyncGenerator[_Piece, None]:
    """Yield the pieces of an upload as they come.

    Args:
        pieces: What the caller sends.
        idle_seconds: The longest wait for a piece.
        what: What the caller has to send again, such as `the rows`.

    Raises:
        Aborted: UPLOAD_STALLED – nothing came for so long.
    """
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise Aborted(
                "UPLOAD_STALLED", f"Nothing was sent for {idle_seconds:g} seconds: send {what} again"
            ) from None
        if piece is None:
            return
        yield piece
