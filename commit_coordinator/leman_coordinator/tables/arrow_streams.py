"""Record batches as Arrow IPC streams and Flight messages, and the streams that callers send.

Each buffer of a compressed batch begins with its decompressed size. Arrow allocates that much without a limit, so a few
kilobytes may become gigabytes. `Decompressed` checks these sizes before Arrow does. Flight messages (`FlightData`) are
built and parsed by hand, because protobuf would copy each batch again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from leman._format.value_casts import check_utf8
from leman_core.model.service_errors import InvalidArgument, LemanError

#: The maximum size of a piece of a stream, in bytes.
PIECE_BYTES = 1 << 20
#: Fields of the flatbuffers tables `Message`, `DictionaryBatch` and `RecordBatch`, by Arrow's format/Message.fbs.
_KIND, _HEADER, _BODY_LENGTH, _DATA, _BUFFERS, _COMPRESSION = 1, 2, 3, 1, 2, 3
#: `MessageHeader.DictionaryBatch` and `MessageHeader.RecordBatch`.
_DICTIONARY, _RECORD_BATCH = 2, 3
_WORD, _LONG, _BUFFER_BYTES = 4, 8, 16
#: Message metadata with which Arrow 0.17 marked a compressed batch. Arrow still reads it.
_OLD_COMPRESSION = b"ARROW:experimental_compression"


class Sink:
    """A file object for pyarrow that buffers the written bytes until `taken` returns them."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: object) -> None:
        self._parts.append(bytes(memoryview(data)))  # type: ignore[arg-type]

    def flush(self) -> None:
        """Do nothing, as there is no other buffer."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def stream_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the bytes of an Arrow IPC stream of the batches, in pieces of at most `most` bytes.

    Only one batch and its bytes are in memory.
    """
    sink = Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
        yield from _cut(sink.taken(), most)
        for batch in batches:
            writer.write_batch(batch)
            yield from _cut(sink.taken(), most)
    yield from _cut(sink.taken(), most)


def is_compressed(stream: bytes) -> bool:
    """Return whether any batch of an Arrow IPC stream is compressed, without decompressing any.

    Raises:
        pa.ArrowException, OSError, EOFError: the bytes are not such a stream.
    """
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    return any(_compressed_batch(bytes(message.metadata)) for message in messages)


def body_bytes(metadata: bytes) -> int:
    """Return the length of a message's body from its metadata."""
    message = _table(metadata, 0)
    length = _field(metadata, message, _BODY_LENGTH)
    return int.from_bytes(metadata[length : length + _LONG], "little") if length else 0


def compressed_buffers(metadata: bytes) -> list[int]:
    """Return the offsets, in its body, of a compressed batch's non-empty buffers. Return [] for other messages."""
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
    """Return the offset of the batch table in the metadata of a compressed batch, or 0 for other messages."""
    message = _table(metadata, 0)
    kind = _field(metadata, message, _KIND)
    header = _table(metadata, _field(metadata, message, _HEADER))
    if kind and metadata[kind : kind + 1] == bytes([_DICTIONARY]):
        header = _table(metadata, _field(metadata, header, _DATA))
    elif not kind or metadata[kind : kind + 1] != bytes([_RECORD_BATCH]):
        return 0
    return header if _field(metadata, header, _COMPRESSION) or _OLD_COMPRESSION in metadata else 0


def _table(content: bytes, at: int) -> int:
    """Return the offset of the table to which a reference points."""
    return at + int.from_bytes(content[at : at + 4], "little")


def _field(content: bytes, table: int, number: int) -> int:
    """Return the offset of a table's field, or 0 if the field is absent."""
    known = table - int.from_bytes(content[table : table + 4], "little", signed=True)
    slot = 4 + 2 * number
    if slot >= int.from_bytes(content[known : known + 2], "little"):
        return 0
    offset = int.from_bytes(content[known + slot : known + slot + 2], "little")
    return table + offset if offset else 0


def _cut(content: bytes, most: int) -> Iterator[bytes]:
    for at in range(0, len(content), most):
        yield content[at : at + most]


_SIZE_WORD, _LENGTH_BYTES = 4, 8
_CONTINUATION = b"\xff" * _SIZE_WORD


