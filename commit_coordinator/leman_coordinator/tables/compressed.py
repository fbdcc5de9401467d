"""How large compressed record batches become, told from their bytes before Arrow decompresses them. Pure.

Each buffer of a compressed batch begins with the number of bytes that it has decompressed. Arrow allocates as many,
without a bound, and a few kilobytes may become gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable

from leman_coordinator.tables import arrow_stream

_WORD, _LENGTH_BYTES = 4, 8
_CONTINUATION = b"\xff" * _WORD


class Decompressed:
    """Follows an Arrow IPC stream as it is read, and tells how large its compressed batches become.

    A message is a mark, a length, that many bytes of metadata, and a body of which the metadata tells the length.
    """

    def __init__(self) -> None:
        self._left = _WORD
        self._then: Callable[[bytes], int] | None = self._mark
        self._part = b""
        self._buffers: list[int] = []

    def took(self, data: bytes) -> int:
        """Take the next bytes; return the decompressed bytes of the largest compressed batch that ends in them."""
        largest = at = 0
        while at < len(data) or not self._left:
            step = min(self._left, len(data) - at)
            taken = data if step == len(data) else data[at : at + step]
            at += step
            self._left -= step
            if self._then is not None:
                self._part = self._part + taken if self._part else taken  # Arrow asks for whole parts
            if not self._left:
                part, self._part = self._part, b""
                largest = max(largest, self._then(part) if self._then is not None else self._next(_WORD, self._mark))
        return largest

    def _next(self, size: int, then: Callable[[bytes], int] | None) -> int:
        self._left, self._then = size, then
        return 0

    def _mark(self, word: bytes) -> int:
        return self._next(_WORD, self._length) if word == _CONTINUATION else self._length(word)  # none: older writers

    def _length(self, word: bytes) -> int:
        size = int.from_bytes(word, "little")
        return self._next(size, self._metadata) if size else self._next(_WORD, self._mark)

    def _metadata(self, content: bytes) -> int:
        body = arrow_stream.body_bytes(content)
        self._buffers = arrow_stream.compressed_buffers(content)
        return self._next(body, self._body if self._buffers else None)

    def _body(self, body: bytes) -> int:
        self._next(_WORD, self._mark)
        lengths = (int.from_bytes(body[at : at + _LENGTH_BYTES], "little", signed=True) for at in self._buffers)
        return sum(max(0, length) for length in lengths)  # −1: this buffer is not compressed
