"""A call that came over HTTP: its method, its codec, its metadata.

What can be called over HTTP: the public contract's methods, and Health.Check.

Messages as they travel over HTTP. On the way to gRPC they are bytes of protobuf.

A call that came over HTTP: what of it continues to gRPC, and what of the answer comes back.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from leman_core.http.exchange import Exchange
from leman_core.model.service_errors import InvalidArgument
from leman_core.server.callers import FORWARDED_FOR
from leman_core.server.interceptors import REQUEST_ID
from leman_core.server.request_messages import allows_get
from leman_core.server.routes import path_of, public_services

#: Its proto is not ours, and has no idempotency level.
_CHECK = "grpc.health.v1.Health.Check"


@dataclass(frozen=True, slots=True)
class Method:
    """A method with the classes of its messages."""

    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool
    #: Whether GET may ask for it, too.
    allows_get: bool


@functools.cache
def callable_methods() -> dict[str, Method]:
    """Return all of them, by the path of their calls."""
    check: Any = health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name["Check"]
    found: list[Any] = [method for service in public_services().values() for method in service.methods]
    return {path_of(method): _method(method) for method in (*found, check)}


def _method(method: MethodDescriptor) -> Method:
    return Method(
        path_of(method),
        message_factory.GetMessageClass(method.input_type),
        message_factory.GetMessageClass(method.output_type),
        method.client_streaming,
        method.server_streaming,
        method.full_name == _CHECK or (allows_get(method) and not method.server_streaming),
    )


#: A message of so many bytes is translated in a thread: other calls go on meanwhile.
_LARGE = 256 << 10


class Codec(Protocol):
    """One way to write messages."""

    name: str

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        """Return a request's bytes.

        Raises:
            InvalidArgument: BAD_MESSAGE.
        """
        ...

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:
        """Return an answer as it is sent."""
        ...


class JsonCodec:
    """Protobuf's own JSON: https://protobuf.dev/programming-guides/json/. An unknown field is an error."""

    name = "json"

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        return await asyncio.to_thread(_parsed, body, kind) if len(body) > _LARGE else _parsed(body, kind)

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:
        return await asyncio.to_thread(_printed, message, kind) if len(message) > _LARGE else _printed(message, kind)


class ProtoCodec:
    """Bytes of protobuf, passed through."""

    name = "proto"

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        try:
            kind.FromString(body)
        except DecodeError as error:
            raise InvalidArgument("BAD_MESSAGE", f"the body is no {kind.DESCRIPTOR.full_name}: {error}") from None
        return body

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:  # noqa: ARG002 - given to every codec
        return message


JSON, PROTO = JsonCodec(), ProtoCodec()
CODECS: dict[str, Codec] = {codec.name: codec for codec in (JSON, PROTO)}


def unpadded(text: str, altchars: bytes = b"+/") -> bytes:
    """Return what base64 stands for, with its padding or without.

    Raises:
        binascii.Error: It is none.
    """
    bare = text.rstrip("=")
    return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars, validate=True)