class Decompressed:
    """Follows an Arrow IPC stream as it is read, and reports the decompressed sizes of its compressed batches.

    A message consists of a mark, the length of the metadata, the metadata, and a body whose length is in the metadata.
    """

    def __init__(self) -> None:
        self._left = _SIZE_WORD
        self._then: Callable[[bytes], int] | None = self._mark
        self._part = b""
        self._buffers: list[int] = []

    def took(self, data: bytes) -> int:
        """Add the next bytes. Return the decompressed size of the largest compressed batch that ends in them."""
        largest = at = 0
        while at < len(data) or not self._left:
            step = min(self._left, len(data) - at)
            taken = data if step == len(data) else data[at : at + step]
            at += step
            self._left -= step
            if self._then is not None:
                self._part = self._part + taken if self._part else taken  # Arrow reads whole parts
            if not self._left:
                part, self._part = self._part, b""
                largest = max(
                    largest, self._then(part) if self._then is not None else self._next(_SIZE_WORD, self._mark)
                )
        return largest

    def _next(self, size: int, then: Callable[[bytes], int] | None) -> int:
        self._left, self._then = size, then
        return 0

    def _mark(self, word: bytes) -> int:
        return (
            self._next(_SIZE_WORD, self._length) if word == _CONTINUATION else self._length(word)
        )  # older writers write none

    def _length(self, word: bytes) -> int:
        size = int.from_bytes(word, "little")
        return self._next(size, self._metadata) if size else self._next(_SIZE_WORD, self._mark)

    def _metadata(self, content: bytes) -> int:
        body = body_bytes(content)
        self._buffers = compressed_buffers(content)
        return self._next(body, self._body if self._buffers else None)

    def _body(self, body: bytes) -> int:
        self._next(_SIZE_WORD, self._mark)
        lengths = (int.from_bytes(body[at : at + _LENGTH_BYTES], "little", signed=True) for at in self._buffers)
        return sum(max(0, length) for length in lengths)  # −1 marks a buffer that is not compressed


#: The end of an Arrow IPC stream.
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FRAME_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNED = 8
#: Fields of FlightData, all of them bytes.
DESCRIPTOR, HEADER, APP_METADATA, BODY = 1, 2, 3, 1000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Part:
    """One FlightData. Its fields are slices of the received message, not copies."""

    descriptor: memoryview | None
    header: memoryview
    body: memoryview

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the message as the next bytes of an Arrow IPC stream, or nothing if it has no batch."""
        if self.header:
            padding = -len(self.header) % _ALIGNED
            size = (len(self.header) + padding).to_bytes(4, "little")
            yield b"".join((_FRAME_CONTINUATION, size, self.header, bytes(padding)))
        if self.body:
            yield self.body


def part_of(message: bytes) -> Part:
    """Parse a FlightData.

    Raises:
        InvalidArgument: BAD_MESSAGE.
    """
    found = {DESCRIPTOR: None, HEADER: memoryview(b""), BODY: memoryview(b"")}
    try:
        for number, value in _fields(memoryview(message)):
            if number in found:
                found[number] = value
    except (IndexError, ValueError):
        raise InvalidArgument("BAD_MESSAGE", "the message is not an arrow.flight.protocol.FlightData") from None
    return Part(found[DESCRIPTOR], found[HEADER] or memoryview(b""), found[BODY] or memoryview(b""))


def flight_messages(schema: pa.Schema, windows: Iterable[list[pa.RecordBatch]]) -> Iterator[list[bytes]]:
    """Yield the messages of a stream: one for the schema, then those of each window."""
    yield [_framed(pa.py_buffer(schema.serialize()))]
    encoded = _Dictionaries(schema).messages if any(_has_dictionary(field.type) for field in schema) else _plain
    for window in windows:
        yield [message for batch in window for message in encoded(batch)]


def schema_in(part: Part) -> bytes:
    """Return the Arrow IPC schema message that begins a stream, without checking its content."""
    return b"".join(part.pieces())


def _plain(batch: pa.RecordBatch) -> Iterator[bytes]:
    yield _framed(batch.serialize())


class _Dictionaries:
    """Converts batches to messages. Messages with changed dictionaries precede the batch that uses them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def messages(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        self._writer.write_batch(batch)
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(self._sink.taken())):
            if message.type != "schema":  # the schema was sent already
                yield _message(memoryview(message.metadata), memoryview(message.body))


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    inner = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return bool(pa.types.is_dictionary(kind)) or any(_has_dictionary(kind.field(i).type) for i in inner)


def _framed(encapsulated: pa.Buffer) -> bytes:
    """Return the Flight message for an encapsulated Arrow IPC message, which has a mark, length, header and body."""
    content = memoryview(encapsulated)
    end = 8 + int.from_bytes(content[4:8], "little")
    return _message(content[8:end], content[end:])


def _message(header: memoryview, body: memoryview) -> bytes:
    parts: list[bytes | memoryview] = [_tag(HEADER), _varint(len(header)), header]
    if body.nbytes:
        parts += [_tag(BODY), _varint(len(body)), body]
    return b"".join(parts)


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """Yield the number of each field with its bytes, or None for an integer field."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        size, at = _size(message, at, tag & 7)
        if at + size > len(message):
            raise ValueError("it ends within a field")
        yield tag >> 3, message[at : at + size] if tag & 7 == _BYTES else None
        at += size


def _size(message: memoryview, at: int, kind: int) -> tuple[int, int]:
    """Return the length of a field's value, and its offset."""
    if kind == _BYTES:
        return _number(message, at)
    if kind == _VARINT:
        return _number(message, at)[1] - at, at
    return {_FIXED64: 8, _FIXED32: 4}.get(kind, len(message) + 1), at


