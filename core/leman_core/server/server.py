"""Run the server of one service: gRPC (with InfoService, health, reflection and Flight's Handshake) and HTTP.

The `app` module of a service (`leman_planner.app` and so on) has a function `create(settings, draining) -> Service`,
and its `__main__` calls `main("planner", create)`. When the server is up, it prints its ports as one JSON line:

`{"service": "planner", "port": 40123, "pid": 17}`

grpcio-reflection serves only v1alpha (https://github.com/grpc/grpc/issues/38576). The messages of v1 are the same on
the wire, so one servicer answers both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import grpc
import structlog
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from leman.v1 import info_pb2, info_pb2_grpc
from leman_core import settings as config
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.process import environment
from leman_core.process.addresses import bind_failure, bracket_host, is_loopback, is_unspecified
from leman_core.process.memory import LongLivedObjects, release_memory_when_idle
from leman_core.process.process_secrets import guard
from leman_core.process.release import release_version
from leman_core.server.admission import CallAdmission
from leman_core.server.authentication import SHORTEST_TOKEN, Authenticator, authenticates_callers, bearer_token
from leman_core.server.call_streams import Activity, UninterruptedCalls
from leman_core.server.database_locations import DatabaseLocations, configured_locations
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.forwarding import Forwarding
from leman_core.server.interceptors import MAX_METADATA_BYTES, BudgetInterceptor, CallInterceptor, Context
from leman_core.server.request_messages import TRANSPORT_FACTOR
from leman_core.server.routes import FLIGHT, HANDSHAKE
from leman_core.server.tls import TlsFiles, server_credentials, settings_named
from leman_core.settings import Server, Settings
from leman_core.storage import store_file
from leman_core.telemetry import logs as telemetry
from leman_core.telemetry import otlp
from leman_core.telemetry.observability import Observability

if TYPE_CHECKING:
    from leman_core.http.listener import HttpListener


def check_bind(settings: Settings) -> None:
    """Refuse settings that expose an unprotected server, or that would send tokens to other machines unencrypted.

    Raises:
        InvalidArgument: INSECURE_BIND, ANONYMOUS_BIND, WEAK_TOKEN, INSECURE_PEER, BAD_SETTING.
    """
    server = settings.server
    if bool(server.tls_cert) != bool(server.tls_key):
        raise InvalidArgument("BAD_SETTING", "LEMAN_SERVER__TLS_CERT and LEMAN_SERVER__TLS_KEY go together: set both")
    if server.tls_client_ca and not server.tls_cert:
        raise InvalidArgument("BAD_SETTING", "LEMAN_SERVER__TLS_CLIENT_CA needs TLS: set LEMAN_SERVER__TLS_CERT, too")
    if (server.tls_client_roles or server.mtls_port) and not server.tls_client_ca:
        raise InvalidArgument(
            "BAD_SETTING",
            "LEMAN_SERVER__TLS_CLIENT_ROLES and LEMAN_SERVER__MTLS_PORT need client certificates: set "
            "LEMAN_SERVER__TLS_CLIENT_CA, too",
        )
    local = is_loopback(server.host)
    if not (local or server.tls_cert or server.allow_insecure_bind):
        raise InvalidArgument(
            "INSECURE_BIND",
            f"{server.host} can be reached from other machines: set LEMAN_SERVER__TLS_CERT and "
            "LEMAN_SERVER__TLS_KEY, or LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
        )
    if (not local or server.tls_cert) and not server.allow_anonymous:
        _check_callers(settings)
    if not server.allow_insecure_bind:
        _check_peers(settings)
        _check_lineage(settings)


def _check_peers(settings: Settings) -> None:
    """Refuse to send this service's token, or those of its callers, to peers on other machines without TLS."""
    peers = settings.peers
    if peers.tls_ca or not (peers.token.get_secret_value() or authenticates_callers(settings)):
        return
    for name in ("planner", "executor", "commit_coordinator"):
        address: str = getattr(peers, name)
        if address and not is_loopback(address.rpartition(":")[0]):
            raise InvalidArgument(
                "INSECURE_PEER",
                f"tokens would go to the {name.replace('_', ' ')} at {address} in the clear: set LEMAN_PEERS__TLS_CA, "
                "or LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
            )


