"""Record batches as the bytes of an Arrow IPC stream, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

#: Bytes of a piece at the most.
PIECE_BYTES = 1 << 20
#: Fields of the flatbuffers tables `Message`, `DictionaryBatch` and `RecordBatch`, by Arrow's format/Message.fbs.
_KIND, _HEADER, _BODY_LENGTH, _DATA, _BUFFERS, _COMPRESSION = 1, 2, 3, 1, 2, 3
#: `MessageHeader.DictionaryBatch` and `MessageHeader.RecordBatch`.
_DICTIONARY, _RECORD_BATCH = 2, 3
_WORD, _LONG, _BUFFER_BYTES = 4, 8, 16
#: Metadata of a message by which Arrow 0.17 said that its batch is compressed; Arrow still believes it.
_OLD_COMPRESSION = b"ARROW:experimental_compression"


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
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    return any(_compressed_batch(bytes(message.metadata)) for message in messages)


def body_bytes(metadata: bytes) -> int:
    """Return how many bytes the body of a message has, by its metadata."""
    message = _table(metadata, 0)
    length = _field(metadata, message, _BODY_LENGTH)
    return int.from_bytes(metadata[length : length + _LONG], "little") if length else 0


def compressed_buffers(metadata: bytes) -> list[int]:
    """Return where the buffers of a compressed batch begin in its body, those that have none left out; else nothing."""
    batch = _compressed_batch(metadata)
    field = _field(metadata, batch, _BUFFERS) if batch else 0
    if not field:
        return []
    vector = _table(metadata, field)
    first = vector + _WORD
    end = first + _BUFFER_BYTES * int.from_bytes(metadata[vector:first], "little")
    described = (metadata[at : at + _BUFFER_BYTES] for at in range(first, min(end, len(metadata)), _BUFFER_BYTES))
    return [int.from_bytes(each[:_LONG], "little") for each in described if any(each[_LONG:])]


def _compressed_batch(metadata: bytes) -> int:
    """Return where the table of a compressed batch is in the metadata of its message; 0: it is none."""
    message = _table(metadata, 0)
    kind = _field(metadata, message, _KIND)
    header = _table(metadata, _field(metadata, message, _HEADER))
    if kind and metadata[kind : kind + 1] == bytes([_DICTIONARY]):
        header = _table(metadata, _field(metadata, header, _DATA))
    elif not kind or metadata[kind : kind + 1] != bytes([_RECORD_BATCH]):
        return 0
    return header if _field(metadata, header, _COMPRESSION) or _OLD_COMPRESSION in metadata else 0


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
