"""Record batches as the bytes of an Arrow IPC stream, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: Bytes of a piece at the most.
PIECE_BYTES = 1 << 20
#: Fields of the flatbuffers tables `Message`, `DictionaryBatch` and `RecordBatch`, by Arrow's format/Message.fbs.
_HEADER, _DATA, _COMPRESSION = 2, 1, 3


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


def is_compressed(stream: bytes) -> bool:
    """Tell whether any batch of an Arrow IPC stream is compressed; none is decompressed for that.

    Raises:
        pa.ArrowException, OSError, EOFError: the bytes are no such stream.
    """
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
        content = bytes(message.metadata)  # Arrow checked that its tables lie inside of it
        header = _table(content, _field(content, _table(content, 0), _HEADER))
        if message.type == "dictionary":
            header = _table(content, _field(content, header, _DATA))
        if message.type in {"dictionary", "record batch"} and _field(content, header, _COMPRESSION):
            return True
    return False


def _table(content: bytes, at: int) -> int:
    """Return where the table begins to which a place points."""
    return at + int.from_bytes(content[at : at + 4], "little")


def _field(content: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0: it has none."""
    known = table - int.from_bytes(content[table : table + 4], "little", signed=True)
    slot = 4 + 2 * number
    if slot >= int.from_bytes(content[known : known + 2], "little"):
        return 0
    offset = int.from_bytes(content[known + slot : known + slot + 2], "little")
    return table + offset if offset else 0


def _cut(content: bytes, most: int) -> Iterator[bytes]:
    for at in range(0, len(content), most):
        yield content[at : at + most]
