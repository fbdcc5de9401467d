"""What tells two requests under one request id apart: their whole bodies."""

from __future__ import annotations

import hashlib

from google.protobuf.message import Message

from core.errors import reused


def body_digest(request: Message) -> str:
    """Return the identity of a request as it was sent, as hex: its kind and every field, unknown ones too.

    It is that of a serialisation, which another release of protobuf may write otherwise: a request that is sent again
    over such an upgrade counts as another one.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def check_body(request_id: str, known: str, asked: str) -> None:
    """Refuse a request id that came with another body before.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
    """
    if known != asked:
        raise reused(request_id)
