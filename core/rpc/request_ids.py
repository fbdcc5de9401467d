"""How long request ids may be: they are kept with what was made, in versions of tables and in jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.errors import InvalidArgument

REQUEST_ID = "request_id"
_LONGEST = 1_024


def check_of(kind: Any) -> Callable[[Any], None]:
    """Return what refuses messages of a kind whose request id, or their header's, is too long.

    What it returns raises InvalidArgument (BAD_REQUEST).

    Args:
        kind: their descriptor.
    """
    if REQUEST_ID in kind.fields_by_name:
        return lambda message: _check(message.request_id)
    header = kind.fields_by_name.get("header")
    if header is not None and header.message_type is not None and REQUEST_ID in header.message_type.fields_by_name:
        return lambda message: _check(message.header.request_id)
    return lambda _message: None


def _check(request_id: str) -> None:
    if len(request_id) > _LONGEST:
        message = f"request_id has {len(request_id)} characters, and may have {_LONGEST}: choose a shorter one"
        raise InvalidArgument("BAD_REQUEST", message, field=REQUEST_ID)
