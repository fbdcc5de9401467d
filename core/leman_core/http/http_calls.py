"""Calls over HTTP: the methods of the public contract and Health.Check, their codecs, and their metadata as headers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from leman_core.http.exchange import Exchange
from leman_core.model.service_errors import InvalidArgument
from leman_core.server.callers import FORWARDED_FOR
from leman_core.server.interceptors import REQUEST_ID
from leman_core.server.request_messages import allows_get
from leman_core.server.routes import path_of, public_services

#: A method that GET may call although its proto does not say that it is idempotent.
_CHECK = "grpc.health.v1.Health.Check"


@dataclass(frozen=True, slots=True)
class Method:
    """A gRPC method with the classes of its messages."""

    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool
    #: Whether GET may call it, too.
    allows_get: bool


@functools.cache
def callable_methods() -> dict[str, Method]:
    """Return the methods that can be called over HTTP, by path."""
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


#: Messages above this size are converted in a thread, so that other calls can proceed meanwhile.
_LARGE = 256 << 10


class Codec(Protocol):
    """A format of messages over HTTP."""

    name: str

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        """Convert a request body to protobuf.

        Raises:
            InvalidArgument: BAD_MESSAGE.
        """
        ...

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:
        """Convert an answer from protobuf."""
        ...


class JsonCodec:
    """ProtoJSON, https://protobuf.dev/programming-guides/json/. An unknown field is an error."""

    name = "json"

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        return await asyncio.to_thread(_parsed, body, kind) if len(body) > _LARGE else _parsed(body, kind)

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:
        return await asyncio.to_thread(_printed, message, kind) if len(message) > _LARGE else _printed(message, kind)


class ProtoCodec:
    """Binary protobuf. Messages are checked but not converted."""

    name = "proto"

    async def to_grpc(self, body: bytes, kind: type[Message]) -> bytes:
        try:
            kind.FromString(body)
        except DecodeError as error:
            raise InvalidArgument("BAD_MESSAGE", f"the body is not a {kind.DESCRIPTOR.full_name}: {error}") from None
        return body

    async def from_grpc(self, message: bytes, kind: type[Message]) -> bytes:  # noqa: ARG002 - given to every codec
        return message


JSON, PROTO = JsonCodec(), ProtoCodec()
CODECS: dict[str, Codec] = {codec.name: codec for codec in (JSON, PROTO)}


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*(={0,2})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 400
_TOO_DEEP = "its objects and lists are nested deeper than 100, the most that protobuf reads"
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
#: Messages that are strings in JSON: the pattern of the string, and its description for errors.
_TEXTS = {
    "google.protobuf.Duration": (re.compile(r"-?[0-9]+(?:\.[0-9]{1,9})?s"), 'seconds like "1.5s"'),
    "google.protobuf.Timestamp": (
        re.compile(r"[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}(?::[0-9]{2}){2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"),
        'a time like "2026-01-31T12:00:00Z"',
    ),
    "google.protobuf.FieldMask": (re.compile(r"[^_]*"), 'names of fields like "labels,maxErrors"'),
}
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
}
#: Above this number a float cannot represent every integer.
_INEXACT = 1 << 53
_LARGEST_FLOAT = {
    FieldDescriptor.CPPTYPE_FLOAT: (2 - 2.0**-23) * 2.0**127,
    FieldDescriptor.CPPTYPE_DOUBLE: sys.float_info.max,
}


def decode_base64(text: str) -> bytes:
    """Decode base64, in the standard or the URL-safe alphabet, with or without padding.

    Raises:
        ValueError: The text is not base64.
    """
    if not _is_base64(text):
        raise ValueError("it is not base64")
    bare = text.rstrip("=")
    return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))


def _is_base64(text: str) -> bool:
    """Return whether a text is base64 in either alphabet, with complete padding or none."""
    found = _BASE64.fullmatch(text)
    return found is not None and (len(text) % 4 == 0 if found[1] else len(text) % 4 != 1)


