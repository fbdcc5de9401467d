"""Values that many messages have: durations, times, names of functions, request ids. Without grpc: `leman.udf` uses it.

Values that many messages have: durations, times, words, names of functions.

The id under which a change is made once, however often it is sent.
"""

from __future__ import annotations

import datetime
import hashlib
import uuid
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from leman.errors import InvalidArgument
from leman.v1 import udf_pb2


def seconds(message: duration_pb2.Duration) -> float:
    """A duration in seconds; 0 where it is not set."""
    return (message.seconds * 10**9 + message.nanos) / 10**9


def duration_message(value: float | None) -> duration_pb2.Duration | None:
    """Seconds on the wire; None leaves the field out."""
    if value is None:
        return None
    message = duration_pb2.Duration()
    message.FromMicroseconds(round(value * 1e6))
    return message


def time(message: timestamp_pb2.Timestamp) -> datetime.datetime:
    """A moment, in UTC."""
    return message.ToDatetime(tzinfo=datetime.UTC)


def enum_word(kind: Any, value: int, prefix: str) -> str:
    """A value of an enum as callers see it: `REFRESH_MODE_NO_OP` is `no_op`; empty where it is not given."""
    name: str = kind.Name(value)
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()


def or_none(message: Any, field: str) -> Any:
    """A field that may be left out; None: it is."""
    return getattr(message, field) if message.HasField(field) else None


def function_ref(name: str, version: str = "") -> udf_pb2.UdfRef:
    """A function by its name on the wire."""
    return udf_pb2.UdfRef(name=name, version=version)


def checked_request_id(given: str | None) -> str:
    """The id of a change: its caller's, or a new one. Raises InvalidArgument."""
    if given is None:
        return uuid.uuid4().hex
    return _checked(given)


def derived_request_id(given: str | None, what: str) -> str | None:
    """The id of a further change of one call, where its caller gave the first: one that no one else gives by chance."""
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