def _check_lineage(settings: Settings) -> None:
    lineage = settings.lineage
    url = urlsplit(lineage.url)
    if lineage.api_key.get_secret_value() and url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise InvalidArgument(
            "BAD_SETTING",
            f"LEMAN_LINEAGE__API_KEY would go to {url.hostname} in the clear: have LEMAN_LINEAGE__URL begin with "
            "https://, or set LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
        )


def _check_callers(settings: Settings) -> None:
    server = settings.server
    if server.anonymous_roles or not authenticates_callers(settings):
        raise InvalidArgument(
            "ANONYMOUS_BIND",
            f"{server.host} would answer everyone who can reach it: set LEMAN_SERVER__TOKEN, "
            "LEMAN_SERVER__TOKENS_FILE, LEMAN_JWT__ISSUER or LEMAN_SERVER__TLS_CLIENT_CA to authenticate callers, and "
            "no LEMAN_SERVER__ANONYMOUS_ROLES, or LEMAN_SERVER__ALLOW_ANONYMOUS=true",
        )
    token = server.token.get_secret_value()
    if token and len(token) < SHORTEST_TOKEN:
        raise InvalidArgument(
            "WEAK_TOKEN",
            f"LEMAN_SERVER__TOKEN has {len(token)} characters, and anyone who guesses it can run code: choose at least "
            f"{SHORTEST_TOKEN}, for example with `openssl rand -base64 24`",
        )


def bind(server: Server, to: grpc.aio.Server) -> int:
    """Bind the server's address and, if it is set, the second one for clients with certificates.

    Returns:
        The port of the first address.

    Raises:
        InvalidArgument: BAD_SETTING.
        Unavailable: BIND_FAILED.
    """
    if not server.tls_cert:
        return _bound(to, server, "port", None)
    if server.mtls_port:
        _bound(to, server, "mtls_port", _credentials(server, asks=True))
    asks_here = bool(server.tls_client_ca) and not server.mtls_port
    return _bound(to, server, "port", _credentials(server, asks=asks_here))


def _bound(to: grpc.aio.Server, server: Server, setting: str, credentials: grpc.ServerCredentials | None) -> int:
    port: int = getattr(server, setting)
    address = f"{bracket_host(server.host)}:{port}"
    try:
        if credentials is None:
            return to.add_insecure_port(address)
        return to.add_secure_port(address, credentials)
    except RuntimeError as error:
        names = {"host_setting": "LEMAN_SERVER__HOST", "port_setting": f"LEMAN_SERVER__{setting.upper()}"}
        raise bind_failure("cannot listen", server.host, port, **names, error=error) from None


def _credentials(server: Server, *, asks: bool) -> grpc.ServerCredentials:
    """Return the server's TLS credentials. If `asks`, clients have to show a certificate."""
    try:
        files = TlsFiles(ca=server.tls_client_ca if asks else "", cert=server.tls_cert, key=server.tls_key)
    except OSError as error:
        paths = {
            "LEMAN_SERVER__TLS_CERT": server.tls_cert,
            "LEMAN_SERVER__TLS_KEY": server.tls_key,
            "LEMAN_SERVER__TLS_CLIENT_CA": server.tls_client_ca if asks else "",
        }
        said = f"{settings_named(error, paths)}: the TLS certificate or key cannot be read or used: {error}"
        raise InvalidArgument("BAD_SETTING", said) from None
    return server_credentials(files, asks=asks)


