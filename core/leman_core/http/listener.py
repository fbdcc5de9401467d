"""The HTTP port of a service: uvicorn on the service's own event loop, with limits for slow callers."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from leman_core.http.app import HttpFront, PageRules
from leman_core.model.service_errors import InvalidArgument, Unavailable
from leman_core.process.addresses import LISTEN_ERRORS, bind_failure
from leman_core.process.temp_folders import socket_folder
from leman_core.server.admission import Limiter
from leman_core.server.request_messages import TRANSPORT_FACTOR
from leman_core.server.tls import TlsFiles, renew_at_handshakes
from leman_core.settings import Settings

#: Seconds within which the TLS handshake and the head of a request must arrive.
_HEAD_SECONDS = 15
#: Seconds within which a caller must read when the connection's buffer is full.
_READ_SECONDS = 60
_IDLE_SECONDS = 75
#: Most concurrent connections, including idle ones. Further ones get the status 503.
_CONNECTIONS = 4096
#: Length of the inner socket's path below the temporary folder.
_SOCKET_NAME = len("leman-12345678/grpc")
_OPENAPI = Path(__file__).with_name("openapi.json")


class HttpListener:
    """The HTTP listener of one server, from `start` to `stop`.

    Calls go to the process's own gRPC server, which also binds `inner_address`: a socket in a folder that only this
    user can open.

    Args:
        settings: The service's settings.
        requests: The bound of concurrent requests.

    Raises:
        InvalidArgument: BAD_SETTING.
        Unavailable: BIND_FAILED – the socket's folder cannot be created.
    """

    def __init__(self, settings: Settings, requests: Limiter) -> None:
        self._settings = settings
        self._requests = requests
        self._pages = PageRules(settings)
        self._folder = _own_folder()
        self._channel: grpc.aio.Channel | None = None
        self._listening: socket.socket | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def inner_address(self) -> str:
        return f"unix:{self._folder / 'grpc'}"

    @property
    def running(self) -> int:
        """Return the number of running requests."""
        return self._requests.used

    def bind(self) -> None:
        """Bind the port, without accepting connections yet.

        Raises:
            Unavailable: BIND_FAILED.
            InvalidArgument: BAD_SETTING.
        """
        self._listening = _bound(self._settings)
        self.port = self._listening.getsockname()[1]
        largest = self._settings.server.max_message_mb << 20
        # larger messages may be sent, too: the gRPC server refuses them with a reason
        sizes = {"send": TRANSPORT_FACTOR * largest, "receive": largest}
        options = [(f"grpc.max_{way}_message_length", size) for way, size in sizes.items()]
        self._channel = grpc.aio.insecure_channel(self.inner_address, options=[*options, ("grpc.enable_retries", 0)])
        openapi = _OPENAPI.read_bytes() if self._settings.server.reflection else b""
        app = HttpFront(self._channel, self._requests, self._pages, largest=largest, openapi=openapi)
        self._server = _Server(_config(self._settings, app))

    async def start(self) -> None:
        """Accept requests on the bound port."""
        assert self._server is not None
        assert self._listening is not None
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        await self._server.up.wait()

    async def stop(self) -> None:
        """Accept no more requests, and wait until running ones have ended or the grace is over."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        if self._listening is not None:
            self._listening.close()
        if self._channel is not None:
            await self._channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, because the process has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _BoundedProtocol(H11Protocol):
    """A connection that is closed if its caller does not send the head of a request, or does not read, in time."""

    _head: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = self.loop.call_later(_HEAD_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._head is None and self._at_rest():
            self._head = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)
        super().data_received(data)
        if not self._at_rest():
            self._end_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(_READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stuck()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_stuck()
        super().connection_lost(exc)

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _at_rest(self) -> bool:
        """Return whether no request is running on the connection."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete


def _config(settings: Settings, app: HttpFront) -> uvicorn.Config:
    server = settings.server
    config = uvicorn.Config(
        app,
        http=_BoundedProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(server.grace_seconds)),
        ssl_certfile=server.tls_cert or None,
        ssl_keyfile=server.tls_key or None,
    )
    try:
        config.load()
        if config.ssl is not None:
            renew_at_handshakes(config.ssl, TlsFiles(cert=server.tls_cert, key=server.tls_key))
    except OSError as error:  # of the ssl module, too
        raise InvalidArgument(
            "BAD_SETTING",
            f"The files of LEMAN_SERVER__TLS_CERT and LEMAN_SERVER__TLS_KEY cannot be used: {error}. Correct them",
        ) from None
    return config


def _own_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="leman-", dir=socket_folder(_SOCKET_NAME)))
    except OSError as error:
        raise Unavailable(
            "BIND_FAILED", f"the folder for HTTP's internal socket cannot be created: {error}. Check TMPDIR"
        ) from None


def _bound(settings: Settings) -> socket.socket:
    host, port = settings.server.host.strip("[]"), settings.server.http_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.server.reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
    except LISTEN_ERRORS as error:
        listening.close()
        names = {"host_setting": "LEMAN_SERVER__HOST", "port_setting": "LEMAN_SERVER__HTTP_PORT"}
        raise bind_failure("cannot listen for HTTP", host, port, **names, error=error) from None
    listening.setblocking(False)
    return listening
