"""Run one service: a grpc.aio server with health, reflection, InfoService, interceptors and a graceful stop.

The `app` module of a service (`leman_planner.app` and so on) exposes `create(settings, draining) -> Service`; its
`__main__` is `main("planner", create)`. When the service is up, one JSON line on standard output says where:

`{"service": "planner", "port": 40123, "pid": 17}`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from leman.v1 import info_pb2, info_pb2_grpc
from leman_core import settings as config
from leman_core.model.errors import InvalidArgument, LemanError
from leman_core.process import linux
from leman_core.process.long_lived_objects import LongLivedObjects
from leman_core.process.process_secrets import guard
from leman_core.process.unused_memory import give_back_when_idle
from leman_core.server.activity import Activity
from leman_core.server.auth.authentication import Authenticator
from leman_core.server.bind_failures import bracketed
from leman_core.server.call_budgets import MAX_METADATA_BYTES, BudgetInterceptor
from leman_core.server.caller_limits import CallerLimits
from leman_core.server.exposure import bind, check_bind
from leman_core.server.forwarding import Forwarding
from leman_core.server.handshake import add_handshake
from leman_core.server.info_service import InfoServicer
from leman_core.server.interceptors import CallInterceptor
from leman_core.server.places import RequestPlaces
from leman_core.server.reflection import add_reflection
from leman_core.server.uninterrupted_calls import Outliving
from leman_core.server.unreadable import TRANSPORT_FACTOR
from leman_core.settings import Settings
from leman_core.storage.object_stores import store_file
from leman_core.telemetry import logs as telemetry
from leman_core.telemetry import otlp
from leman_core.telemetry.process import Observability

if TYPE_CHECKING:
    from leman_core.http.listener import HttpListener

INFO_SERVICE = info_pb2.DESCRIPTOR.services_by_name["InfoService"].full_name
_FAREWELL_SECONDS = 0.25
_LINGER_SECONDS = 2.0
_ABILITY_SECONDS = 0.5
#: Seconds for which a thread keeps the interpreter while others wait for it. The event loop waits for it in each of its
#: rounds, several for each call: with Python's own 5 ms a call beside threads that compute takes a tenth of a second.
_SWITCH_SECONDS = 0.0001
#: Calls of one method that gRPC holds until the event loop takes them.
_HELD_CALLS = 1 << 16
_HELD_SECONDS = 300

log = structlog.get_logger(__name__)


class Service(Protocol):
    """The gRPC services of one process."""

    async def start(self, server: grpc.aio.Server) -> list[str]:
        """Add its servicers to the server, which starts afterwards; return their full names."""
        ...

    async def stop(self) -> None:
        """End what runs in the background. Called when no call runs any more, also after a failed start."""
        ...


@runtime_checkable
class WorksAlone(Protocol):
    """A service that also works while nobody calls it."""

    def busy(self) -> bool:
        """Tell whether it does: an embedded system does not end as idle then."""
        ...


@runtime_checkable
class ReportsAbilities(Protocol):
    """A service that answers calls although a part of its work may be impossible for a while."""

    def abilities(self) -> Mapping[str, LemanError | None]:
        """Return, by its name in the health service, what keeps each ability away; None where it is there.

        Health of the process and of its gRPC services does not depend on them: it says that calls are answered.
        """
        ...


@runtime_checkable
class IsReached(Protocol):
    """A service that tells others where it is reached."""

    def bound(self, address: str) -> None:
        """Hear the host:port that its server was bound to, before any call comes."""
        ...


#: Makes the service. Runs before the event loop and before anything of gRPC, so it may block and fork (Spark); channels
#: and tasks belong into `start`. The event is set when the process is asked to stop: watch streams then end themselves,
#: and no new job is taken.
Factory = Callable[[Settings, asyncio.Event], Service]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that takes calls."""

    settings: Settings
    service: Service
    draining: asyncio.Event
    activity: Activity
    changes: Outliving
    server: grpc.aio.Server
    forwarding: Forwarding
    health: health.aio.HealthServicer
    port: int
    names: tuple[str, ...]
    http: HttpListener | None

    def idle_seconds(self) -> float:
        """Return seconds since the service was last in use."""
        if isinstance(self.service, WorksAlone) and self.service.busy():
            self.activity.touch()
        return self.activity.idle_seconds()

    async def report_abilities(self) -> None:
        """Keep the health service up to date with the service's abilities, until cancelled."""
        while isinstance(self.service, ReportsAbilities):
            await _set_abilities(self.health, self.service)
            await asyncio.sleep(_ABILITY_SECONDS)

    async def stop(self) -> None:
        """Drain the server and stop it.

        Health says NOT_SERVING, `draining` is set, and calls get `grace_seconds` to end, those too that go on without
        their callers; then all is ended.
        """
        await self.health.enter_graceful_shutdown()
        self.draining.set()
        grace = self.settings.server.grace_seconds
        stopping = asyncio.ensure_future(self.server.stop(grace))
        http_stopping = asyncio.ensure_future(self.http.stop()) if self.http else None
        quiet = asyncio.ensure_future(self.activity.quiet())
        await asyncio.wait((quiet,), timeout=grace)
        quiet.cancel()
        # Health watchers never end by themselves: they get a moment to hear it, not the rest of the grace.
        await asyncio.wait((stopping,), timeout=_FAREWELL_SECONDS)
        await self.server.stop(0)
        await stopping
        if http_stopping is not None:
            await http_stopping
        await self.changes.stop()
        await self.forwarding.stop()
        await self.service.stop()


