"""From gRPC errors and google.rpc.Status to the errors of `leman.errors`."""

from __future__ import annotations

from typing import cast

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from leman import errors
from leman._rpc_words import translate
from leman._wire_values import seconds

MAX_MESSAGE = 4000
#: What gRPC says of TLS that cannot come about, and what that means.
_TLS_FAILURES = {
    "WRONG_VERSION_NUMBER": "what answers there speaks no TLS: leave tls_ca out, or give the address of one that does",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by those in tls_ca, or not for this host: check both",
}

#: What gRPC or a proxy says of a connection that ends during a call.
_LOST = (
    *("socket closed", "connection reset", "broken pipe", "stream removed", "recvmsg", "rst_stream"),
    "connection termination",  # in Envoy's words
)


def from_rpc(error: grpc.RpcError, *, service: str, address: str) -> errors.LemanError:
    """The Leman error for a failed call of `service` at `address`. Raise it `from None`: the rest is noise.

    `error` is what a call of a stub raised (it carries code, details and trailers).
    """
    status = status_of(error)
    if status is not None and _details(status)[0].reason:
        return from_status(status)
    code = code_of(error)
    details = (error.details() or "").strip()[:MAX_MESSAGE]
    where = f"the {service.replace('_', ' ')} at {address}"
    away = f"cannot reach {where}" + (f": {why}" if (why := tls_failure(error)) else "")
    if lost_connection(error):
        away = f"{where} went away while it worked on the call: look at its log before you send the call again"
    messages = {
        "UNAVAILABLE": away,
        "DEADLINE_EXCEEDED": f"no answer from {where} in time",
        "UNIMPLEMENTED": f"{where} does not know this call; client and services are of different releases",
        "UNAUTHENTICATED": f"{where} refused the token" + (f": {details}" if details else ""),
        "CANCELLED": f"the call to {where} was cancelled",
    }
    return errors.make(code.name, "", messages.get(code.name) or f"{where} answered {code.name}: {details}")


def from_status(status: status_pb2.Status) -> errors.LemanError:
    """The Leman error for a google.rpc.Status, be it of a call or of a failed job."""
    info, request, retry = _details(status)
    fields = [errors.FieldViolation(item.field, translate(item.description)) for item in request.field_violations]
    return errors.make(
        code_pb2.Code.Name(status.code),
        info.reason,
        translate(status.message[:MAX_MESSAGE]),
        dict(info.metadata),
        fields=fields,
        retry_after=seconds(retry.retry_delay) if retry.HasField("retry_delay") else None,
    )


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """The code of a failed call; UNAVAILABLE also where it was cut on its way."""
    code: grpc.StatusCode = error.code()
    return grpc.StatusCode.UNAVAILABLE if _was_cut(error) else code


def _was_cut(error: grpc.RpcError) -> bool:
    """Whether a call ended on its way, though neither the service nor this program ended it: a proxy lost the service
    amid an answer, which gRPC tells in words of its own, or the channel was closed to open another one. The services
    give every INTERNAL and CANCELLED a reason."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        ended = "Locally cancelled" not in details
    else:
        ended = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and "RST_STREAM" in details
    status = status_of(error) if ended else None
    return ended and not (status is not None and _details(status)[0].reason)


def lost_connection(error: Exception) -> bool:
    """Return whether a connection was lost while a call ran on it. A call that found no connection was not made."""
    if not isinstance(error, grpc.RpcError) or code_of(error) is not grpc.StatusCode.UNAVAILABLE:
        return False
    details = (error.details() or "").lower()
    return "failed to connect" not in details and any(sign in details for sign in _LOST)


def retry_after(error: grpc.RpcError) -> float:
    """Seconds that the service asks to wait before the call is tried again; 0: it says nothing."""
    status = status_of(error)
    return 0.0 if status is None else seconds(_details(status)[2].retry_delay)


def tls_failure(error: grpc.RpcError) -> str:
    """Why there is no TLS with what answers at the address, which another try would not mend; empty: that is not it."""
    details = error.details() or ""
    return next((meaning for word, meaning in _TLS_FAILURES.items() if word in details), "")


def is_of_function_server(error: grpc.RpcError) -> bool:
    """Whether the services answered, and a server of a remote function did not: that is for the caller to start."""
    status = status_of(error)
    return status is not None and _details(status)[0].reason == "FUNCTION_UNAVAILABLE"


def status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    """The google.rpc.Status that came with a failed call, if one did."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(cast("grpc.Call", error))
        return status
    except ValueError:  # trailers that contradict the status line: not ours
        return None


def _details(
    status: status_pb2.Status,
) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo]:
    """What stands in a status beside its code and message; empty messages where it does not."""
    found = (error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo())
    for detail in status.details:
        for message in found:
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
    return found
