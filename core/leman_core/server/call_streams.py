"""Calls while they run: activity, changes that outlive their callers, and streams of requests and answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar, cast

import structlog
from google.protobuf.message import Message

from leman_core.model.service_errors import Aborted
from leman_core.server.admission import Limiter
from leman_core.server.blocking import BlockingPool


class Activity:
    """Count the calls that run, without health checks and reflection.

    A graceful stop waits until no call runs, and an idle embedded system ends itself.
    """

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
        """Note that the service works without a call."""
        self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return seconds since the last call ended; 0 while one runs."""
        return 0.0 if self._running else time.monotonic() - self._last

    async def quiet(self) -> None:
        """Wait until no call runs."""
        await self._quiet.wait()


_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)


class UninterruptedCalls:
    """Run changes to their end, even if their callers hang up.

    gRPC cancels a handler at any `await` when its caller hangs up or its deadline passes. That is harmless for a read
    but would leave a change half made, so changes run in tasks of their own.

    Args:
        most: Tasks of one method at once, including those whose callers have gone.
        activity: Counts them until they end.
    """

    def __init__(self, most: int, activity: Activity) -> None:
        self._most = most
        self._activity = activity
        self._tasks: dict[asyncio.Task[Any], Limiter] = {}
        self._at_work: dict[str, Limiter] = {}

    async def run(self, method: str, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return or raise the work's result; cancelling the caller does not stop the work.

        Raises:
            ResourceExhausted: TOO_MANY_CALLS.
        """
        at_work = self._at_work.get(method)
        if at_work is None:
            at_work = self._at_work[method] = Limiter(
                self._most, "TOO_MANY_CALLS", lambda used: f"{used} calls of {method} are at work: try again later"
            )
        if at_work.is_full():
            work.close()
            raise at_work.error()
        task = asyncio.create_task(work)
        self._tasks[task] = at_work
        at_work.take()
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
        """Cancel the tasks that still run, and wait for them."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task).release()
        self._activity.end()


def _say(task: asyncio.Task[Any]) -> None:
    """Log the error of a task whose caller has gone."""
    if not task.cancelled() and task.exception() is not None:
        _log.warning("a call whose caller had gone failed", error=str(task.exception()))


_DRAIN_SECONDS = 1.0


async def drain_requests(requests: AsyncIterator[Any]) -> None:
    """Read and drop the requests that still come, for at most a second. Raises no error.

    A gRPC client that writes while its call ends can mistake the answer for a broken connection: gRPC's Python client
    reports INTERNAL, "Internal error from Core".
    """
    with contextlib.suppress(Exception):  # a timeout; or an earlier read was cancelled, and gRPC allows no other one
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in requests:
                pass


_Answer = TypeVar("_Answer", bound=Message)


def preserialized(_kind: type[_Answer], parts: Iterable[bytes]) -> _Answer:
    """Return a handler's answer as bytes, which the server sends unchanged.

    Args:
        parts: Serialized messages of this kind, which many answers may share. Protobuf merges concatenated messages.

    Returns:
        Bytes, typed as the message because generated servicers ask for that.
    """
    return cast("_Answer", b"".join(parts))


_Piece = TypeVar("_Piece")


async def with_idle_limit(
    pieces: AsyncIterator[_Piece], idle_seconds: float, what: str
) -> AsyncGenerator[_Piece, None]:
    """Yield the pieces of an upload as they arrive.

    Args:
        pieces: The upload.
        idle_seconds: The longest wait for a piece.
        what: Names the upload in the error, such as `the rows`.

    Raises:
        Aborted: UPLOAD_STALLED – no piece arrived in time.
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


class BufferedStream:
    """Streams of answers that do not hold their sources while a reader is slow, for one event loop.

    A thread of the pool makes all messages of a stream at once, and only these wait for the reader.

    Args:
        pool: Makes the messages.
        most_bytes: If this much waits for readers in all streams, no further stream begins.
    """

    def __init__(self, pool: BlockingPool, most_bytes: int) -> None:
        self._pool = pool
        self._unread = Limiter(
            most_bytes,
            "QUEUE_FULL",
            lambda used: f"{used >> 20} MiB of answers wait for their readers: try again later",
        )

    @property
    def unread_bytes(self) -> int:
        """Return the size of all messages that wait."""
        return self._unread.used

    async def stream(self, make: Callable[[], Iterable[_Message]]) -> AsyncGenerator[_Message]:
        """Yield messages; closing the generator drops those that wait.

        Args:
            make: Makes the messages, in a thread.

        Raises:
            ResourceExhausted: QUEUE_FULL – too much waits for readers.
            Exception: what `make` raises.
        """
        self._unread.check()
        messages = await self._pool.run(lambda: deque((message, message.ByteSize()) for message in make()))
        waiting = sum(size for _, size in messages)
        self._unread.used += waiting
        try:
            while messages:
                message, size = messages.popleft()
                yield message
                self._unread.used -= size
                waiting -= size
        finally:
            self._unread.used -= waiting
