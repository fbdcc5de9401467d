"""gRPC's service config for callers of leman.v1: which calls may be sent again without being asked, and how.

Those that change nothing, or that do the same when they are sent twice (`idempotency_level` in the protos). Calls that
are known by a request id are not among them: gRPC does not know whether the caller has set one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

_PACKAGE = "leman.v1"
_RETRY = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
}


def config(descriptors: Path) -> dict[str, Any]:
    """Return the service config of a set of descriptors."""
    found = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    again = [
        {"service": f"{file.package}.{service.name}", "method": method.name}
        for file in found.file
        if file.package == _PACKAGE
        for service in file.service
        for method in service.method
        if method.options.idempotency_level != descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN
    ]
    return {"methodConfig": [{"name": again, "waitForReady": True, "retryPolicy": _RETRY}]}
