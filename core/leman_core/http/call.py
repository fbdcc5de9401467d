"""A call that came over HTTP: what of it goes on to gRPC, and what of the answer comes back."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from leman_core.http.codecs import unpadded
from leman_core.http.exchange import Exchange
from leman_core.http.methods import Method
from leman_core.model.errors import InvalidArgument
from leman_core.server.auth.forwarded_identity import FORWARDED_FOR
from leman_core.server.interceptors import REQUEST_ID

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
    return InvalidArgument("BAD_HEADER", f"the header {name} {what}: mend it", field=name)
