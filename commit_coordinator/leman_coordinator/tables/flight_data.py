"""Record batches as messages of Arrow Flight (`FlightData`), and such messages as an Arrow IPC stream.

They are put together and taken apart by hand: protobuf would copy each batch once more in either direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from leman_coordinator.tables.arrow_stream import Sink
from leman_core.model.errors import InvalidArgument

#: How an Arrow IPC stream ends.
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNED = 8
#: Fields of FlightData, all of them bytes.
DESCRIPTOR, HEADER, APP_METADATA, BODY = 1, 2, 3, 1000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Part:
    """One FlightData; its fields are parts of the message that came, and are not copied."""

    descriptor: memoryview | None
    header: memoryview
    body: memoryview

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield it as the next bytes of an Arrow IPC stream; nothing where it has no batch."""
        if self.header:
            padding = -len(self.header) % _ALIGNED
            size = (len(self.header) + padding).to_bytes(4, "little")
            yield b"".join((_CONTINUATION, size, self.header, bytes(padding)))
        if self.body:
            yield self.body


def part_of(message: bytes) -> Part:
    """Return the parts of a FlightData.

    Raises:
        InvalidArgument: BAD_MESSAGE.
    """
    found = {DESCRIPTOR: None, HEADER: memoryview(b""), BODY: memoryview(b"")}
    try:
        for number, value in _fields(memoryview(message)):
            if number in found:
                found[number] = value
    except (IndexError, ValueError):
        raise InvalidArgument("BAD_MESSAGE", "this is no arrow.flight.protocol.FlightData") from None
    return Part(found[DESCRIPTOR], found[HEADER] or memoryview(b""), found[BODY] or memoryview(b""))


def messages(schema: pa.Schema, windows: Iterable[list[pa.RecordBatch]]) -> Iterator[list[bytes]]:
    """Yield messages: that of the schema, then those of each window."""
    yield [_framed(pa.py_buffer(schema.serialize()))]
    encoded = _Dictionaries(schema).messages if any(_has_dictionary(field.type) for field in schema) else _plain
    for window in windows:
        yield [message for batch in window for message in encoded(batch)]


def schema_in(part: Part) -> bytes:
    """Return the Arrow IPC schema message that a part begins a stream with; whether it is one is not looked at."""
    return b"".join(part.pieces())


def _plain(batch: pa.RecordBatch) -> Iterator[bytes]:
    yield _framed(batch.serialize())


class _Dictionaries:
    """What makes messages of batches whose dictionaries go before them: each once, and anew where it is another one."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def messages(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        self._writer.write_batch(batch)
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(self._sink.taken())):
            if message.type != "schema":  # it goes before all of them, and was sent
                yield _message(memoryview(message.metadata), memoryview(message.body))


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    inner = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return bool(pa.types.is_dictionary(kind)) or any(_has_dictionary(kind.field(i).type) for i in inner)


def _framed(encapsulated: pa.Buffer) -> bytes:
    """Return the message for an encapsulated one of Arrow IPC: mark, length, header, body."""
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
    """Yield the numbers of fields and their bytes; None for one that is a number."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        size, at = _size(message, at, tag & 7)
        if at + size > len(message):
            raise ValueError("it ends within a field")
        yield tag >> 3, message[at : at + size] if tag & 7 == _BYTES else None
        at += size


def _size(message: memoryview, at: int, kind: int) -> tuple[int, int]:
    """Return how many bytes a field's value has, and where it begins."""
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
