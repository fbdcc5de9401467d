"""A proxy in front of an S3-compatible server: it holds requests back, counts them, and does harm if told to."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_LIMIT = 1 << 20
_BLOCK = 1 << 16
#: How long requests that are under way are waited for.
_STILL_SECONDS = 60.0
_NO_BODY = {b"204", b"304"}

Head = list[bytes]
_BUSY = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 60\r\nConnection: close\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>\n"
)


@dataclass(slots=True)
class Harm:
    """What is done to requests, the same ones each time; may be changed at any time."""

    #: Share of requests that are answered with 503, and never reach the store.
    refused: float = 0.0
    #: Share of requests that the store answers, and whose answer is lost.
    lost: float = 0.0
    #: Bytes of an answer that pass in a second; 0: all.
    bytes_per_second: int = 0
    #: A header that does not pass, in small letters.
    without: bytes = b""
    chance: random.Random = field(default_factory=lambda: random.Random(14))

    def strikes(self, share: float) -> bool:
        """Return whether it is this request's turn."""
        return bool(share) and self.chance.random() < share


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered, with seconds by the proxy's clock: when it came, and when its answer had passed.

    `answered_bytes`: the answer's body, as far as its length was said.
    """

    begun: float
    ended: float
    method: str
    path: str
    query: str
    answered_bytes: int = 0


class DelayingProxy:
    """HTTP/1.1, on a free port of the loopback or on a socket that listens already, from a thread of its own.
    `delay_seconds` may be changed at any time. `requests` counts (method, path without query), `log` has those that
    were answered, `struck` counts what harm was done."""

    def __init__(self, target_port: int, delay_seconds: float = 0.0, *, listener: socket.socket | None = None) -> None:
        self._target = target_port
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.delay_seconds = delay_seconds
        self.harm = Harm()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.log: list[Request] = []
        self.struck: Counter[str] = Counter()
        self._under_way = 0
        self._still = threading.Condition()
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def answered(self) -> int:
        """Return how many requests were answered, as soon as none is under way.

        An answer is in `log` only when all of it has passed, and who got it may look there before.

        Raises:
            TimeoutError: one was under way for a minute.
        """
        with self._still:
            if not self._still.wait_for(lambda: not self._under_way, _STILL_SECONDS):
                raise TimeoutError(f"{self._under_way} requests are under way for {_STILL_SECONDS:g} s")
            return len(self.log)

    @contextlib.contextmanager
    def _one_more(self) -> Iterator[None]:
        """Count a request among those that are under way."""
        with self._still:
            self._under_way += 1
        try:
            yield
        finally:
            with self._still:
                self._under_way -= 1
                self._still.notify_all()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        listening = asyncio.start_server(self._serve, sock=self._listener, limit=_LIMIT)
        server = self._loop.run_until_complete(listening)
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        to_server = None
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target, limit=_LIMIT)
            while head := await _head(client):
                with self._one_more():
                    if not await self._exchange(head, client, to_client, server, to_server):
                        return
        except (EOFError, OSError):
            return
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.close()

    async def _exchange(
        self,
        head: Head,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """One request, whose head was read, and its answer; False where the connection ends."""
        begun = time.perf_counter()
        method, target = head[0].split(b" ")[:2]
        path, _, query = target.decode().partition("?")
        self.requests[method.decode(), path] += 1
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.harm.strikes(self.harm.refused):
            self.struck["refused"] += 1
            to_client.write(_BUSY)  # and the connection ends: what comes of the request is not read
            await to_client.drain()
            return False
        if self.harm.without:
            head = [line for line in head if not line.lower().startswith(self.harm.without + b":")]
        if b"100-continue" in _fields(head).get(b"expect", b"").lower():
            to_client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = [line for line in head if not line.lower().startswith(b"expect:")]
        to_server.writelines(head)
        await _pass_body(client, to_server, _fields(head))
        await to_server.drain()
        answer = await _head(server)
        while answer and answer[0].split(b" ")[1] == b"100":
            answer = await _head(server)
        if not answer:
            return False
        if self.harm.strikes(self.harm.lost):
            self.struck["lost"] += 1
            return False
        to_client.writelines(answer)
        fields, code = _fields(answer), answer[0].split(b" ")[1]
        ended = False
        if method != b"HEAD" and code not in _NO_BODY:
            ended = b"content-length" not in fields and b"chunked" not in fields.get(b"transfer-encoding", b"")
            rate = self.harm.bytes_per_second
            await (_pass_rest(server, to_client) if ended else _pass_body(server, to_client, fields, rate))
        await to_client.drain()
        sent = int(fields.get(b"content-length", b"0")) if method != b"HEAD" else 0
        self.log.append(Request(begun, time.perf_counter(), method.decode(), path, query, sent))
        return not ended


async def _head(reader: asyncio.StreamReader) -> Head:
    lines: Head = []
    while line := await reader.readline():
        lines.append(line)
        if line in (b"\r\n", b"\n"):
            return lines
    return []


def _fields(head: Head) -> dict[bytes, bytes]:
    pairs = (line.split(b":", 1) for line in head[1:] if b":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


async def _pass_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: dict[bytes, bytes], bytes_per_second: int = 0
) -> None:
    if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
        while True:
            line = await reader.readline()
            size = int(line.split(b";")[0], 16)
            writer.write(line)
            if not size:
                writer.writelines(await _head(reader))  # trailers, such as a checksum
                return
            writer.write(await reader.readexactly(size + 2))
    left = int(fields.get(b"content-length", b"0"))
    while left:
        block = await reader.read(min(left, _BLOCK))
        if not block:
            raise EOFError
        writer.write(block)
        left -= len(block)
        if bytes_per_second:
            await writer.drain()
            await asyncio.sleep(len(block) / bytes_per_second)


async def _pass_rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(_BLOCK):
        writer.write(block)