class InfoServicer(info_pb2_grpc.InfoServiceServicer):
    """Answers GetInfo. A wildcard address such as 0.0.0.0 is left out, because no caller could use it.

    Args:
        settings: The service's settings.
        service: The service's name.
        bound: The address that this service is bound to.
    """

    def __init__(self, settings: Settings, service: str, bound: str) -> None:
        def address(name: str) -> str:
            own = bound if name == service else ""
            known = (getattr(settings.advertise, name), own, getattr(settings.peers, name))
            return next((str(place) for place in known if place and not is_unspecified(place)), "")

        self._answer = info_pb2.GetInfoResponse(
            service=service,
            version=release_version(),
            pid=os.getpid(),
            planner_address=address("planner"),
            executor_address=address("executor"),
            commit_coordinator_address=address("commit_coordinator"),
            database=settings.embedded.database,
        )

    async def GetInfo(  # noqa: N802 - named by the proto
        self,
        request: info_pb2.GetInfoRequest,  # noqa: ARG002 - given by gRPC; it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 - given by gRPC
    ) -> info_pb2.GetInfoResponse:
        """Answer GetInfo; see protos/leman/v1/info.proto."""
        return self._answer


def add_handshake(server: grpc.aio.Server) -> None:
    """Add Flight's Handshake to a server. Clients that log in by user and password receive the token to send."""
    handler = grpc.stream_stream_rpc_method_handler(
        _handshake,
        request_deserializer=Flight_pb2.HandshakeRequest.FromString,
        response_serializer=Flight_pb2.HandshakeResponse.SerializeToString,
    )
    handlers = {HANDSHAKE.rpartition("/")[2]: handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FLIGHT.full_name, handlers),))


