"""Hand units to the workers of running jobs, and process their reports.

A worker is one Spark task that lives as long as its job. It connects to the executor, requests a unit, runs it, reports
the outcome, and requests the next unit. A function's state, such as a loaded model, is therefore built once per worker.
Handing out a unit takes a millisecond. Reports arrive at once and in order. If a worker dies, its connection closes
(decision 4).
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import itertools
import secrets
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from leman_core.model.databases import StoreOptions
from leman_core.model.work import InFlightRows, ProgressReport, UnitOutcome, WorkContext, WorkUnit
from leman_core.process.addresses import LISTEN_ERRORS, bind_failure
from leman_core.telemetry import instruments
from leman_executor.worker.worker_link import (
    LENGTH_BYTES,
    Alive,
    Done,
    Hello,
    InFlight,
    Running,
    WorkerMessage,
    executor_tls,
    framed,
)


class Cancelled(Exception):
    """The job was asked to stop while its workers ran."""


_log = structlog.get_logger(__name__)

_LARGEST = 256 << 20
_HELLO_SECONDS = 10.0
_END_SECONDS = 5.0
_decoder = msgspec.json.Decoder(WorkerMessage)


class UnitSource(Protocol):
    """The part of a job that its workers use."""

    async def next_unit(self, worker: str, *, heartbeats: bool) -> WorkUnit | None:
        """Wait for a unit and return it. Return None if no work is left for this worker.

        Args:
            worker: The worker's name.
            heartbeats: Whether the worker sends signs of life.
        """
        ...

    def on_alive(self, unit: WorkUnit) -> None: ...

    def renewed_stores(self) -> tuple[StoreOptions, ...]:
        """Return the current options for object stores. Empty if they have not changed since the job started."""
        ...

    def on_report(self, report: ProgressReport) -> None: ...

    def on_in_flight(self, unit: WorkUnit, in_flight: InFlightRows) -> None: ...

    def on_outcome(self, outcome: UnitOutcome) -> None: ...

    def on_lost(self, unit: WorkUnit) -> None:
        """Handle the loss of a worker that had `unit`."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutorEndpoint:
    """The address and the credentials with which a worker connects to its job."""

    host: str
    port: int
    job_key: str
    secret: str
    #: The only certificate that the dispatcher presents, in PEM. If empty, the link is not encrypted.
    certificate: str = ""


@dataclass(frozen=True)
class _OpenJob:
    secret: str
    unit_source: UnitSource
    context: WorkContext

    @functools.cached_property
    def framed_context(self) -> bytes:
        return framed(self.context)