def _parsed(body: bytes, kind: type[Message]) -> bytes:
    if body and body.lstrip()[:1] != b"{":
        message = f"the body is not a {kind.DESCRIPTOR.full_name} in JSON: send an object, {{…}}"
        raise InvalidArgument("BAD_MESSAGE", message)
    try:
        content = json.loads(body.decode() or "{}", object_pairs_hook=_object, parse_int=_integer)
        _check_message(content, kind.DESCRIPTOR, "")
        return json_format.ParseDict(content, kind()).SerializeToString()
    except _WrongField as error:
        message = f"the body is not a {kind.DESCRIPTOR.full_name} in JSON: {error}"
        raise InvalidArgument("BAD_MESSAGE", message, field=error.path) from None
    except (json_format.ParseError, RecursionError, ValueError, TypeError) as error:
        too_deep = isinstance(error, RecursionError) or "recursion depth" in str(error)
        what = _TOO_DEEP if too_deep else str(error)[:500] or type(error).__name__
        raise InvalidArgument("BAD_MESSAGE", f"the body is not a {kind.DESCRIPTOR.full_name} in JSON: {what}") from None


def _integer(text: str) -> int:
    """Return a whole number; of more digits than any type has, the first ones, which are out of range as well."""
    return int(text[:_LONGEST_NUMBER])


class _WrongField(Exception):
    """A field of a body has a value that ProtoJSON does not allow there."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path[:_PATH_CHARS]} {what}")
        self.path = path[:_PATH_CHARS]


_PATH_CHARS, _VALUE_CHARS = 200, 60


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _WrongField(twice, "occurs twice: send it once")
    return found


@functools.cache
def _fields(message: Any) -> Mapping[str, FieldDescriptor]:
    """Return the fields of a message by both names that they may have in JSON."""
    return {**message.fields_by_name, **{field.json_name: field for field in message.fields}}


def _check_message(value: Any, message: Any, path: str) -> None:
    """Refuse values that ProtoJSON does not allow, but that Python's parser of it accepts.

    Raises:
        _WrongField: A value is not allowed; the error has its path.
    """
    if (text := _TEXTS.get(message.full_name)) is not None:
        form, like = text
        if not isinstance(value, str) or form.fullmatch(value) is None:
            raise _WrongField(path, f"has to be {like}, not {_brief(value)}")
        return
    if not isinstance(value, dict):
        raise _WrongField(path, f"has to be an object, not {_kind(value)}")
    fields = _fields(message)
    names: dict[int, str] = {}
    for name, inner in value.items():
        here = f"{path}.{name}" if path else name
        if name not in fields:
            raise _WrongField(here, f"is not a field of {message.name}")
        if (other := names.setdefault(fields[name].number, name)) != name:
            raise _WrongField(here, f"stands there twice, also as {other}")
        if inner is not None:
            _check_field(inner, fields[name], here)


def _check_field(value: Any, field: FieldDescriptor, path: str) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(value, dict):
            raise _WrongField(path, f"has to be an object, not {_kind(value)}")
        of_key, of_item = (entry.fields_by_name[name] for name in ("key", "value"))
        for key, item in value.items():
            if of_key.cpp_type in _RANGES:
                _check_value(key, of_key, f"{path}.{key}")
            _check_value(item, of_item, f"{path}.{key}")
    elif field.is_repeated:
        if not isinstance(value, list):
            raise _WrongField(path, f"has to be a list, not {_kind(value)}")
        for at, item in enumerate(value):
            _check_value(item, field, f"{path}[{at}]")
    else:
        _check_value(value, field, path)


def _check_value(value: Any, field: FieldDescriptor, path: str) -> None:
    kind = field.cpp_type
    what = ""
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        _check_message(value, field.message_type, path)
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        what = "" if isinstance(value, bool) else "true or false"
    elif field.type == FieldDescriptor.TYPE_BYTES:
        what = "" if isinstance(value, str) and _is_base64(value) else "base64"
    elif kind == FieldDescriptor.CPPTYPE_STRING:
        what = "" if isinstance(value, str) else "text"
    elif kind in _LARGEST_FLOAT:
        what = "" if value in _NO_NUMBERS or _is_float(value, _LARGEST_FLOAT[kind]) else "a number"
    elif not (isinstance(value, str) and field.enum_type is not None and value in field.enum_type.values_by_name):
        least, most = _RANGES[kind]
        named = f"a whole number from {least} to {most}" if field.enum_type is None else field.enum_type.name
        what = "" if _is_whole(value, least, most) else named
    if what:
        raise _WrongField(path, f"has to be {what}, not {_kind(value) if what == 'text' else _brief(value)}")


def _number(value: Any) -> int | float | None:
    """Return the number that a JSON value is or holds as a string; None if it is something else."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value):
        value = json.loads(value)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _is_float(value: Any, largest: float) -> bool:
    number = _number(value)
    return number is not None and -largest <= number <= largest


