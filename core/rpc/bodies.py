"""What tells two requests under one request id apart: their whole bodies."""

from __future__ import annotations

import hashlib

from google.protobuf.message import Message

from core.errors import reused


def body_digest(request: Message) -> str:
    """Identity of a request as it was sent: its kind and every field, unknown ones too. As hex.

    It is that of a serialisation, which another release of protobuf may write otherwise: a request that is sent again
    over such an upgrade counts as another one.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def check_body(request_id: str, known: str, asked: str) -> None:
    """Raises AlreadyExists (REQUEST_ID_REUSED) where a request id came with another body than before."""
    if known != asked:
        raise reused(request_id)
