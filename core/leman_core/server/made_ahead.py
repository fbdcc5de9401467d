"""Messages of a stream that are made in a thread without waiting for their reader, within a bound for all streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from leman_core.model.errors import ResourceExhausted
from leman_core.server.blocking import BlockingPool

_Message = TypeVar("_Message", bound=Message)


class _Unread:
    """The messages of one stream that are made and not taken yet, as they are sent; None is the end."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[tuple[type[Message], bytes] | None] = asyncio.Queue()
        self.size = 0
        self.gone = threading.Event()

    def put(self, kind: type[Message], message: bytes) -> None:
        self.messages.put_nowait((kind, message))
        self.size += len(message)


class MadeAhead:
    """The streams of one service, for one event loop.

    What messages are made of may be large, and a reader may be slow or frozen. So all messages are made at once, which
    takes as long as it takes a thread of the pool, and only they wait for the reader, as bytes: objects take three
    times as much.

    Args:
        pool: Makes them.
        most_bytes: Where so much of all streams waits for readers, no further stream is begun.
    """

    def __init__(self, pool: BlockingPool, most_bytes: int) -> None:
        self._pool = pool
        self._most_bytes = most_bytes
        self._streams: set[_Unread] = set()

    @property
    def unread_bytes(self) -> int:
        """Return the size of all messages that wait."""
        return sum(stream.size for stream in self._streams)

    async def stream(self, make: Callable[[], Iterable[_Message]]) -> AsyncGenerator[_Message]:
        """Yield messages; closing the generator lets go of those that wait.

        Args:
            make: Makes them, in a thread.

        Raises:
            ResourceExhausted: QUEUE_FULL – too much waits for its readers.
            Exception: what `make` raises.
        """
        if self.unread_bytes >= self._most_bytes:
            text = f"{self.unread_bytes >> 20} MiB of answers wait for their readers: try again later"
            raise ResourceExhausted("QUEUE_FULL", text)
        unread = _Unread()
        self._streams.add(unread)
        loop = asyncio.get_running_loop()

        def work() -> None:
            for message in make():
                if unread.gone.is_set():
                    return
                loop.call_soon_threadsafe(unread.put, type(message), message.SerializeToString())

        making = asyncio.ensure_future(self._pool.run(work))
        making.add_done_callback(lambda _: unread.messages.put_nowait(None))
        try:
            while (item := await unread.messages.get()) is not None:
                kind, message = item
                yield kind.FromString(message)  # type: ignore[misc] # it is what `make` gave
                unread.size -= len(message)
            making.result()
        finally:
            unread.gone.set()
            self._streams.discard(unread)
            if not making.cancel() and not making.cancelled():
                making.exception()  # nobody else asks for it where the reader has gone