def _is_whole(value: Any, least: int, most: int) -> bool:
    number = _number(value)
    if isinstance(number, float) and (not number.is_integer() or abs(number) > _INEXACT):
        return False
    return number is not None and least <= number <= most


def _brief(value: Any) -> str:
    """Return a short form of a value for an error."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float) else _kind(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


def _kind(value: Any) -> str:
    """Return the kind of a JSON value for an error, without the value itself, which may be secret."""
    return {dict: "an object", list: "a list", str: "text", bool: "true or false"}.get(
        type(value), "null" if value is None else "a number"
    )


def _printed(message: bytes, kind: type[Message]) -> bytes:
    return json_format.MessageToJson(kind.FromString(message), indent=None, ensure_ascii=False).encode()


#: Headers that become metadata of the call, in addition to those that begin with `x-`.
_METADATA = ("authorization", "traceparent", "tracestate", "baggage")
#: Prefixes of headers that are dropped, because only services and proxies may set them.
_NOT_FROM_CALLERS = ("x-leman-", "x-forwarded-", "x-real-ip")
_TIMEOUT = "connect-timeout-ms"
_LONGEST_TIMEOUT = 10  # digits
#: Most bytes of a call's metadata. gRPC would refuse more with an error that clients retry.
_METADATA_BYTES = 8_000
#: Bytes that gRPC adds to the size of each entry.
_EACH_BYTES = 32


@dataclass(slots=True)
class Call:
    """One call to the process's own gRPC server. Its messages are bytes."""

    method: Method
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    request_id: str
    trailers: dict[str, list[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def open(self, channel: grpc.aio.Channel, request: bytes, exchange: Exchange) -> Iterator[Any]:
        """Open the call for the duration of the block, and cancel it if the caller disconnects.

        Use it only after the request's body has been read.
        """
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
        """Store the trailers of the answer in `trailers`."""
        for key, value in await opened.trailing_metadata() or ():
            text = base64.b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value
            self.trailers.setdefault(key, []).append(text)

    def trailer_headers(self) -> list[tuple[str, str]]:
        """Return the trailers in the form of headers, as a unary answer has them."""
        return [(f"trailer-{key}", value) for key, values in self.trailers.items() for value in values]


def call_of(method: Method, exchange: Exchange) -> Call:
    """Return the gRPC call for an HTTP request.

    Raises:
        InvalidArgument: BAD_HEADER.
    """
    given = {name: value for name, value in exchange.headers.items() if _is_metadata(name)}
    _check_size(given)
    request_id = given.setdefault(REQUEST_ID, uuid.uuid4().hex)
    exchange.extra.append((REQUEST_ID, request_id if _is_sendable(request_id) else ""))
    metadata = tuple((name, _metadata_value(name, value)) for name, value in given.items())
    metadata += ((FORWARDED_FOR, exchange.address),)  # otherwise logs would show this process's address
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
        whole = f"{sum(sizes.values())} bytes in total, more than {_METADATA_BYTES}"
        raise _bad_header(largest, f"is too long: the headers of this call have {whole}")


def _is_sendable(value: str) -> bool:
    return all(" " <= character <= "~" for character in value)


def _metadata_value(name: str, value: str) -> str | bytes:
    try:
        if name.endswith("-bin"):
            return decode_base64(value)
    except ValueError:
        raise _bad_header(name, "is not base64") from None
    if not _is_sendable(value):
        raise _bad_header(name, "has characters other than printable ASCII")
    return value


def _timeout(exchange: Exchange) -> float | None:
    given = exchange.headers.get(_TIMEOUT)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _LONGEST_TIMEOUT):
        raise _bad_header(_TIMEOUT, f"has to be a number of milliseconds with at most {_LONGEST_TIMEOUT} digits")
    return int(given) / 1000


def _bad_header(name: str, what: str) -> InvalidArgument:
    return InvalidArgument("BAD_HEADER", f"the header {name} {what}: correct it", field=name)