class _Link:
    def __init__(self, worker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._worker = worker
        self._reader = reader
        self._writer = writer
        self._at_work = False
        self._told = False

    def stop(self) -> None:
        """Ask the worker to return its current unit and to end."""
        if self._at_work and not self._told:
            self._told = True
            self._writer.write(framed(None))

    def _renew(self, told: tuple[StoreOptions, ...], now: tuple[StoreOptions, ...]) -> tuple[StoreOptions, ...]:
        """Send the options for object stores to a worker that has a unit, if they have changed. Return the options that
        the worker has now.
        """
        if now and now != told:
            self._writer.write(framed(WorkUnit("", (), stores=now)))
        return now or told

    async def drive(self, unit_source: UnitSource) -> None:
        """Give the worker one unit after another."""
        while not self._told:
            unit = await unit_source.next_unit(self._worker, heartbeats=True)
            outcome = None
            stores = () if unit is None else unit.stores
            self._at_work = unit is not None
            try:
                await _send(self._writer, unit)
                while unit is not None and outcome is None:
                    message = await _receive(self._reader)
                    if isinstance(message, Running):
                        unit_source.on_report(message.report)
                    elif isinstance(message, InFlight):
                        unit_source.on_in_flight(unit, message.in_flight)
                    elif isinstance(message, Alive):
                        unit_source.on_alive(unit)
                        stores = self._renew(stores, unit_source.renewed_stores())
                    elif isinstance(message, Done):
                        outcome = message.outcome
            finally:
                self._at_work = False
                if unit is not None and outcome is None:
                    unit_source.on_lost(unit)
            if outcome is None:
                return
            unit_source.on_outcome(outcome)


class Dispatcher:
    """The dispatcher of one executor.

    Args:
        host: An address of this machine that the Spark workers can reach.
        bind: The local address to listen on. If empty, the dispatcher listens on `host`.
        port: The port to listen on; 0 for any free port.
        encrypted: Whether workers connect over TLS, see `leman_executor.worker.worker_link`.
    """

    def __init__(self, host: str, bind: str = "", port: int = 0, *, encrypted: bool = False) -> None:
        self._encrypted, self._certificate = encrypted, ""
        self._host, self._bind, self._port = host, bind or host, port
        self._server: asyncio.Server | None = None
        self._open_jobs: dict[str, _OpenJob] = {}
        self._workers: dict[str, set[asyncio.Task[None]]] = {}  # by the job's secret
        self._links: dict[str, set[_Link]] = {}
        self._numbers = itertools.count(1)
        instruments.WORKERS.show(lambda: [(float(sum(map(len, list(self._workers.values())))), {})])

    async def start(self) -> None:
        """Open the port.

        Raises:
            Unavailable: BIND_FAILED, if the address or the port cannot be used.
        """
        security: dict[str, Any] = {}
        if self._encrypted:
            security["ssl"], self._certificate = await asyncio.to_thread(executor_tls)
            security["ssl_handshake_timeout"] = _HELLO_SECONDS
        try:
            self._server = await asyncio.start_server(self._serve, self._bind, self._port, **security)
        except LISTEN_ERRORS as error:
            names = {"host_setting": "LEMAN_SPARK__DRIVER_HOST", "port_setting": "LEMAN_SPARK__CALLBACK_PORT"}
            raise bind_failure("cannot listen for workers", self._bind, self._port, **names, error=error) from None

    async def stop(self) -> None:
        """Close the port and end the connected workers."""
        if self._server is not None:
            self._server.close()

    def open(self, job_key: str, unit_source: UnitSource, context: WorkContext) -> ExecutorEndpoint:
        """Let workers of a job connect, and return the endpoint for them. Each of these workers gets the context."""
        if self._server is None:
            raise RuntimeError("the dispatcher is not started")
        secret = secrets.token_hex(32)
        self._open_jobs[job_key] = _OpenJob(secret, unit_source, context)
        port = self._server.sockets[0].getsockname()[1]
        return ExecutorEndpoint(self._host, port, job_key, secret, self._certificate)

    def stop_units(self, job_key: str) -> None:
        """Ask the workers of a job to store their computed rows and return their current units."""
        for link in self._links.get(job_key, ()):
            link.stop()

    async def close(self, endpoint: ExecutorEndpoint) -> None:
        """Stop accepting workers at an endpoint that `open` returned. Wait until the connected workers have ended.

        If a worker hangs, its connection is closed. If `open` was called again for the job, workers of the newer
        endpoint are not affected.
        """
        opened = self._open_jobs.get(endpoint.job_key)
        if opened is not None and opened.secret == endpoint.secret:
            del self._open_jobs[endpoint.job_key]
        workers = self._workers.pop(endpoint.secret, set())
        if not workers:
            return
        _, hanging = await asyncio.wait(workers, timeout=_END_SECONDS)
        for worker in hanging:
            worker.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await asyncio.wait_for(_receive(reader), _HELLO_SECONDS)
            opened = self._opened(hello)
            if isinstance(hello, Hello) and opened is not None:
                writer.write(opened.framed_context)
                await self._worker(hello, opened.unit_source, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            _log.info("a worker's connection ended", error=str(error) or type(error).__name__)
        except asyncio.CancelledError:
            _log.warning("a worker's connection was closed because it did not end")
        finally:
            writer.close()

    async def _worker(
        self, hello: Hello, unit_source: UnitSource, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        workers = self._workers.setdefault(hello.secret, set())
        links = self._links.setdefault(hello.job_key, set())
        if task is None:
            return
        link = _Link(f"worker {next(self._numbers)} ({hello.worker})", reader, writer)
        workers.add(task)
        links.add(link)
        try:
            await link.drive(unit_source)
        finally:
            workers.discard(task)
            links.discard(link)
            if not links and self._links.get(hello.job_key) is links:
                del self._links[hello.job_key]

    def _opened(self, hello: WorkerMessage) -> _OpenJob | None:
        """Return the job whose secret the worker sent. Return None if there is no such job."""
        opened = self._open_jobs.get(hello.job_key) if isinstance(hello, Hello) else None
        if opened is None or not isinstance(hello, Hello):
            return None
        return opened if hmac.compare_digest(opened.secret.encode(), hello.secret.encode()) else None


async def _send(writer: asyncio.StreamWriter, unit: WorkUnit | None) -> None:
    writer.write(framed(unit))
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> WorkerMessage:
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if length > _LARGEST:
        raise OSError(f"a worker sent a message of {length} bytes")
    message: WorkerMessage = _decoder.decode(await reader.readexactly(length))
    return message
