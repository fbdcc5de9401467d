"""From gRPC errors and google.rpc.Status to the errors of `leman.errors`."""

from __future__ import annotations

from typing import cast

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from leman import errors

MAX_MESSAGE = 4000


def from_rpc(error: grpc.RpcError, *, service: str, address: str) -> errors.LemanError:
    """The Leman error for a failed call of `service` at `address`. Raise it `from None`: the rest is noise.

    `error` is what a call of a stub raised (it carries code, details and trailers).
    """
    status = status_of(error)
    if status is not None and _info(status) is not None:
        return from_status(status)
    code: grpc.StatusCode = error.code()
    details = (error.details() or "").strip()[:MAX_MESSAGE]
    where = f"the {service.replace('_', ' ')} at {address}"
    messages = {
        "UNAVAILABLE": f"cannot reach {where}",
        "DEADLINE_EXCEEDED": f"no answer from {where} in time",
        "UNIMPLEMENTED": f"{where} does not know this call; client and services are of different releases",
        "UNAUTHENTICATED": f"{where} refused the token" + (f": {details}" if details else ""),
        "CANCELLED": f"the call to {where} was cancelled",
    }
    return errors.make(code.name, "", messages.get(code.name) or f"{where} answered {code.name}: {details}")


def from_status(status: status_pb2.Status) -> errors.LemanError:
    """The Leman error for a google.rpc.Status, be it of a call or of a failed job."""
    info = _info(status)
    reason, facts = (info.reason, dict(info.metadata)) if info is not None else ("", {})
    return errors.make(code_pb2.Code.Name(status.code), reason, status.message[:MAX_MESSAGE], facts)


def retry_after(error: grpc.RpcError) -> float:
    """Seconds that the service asks to wait before the call is tried again; 0: it says nothing."""
    status = status_of(error)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return 0.0


def status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    """The google.rpc.Status that came with a failed call, if one did."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(cast("grpc.Call", error))
        return status
    except ValueError:  # trailers that contradict the status line: not ours
        return None


def _info(status: status_pb2.Status) -> error_details_pb2.ErrorInfo | None:
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            return info
    return None
