"""Calls while they run: activity, calls that outlive their callers, and streams that are drained, bounded or buffered.

Whether a service is in use: what graceful stop waits for and what an idle embedded system ends by.

Calls that change something run to their end, even where their callers go away.

Calls that are answered before their caller has sent all: what still comes is read for a while.

A client of gRPC that writes while the call ends may take the answer for a broken connection: gRPC's Python client says
"Internal error from Core" then, with the code INTERNAL, and a service that passes the call on is such a client.

Answers that are bytes already, made of parts that many answers share.

Streams of requests that have to go on: one of which nothing comes any more is ended.

Messages of a stream that are made in a thread without waiting for their reader, within a bound for all streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar, cast

import structlog
from google.protobuf.message import Message

from leman_core.model.service_errors import Aborted, ResourceExhausted
from leman_core.server.blocking import BlockingPool


class Activity:
    """What counts the calls that run, health checks and reflection left out."""

    def __init__(self) -> None:
        self._running = 0
        self._last = time.monotonic()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def begin(self) -> None:
        """Note that a call has come in."""
        self._running += 1
        self._quiet.clear()

    def end(self) -> None:
        """Note that a call is over."""
        self._running -= 1
        self._last = time.monotonic()
        if not self._running:
            self._quiet.set()

    def touch(self) -> None:
        """Note that the service is at work on its own."""
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return seconds since the last call ended; 0 while one runs."""
        return 0.0 if self._running else time.monotonic() - self._last

    async def quiet(self) -> None:
        """Return as soon as no call runs."""
        await self._quiet.wait()


_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)


class UninterruptedCalls:
    """Tasks that continue without their callers.

    gRPC cancels a handler when its caller hangs up or its deadline passes, at whichever `await` it stands. What only
    reads may end there; a change would be left half made. So changes run in tasks of their own.

    Args:
        most: so many of one method at once, those of callers that went away included.
        activity: counts them until they end.
    """

    def __init__(self, most: int, activity: Activity) -> None:
        self._most = most
        self._activity = activity
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._at_work: Counter[str] = Counter()

    async def run(self, method: str, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what the work returns or raises; cancelling the caller does not stop it.

        Raises:
            ResourceExhausted: TOO_MANY_CALLS.
        """
        if self._at_work[method] >= self._most:
            work.close()
            raise ResourceExhausted("TOO_MANY_CALLS", f"{self._most} calls of {method} are at work: try again later")
        task = asyncio.create_task(work)
        self._tasks[task] = method
        self._at_work[method] += 1
        self._activity.begin()
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                _log.info("a call continues without its caller", method=method)
                task.add_done_callback(_say)
            raise

    async def stop(self) -> None:
        """End what is still at work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._at_work[self._tasks.pop(task)] -= 1
        self._activity.end()


def _say(task: asyncio.Task[Any]) -> None:
    """Log what a task raised whose answer is not waited for any more."""
    if not task.cancelled() and task.exception() is not None:
        _log.warning("a call whose caller had gone failed", error=str(task.exception()))


#: Seconds that an answer waits for the rest.
_PATIENCE = 1.0


async def drain_requests(requests: AsyncIterator[Any]) -> None:
    """Read what else is sent, and forget it: to its end, or for a second. Raises no error."""
    with contextlib.suppress(Exception):  # the second is over; or a read was given up before, and gRPC allows no other
        async with asyncio.timeout(_PATIENCE):
            async for _ in requests:
                pass


_Answer = TypeVar("_Answer", bound=Message)


def preserialized(_kind: type[_Answer], parts: Iterable[bytes]) -> _Answer:
    """Return an answer of a handler as bytes, which the server sends as they are.

    Args:
        parts: Messages of this kind as bytes. One behind the other they are one message: protobuf merges them.

    Returns:
        bytes. Its type is that of the message, as generated servicers want it.
    """
    return cast("_Answer", b"".join(parts))


_Piece = TypeVar("_Piece")


async def with_idle_limit(
    pieces: AsyncIterator[_Piece], idle_seconds: float, what: str
) -> AsyncGenerator[_Piece, None]:
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


class BufferedStream:
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
                making.exception()  # no one else asks for it where the reader has gone
