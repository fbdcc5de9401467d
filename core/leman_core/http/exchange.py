"""One HTTP request and its answer over ASGI, and errors in the form of the Connect protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl

import grpc
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from leman_core.model.service_errors import InvalidArgument, LemanError, excerpt
from leman_core.server import status
from leman_core.server.request_messages import message_too_large

#: Connect's name and HTTP status for each code of gRPC: https://connectrpc.com/docs/protocol/#error-codes
_CODES: dict[grpc.StatusCode, tuple[str, int]] = {
    grpc.StatusCode.CANCELLED: ("canceled", 499),
    grpc.StatusCode.UNKNOWN: ("unknown", 500),
    grpc.StatusCode.INVALID_ARGUMENT: ("invalid_argument", 400),
    grpc.StatusCode.DEADLINE_EXCEEDED: ("deadline_exceeded", 504),
    grpc.StatusCode.NOT_FOUND: ("not_found", 404),
    grpc.StatusCode.ALREADY_EXISTS: ("already_exists", 409),
    grpc.StatusCode.PERMISSION_DENIED: ("permission_denied", 403),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("resource_exhausted", 429),
    grpc.StatusCode.FAILED_PRECONDITION: ("failed_precondition", 400),
    grpc.StatusCode.ABORTED: ("aborted", 409),
    grpc.StatusCode.OUT_OF_RANGE: ("out_of_range", 400),
    grpc.StatusCode.UNIMPLEMENTED: ("unimplemented", 501),
    grpc.StatusCode.INTERNAL: ("internal", 500),
    grpc.StatusCode.UNAVAILABLE: ("unavailable", 503),
    grpc.StatusCode.DATA_LOSS: ("data_loss", 500),
    grpc.StatusCode.UNAUTHENTICATED: ("unauthenticated", 401),
}


class HttpRefusal(Exception):
    """The refusal of a request with an HTTP status that no gRPC code has, such as 405."""

    def __init__(self, http_status: HTTPStatus, error: LemanError, *headers: tuple[str, str]) -> None:
        super().__init__(error.message)
        self.http_status = http_status
        self.error = error
        self.headers = headers


@dataclass(frozen=True, slots=True)
class WireError:
    """An error in the form in which it is sent."""

    http_status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


def wire_error(error: LemanError) -> WireError:
    """Return the wire form of an error."""
    return _wire(status.code_of(error), status.to_status(error))


def wire_error_of_call(error: grpc.aio.AioRpcError) -> WireError:
    """Return the wire form of the error of a gRPC call."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    packed = next((value for key, value in trailers if key == status.DETAILS_KEY), None)
    found = status_pb2.Status(message=error.details() or "")
    if isinstance(packed, bytes):
        with contextlib.suppress(DecodeError):
            found = status_pb2.Status.FromString(packed)
    return _wire(error.code(), found)


def _wire(code: grpc.StatusCode, found: status_pb2.Status) -> WireError:
    word, http_status = _CODES[code]
    body: dict[str, Any] = {"code": word, "message": found.message}
    if found.details:
        body["details"] = [_detail(detail) for detail in found.details]
    return WireError(http_status, body, tuple(_error_headers(code, found)))


def _detail(detail: AnyMessage) -> dict[str, Any]:
    """Return a detail of an error as JSON, with its bytes and in a readable form."""
    found: dict[str, Any] = {
        "type": detail.type_url.rpartition("/")[2],
        "value": base64.b64encode(detail.value).decode().rstrip("="),
    }
    with contextlib.suppress(TypeError, DecodeError):  # an unknown type
        debug = json_format.MessageToDict(detail)
        debug.pop("@type", None)
        found["debug"] = debug
    return found


def _error_headers(code: grpc.StatusCode, found: status_pb2.Status) -> Iterable[tuple[str, str]]:
    if code is grpc.StatusCode.UNAUTHENTICATED:
        yield "www-authenticate", "Bearer"
    retry = error_details_pb2.RetryInfo()
    if any(detail.Unpack(retry) for detail in found.details):
        yield "retry-after", str(max(1, math.ceil(retry.retry_delay.ToTimedelta().total_seconds())))


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[str, str]]

