"""One request and its answer, over ASGI."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from leman_core.http.errors import HttpRefusal, WireError, of_error
from leman_core.model.errors import InvalidArgument
from leman_core.server.unreadable import too_large

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[str, str]]

#: A body comes within so many seconds, and a second more for each `_SLOWEST` bytes.
_BODY_SECONDS = 30.0
_SLOWEST = 16 << 10
#: So much is written at once, so that a caller who does not read is noticed before the rest is.
_PIECE = 64 << 10


class Exchange:
    """What one ASGI call is about."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        #: Of the caller's connection, in gRPC's form; empty where it is not known.
        self.address = "tcp:{}:{}".format(*scope["client"]) if scope.get("client") else ""
        self.headers: Mapping[str, str] = _headers(scope["headers"])
        #: The origin of pages that this port would serve.
        self.own_origin = f"{scope.get('scheme', 'http')}://{self.headers.get('host', '')}".lower()
        self.extra: list[tuple[str, str]] = []
        self._query: bytes = scope["query_string"]
        self._receive = receive
        self._send = send
        self.begun = False

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def query(self) -> dict[str, str]:
        """Return the parameters of the url; of several under one name, the last."""
        return {name: values[-1] for name, values in parse_qs(self._query.decode("latin-1")).items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; ends early where the caller hangs up.

        Raises:
            HttpRefusal: BODY_TOO_SLOW.
        """
        started, taken = time.monotonic(), 0
        while True:
            left = started + _BODY_SECONDS + taken / _SLOWEST - time.monotonic()
            try:
                message = await asyncio.wait_for(self._receive(), max(left, 0))
            except TimeoutError:
                raise _too_slow() from None
            if message["type"] != "http.request":
                return
            if message["body"]:
                taken += len(message["body"])
                yield message["body"]
            if not message.get("more_body", False):
                return

    async def body(self, largest: int) -> bytes:
        """Return the whole body.

        Raises:
            ResourceExhausted: MESSAGE_TOO_LARGE.
            HttpRefusal: BODY_TOO_SLOW.
        """
        told = self.headers.get("content-length", "")
        if told.isdigit() and int(told) > largest:
            raise too_large(int(told), largest)
        taken = bytearray()
        async for chunk in self.chunks():
            taken += chunk
            if len(taken) > largest:
                raise too_large(len(taken), largest)
        return bytes(taken)

    async def hung_up(self) -> None:
        """Return when the caller is gone; call it when the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def begin(self, http_status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.begun = True
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (*self.extra, *headers)]
        await self._send({"type": "http.response.start", "status": http_status, "headers": pairs})

    async def write(self, content: bytes, *, more: bool = True) -> None:
        """Send a part of the answer; returns when the caller has read enough of what was sent before."""
        for at in range(0, max(len(content), 1), _PIECE):
            last = at + _PIECE >= len(content)
            piece = content[at : at + _PIECE]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more or not last})

    async def answer(self, http_status: int, content: bytes, headers: Headers) -> None:
        """Send a whole answer."""
        await self.begin(http_status, (*headers, ("content-length", str(len(content)))))
        await self.write(content, more=False)

    async def refuse(self, error: WireError, headers: Headers = ()) -> None:
        """Answer with an error; where an answer has begun, say no more."""
        if self.begun:
            return
        content = json.dumps(error.body, ensure_ascii=False).encode()
        await self.answer(error.http_status, content, (("content-type", "application/json"), *error.headers, *headers))


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return headers by their names; several under one name are one list (RFC 9110, 5.2)."""
    found: dict[str, str] = {}
    for raw, value in pairs:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def refusal(refused: HttpRefusal) -> WireError:
    """Return the wire form of a refusal that has an HTTP status of its own."""
    error = of_error(refused.error)
    return WireError(refused.http_status, error.body, (*error.headers, *refused.headers))


def _too_slow() -> HttpRefusal:
    error = InvalidArgument("BODY_TOO_SLOW", "the body did not come in time: send it at once")
    return HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, error, ("connection", "close"))
