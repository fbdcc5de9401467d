"""Errors as the Connect protocol writes them: a JSON object and an HTTP status."""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import grpc
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from leman_core.model.errors import LemanError
from leman_core.server import status

#: Connect's word for a code, and the HTTP status of a unary answer: https://connectrpc.com/docs/protocol/#error-codes
_CODES: dict[grpc.StatusCode, tuple[str, int]] = {
    grpc.StatusCode.CANCELLED: ("canceled", 499),
    grpc.StatusCode.UNKNOWN: ("unknown", 500),
    grpc.StatusCode.INVALID_ARGUMENT: ("invalid_argument", 400),
    grpc.StatusCode.DEADLINE_EXCEEDED: ("deadline_exceeded", 504),
    grpc.StatusCode.NOT_FOUND: ("not_found", 404),
    grpc.StatusCode.ALREADY_EXISTS: ("already_exists", 409),
    grpc.StatusCode.PERMISSION_DENIED: ("permission_denied", 403),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("resource_exhausted", 429),
    grpc.StatusCode.FAILED_PRECONDITION: ("failed_precondition", 400),
    grpc.StatusCode.ABORTED: ("aborted", 409),
    grpc.StatusCode.OUT_OF_RANGE: ("out_of_range", 400),
    grpc.StatusCode.UNIMPLEMENTED: ("unimplemented", 501),
    grpc.StatusCode.INTERNAL: ("internal", 500),
    grpc.StatusCode.UNAVAILABLE: ("unavailable", 503),
    grpc.StatusCode.DATA_LOSS: ("data_loss", 500),
    grpc.StatusCode.UNAUTHENTICATED: ("unauthenticated", 401),
}


class HttpRefusal(Exception):
    """A request that HTTP has a status of its own for, such as 405."""

    def __init__(self, http_status: HTTPStatus, error: LemanError, *headers: tuple[str, str]) -> None:
        super().__init__(error.message)
        self.http_status = http_status
        self.error = error
        self.headers = headers


@dataclass(frozen=True, slots=True)
class WireError:
    """An error, ready to be sent."""

    http_status: int
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


def of_error(error: LemanError) -> WireError:
    """Return the wire form of an error that was found here."""
    return _wire(status.code_of(error), status.to_status(error))


def of_call(error: grpc.aio.AioRpcError) -> WireError:
    """Return the wire form of the error that a call ended with."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    packed = next((value for key, value in trailers if key == status.DETAILS_KEY), None)
    found = status_pb2.Status(message=error.details() or "")
    if isinstance(packed, bytes):
        with contextlib.suppress(DecodeError):
            found = status_pb2.Status.FromString(packed)
    return _wire(error.code(), found)


def _wire(code: grpc.StatusCode, found: status_pb2.Status) -> WireError:
    word, http_status = _CODES[code]
    body: dict[str, Any] = {"code": word, "message": found.message}
    if found.details:
        body["details"] = [_detail(detail) for detail in found.details]
    return WireError(http_status, body, tuple(_headers(code, found)))


def _detail(detail: AnyMessage) -> dict[str, Any]:
    """Return a detail with its bytes, and what they say."""
    told: dict[str, Any] = {
        "type": detail.type_url.rpartition("/")[2],
        "value": base64.b64encode(detail.value).decode().rstrip("="),
    }
    with contextlib.suppress(TypeError, DecodeError):  # a type that is not known here
        debug = json_format.MessageToDict(detail)
        debug.pop("@type", None)
        told["debug"] = debug
    return told


def _headers(code: grpc.StatusCode, found: status_pb2.Status) -> Iterable[tuple[str, str]]:
    if code is grpc.StatusCode.UNAUTHENTICATED:
        yield "www-authenticate", "Bearer"
    retry = error_details_pb2.RetryInfo()
    if any(detail.Unpack(retry) for detail in found.details):
        yield "retry-after", str(max(1, math.ceil(retry.retry_delay.ToTimedelta().total_seconds())))