def _number(message: memoryview, at: int) -> tuple[int, int]:
    found = 0
    for i in range(_LONGEST_VARINT):
        byte = message[at + i]
        found |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return found, at + i + 1
    raise ValueError("no number is so long")


#: The maximum number of bytes that wait to be read, in addition to one message.
_HELD_BYTES = 4 << 20
#: The maximum size of a record batch, or of a dictionary, in bytes.
MAX_BATCH_BYTES = 256 << 20


class Incoming:
    """A file for pyarrow that reads bytes from an event loop, through a bounded buffer.

    One event loop writes, and one thread reads.
    """

    closed = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._changed = threading.Condition()
        self._parts: deque[memoryview] = deque()
        self._held = 0
        self._ended = False
        self._error: LemanError | None = None
        self._last = b""
        self._decompressed = Decompressed()

    # ----------------------------------------------------------------- for the event loop

    async def put(self, data: bytes | memoryview) -> None:
        """Add bytes for the reader, once the buffer has room."""
        while self._held >= _HELD_BYTES:
            self._room.clear()
            await self._room.wait()
        with self._changed:
            self._parts.append(memoryview(data))
            self._held += len(data)
            self._changed.notify()

    def end(self, error: LemanError | None = None) -> None:
        """End the stream. With an error, the reader raises it."""
        with self._changed:
            self._ended, self._error = True, self._error or error
            self._changed.notify()

    # ----------------------------------------------------------------------- for the thread

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or fewer at the end.

        Raises:
            InvalidArgument: BATCH_TOO_LARGE.
            LemanError: the error passed to `end`.
        """
        _check_size(size)
        parts: list[memoryview] = []
        while size:
            part = self._next()
            if not part:
                break
            parts.append(part[:size] if size > 0 else part)
            if len(part) > len(parts[-1]):
                self._put_back(part[len(parts[-1]) :])
            size -= len(parts[-1])
        found = b"".join(parts)
        _check_size(self._decompressed.took(found), "decompressed")
        self._last = (self._last + found[-len(END) :])[-len(END) :]
        return found

    def close(self) -> None:
        """Mark the file as closed. The writer is notified only when its reader ends."""
        self.closed = True

    def check_ended(self) -> None:
        """Check that the stream has its end mark, which is missing if its sender was interrupted.

        Raises:
            InvalidArgument: BAD_STREAM.
            LemanError: the error passed to `end`.
        """
        is_whole = self._last == END
        if self._next() or not is_whole:
            what = "continues after its end" if is_whole else "ends before its end mark: was its writer closed?"
            raise bad_stream(what)

    def _next(self) -> memoryview:
        with self._changed:
            while not self._parts and not self._ended:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if not self._parts:
                return memoryview(b"")
            part = self._parts.popleft()
            self._held -= len(part)
        self._tell()
        return part or self._next()

    def _put_back(self, part: memoryview) -> None:
        with self._changed:
            self._parts.appendleft(part)
            self._held += len(part)

    def _tell(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.set)


def read_batches(incoming: Incoming) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream and an iterator that waits for its batches and validates them fully.

    Raises:
        InvalidArgument: BAD_STREAM – the bytes are not such a stream; BATCH_TOO_LARGE.
        LemanError: the error passed to `Incoming.end`.
    """
    try:
        reader = pa.ipc.open_stream(incoming)
        check_utf8(reader.schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, InvalidArgument) as error:
        message = (
            "The bytes are not an Arrow IPC stream, which begins with a schema: write them with Arrow's stream writer, "
            f"not as an Arrow file, Parquet or JSON. Arrow says: {error}"
        )
        raise InvalidArgument("BAD_STREAM", message, field="arrow_ipc") from None
    return reader.schema, _checked(reader, incoming)


def _check_size(size: int, how: str = "") -> None:
    if size > MAX_BATCH_BYTES:
        has = f"{size} bytes {how}".rstrip()
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"A record batch has {has}, and at most {MAX_BATCH_BYTES} are accepted: send smaller ones",
            field="arrow_ipc",
        )


def bad_stream(what: str) -> InvalidArgument:
    """Return the error (BAD_STREAM) for bytes that are not an Arrow IPC stream."""
    return InvalidArgument("BAD_STREAM", f"The Arrow IPC stream {what}", field="arrow_ipc")


def _checked(reader: pa.RecordBatchReader, incoming: Incoming) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
            batch.validate(full=True)
        except StopIteration:
            break
        except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError) as error:
            raise bad_stream(f"cannot be read: {error}") from None
        yield batch
    incoming.check_ended()