async def _handshake(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    """Return a valid token that was sent as a password. It is in headers and trailers, as clients read either."""
    given = dict(context.invocation_metadata() or ()).get("authorization")
    token = bearer_token(given, basic=True)
    if token is not None:
        shown = ("authorization", f"Bearer {token.decode('latin-1')}")
        context.set_trailing_metadata((*context.trailing_metadata(), shown))
        await context.send_initial_metadata((shown,))
    async for _ in requests:
        yield Flight_pb2.HandshakeResponse()


V1ALPHA = reflection.SERVICE_NAME
V1 = V1ALPHA.replace(".v1alpha.", ".v1.")


def add_reflection(names: Iterable[str], server: grpc.aio.Server) -> None:
    """Add reflection to a server. `names` are the full names of its other services."""
    _pool_with_v1()
    servicer = reflection.aio.ReflectionServicer([*names, V1, V1ALPHA], pool=_EveryName())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    generic = (grpc.method_handlers_generic_handler(service, handlers) for service in (V1, V1ALPHA))
    server.add_generic_rpc_handlers(tuple(generic))


class _EveryName:
    """A descriptor pool that also finds methods, fields and enum values by name."""

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's own name
        try:
            return self._pool.FindFileContainingSymbol(symbol)  # type: ignore[no-any-return]
        except KeyError:
            above, _, name = symbol.rpartition(".")
            if name not in self._members(above):
                raise
            return self._pool.FindFileContainingSymbol(above)  # type: ignore[no-any-return]

    def _members(self, parent: str) -> set[str]:
        for find in (self._pool.FindServiceByName, self._pool.FindMessageTypeByName):
            try:
                found = find(parent)
            except KeyError:
                continue
            if isinstance(found, Descriptor):
                return {*found.fields_by_name, *found.oneofs_by_name, *found.enum_values_by_name}
            return set(found.methods_by_name)
        return set()


def _pool_with_v1() -> None:
    """Return the pool with the file of reflection v1, so that reflection also lists itself."""
    alpha = reflection_pb2.DESCRIPTOR
    pool = descriptor_pool.Default()
    name = alpha.name.replace("v1alpha", "v1")
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        alpha.CopyToProto(file)
        _rename(file)
        pool.AddSerializedFile(file.SerializeToString())


def _rename(message: Message) -> None:
    """Replace `v1alpha` by `v1` in every name of a message and its parts."""
    for field, value in message.ListFields():
        parts = value if field.is_repeated else [value]
        if field.message_type is not None:
            for part in parts:
                _rename(part)
        elif isinstance(value, str):
            setattr(message, field.name, value.replace("v1alpha", "v1"))


INFO_SERVICE = info_pb2.DESCRIPTOR.services_by_name["InfoService"].full_name
_FAREWELL_SECONDS = 0.25
_LINGER_SECONDS = 2.0
#: How long a stop may take beyond the grace. Then the process ends, even if a thread still waits for a store.
_LAST_SECONDS = 12.0
_ABILITY_SECONDS = 0.5
#: Seconds after which a thread releases the interpreter to other threads. The event loop waits for it several times in
#: each call: with Python's default of 5 ms, a call takes 0.1 s while other threads compute.
_SWITCH_SECONDS = 0.0001
#: Calls of one method that gRPC holds until the event loop takes them.
_HELD_CALLS = 1 << 16
_HELD_SECONDS = 300

log = structlog.get_logger(__name__)


class Service(Protocol):
    """The gRPC services of one process."""

    async def start(self, server: grpc.aio.Server, locations: DatabaseLocations) -> list[str]:
        """Add the servicers to the server, before it starts. Return the full names of their services."""
        ...

    async def stop(self) -> None:
        """End the background work. It is called after the last call has ended, and after a failed start."""
        ...


@runtime_checkable
class WorksAlone(Protocol):
    """A service that also works in the background, when no call waits for it."""

    def busy(self) -> bool:
        """Return whether the service is working. If so, an embedded system does not count as idle."""
        ...


@runtime_checkable
class ReportsAbilities(Protocol):
    """A service that answers calls even while some of its abilities, such as running jobs, are not available."""

    def abilities(self) -> Mapping[str, LemanError | None]:
        """Return each ability, by its name in the health service, with the reason why it is not available, or None.

        The health of the process and of its gRPC services does not depend on abilities.
        """
        ...


@runtime_checkable
class IsReached(Protocol):
    """A service that needs to know its own address, for example to pass it on."""

    def bound(self, address: str) -> None:
        """Receive the host:port that the server is bound to. It is called before the first call is accepted."""
        ...


#: A function that creates a service. It runs before the event loop and gRPC start, so it may block and fork (Spark).
#: Channels and tasks are created in `Service.start`. The event is set when the process has to stop: then watch streams
#: end, and no new job starts.
Factory = Callable[[Settings, asyncio.Event], Service]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers calls."""

    settings: Settings
    service: Service
    draining: asyncio.Event
    activity: Activity
    changes: UninterruptedCalls
    server: grpc.aio.Server
    forwarding: Forwarding
    health: health.aio.HealthServicer
    port: int
    names: tuple[str, ...]
    http: HttpListener | None

    def idle_seconds(self) -> float:
        """Return the seconds since the service was last in use."""
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

        First, health reports NOT_SERVING and `draining` is set. Running calls, including those whose caller left, then
        have `grace_seconds` to end. After that, they are cancelled.
        """
        await self.health.enter_graceful_shutdown()
        self.draining.set()
        grace = self.settings.server.grace_seconds
        stopping = asyncio.ensure_future(self.server.stop(grace))
        http_stopping = asyncio.ensure_future(self.http.stop()) if self.http else None
        quiet = asyncio.ensure_future(self.activity.quiet())
        await asyncio.wait((quiet,), timeout=grace)
        quiet.cancel()
        # streams that watch the health never end by themselves, so they get only a moment to receive the status
        await asyncio.wait((stopping,), timeout=_FAREWELL_SECONDS)
        await self.server.stop(0)
        await stopping
        if http_stopping is not None:
            await http_stopping
        await self.changes.stop()
        await self.forwarding.stop()
        await self.service.stop()


async def start_server(settings: Settings, name: str, service: Service, draining: asyncio.Event) -> RunningServer:
    """Bind and start the server of a service.

    Raises:
        InvalidArgument: INSECURE_BIND, ANONYMOUS_BIND, WEAK_TOKEN, INSECURE_PEER, BAD_SETTING.
        Unavailable: BIND_FAILED.
        Exception: An error of the service's own start.
    """
    check_bind(settings)
    admission, locations = (
        CallAdmission(settings.server, Authenticator(settings)),
        configured_locations(settings.server),
    )
    activity = Activity()
    changes = UninterruptedCalls(settings.server.max_calls, activity)
    forwarding = Forwarding(settings, name, admission, draining, activity)
    http = _http(settings, admission)  # may raise, so before the gRPC server, which crashes if it is freed unstarted
    server = grpc.aio.server(
        interceptors=[
            BudgetInterceptor(settings.server, admission),
            forwarding,
            CallInterceptor(admission, locations, activity, changes, settings.server.max_message_mb << 20),
        ],
        options=_options(settings),
    )
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    try:
        names = [INFO_SERVICE, *await service.start(server, locations)]
        add_handshake(server)
        forwarded = forwarding.begin(names, checks)
        if settings.server.reflection:
            add_reflection([*names, *forwarded, health.SERVICE_NAME], server)
        port = bind(settings.server, server)
        bound = f"{bracket_host(settings.server.host)}:{port}"
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
    """Set each ability in the health service, which sends only changes to its watchers."""
    status = health_pb2.HealthCheckResponse
    for name, missing in service.abilities().items():
        await checks.set(name, status.SERVING if missing is None else status.NOT_SERVING)


async def serve(settings: Settings, name: str, service: Service, draining: asyncio.Event) -> None:
    """Run a service until SIGTERM or SIGINT, then stop it gracefully."""
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
    memory = asyncio.ensure_future(release_memory_when_idle(running.idle_seconds))
    await asked.wait()
    _end_after(settings.server.grace_seconds + _LAST_SECONDS)
    for task in (pulse, abilities, memory):
        task.cancel()
    log.info("draining", grace_seconds=settings.server.grace_seconds)
    await running.stop()
    await asyncio.to_thread(observed.stop)
    log.info("stopped")


def main(name: str, create: Factory, settings: Settings | None = None) -> int:
    """Run a service's process and return its exit code: 0 stopped, 1 failed, 2 wrong settings, 130 interrupted.

    Without `settings`, they are read from the environment, and removed from it.
    """
    try:
        settings = settings or config.load()
        guard(core_dumps=settings.log.core_dumps)
        store_file.use_store_file(settings.storage.options_file)
        otlp.take_headers()
    except InvalidArgument as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    environment.raise_open_files_limit()
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
        # a thread that hangs in storage must not keep a stopped service alive
        _start_timer(_LINGER_SECONDS, lambda: os._exit(code))
    return code


def _end_after(seconds: float) -> None:
    """End the process after this many seconds, because a commit to a store that hangs could delay its end forever."""

    def end() -> None:
        busy = sorted({thread.name for thread in threading.enumerate()} - {threading.current_thread().name})
        log.error("ended before all had stopped", seconds=seconds, threads=busy)
        os._exit(1)

    _start_timer(seconds, end)


def _start_timer(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


async def _report_idle(running: RunningServer, name: str) -> None:
    """Print regularly how long this service has been idle, for the supervisor of an embedded system."""
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
        import uvloop  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _discard(server: grpc.aio.Server) -> None:
    """Start and stop a server that is not needed: grpcio crashes the process when it frees an unstarted one."""
    await server.start()
    await server.stop(0)


def _http(settings: Settings, admission: CallAdmission) -> HttpListener | None:
    if settings.server.http_port < 0:
        return None
    from leman_core.http.listener import HttpListener  # noqa: PLC0415 - slow to import, and needed only here

    return HttpListener(settings, admission.http_requests)


def _options(settings: Settings) -> list[tuple[str, int]]:
    largest = settings.server.max_message_mb << 20
    return [
        ("grpc.max_send_message_length", largest),
        ("grpc.max_receive_message_length", TRANSPORT_FACTOR * largest),
        ("grpc.max_metadata_size", 4 * MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 4 * MAX_METADATA_BYTES),
        ("grpc.so_reuseport", int(settings.server.reuse_port)),
        # by default gRPC silently cancels waiting calls beyond a thousand, or after half a minute: refuse them instead
        ("grpc.server.max_pending_requests", _HELD_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 4 * _HELD_CALLS),
        ("grpc.server_max_unrequested_time_in_server", _HELD_SECONDS),
        # peers ping an open call every 20 s (leman_core.server.channels), which the server would treat as abuse
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),  # without it gRPC waits a minute for a ping's answer
    ]
