"""The id under which a change is made once, however often it is sent."""

from __future__ import annotations

import uuid

from leman.errors import InvalidArgument


def id_of(given: str | None) -> str:
    """The id of a change: its caller's, or a new one. Raises InvalidArgument."""
    if given is None:
        return uuid.uuid4().hex
    if not given:
        raise InvalidArgument("request_id is empty: leave it out to have one made up")
    return given


def derived(given: str | None, what: str) -> str | None:
    """The id of a further change of one call, where its caller gave the first one."""
    return None if given is None else f"{given}-{what}"
