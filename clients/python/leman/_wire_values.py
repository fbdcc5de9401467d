"""Values that many messages have: durations, times, words, names of functions."""

from __future__ import annotations

import datetime
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from leman.v1 import udf_pb2


def seconds(message: duration_pb2.Duration) -> float:
    """A duration in seconds; 0 where it is not set."""
    return (message.seconds * 10**9 + message.nanos) / 10**9


def duration(value: float | None) -> duration_pb2.Duration | None:
    """Seconds on the wire; None leaves the field out."""
    if value is None:
        return None
    message = duration_pb2.Duration()
    message.FromMicroseconds(round(value * 1e6))
    return message


def time(message: timestamp_pb2.Timestamp) -> datetime.datetime:
    """A moment, in UTC."""
    return message.ToDatetime(tzinfo=datetime.UTC)


def word(kind: Any, value: int, prefix: str) -> str:
    """A value of an enum as callers see it: `REFRESH_MODE_NO_OP` is `no_op`; empty where it is not given."""
    name: str = kind.Name(value)
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()


def given(message: Any, field: str) -> Any:
    """A field that may be left out; None: it is."""
    return getattr(message, field) if message.HasField(field) else None


def ref(name: str, version: str = "") -> udf_pb2.UdfRef:
    """A function by its name on the wire."""
    return udf_pb2.UdfRef(name=name, version=version)
