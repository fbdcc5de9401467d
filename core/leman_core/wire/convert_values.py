"""Values that many messages have: durations, times, numbers that may be left out, names of functions."""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

import math
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from leman.v1 import udf_pb2
from leman_core.model.errors import InvalidArgument

#: Workers of a job, and threads of each of them, that a request may ask for.
MOST_WORKERS, MOST_THREADS = 10_000, 1_000

#: The longest duration that protobuf knows: 10,000 years.
_LONGEST_SECONDS = 315_576_000_000
#: The times that protobuf knows: of the years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def duration_to_proto(seconds: float) -> Duration:
    """Return a duration of microseconds, which is what a float of seconds is good for."""
    message = Duration()
    message.FromMicroseconds(round(min(seconds, _LONGEST_SECONDS) * 1e6))
    return message


def seconds_from_proto(message: Any, field: str, *, default: float = 0.0) -> float:
    """Return the seconds of a duration that may be left out.

    Raises:
        InvalidArgument: BAD_NUMBER – it is set and not a duration, or negative.
    """
    if not message.HasField(field):
        return default
    given: Duration = getattr(message, field)
    seconds = (given.seconds * 10**9 + given.nanos) / 10**9
    malformed = abs(given.seconds) > _LONGEST_SECONDS or abs(given.nanos) >= 10**9 or given.seconds * given.nanos < 0
    if malformed or seconds < 0:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"{field} is {given.seconds} s and {given.nanos} ns: set a duration of zero or more, or leave it out",
            field=field,
        )
    return seconds


def timestamp_to_proto(seconds: float) -> Timestamp:
    message = Timestamp()
    message.FromMicroseconds(int(seconds * 1e6))
    return message


def microseconds_from_proto(message: Any, field: str) -> int | None:
    """Return a time that may be left out, in microseconds since the epoch.

    Raises:
        InvalidArgument: BAD_TIME – it is set and no time of the years 1 to 9999.
    """
    if not message.HasField(field):
        return None
    given: Timestamp = getattr(message, field)
    if not (_FIRST_SECOND <= given.seconds <= _LAST_SECOND and 0 <= given.nanos < 10**9):
        raise InvalidArgument(
            "BAD_TIME", f"{field} is {given.seconds} s and {given.nanos} ns: set a time, or leave it out", field=field
        )
    return given.seconds * 10**6 + round(given.nanos / 1000)


def number_from_proto(message: Any, field: str, *, least: float = 1, most: float = math.inf, default: Any = 0) -> Any:
    """Return a number that may be left out.

    Args:
        message: What has the field.
        field: Its name.
        least: The least value that it may have where it is set.
        most: The largest one.
        default: What is returned where it is not set.

    Raises:
        InvalidArgument: BAD_NUMBER – it is set and below `least`, above `most`, or no number at all.
    """
    if not message.HasField(field):
        return default
    value = getattr(message, field)
    if not value >= least or math.isinf(value):
        what = f"{least} or more" if least else "zero or more"
        raise InvalidArgument("BAD_NUMBER", f"{field} is {value}: set {what}, or leave it out", field=field)
    if value > most:
        raise InvalidArgument("BAD_NUMBER", f"{field} is {value}: set {most:,} or less, or leave it out", field=field)
    return value


def positive_from_proto(message: Any, field: str) -> float:
    """Return a number above 0 that may be left out; 0: it is.

    Raises:
        InvalidArgument: BAD_NUMBER – it is set and not above 0.
    """
    value = float(number_from_proto(message, field, least=0))
    if message.HasField(field) and value == 0:
        raise InvalidArgument("BAD_NUMBER", f"{field} is 0: set a number above it, or leave it out", field=field)
    return value


def given(value: Any) -> Any:
    """Return what a field that may be left out is set to: None, which leaves it out, for what is empty here."""
    return value or None


def unless_negative(number: int) -> int | None:
    """Return what a field that may be left out is set to: None, which leaves it out, for what is negative here."""
    return None if number < 0 else number


def ref_to_proto(name: str, version: str) -> udf_pb2.UdfRef | None:
    """Return the name of a function as a message; None where there is none."""
    return udf_pb2.UdfRef(name=name, version=version) if name or version else None
