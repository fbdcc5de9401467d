"""Bytes on their way from a call to the thread that reads them, and the record batches in them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from leman_coordinator.tables.compressed import Decompressed
from leman_coordinator.tables.flight_data import END
from leman_core.functions.nested_types import check_text
from leman_core.model.errors import InvalidArgument, LemanError

#: Bytes that wait to be read, at the most (and one message).
_HELD_BYTES = 4 << 20
#: Bytes of a record batch, or of a dictionary, at the most.
MAX_BATCH_BYTES = 256 << 20


class Incoming:
    """A file for pyarrow whose bytes come from an event loop; what waits to be read is bounded.

    One loop puts, one thread reads.
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
        """Hand bytes on, as soon as there is room."""
        while self._held >= _HELD_BYTES:
            self._room.clear()
            await self._room.wait()
        with self._changed:
            self._parts.append(memoryview(data))
            self._held += len(data)
            self._changed.notify()

    def end(self, error: LemanError | None = None) -> None:
        """Say that nothing more comes; with an error, that it is all for nothing."""
        with self._changed:
            self._ended, self._error = True, self._error or error
            self._changed.notify()

    # ----------------------------------------------------------------------- for the thread

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end.

        Raises:
            InvalidArgument: BATCH_TOO_LARGE.
            LemanError: what `end` was told.
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
        """Do nothing: who puts is told by the end of its reader."""
        self.closed = True

    def check_ended(self) -> None:
        """Check that the stream said that it is at its end: a sender that was cut off does not.

        Raises:
            InvalidArgument: BAD_STREAM.
            LemanError: what `end` was told.
        """
        is_whole = self._last == END
        if self._next() or not is_whole:
            what = "goes on after its end" if is_whole else "ends before its end mark: was its writer closed?"
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


def batches(incoming: Incoming) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of an Arrow IPC stream, and its batches as they come; each is checked down to its last offset.

    Raises:
        InvalidArgument: BAD_STREAM – the bytes are no such stream; BATCH_TOO_LARGE.
        LemanError: what `Incoming.end` was told.
    """
    try:
        reader = pa.ipc.open_stream(incoming)
        check_text(reader.schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, InvalidArgument) as error:
        message = (
            "The bytes are no Arrow IPC stream, which begins with a schema: write them with Arrow's stream writer, "
            f"and not as an Arrow file, Parquet or JSON. Arrow says: {error}"
        )
        raise InvalidArgument("BAD_STREAM", message, field="arrow_ipc") from None
    return reader.schema, _checked(reader, incoming)


def _check_size(size: int, how: str = "") -> None:
    if size > MAX_BATCH_BYTES:
        has = f"{size} bytes {how}".rstrip()
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"A record batch has {has}, at most {MAX_BATCH_BYTES} are taken: send smaller ones",
            field="arrow_ipc",
        )


def bad_stream(what: str) -> InvalidArgument:
    """Return the error (BAD_STREAM) of bytes that are no Arrow IPC stream."""
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