async def start_server(settings: Settings, name: str, service: Service, draining: asyncio.Event) -> RunningServer:
    """Bind and start the server of service `name`.

    Raises:
        InvalidArgument: INSECURE_BIND, ANONYMOUS_BIND, WEAK_TOKEN, INSECURE_PEER, BAD_SETTING.
        Unavailable: BIND_FAILED.
        Exception: what the service's own start raises.
    """
    check_bind(settings)
    callers, places = Authenticator(settings), RequestPlaces(settings.server)
    activity = Activity()
    changes = Outliving(settings.server.max_calls, activity)
    forwarding = Forwarding(settings, name, callers, draining, activity)
    http = _http(settings)  # before there is a server that has to be started to be freed
    server = grpc.aio.server(
        interceptors=[
            BudgetInterceptor(settings.server),
            forwarding,
            CallInterceptor(
                callers, CallerLimits(settings.server), places, activity, changes, settings.server.max_message_mb << 20
            ),
        ],
        options=_options(settings),
    )
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    try:
        names = [INFO_SERVICE, *await service.start(server)]
        add_handshake(server)
        forwarded = forwarding.begin(names, checks)
        if settings.server.reflection:
            add_reflection([*names, *forwarded, health.SERVICE_NAME], server)
        port = bind(settings.server, server)
        bound = f"{bracketed(settings.server.host)}:{port}"
        if isinstance(service, IsReached):
            service.bound(bound)
        info_pb2_grpc.add_InfoServiceServicer_to_server(InfoServicer(settings, name, bound), server)
        if http is not None:
            http.bind()
            server.add_insecure_port(http.inner_address)
        await server.start()
        if http is not None:
            await http.start()
    except BaseException:
        if http is not None:
            await http.stop()
        await forwarding.stop()
        await service.stop()
        await _discard(server)
        raise
    for served in names:
        await checks.set(served, health_pb2.HealthCheckResponse.SERVING)
    if isinstance(service, ReportsAbilities):
        await _set_abilities(checks, service)
    return RunningServer(
        settings, service, draining, activity, changes, server, forwarding, checks, port, tuple(names), http
    )


async def _set_abilities(checks: health.aio.HealthServicer, service: ReportsAbilities) -> None:
    """Set each ability in the health service. Watchers are sent a status only when it changes."""
    status = health_pb2.HealthCheckResponse
    for name, missing in service.abilities().items():
        await checks.set(name, status.SERVING if missing is None else status.NOT_SERVING)


