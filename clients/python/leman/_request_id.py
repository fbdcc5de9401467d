"""The id under which a change is made once, however often it is sent."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from leman.errors import InvalidArgument


def id_of(given: str | None) -> str:
    """The id of a change: its caller's, or a new one. Raises InvalidArgument."""
    if given is None:
        return uuid.uuid4().hex
    return _checked(given)


def derived(given: str | None, what: str) -> str | None:
    """The id of a further change of one call, where its caller gave the first: one that nobody else gives by chance."""
    if given is None:
        return None
    said = f"{_checked(given)}-{what}"
    return f"{said}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def _checked(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidArgument(f"request_id={given!r} is not a str: give one of your own, such as 'load-2026-11-23'")
    if not given:
        raise InvalidArgument("request_id is empty: leave it out to have one made up")
    return given
