"""The one mapping between Leman's errors and gRPC status.

Every error carries a `google.rpc.ErrorInfo` (domain `leman`, reason, facts); InvalidArgument also a `BadRequest` with
the field, and Unavailable and ResourceExhausted a `RetryInfo` if a retry may help. Passwords in URLs and control
characters other than line ends and tabs are removed, and invisible characters are escaped. Texts are shortened here,
for all errors: gRPC turns a call with more than 8 KB of trailers into RESOURCE_EXHAUSTED and loses the reason.
`grpc-message` has the same message as the status.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import cast

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from leman_core.model import service_errors
from leman_core.model.service_errors import CONTROL_CHARACTERS, escape_invisible
from leman_core.process.process_secrets import without_passwords

DOMAIN = "leman"
#: Trailer with the serialized google.rpc.Status.
DETAILS_KEY = "grpc-status-details-bin"
#: Trailer with the milliseconds that gRPC's own retries wait (gRFC A6); -1: do not retry.
PUSHBACK_KEY = "grpc-retry-pushback-ms"
#: The largest serialized status, which is 5.4 KB in base64.
MAX_STATUS_BYTES = 4 * 1024
#: The longest message, percent-encoded as in `grpc-message`.
MAX_HEADER_BYTES = 2 * 1024
MAX_FACT_BYTES = 1024
#: Only this much of a fact is processed; the rest is cut in any case.
_READ = 4 * MAX_FACT_BYTES
#: Longer words of a message, such as a caller's own names, are cut.
_MOST_OF_A_WORD = 400
#: Terminal colours, as in a function's traceback.
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_LONG_WORD = re.compile(rf"(\S{{{_MOST_OF_A_WORD - 100}}})\S{{100,}}")

_CODES: dict[type[service_errors.LemanError], grpc.StatusCode] = {
    service_errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    service_errors.NotFound: grpc.StatusCode.NOT_FOUND,
    service_errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    service_errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    service_errors.Aborted: grpc.StatusCode.ABORTED,
    service_errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    service_errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    service_errors.DataLoss: grpc.StatusCode.DATA_LOSS,
    service_errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    service_errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    service_errors.Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    service_errors.Internal: grpc.StatusCode.INTERNAL,
}
_CLASSES: dict[int, type[service_errors.LemanError]] = {code.value[0]: cls for cls, code in _CODES.items()}
#: Codes that only gRPC itself uses → the closest error.
_EXTERNAL: dict[grpc.StatusCode, type[service_errors.LemanError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: service_errors.Unavailable,
    grpc.StatusCode.CANCELLED: service_errors.Unavailable,
    grpc.StatusCode.OUT_OF_RANGE: service_errors.InvalidArgument,
}


def code_of(error: service_errors.LemanError) -> grpc.StatusCode:
    """Return the gRPC code of an error: that of its nearest base class with one."""
    return next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), grpc.StatusCode.INTERNAL)


def to_status(error: service_errors.LemanError) -> status_pb2.Status:
    """Return an error as google.rpc.Status of at most MAX_STATUS_BYTES; also used for a job's `error` field.

    The longest facts are shortened first; reason and code always survive.
    """
    facts = {_clip(key, 64): _clip(_clean(value[:_READ]), MAX_FACT_BYTES) for key, value in error.facts.items()}
    message = header_message(error.message)
    status = _build(error, message, facts)
    while status.ByteSize() > MAX_STATUS_BYTES and facts:
        longest = max(facts, key=lambda key: len(facts[key].encode()))
        size = len(facts[longest].encode())
        if size > 64:
            facts[longest] = _clip(facts[longest], size // 2)
        else:
            del facts[longest]
        status = _build(error, message, facts)
    return status


def trailers_of(error: service_errors.LemanError) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailers of an error: its status, and a hint for gRPC's retry policy.

    The policy only knows codes, and a retry does not help every RESOURCE_EXHAUSTED.
    """
    details = (DETAILS_KEY, to_status(error).SerializeToString())
    if not isinstance(error, service_errors.Unavailable | service_errors.ResourceExhausted):
        return (details,)
    delay = round(error.retry_after_seconds * 1000) or -1
    return details, (PUSHBACK_KEY, str(delay))


