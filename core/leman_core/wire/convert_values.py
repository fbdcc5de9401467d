"""Convert values that many messages have: Arrow schemas, enums, durations, times, labels, environment variables.

All functions raise InvalidArgument with UNKNOWN_VALUE for an enum value that this release does not know, and with
BAD_SCHEMA for bytes that are not an Arrow schema. No error shows the value of an environment variable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from leman._format.value_casts import check_utf8, map_inner_fields
from leman.v1 import udf_pb2
from leman_core.model.service_errors import CONTROL_CHARACTERS, InvalidArgument, excerpt
from leman_core.process.environment import STORE_BEGINNINGS, STORE_NAMES

Number = TypeVar("Number", bound=int)
Value = TypeVar("Value")


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Return an Arrow IPC schema message.

    Equal schemas give the same bytes. For this, metadata is sorted at every depth, because Lance returns its entries in
    another order each time that it opens a table.
    """
    fields = [_in_order(field) for field in schema]
    return bytes(pa.schema(fields, _sorted(schema.metadata)).serialize())


def schema_from_bytes(raw: bytes, field: str) -> pa.Schema:
    """Decode an IPC schema message. `field` is the request's field, for the error."""
    try:
        schema = pa.ipc.read_schema(pa.BufferReader(raw))
        check_utf8(schema)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgument(
            "BAD_SCHEMA", f"{field} is not an Arrow IPC schema message: {error}", field=field
        ) from None
    return schema


def field_from_bytes(raw: bytes, field: str) -> pa.Field:
    """Decode an IPC schema message that has exactly one field, and return that field."""
    return only_field(schema_from_bytes(raw, field), field)


def only_field(schema: pa.Schema, field: str) -> pa.Field:
    """Return the only field of a schema. `field` is the request's field, for the error."""
    if len(schema) != 1:
        raise InvalidArgument("BAD_SCHEMA", f"{field} must hold exactly one field, it holds {len(schema)}", field=field)
    return schema.field(0)


def enum_value(table: Mapping[Number, Value], number: Number, field: str) -> Value:
    """Return the model's value for the number of an enum. `field` is the request's field, for the error."""
    value = table.get(number)
    if value is None:
        listed = ", ".join(str(n) for n in sorted(table))
        raise InvalidArgument("UNKNOWN_VALUE", f"{field} is {number}; known are {listed}", field=field)
    return value


def _in_order(field: pa.Field) -> pa.Field:
    return field.with_type(map_inner_fields(field.type, _in_order)).with_metadata(_sorted(field.metadata))


