"""HTTP callers as simple as curl, on a connection of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from leman_core.settings import Server
from tests.unit.core.rpc_helpers import running

GET_JOB = "/leman.v1.JobService/GetJob"
CANCEL_JOB = "/leman.v1.JobService/CancelJob"
WATCH_JOB = "/leman.v1.JobService/WatchJob"
PREVIEW_FUNCTION = "/leman.v1.JobService/PreviewFunction"
JSON = {"content-type": "application/json"}
LINES = {**JSON, "accept": "application/x-ndjson"}


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: bytes = b"{}", headers: dict[str, str] | None = None, method: str = "POST") -> None:
        given = {"host": "localhost", "content-length": str(len(body)), **(JSON if headers is None else headers)}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    async def head(self) -> Answer:
        """The status line and the headers."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return Answer(int(lines[0].split()[1]), headers)

    async def chunk(self) -> bytes:
        """The next piece of a chunked body; empty at its end."""
        size = int(await self.reader.readline(), 16)
        content = await self.reader.readexactly(size)
        await self.reader.readline()
        return content

    async def answer(self) -> Answer:
        found = await self.head()
        if "content-length" in found.headers:
            found.body = await self.reader.readexactly(int(found.headers["content-length"]))
        elif found.headers.get("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                found.body += piece
        return found

    async def ask(self, *args: Any, **kwargs: Any) -> Answer:
        self.send(*args, **kwargs)
        return await self.answer()

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def http(server: dict[str, Any] | None = None, ssl: Any = None, **sections: Any) -> AsyncIterator[Any]:
    """(a function that connects, the running server, its fake service)"""
    callers: list[Caller] = []
    async with running(Server(http_port=0, **(server or {})), **sections) as (up, service):

        async def connect() -> Caller:
            opened = await asyncio.open_connection("127.0.0.1", up.http.port, ssl=ssl)
            callers.append(Caller(*opened))
            return callers[-1]

        try:
            yield connect, up, service
        finally:
            for caller in callers:
                caller.close()