#: A body has to arrive within this time plus a second for each `_SLOWEST` bytes.
_BODY_SECONDS = 30.0
_SLOWEST = 16 << 10
#: The most bytes of a single write, so that a caller that stops reading is noticed before everything is written.
_PIECE = 64 << 10


class Exchange:
    """One ASGI request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        #: The address of the caller's connection in gRPC's form; empty if unknown.
        self.address = "tcp:{}:{}".format(*scope["client"]) if scope.get("client") else ""
        self.headers: Mapping[str, str] = _headers(scope["headers"])
        #: The origin that a web page served on this port would have.
        self.own_origin = f"{scope.get('scheme', 'http')}://{self.headers.get('host', '')}".lower()
        self.extra: list[tuple[str, str]] = []
        self._query: bytes = scope["query_string"]
        self._receive = receive
        self._send = send
        self.begun = False

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_utf8(self) -> bool:
        """Return whether the Content-Type names no other encoding of characters."""
        charset = self.headers.get("content-type", "").lower().partition("charset=")[2]
        return charset.partition(";")[0].strip().strip('"') in ("", "utf-8", "utf8")

    def query(self, allowed: Collection[str]) -> dict[str, str]:
        """Return the parameters of the URL.

        Raises:
            InvalidArgument: BAD_MESSAGE – one is not allowed, is given twice, or is not UTF-8.
        """
        try:
            found = parse_qsl(self._query.decode("ascii"), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise InvalidArgument("BAD_MESSAGE", "the URL's query string is not percent-encoded UTF-8") from None
        query = dict(found)
        for name in query:
            if name not in allowed:
                known = (
                    f"parameters are {', '.join(allowed)}" if allowed else "a POST has none: send the message as body"
                )
                message = f"the URL has the unknown parameter '{excerpt(name)}'; {known}"
                raise InvalidArgument("BAD_MESSAGE", message, field=excerpt(name))
        if len(query) < len(found):
            ((twice, _),) = Counter(name for name, _ in found).most_common(1)
            raise InvalidArgument("BAD_MESSAGE", f"the URL has the parameter '{twice}' twice", field=twice)
        return query

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, until its end or until the caller disconnects.

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
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > largest:
            raise message_too_large(int(announced), largest)
        taken = bytearray()
        async for chunk in self.chunks():
            taken += chunk
            if len(taken) > largest:
                raise message_too_large(len(taken), largest)
        return bytes(taken)

    async def hung_up(self) -> None:
        """Wait until the caller disconnects. Call it only after the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def begin(self, http_status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.begun = True
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (*self.extra, *headers)]
        await self._send({"type": "http.response.start", "status": http_status, "headers": pairs})

    async def write(self, content: bytes, *, more: bool = True) -> None:
        """Send a part of the answer, and wait while the caller reads too slowly."""
        for at in range(0, max(len(content), 1), _PIECE):
            last = at + _PIECE >= len(content)
            piece = content[at : at + _PIECE]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more or not last})

    async def answer(self, http_status: int, content: bytes, headers: Headers) -> None:
        """Send a whole answer."""
        await self.begin(http_status, (*headers, ("content-length", str(len(content)))))
        await self.write(content, more=False)

    async def refuse(self, error: WireError, headers: Headers = ()) -> None:
        """Answer with an error, unless an answer has begun."""
        if self.begun:
            return
        content = json.dumps(error.body, ensure_ascii=False).encode()
        await self.answer(error.http_status, content, (("content-type", "application/json"), *error.headers, *headers))


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Return headers by name. The values of repeated ones are joined by commas (RFC 9110, 5.2)."""
    found: dict[str, str] = {}
    for raw, value in pairs:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def wire_error_of_refusal(refused: HttpRefusal) -> WireError:
    """Return the wire form of a refusal, with its HTTP status and headers."""
    error = wire_error(refused.error)
    return WireError(refused.http_status, error.body, (*error.headers, *refused.headers))


def _too_slow() -> HttpRefusal:
    error = InvalidArgument("BODY_TOO_SLOW", "the body did not arrive in time: send it without pauses")
    return HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, error, ("connection", "close"))
