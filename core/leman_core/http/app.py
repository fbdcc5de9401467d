"""The ASGI application: every gRPC method as JSON over HTTP, and the OpenAPI document.

A request becomes a call to the process's own gRPC server, which checks the token and limits, writes the log line, and
forwards the call if a peer serves it. Only the web page that calls, and the host name that it uses, are checked here.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import grpc
import structlog

from leman_core.http import exchange as errors
from leman_core.http.exchange import Exchange, HttpRefusal, Receive, Scope, Send, WireError, wire_error_of_refusal
from leman_core.http.http_calls import CODECS, JSON, Call, Codec, Method, call_of, callable_methods, decode_base64
from leman_core.model.service_errors import (
    Internal,
    InvalidArgument,
    LemanError,
    NotFound,
    PermissionDenied,
    Unimplemented,
)
from leman_core.process.addresses import is_allowed_host, is_bad_origin, is_foreign, is_loopback
from leman_core.server.admission import Limiter
from leman_core.server.authentication import authenticates_callers
from leman_core.server.request_messages import message_too_large
from leman_core.settings import Settings

_HEAD = struct.Struct(">BI")
_COMPRESSED, _LAST = 1, 2


def enclose(message: bytes) -> bytes:
    """Return a message of a stream in Connect's envelope: one byte of flags, four of length, and the message."""
    return _HEAD.pack(0, len(message)) + message


def last_envelope(metadata: dict[str, list[str]], error: dict[str, Any] | None = None) -> bytes:
    """Return the envelope that ends a stream, with the trailers and the error, if any."""
    end = {"metadata": metadata} | ({"error": error} if error is not None else {})
    message = json.dumps(end, ensure_ascii=False).encode()
    return _HEAD.pack(_LAST, len(message)) + message


async def read_envelopes(chunks: AsyncIterator[bytes], largest: int) -> AsyncIterator[bytes]:
    """Yield the messages of a body that consists of envelopes.

    Raises:
        InvalidArgument: BAD_ENVELOPE.
        ResourceExhausted: MESSAGE_TOO_LARGE.
        Unimplemented: COMPRESSED.
    """
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(buffer)
            _check(flags, size, largest)
            if len(buffer) < _HEAD.size + size:
                break
            message = bytes(buffer[_HEAD.size : _HEAD.size + size])
            del buffer[: _HEAD.size + size]
            yield message
    if buffer:
        raise InvalidArgument("BAD_ENVELOPE", "the body ends in the middle of an envelope: send it to its end")


def _check(flags: int, size: int, largest: int) -> None:
    if flags & _COMPRESSED:
        raise Unimplemented("COMPRESSED", "compressed messages are not supported: send them uncompressed")
    if flags:
        raise InvalidArgument("BAD_ENVELOPE", f"the envelope has the flags {flags}: set them to 0 in requests")
    if size > largest:
        raise message_too_large(size, largest)


_REQUEST_HEADERS = "accept, authorization, connect-protocol-version, connect-timeout-ms, content-type, x-request-id"
_PREFLIGHT_SECONDS = "7200"


class PageRules:
    """Rules about the web pages that may call, and the host names by which they may call.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        self._anonymous = not authenticates_callers(settings) or bool(server.anonymous_roles)
        self._local = is_loopback(server.host)
        self._origins = frozenset(server.http_origins)
        self._hosts = frozenset(name.lower() for name in server.http_hosts)
        self._check_origins()

    def check(self, exchange: Exchange) -> None:
        """Refuse a request of a foreign web page. For an allowed one, add the CORS headers that the browser needs.

        Raises:
            HttpRefusal: HOST_NOT_LOCAL, ORIGIN_NOT_ALLOWED.
        """
        self._check_host(exchange.headers.get("host", ""))
        self._check_page(exchange)

    def _check_origins(self) -> None:
        for origin in self._origins:
            if is_bad_origin(origin):
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SERVER__HTTP_ORIGINS: {origin!r} is not the origin of a page: write https://name or "
                    "https://name:port, in lower case and without a path",
                )
        if "*" in self._origins and self._anonymous:
            raise InvalidArgument(
                "BAD_SETTING",
                "LEMAN_SERVER__HTTP_ORIGINS: `*` would let every web page call this service, which requires no token. "
                "List the origins, or set LEMAN_SERVER__TOKEN and leave LEMAN_SERVER__ANONYMOUS_ROLES empty",
            )

    def _check_host(self, host: str) -> None:
        """Refuse a host name that a web page may have pointed at this machine (DNS rebinding).

        If callers need a token, every name is accepted.
        """
        if not self._anonymous or is_allowed_host(host, local=self._local, allowed=self._hosts):
            return
        raise _forbidden(
            "HOST_NOT_LOCAL",
            f"{host[:200]!r} is not a known name of this machine: call 127.0.0.1 or localhost, or add the name to "
            "LEMAN_SERVER__HTTP_HOSTS",
        )

    def _check_page(self, exchange: Exchange) -> None:
        """Refuse a request of a web page, with any HTTP method, unless the page's origin may call."""
        origin = exchange.headers.get("origin", "")
        if is_foreign(exchange.headers, exchange.own_origin, self._origins):
            page = f"a page of the origin {origin[:200]!r}" if origin else "a page of another site"
            message = f"{page} may not call this service: add its origin to LEMAN_SERVER__HTTP_ORIGINS"
            raise _forbidden("ORIGIN_NOT_ALLOWED", message)
        if not origin:
            return
        exchange.extra += [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", "x-request-id, trailer-x-request-id, retry-after"),
            ("vary", "origin"),
        ]
        if exchange.method == "OPTIONS":
            exchange.extra += [
                ("access-control-allow-methods", "GET, POST"),
                ("access-control-allow-headers", _REQUEST_HEADERS),
                ("access-control-max-age", _PREFLIGHT_SECONDS),
            ]