async def serve(settings: Settings, name: str, service: Service, draining: asyncio.Event) -> None:
    """Run service `name` until SIGTERM or SIGINT, then stop it gracefully."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    observed = Observability(settings, name)
    running = await start_server(settings, name, service, draining)
    log.info("serving", port=running.port, host=settings.server.host)
    also = {"http_port": running.http.port} if running.http is not None else {}
    also |= {} if observed.metrics_port is None else {"metrics_port": observed.metrics_port}
    _tell({"service": name, "port": running.port, "pid": os.getpid(), **also})
    pulse = asyncio.ensure_future(_report_idle(running, name))
    abilities = asyncio.ensure_future(running.report_abilities())
    memory = asyncio.ensure_future(give_back_when_idle(running.idle_seconds))
    await asked.wait()
    for task in (pulse, abilities, memory):
        task.cancel()
    log.info("draining", grace_seconds=settings.server.grace_seconds)
    await running.stop()
    await asyncio.to_thread(observed.stop)
    log.info("stopped")


def main(name: str, create: Factory, settings: Settings | None = None) -> int:
    """Run the whole life of a service's process and return its exit code: 0 stopped, 1 failed, 2 wrong settings.

    Reads the settings where none are given, and then forgets the environment that they came from.
    """
    try:
        settings = settings or config.load()
        guard(core_dumps=settings.log.core_dumps)
        store_file.begin(settings.storage.options_file)
        otlp.take_headers()
    except InvalidArgument as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    linux.raise_open_files_limit()
    telemetry.configure(settings, name)
    sys.setswitchinterval(_SWITCH_SECONDS)
    objects = LongLivedObjects()
    objects.watch()
    code = 1
    try:
        draining = asyncio.Event()
        service = create(settings, draining)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(settings, name, service, draining))
        code = 0
    except LemanError as error:
        log.error("failed", reason=error.reason, message=error.message)
    except KeyboardInterrupt:
        code = 130
    finally:
        objects.forget()
        # A thread that hangs in storage must not keep a stopped service alive.
        lingering = threading.Timer(_LINGER_SECONDS, os._exit, [code])
        lingering.daemon = True
        lingering.start()
    return code


async def _report_idle(running: RunningServer, name: str) -> None:
    """Tell the embedded supervisor, line by line, for how long nobody has needed this service."""
    limit = running.settings.embedded.idle_seconds
    embedded = running.settings.embedded
    if not (embedded.database or embedded.databases_file) or not limit:
        return
    while True:
        await asyncio.sleep(min(max(limit / 8, 0.05), 5.0))
        _tell({"service": name, "idle_seconds": round(running.idle_seconds(), 3)})


def _tell(line: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _discard(server: grpc.aio.Server) -> None:
    """Start and stop a server that was never started: grpcio crashes the process when it frees such a one."""
    await server.start()
    await server.stop(0)


def _http(settings: Settings) -> HttpListener | None:
    if settings.server.http_port < 0:
        return None
    from leman_core.http.listener import HttpListener  # noqa: PLC0415 - costs time at the start where nobody asks for it

    return HttpListener(settings)


def _options(settings: Settings) -> list[tuple[str, int]]:
    largest = settings.server.max_message_mb << 20
    return [
        ("grpc.max_send_message_length", largest),
        ("grpc.max_receive_message_length", TRANSPORT_FACTOR * largest),
        ("grpc.max_metadata_size", 4 * MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 4 * MAX_METADATA_BYTES),
        ("grpc.so_reuseport", int(settings.server.reuse_port)),
        # gRPC cancels calls that it holds when they are a thousand, or for half a minute, without a word: it is for us
        # to refuse them.
        ("grpc.server.max_pending_requests", _HELD_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 4 * _HELD_CALLS),
        ("grpc.server_max_unrequested_time_in_server", _HELD_SECONDS),
        # Peers ping an open call every 20 s (leman_core.server.channels); without this a server takes that for abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # without it gRPC waits a minute for a ping's answer
    ]
