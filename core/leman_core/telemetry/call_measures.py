"""What is measured of each call that a service takes: how many, which failed, how long they took."""

from __future__ import annotations

import functools

from leman_core.telemetry.instruments import Attributes
from leman_core.telemetry.measures import CALL_DURATION, ERROR_TYPE, RPC_METHOD, STATUS_CODE


def measure_call(path: str, seconds: float, code: str, reason: str) -> None:
    """Record a call that is over.

    Args:
        path: `/leman.v1.JobService/GetJob`: of a method that is served, so that there are not more than these.
        reason: that of its error; empty: its error has none, or there was none.
    """
    if CALL_DURATION.is_bound:
        CALL_DURATION.record(seconds, _attributes(path, code, reason))


@functools.cache
def method_attributes(path: str) -> Attributes:
    """Return what says which method it is."""
    return {"rpc.system.name": "grpc", RPC_METHOD: path.removeprefix("/")}


@functools.cache
def _attributes(path: str, code: str, reason: str) -> Attributes:
    error = {} if code == "OK" else {ERROR_TYPE: reason or code}
    return {**method_attributes(path), STATUS_CODE: code, **error}