def _forbidden(reason: str, message: str) -> HttpRefusal:
    return HttpRefusal(HTTPStatus.FORBIDDEN, PermissionDenied(reason, message))


_LINES = "application/x-ndjson"
_OPENAPI = "/openapi.json"

log = structlog.get_logger(__name__)


class HttpFront:
    """The ASGI application of one server.

    Args:
        channel: A channel to the process's own gRPC server.
        requests: The bound of concurrent requests.
        pages: The rules about web pages.
        largest: Most bytes of a protobuf message. A JSON message may have twice as many.
        openapi: The document at `/openapi.json`, which is not served if this is empty.
    """

    def __init__(
        self, channel: grpc.aio.Channel, requests: Limiter, pages: PageRules, *, largest: int, openapi: bytes
    ) -> None:
        self._channel = channel
        self._requests = requests
        self._pages = pages
        self._largest = largest
        self._openapi = openapi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI demands."""
        exchange = Exchange(scope, receive, send)
        try:
            self._pages.check(exchange)
            with self._requests.acquire():
                await self._answer(exchange)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # otherwise the caller has disconnected, which cancelled its call
        except Exception as error:  # noqa: BLE001 - the last place where an error can become an answer
            await exchange.refuse(_wire(error, exchange.path))

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await exchange.answer(HTTPStatus.NO_CONTENT, b"", ())
        elif exchange.path == _OPENAPI and self._openapi and exchange.method == "GET":
            await exchange.answer(HTTPStatus.OK, self._openapi, (("content-type", "application/json"),))
        else:
            await self._call(exchange, _method(exchange))

    async def _call(self, exchange: Exchange, method: Method) -> None:
        if exchange.method == "GET":
            await self._unary(exchange, method, *_asked_by_url(exchange))
            return
        exchange.query(())  # the message is the body
        streamed, codec = _codec(exchange, method)
        if streamed:
            await self._envelopes(exchange, method, codec)
        elif method.server_streaming:
            await self._lines(exchange, method, await self._body(exchange, codec))
        else:
            await self._unary(exchange, method, codec, await self._body(exchange, codec))

    async def _body(self, exchange: Exchange, codec: Codec) -> bytes:
        if exchange.headers.get("content-encoding", "identity") != "identity":
            raise Unimplemented("COMPRESSED", "compressed bodies are not supported: send them uncompressed")
        return await exchange.body(self._bound(codec))

    def _bound(self, codec: Codec) -> int:
        return self._largest * (2 if codec is JSON else 1)

    async def _unary(self, exchange: Exchange, method: Method, codec: Codec, body: bytes) -> None:
        call = call_of(method, exchange)
        with call.open(self._channel, await codec.to_grpc(body, method.request), exchange) as opened:
            answer = await opened
            await call.take_trailers(opened)
        content = await codec.from_grpc(answer, method.response)
        head = (("content-type", f"application/{codec.name}"), *call.trailer_headers())
        await exchange.answer(HTTPStatus.OK, content, head)

    async def _lines(self, exchange: Exchange, method: Method, body: bytes) -> None:
        """Answer a streaming call with lines of JSON: for each message `{"result": …}`, or `{"error": …}` last.

        If the call fails before its first message, answer like a unary call.
        """
        call = call_of(method, exchange)
        head = (("content-type", _LINES), ("cache-control", "no-store"))
        with call.open(self._channel, await JSON.to_grpc(body, method.request), exchange) as opened:
            try:
                async for message in opened:
                    if not exchange.begun:
                        await exchange.begin(HTTPStatus.OK, head)
                    await exchange.write(b'{"result": ' + await JSON.from_grpc(message, method.response) + b"}\n")
            except grpc.aio.AioRpcError as error:
                if not exchange.begun:
                    raise
                line = json.dumps({"error": errors.wire_error_of_call(error).body}, ensure_ascii=False)
                await exchange.write(line.encode() + b"\n")
        if not exchange.begun:
            await exchange.begin(HTTPStatus.OK, head)
        await exchange.write(b"", more=False)

    async def _envelopes(self, exchange: Exchange, method: Method, codec: Codec) -> None:
        """Answer a streaming call with envelopes. The last one has the trailers and the error, if any."""
        await exchange.begin(HTTPStatus.OK, (("content-type", f"application/connect+{codec.name}"),))
        metadata: dict[str, list[str]] = {}
        failure: WireError | None = None
        try:
            call = call_of(method, exchange)
            metadata = call.trailers
            await self._send_envelopes(exchange, call, codec)
        except Exception as error:  # noqa: BLE001 - the last place where an error can become an answer
            failure = _wire(error, exchange.path)
        await exchange.write(last_envelope(metadata, failure.body if failure else None), more=False)

    async def _send_envelopes(self, exchange: Exchange, call: Call, codec: Codec) -> None:
        requests = [message async for message in read_envelopes(exchange.chunks(), self._bound(codec))]
        if len(requests) != 1:
            raise InvalidArgument("BAD_ENVELOPE", f"the body has {len(requests)} messages: send exactly one")
        request = await codec.to_grpc(requests[0], call.method.request)
        with call.open(self._channel, request, exchange) as opened:
            async for message in opened:
                await exchange.write(enclose(await codec.from_grpc(message, call.method.response)))
            await call.take_trailers(opened)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _wire(error: Exception, path: str) -> WireError:
    if isinstance(error, grpc.aio.AioRpcError):
        return errors.wire_error_of_call(error)
    if isinstance(error, HttpRefusal):
        return wire_error_of_refusal(error)
    if isinstance(error, LemanError):
        return errors.wire_error(error)
    log.error("a request over HTTP failed", path=path, exc_info=error)
    return errors.wire_error(Internal("INTERNAL_BUG", "The service has a bug: see its log"))


def _method(exchange: Exchange) -> Method:
    """Return the method that a request calls.

    Raises:
        HttpRefusal: NO_SUCH_METHOD, HTTP_METHOD.
        Unimplemented: CLIENT_STREAM.
    """
    method = callable_methods().get(exchange.path)
    if method is None:
        error: LemanError = NotFound(
            "NO_SUCH_METHOD",
            f"{exchange.path[:200]} is not a method: paths are /leman.v1.Service/Method, and {_OPENAPI} lists them",
        )
        raise HttpRefusal(HTTPStatus.NOT_FOUND, error)
    allowed = ("GET", "POST") if method.allows_get else ("POST",)
    if exchange.method not in allowed:
        error = InvalidArgument("HTTP_METHOD", f"{method.path} needs another HTTP method: use {' or '.join(allowed)}")
        raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, error, ("allow", ", ".join(allowed)))
    if method.client_streaming:
        raise Unimplemented("CLIENT_STREAM", f"{method.path} takes a stream of messages: call it over gRPC")
    return method


def _codec(exchange: Exchange, method: Method) -> tuple[bool, Codec]:
    """Return whether the messages of a request are in envelopes, and their codec.

    Raises:
        HttpRefusal: CONTENT_TYPE.
    """
    streamed = exchange.content_type.startswith("application/connect+")
    name = exchange.content_type.removeprefix("application/").removeprefix("connect+")
    codec = CODECS.get(name) if exchange.content_type.startswith("application/") else None
    lines = codec is JSON and _LINES in exchange.headers.get("accept", "")
    fits = streamed or lines if method.server_streaming else not streamed
    if codec is None or not fits or not exchange.is_utf8:
        raise _bad_content_type(method)
    return streamed, codec


def _bad_content_type(method: Method) -> HttpRefusal:
    forms = "application/json or application/proto"
    if method.server_streaming:
        forms = f"application/json with `Accept: {_LINES}`, or application/connect+json or application/connect+proto"
    error = InvalidArgument("CONTENT_TYPE", f"send {method.path} with the Content-Type {forms}", field="content-type")
    accepted = "application/connect+json, application/connect+proto" if method.server_streaming else "application/json"
    return HttpRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, error, ("accept-post", accepted))


#: Parameters of a GET.
_QUERY = ("message", "encoding", "base64", "compression", "connect")


def _asked_by_url(exchange: Exchange) -> tuple[Codec, bytes]:
    """Return the codec and the message in the URL of a GET (https://connectrpc.com/docs/protocol/#unary-get-request).

    Raises:
        InvalidArgument: BAD_MESSAGE.
        Unimplemented: COMPRESSED.
    """
    query = exchange.query(_QUERY)
    codec = CODECS.get(query.get("encoding", "json"))
    if codec is None:
        raise InvalidArgument("BAD_MESSAGE", "encoding has to be `json` or `proto`", field="encoding")
    if query.get("compression", "identity") != "identity":
        raise Unimplemented("COMPRESSED", "compressed messages are not supported: send them uncompressed")
    message = query.get("message", "")
    if query.get("base64") != "1":
        return codec, message.encode()
    try:
        return codec, decode_base64(message)
    except ValueError:
        raise InvalidArgument("BAD_MESSAGE", "message is not base64", field="message") from None
