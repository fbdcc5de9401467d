"""Where an embedded system is told to serve another database, or to end: a port on loopback, and a token.

A caller sends one line of JSON and is sent one:

    {"token": "…", "do": "serve", "database": "/data/lake", "warm": true}     {"done": true}
    {"token": "…", "do": "stop", "within": 2.0, "if_idle": true}             {"done": true}

or `{"done": false, "error": "…"}`. The token is in the system's service file, which only its user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

from leman_local.served_databases import ServedDatabases
from leman_local.service_file import AlreadyRunning
from leman_local.tcp_ports import HOST

_log = structlog.get_logger(__name__)

_LONGEST_LINE = 1 << 16
_SECONDS = 60.0


class Stop(Protocol):
    """What ends the system."""

    def __call__(self, within: float | None = None) -> None:
        """Ask it to end; `within`: so many seconds, whatever is at work."""
        ...


class Control:
    """The port of one system."""

    def __init__(self, databases: ServedDatabases, stop: Stop, is_idle: Callable[[], bool]) -> None:
        self.token = secrets.token_urlsafe(24)
        self.address = ""
        self._databases = databases
        self._does: dict[str, Callable[[dict[str, Any]], Any]] = {"serve": self._serve, "stop": self._stop}
        self._end = stop
        self._is_idle = is_idle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._answer, HOST, 0, limit=_LONGEST_LINE)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                asked = json.loads(await reader.readline())
                answer = await self._do(asked if isinstance(asked, dict) else {})
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _do(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not secrets.compare_digest(str(asked.get("token", "")).encode(), self.token.encode()):
            _log.warning("control was asked without its token")
            return {"done": False, "error": "the token is wrong"}
        does = self._does.get(str(asked.get("do")))
        if does is None:
            return {"done": False, "error": "it can be asked to serve and to stop"}
        try:
            await does(asked)
        except AlreadyRunning as error:
            return {"done": False, "error": str(error), "elsewhere": True}
        except (OSError, ValueError) as error:
            return {"done": False, "error": str(error)}
        return {"done": True}

    async def _serve(self, asked: dict[str, Any]) -> None:
        database = Path(str(asked.get("database", "")))
        if not database.is_absolute():
            raise ValueError(f"{database} is not an absolute path")
        await self._databases.add(database, warm=bool(asked.get("warm")))

    async def _stop(self, asked: dict[str, Any]) -> None:
        if asked.get("if_idle") and not self._is_idle():
            raise ValueError("it is not idle")
        within = asked.get("within")
        self._end(float(within) if within is not None else None)