def from_status(status: status_pb2.Status) -> service_errors.LemanError:
    """Return the error of a google.rpc.Status, the inverse of `to_status` except for shortened texts."""
    reason, facts, field, retry_after = "", {}, "", 0.0
    for detail in status.details:
        info, bad, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info):
            reason, facts = info.reason, dict(info.metadata)
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    cls = _CLASSES.get(status.code, service_errors.Internal)
    return _make(cls, reason or "UNKNOWN", status.message, facts, field=field, retry_after=retry_after)


def error_from_rpc(error: grpc.RpcError) -> service_errors.LemanError:
    """Return the error of a failed call to another service.

    If the peer sent no error (connection lost, deadline passed), the reason is the name of the gRPC code; after
    DEADLINE_EXCEEDED, CANCELLED and UNAVAILABLE the outcome of the call is unknown.
    """
    code: grpc.StatusCode = error.code()
    trailers = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    packed = next((value for key, value in trailers if key == DETAILS_KEY), None)
    if isinstance(packed, bytes):
        try:
            status = status_pb2.Status.FromString(packed)
        except DecodeError:
            pass
        else:
            if status.code == code.value[0]:
                return from_status(status)
    cls = _EXTERNAL.get(code) or _CLASSES.get(code.value[0], service_errors.Internal)
    # gRPC itself refuses only messages that are too large, and a retry does not help
    retry_after = 0.0 if code is grpc.StatusCode.RESOURCE_EXHAUSTED else 1.0
    return _make(cls, code.name, error.details() or code.name.lower(), {}, field="", retry_after=retry_after)


def header_message(message: str) -> str:
    """Shorten a message for `grpc-message` and the status, and remove passwords and control characters."""
    text = escape_invisible(_LONG_WORD.sub(_cut_word, _clean(message)))
    return _cut(text)


def _clean(text: str) -> str:
    return CONTROL_CHARACTERS.sub(_shown, _COLOUR.sub("", without_passwords(text)))


def _shown(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else "\ufffd"


def _cut_word(found: re.Match[str]) -> str:
    return f"{found[1]}... ({len(found[0])} characters)"


def _cut(text: str) -> str:
    """Return the beginning of a text that has at most MAX_HEADER_BYTES when percent-encoded."""
    text = text[:MAX_HEADER_BYTES] if len(text) > MAX_HEADER_BYTES + 1 else text
    left = MAX_HEADER_BYTES
    for at, character in enumerate(text):
        plain = " " <= character <= "~" and character != "%"
        left -= 1 if plain else 3 * len(character.encode("utf-8", errors="replace"))
        if left < 0:
            return _with_dots(text[:at])
    return text


def _with_dots(text: str) -> str:
    return text[:-3] + "..."


def _build(error: service_errors.LemanError, message: str, facts: dict[str, str]) -> status_pb2.Status:
    status = status_pb2.Status(code=code_of(error).value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=facts)
    status.details.append(_pack(info))
    if isinstance(error, service_errors.InvalidArgument):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_clip(error.field, 256), description=_clip(message, 512), reason=error.reason
        )
        status.details.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
    if isinstance(error, service_errors.Unavailable | service_errors.ResourceExhausted) and error.retry_after_seconds:
        fraction, whole = math.modf(error.retry_after_seconds)
        delay = duration_pb2.Duration(seconds=int(whole), nanos=int(fraction * 1e9))
        status.details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status


def _pack(
    detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest | error_details_pb2.RetryInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _clip(text: str, size: int) -> str:
    """Return at most `size` bytes of UTF-8."""
    raw = text.encode("utf-8", errors="replace")
    return text if len(raw) <= size else raw[: size - 3].decode("utf-8", errors="ignore") + "..."


def _make(
    cls: type[service_errors.LemanError],
    reason: str,
    message: str,
    facts: dict[str, str],
    *,
    field: str,
    retry_after: float,
) -> service_errors.LemanError:
    """Make the error. Facts are set afterwards, as their names may be those of parameters."""
    error: service_errors.LemanError
    if cls is service_errors.Unavailable or cls is service_errors.ResourceExhausted:
        error = cls(reason, message, retry_after_seconds=retry_after)
    else:
        error = cls(reason, message, field=field)
    error.facts = facts
    return error
