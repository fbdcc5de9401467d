"""Envelopes of Connect's streams: a byte of flags, four of length, a message."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from typing import Any

from leman_core.model.errors import InvalidArgument, Unimplemented
from leman_core.server.unreadable import too_large

_HEAD = struct.Struct(">BI")
_COMPRESSED, _LAST = 1, 2


def enclosed(message: bytes) -> bytes:
    """Return a message in its envelope."""
    return _HEAD.pack(0, len(message)) + message


def last_envelope(metadata: dict[str, list[str]], error: dict[str, Any] | None = None) -> bytes:
    """Return the envelope that ends a stream."""
    told = {"metadata": metadata} | ({"error": error} if error is not None else {})
    message = json.dumps(told, ensure_ascii=False).encode()
    return _HEAD.pack(_LAST, len(message)) + message


async def opened(chunks: AsyncIterator[bytes], largest: int) -> AsyncIterator[bytes]:
    """Yield the messages of a body.

    Raises:
        InvalidArgument: BAD_ENVELOPE.
        ResourceExhausted: MESSAGE_TOO_LARGE.
        Unimplemented: COMPRESSED.
    """
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(buffer)
            _check(flags, size, largest)
            if len(buffer) < _HEAD.size + size:
                break
            message = bytes(buffer[_HEAD.size : _HEAD.size + size])
            del buffer[: _HEAD.size + size]
            yield message
    if buffer:
        raise InvalidArgument("BAD_ENVELOPE", "the body ends in the middle of an envelope: send it to its end")


def _check(flags: int, size: int, largest: int) -> None:
    if flags & _COMPRESSED:
        raise Unimplemented("COMPRESSED", "compressed messages are not taken: send them as they are")
    if flags:
        raise InvalidArgument("BAD_ENVELOPE", f"an envelope of a request has the flags 0, not {flags}")
    if size > largest:
        raise too_large(size, largest)
