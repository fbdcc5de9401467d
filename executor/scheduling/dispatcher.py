"""Hands units to the lanes of running jobs, and takes in what they report.

A lane is one Spark task that lives as long as its job: it connects back to the executor, asks for a unit, runs it, says
what became of it, and asks again. So a function's state (a loaded model) is built once in a lane, a unit costs a
millisecond to hand out, results and progress arrive at once and in order, and a dead worker shows as a closed
connection (decision 4).
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import secrets
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from core.domain.work import Hint, Sign, UnitOutcome, WorkUnit
from core.errors import Unavailable
from executor.worker.messages import LENGTH_BYTES, Alive, Done, Hello, LaneMessage, Running, Signed, framed

_log = structlog.get_logger(__name__)

_LARGEST = 256 << 20
_HELLO_SECONDS = 10.0
_END_SECONDS = 5.0
_decoder = msgspec.json.Decoder(LaneMessage)


class Feed(Protocol):
    """A job's side."""

    async def next_unit(self, lane: str, *, beats: bool) -> WorkUnit | None:
        """Waits for a unit; None: there is nothing more to do for this lane. `beats`: it says now and then that it
        lives."""
        ...

    def on_alive(self, unit: WorkUnit) -> None: ...

    def on_hint(self, hint: Hint) -> None: ...

    def on_sign(self, unit: WorkUnit, sign: Sign) -> None: ...

    def on_outcome(self, outcome: UnitOutcome) -> None: ...

    def on_lost(self, unit: WorkUnit) -> None:
        """The worker that had the unit is gone."""
        ...


@dataclass(frozen=True, slots=True)
class LaneAddress:
    """What a lane needs to reach its job."""

    host: str
    port: int
    job_id: str
    secret: str


class Dispatcher:
    """One for each executor. `host` is an address that the Spark workers reach, `bind` one of this machine that is
    listened on, at `port` (0: any)."""

    def __init__(self, host: str, bind: str = "", port: int = 0) -> None:
        self._host, self._bind, self._port = host, bind or host, port
        self._server: asyncio.Server | None = None
        self._feeds: dict[str, tuple[str, Feed]] = {}
        self._lanes: dict[str, set[asyncio.Task[None]]] = {}
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        """Opens the port. Raises Unavailable (BIND_FAILED)."""
        try:
            self._server = await asyncio.start_server(self._serve, self._bind, self._port)
        except OSError as error:
            raise Unavailable("BIND_FAILED", f"cannot listen for lanes on {self._bind}:{self._port}: {error}") from None

    async def stop(self) -> None:
        """Closes it; lanes that are still connected end."""
        if self._server is not None:
            self._server.close()

    def open(self, job_id: str, feed: Feed) -> LaneAddress:
        """Lets lanes of a job connect."""
        if self._server is None:
            raise RuntimeError("the dispatcher is not started")
        secret = secrets.token_hex(32)
        self._feeds[job_id] = (secret, feed)
        return LaneAddress(self._host, self._server.sockets[0].getsockname()[1], job_id, secret)

    async def close(self, job_id: str) -> None:
        """Lets no more lanes of the job connect, and returns when the last one has ended. One that does not end, as
        its worker hangs, is cut off."""
        self._feeds.pop(job_id, None)
        lanes = self._lanes.pop(job_id, set())
        if not lanes:
            return
        _, hanging = await asyncio.wait(lanes, timeout=_END_SECONDS)
        for lane in hanging:
            lane.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await asyncio.wait_for(_receive(reader), _HELLO_SECONDS)
            feed = self._feed(hello)
            if isinstance(hello, Hello) and feed is not None:
                await self._lane(hello, feed, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            _log.info("a lane's connection ended", error=str(error) or type(error).__name__)
        except asyncio.CancelledError:
            _log.warning("a lane was cut off")
        finally:
            writer.close()

    async def _lane(self, hello: Hello, feed: Feed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        lanes = self._lanes.setdefault(hello.job_id, set())
        if task is None:
            return
        lanes.add(task)
        try:
            await _drive(f"lane {next(self._numbers)} ({hello.lane})", feed, reader, writer)
        finally:
            lanes.discard(task)

    def _feed(self, hello: LaneMessage) -> Feed | None:
        if not isinstance(hello, Hello):
            return None
        secret, feed = self._feeds.get(hello.job_id, ("", None))
        if feed is None or not hmac.compare_digest(secret.encode(), hello.secret.encode()):
            return None
        return feed


async def _drive(lane: str, feed: Feed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        unit = await feed.next_unit(lane, beats=True)
        outcome = None
        try:
            await _send(writer, unit)
            while unit is not None and outcome is None:
                message = await _receive(reader)
                if isinstance(message, Running):
                    feed.on_hint(message.hint)
                elif isinstance(message, Signed):
                    feed.on_sign(unit, message.sign)
                elif isinstance(message, Alive):
                    feed.on_alive(unit)
                elif isinstance(message, Done):
                    outcome = message.outcome
        finally:
            if unit is not None and outcome is None:
                feed.on_lost(unit)
        if outcome is None:
            return
        feed.on_outcome(outcome)


async def _send(writer: asyncio.StreamWriter, unit: WorkUnit | None) -> None:
    writer.write(framed(unit))
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> LaneMessage:
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if length > _LARGEST:
        raise OSError(f"a lane sent a message of {length} bytes")
    message: LaneMessage = _decoder.decode(await reader.readexactly(length))
    return message
