"""Record batches as the bytes of an Arrow IPC stream, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: Bytes of a piece at the most.
PIECE_BYTES = 1 << 20


class Sink:
    """A file for pyarrow that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: object) -> None:
        self._parts.append(bytes(memoryview(data)))  # type: ignore[arg-type]

    def flush(self) -> None:
        """Do nothing: what is written is there."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        """Return what was written since, and forget it."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the bytes of an Arrow IPC stream of the batches, at most `most` at a time.

    One batch and its bytes are held, and no more.
    """
    sink = Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
        yield from _cut(sink.taken(), most)
        for batch in batches:
            writer.write_batch(batch)
            yield from _cut(sink.taken(), most)
    yield from _cut(sink.taken(), most)


def _cut(content: bytes, most: int) -> Iterator[bytes]:
    for at in range(0, len(content), most):
        yield content[at : at + most]