def _parsed(body: bytes, kind: type[Message]) -> bytes:
    if body and body.lstrip()[:1] != b"{":
        message = f"the body is no {kind.DESCRIPTOR.full_name} in JSON: that is an object, {{…}}"
        raise InvalidArgument("BAD_MESSAGE", message)
    try:
        return json_format.Parse(body or b"{}", kind()).SerializeToString()
    except (json_format.ParseError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
        what = str(error)[:500] or type(error).__name__
        raise InvalidArgument("BAD_MESSAGE", f"the body is no {kind.DESCRIPTOR.full_name} in JSON: {what}") from None


def _printed(message: bytes, kind: type[Message]) -> bytes:
    return json_format.MessageToJson(kind.FromString(message), indent=None, ensure_ascii=False).encode()


#: Headers that are metadata of the call, beside those that begin with `x-`.
_METADATA = ("authorization", "traceparent", "tracestate", "baggage")
#: Of these, headers that services give to each other, and that proxies add.
_NOT_FROM_CALLERS = ("x-leman-", "x-forwarded-", "x-real-ip")
_TIMEOUT = "connect-timeout-ms"
_LONGEST_TIMEOUT = 10  # digits
#: Of all metadata of a call: gRPC refuses what is larger, and says that it may be tried again.
_METADATA_BYTES = 8_000
#: What gRPC reckons for each of them, beside its name and its value.
_EACH_BYTES = 32


@dataclass(slots=True)
class Call:
    """One call on the process's own gRPC server; messages are bytes."""

    method: Method
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    request_id: str
    trailers: dict[str, list[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def open(self, channel: grpc.aio.Channel, request: bytes, exchange: Exchange) -> Iterator[Any]:
        """Open it; it is cancelled where the block ends or the caller hangs up. The body has been read."""
        path = self.method.path
        opener: Any = channel.unary_stream(path) if self.method.server_streaming else channel.unary_unary(path)
        opened = opener(request, timeout=self.timeout, metadata=self.metadata)
        watch = asyncio.ensure_future(_cancel_with_caller(exchange, opened))
        try:
            yield opened
        finally:
            watch.cancel()
            opened.cancel()

    async def take_trailers(self, opened: Any) -> None:
        """Keep what the answer carried beside its messages."""
        for key, value in await opened.trailing_metadata() or ():
            text = base64.b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value
            self.trailers.setdefault(key, []).append(text)

    def trailer_headers(self) -> list[tuple[str, str]]:
        """Return the trailers as headers of a unary answer."""
        return [(f"trailer-{key}", value) for key, values in self.trailers.items() for value in values]


def call_of(method: Method, exchange: Exchange) -> Call:
    """Return the call that a request asks for.

    Raises:
        InvalidArgument: BAD_HEADER.
    """
    given = {name: value for name, value in exchange.headers.items() if _is_metadata(name)}
    _check_size(given)
    request_id = given.setdefault(REQUEST_ID, uuid.uuid4().hex)
    exchange.extra.append((REQUEST_ID, request_id if _is_sendable(request_id) else ""))
    metadata = tuple((name, _metadata_value(name, value)) for name, value in given.items())
    metadata += ((FORWARDED_FOR, exchange.address),)  # else the log would know no other address than this process's
    return Call(method, _timeout(exchange), metadata, request_id)


async def _cancel_with_caller(exchange: Exchange, opened: Any) -> None:
    await exchange.hung_up()
    opened.cancel()


def _is_metadata(name: str) -> bool:
    return name in _METADATA or (name.startswith("x-") and not name.startswith(_NOT_FROM_CALLERS))


def _check_size(given: Mapping[str, str]) -> None:
    sizes = {name: len(name) + len(value) + _EACH_BYTES for name, value in given.items()}
    if sum(sizes.values()) > _METADATA_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        whole = f"{sum(sizes.values())} bytes, and may have {_METADATA_BYTES}"
        raise _bad_header(largest, f"is too long: all that go with a call have {whole}")


def _is_sendable(value: str) -> bool:
    return all(" " <= character <= "~" for character in value)


def _metadata_value(name: str, value: str) -> str | bytes:
    try:
        if name.endswith("-bin"):
            return unpadded(value)
    except (binascii.Error, ValueError):
        raise _bad_header(name, "is not base64") from None
    if not _is_sendable(value):
        raise _bad_header(name, "has characters that are not visible ASCII")
    return value


def _timeout(exchange: Exchange) -> float | None:
    given = exchange.headers.get(_TIMEOUT)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _LONGEST_TIMEOUT):
        raise _bad_header(_TIMEOUT, f"is a number of milliseconds of at most {_LONGEST_TIMEOUT} digits")
    return int(given) / 1000


def _bad_header(name: str, what: str) -> InvalidArgument:
    return InvalidArgument("BAD_HEADER", f"the header {name} {what}: fix it", field=name)
