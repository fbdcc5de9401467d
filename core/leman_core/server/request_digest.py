"""What tells two requests under one request id apart: their whole bodies, and the rows behind them."""

from __future__ import annotations

import functools
import hashlib
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from leman_core.model.errors import reused, reused_for_rows
from leman_core.model.sent_rows import SentRows

_Request = TypeVar("_Request", bound=Message)


def body_digest(request: Message) -> str:
    """Return the identity of a request as it was sent, as hex: its kind and every field, unknown ones too.

    The values of a map of secrets (`debug_redact`) are left out, as digests are stored; its keys are in it.
    It is that of a serialisation, which another release of protobuf may write otherwise: a request that is sent again
    over such an upgrade counts as another one.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    request = without_secrets(request)
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def without_secrets(request: _Request, *, keys: bool = True) -> _Request:
    """Return a request with no value in its maps of secrets (`debug_redact`), which is a copy where there was one.

    Args:
        keys: whether their keys stay.
    """
    given = [field.name for field in _secret_maps(request.DESCRIPTOR) if getattr(request, field.name)]
    if not given:
        return request
    copy = type(request)()
    copy.CopyFrom(request)
    for name in given:
        secrets = getattr(copy, name)
        names = list(secrets) if keys else []
        secrets.clear()
        secrets.update(dict.fromkeys(names, ""))
    return copy


@functools.cache
def _secret_maps(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    return tuple(field for field in kind.fields if field.GetOptions().debug_redact)


def with_rows(body: str, rows: SentRows) -> str:
    """Return the identity of a request behind which rows were sent; `body` is that of the request alone."""
    return f"{body} {rows}"


def rows_of(body: str) -> SentRows | None:
    """Return the rows behind a request; None where its body does not tell them, or in a way that is not known here."""
    try:
        return SentRows.parse(body.partition(" ")[2])
    except ValueError:
        return None


def same_but_for_rows(known: str, asked: str) -> bool:
    """Tell whether two requests differ in the rows behind them at the most."""
    return known.partition(" ")[0] == asked.partition(" ")[0]


def check_body(request_id: str, known: str, asked: str) -> None:
    """Refuse a request id that came with another body before.

    Rows are compared where both sides tell them: who asks before they have come cannot, nor can what a release noted
    that did not look at them.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
    """
    if known == asked:
        return
    if not same_but_for_rows(known, asked):
        raise reused(request_id)
    first, now = rows_of(known), rows_of(asked)
    if first is not None and now is not None:
        raise reused_for_rows(request_id, first.difference(now))