def _sorted(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return dict(sorted(metadata.items())) if metadata else None


# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


#: The most workers of a job, and the most threads of each worker, that a request may ask for.
MOST_WORKERS, MOST_THREADS = 10_000, 1_000

#: The longest duration that protobuf allows: 10,000 years.
_LONGEST_SECONDS = 315_576_000_000
#: The times that protobuf allows: the years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def duration_to_proto(seconds: float) -> Duration:
    """Convert seconds to a duration, rounded to microseconds, as a float of seconds is not more precise."""
    message = Duration()
    message.FromMicroseconds(round(min(seconds, _LONGEST_SECONDS) * 1e6))
    return message


def seconds_from_proto(message: Any, field: str, *, default: float = 0.0) -> float:
    """Return the seconds of an optional duration.

    Raises:
        InvalidArgument: BAD_NUMBER – the field is set, but negative or not a valid duration.
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
    """Return an optional time, in microseconds since the epoch.

    Raises:
        InvalidArgument: BAD_TIME – the field is set, but not a time in the years 1 to 9999.
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
    """Return an optional number.

    Args:
        message: The message with the field.
        field: The name of the field.
        least: The smallest allowed number, if the field is set.
        most: The largest allowed number.
        default: The result if the field is not set.

    Raises:
        InvalidArgument: BAD_NUMBER – the field is set, but below `least`, above `most`, or not a number.
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
    """Return an optional number above 0, or 0 if the field is not set.

    Raises:
        InvalidArgument: BAD_NUMBER – the field is set, but not above 0.
    """
    value = float(number_from_proto(message, field, least=0))
    if message.HasField(field) and value == 0:
        raise InvalidArgument("BAD_NUMBER", f"{field} is 0: set a number above it, or leave it out", field=field)
    return value


def or_none(value: Any) -> Any:
    """Return a value for an optional field of a message: None if the value is empty."""
    return value or None


def unless_negative(number: int) -> int | None:
    """Return a number for an optional field of a message: None if the number is negative."""
    return None if number < 0 else number


def ref_to_proto(name: str, version: str) -> udf_pb2.UdfRef | None:
    """Return the message for a function's name and version; None if the name is empty."""
    return udf_pb2.UdfRef(name=name, version=version) if name or version else None


_MOST_LABELS = 32
_MOST_LABEL_BYTES = 255
_LABEL_KEY = re.compile(r"[A-Za-z0-9_./-]{1,63}")


def labels_from_proto(labels: Mapping[str, str], field: str = "labels") -> dict[str, str]:
    """Check and return the labels of a job or a database.

    Raises:
        InvalidArgument: BAD_LABEL – too many labels, or an invalid key or value.
    """
    if len(labels) > _MOST_LABELS:
        raise InvalidArgument("BAD_LABEL", f"{len(labels)} labels: at most {_MOST_LABELS} are allowed", field=field)
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            message = f"{excerpt(key)!r} is not a valid label key: use 1 to 63 letters, digits, _, -, . or /"
            raise InvalidArgument("BAD_LABEL", message, field=field)
        if len(value.encode()) > _MOST_LABEL_BYTES:
            message = f"the value of label {key} has {len(value.encode())} bytes: {_MOST_LABEL_BYTES} are allowed"
            raise InvalidArgument("BAD_LABEL", message, field=field)
        if found := CONTROL_CHARACTERS.search(value):
            message = f"the value of label {key} has the control character {found[0]!a}: send it without"
            raise InvalidArgument("BAD_LABEL", message, field=field)
    return dict(labels)


MOST_VARIABLES = 64
MOST_BYTES = 32 << 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Variables that function processes use themselves, so that jobs may not set them; in capitals. Some are read long
#: before a job begins, and others control how tables are read and written.
_RESERVED = frozenset(
    {"ALL_PROXY", "BASH_ENV", "GLIBC_TUNABLES", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "JAVA_HOME", "NO_PROXY", "PATH"}
    | {"PWD", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR"}
    | set(STORE_NAMES)
)
_RESERVED_BEGINNINGS = (
    *("LEMAN_", "LANCE_", "PYSPARK_", "PYTHON", "RUST_", "SPARK_", "DYLD_", "LD_", "MALLOC_"),
    *STORE_BEGINNINGS,
)
#: Variables that numpy's OpenBLAS reads when it is loaded, which is before its process gets a job.
_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS")


def env_from_proto(env: Mapping[str, str], field: str = "env") -> dict[str, str]:
    """Check and return the environment variables of a job or a preview.

    Raises:
        InvalidArgument: BAD_ENV – too many variables, or an invalid name or value.
    """
    if len(env) > MOST_VARIABLES:
        raise _bad(f"{len(env)} environment variables: at most {MOST_VARIABLES} are allowed", field)
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise _bad(
                "The name of an environment variable has letters, digits and _, and does not begin with a digit", field
            )
        if name.upper() in _THREAD_COUNTS:
            message = (
                f"{name} has no effect on a job, as numpy is there before its variables are: have the function say how "
                "many threads there are to be, as by threadpoolctl.threadpool_limits(4) or torch.set_num_threads(4)"
            )
            raise _bad(message, field)
        if is_reserved(name):
            message = (
                f"{name} cannot be set for a job, as the processes of functions go by it themselves: take another "
                "name, and have the function hand its value on"
            )
            raise _bad(message, field)
        if "\0" in value:
            raise _bad(f"The value of {name} has a NUL in it, which no environment variable can have", field)
    size = sum(len(name) + len(value.encode()) for name, value in env.items())
    if size > MOST_BYTES:
        raise _bad(f"The environment variables have {size} bytes: {MOST_BYTES} are allowed", field)
    return dict(env)


def is_reserved(name: str) -> bool:
    """Return whether function processes use a variable themselves, so that jobs may not set it."""
    upper = name.upper()
    return upper in _RESERVED or upper in _THREAD_COUNTS or upper.startswith(_RESERVED_BEGINNINGS)


def _bad(message: str, field: str) -> InvalidArgument:
    return InvalidArgument("BAD_ENV", message, field=field)
