"""Conversions of durations, times, functions and request ids. Does not import grpc, as `leman.udf` uses it."""

from __future__ import annotations

import datetime
import hashlib
import uuid
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from leman.errors import InvalidArgument
from leman.v1 import udf_pb2


def seconds(message: duration_pb2.Duration) -> float:
    """Return a duration in seconds, or 0 if it is not set."""
    return (message.seconds * 10**9 + message.nanos) / 10**9


def duration_message(value: float | None) -> duration_pb2.Duration | None:
    """Return seconds for the wire, or None to leave the field out."""
    if value is None:
        return None
    message = duration_pb2.Duration()
    message.FromMicroseconds(round(value * 1e6))
    return message


def time(message: timestamp_pb2.Timestamp) -> datetime.datetime:
    return message.ToDatetime(tzinfo=datetime.UTC)


def enum_word(kind: Any, value: int, prefix: str) -> str:
    """Return an enum value as callers see it: `no_op` for `REFRESH_MODE_NO_OP`, and "" for unspecified."""
    name: str = kind.Name(value)
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()


def or_none(message: Any, field: str) -> Any:
    """Return an optional field, or None if it is not set."""
    return getattr(message, field) if message.HasField(field) else None


def function_ref(name: str, version: str = "") -> udf_pb2.UdfRef:
    return udf_pb2.UdfRef(name=name, version=version)


def checked_request_id(given: str | None) -> str:
    """Return the id under which a change is made once: the caller's, or a new one. Raises InvalidArgument."""
    if given is None:
        return uuid.uuid4().hex
    return _checked(given)


def derived_request_id(given: str | None, what: str) -> str | None:
    """Return a request id for a second change of the same call, which no caller would choose, or None for None."""
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
