"""Messages as they travel over HTTP. On the way to gRPC they are bytes of protobuf."""

from __future__ import annotations

import asyncio
import base64
from typing import Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from leman_core.model.errors import InvalidArgument

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
