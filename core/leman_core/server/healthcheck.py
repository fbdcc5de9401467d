"""`python -m leman_core.server.healthcheck HOST:PORT`: exit code 0 when the service there is serving, else 1.

It connects over TLS if `LEMAN_PEERS__TLS_CA` is set, and shows the client certificate of `LEMAN_PEERS__TLS_CERT` and
`LEMAN_PEERS__TLS_KEY`.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from leman_core.process.addresses import proxy_options
from leman_core.server.tls import channel_credentials, settings_named

_TLS = ("LEMAN_PEERS__TLS_CA", "LEMAN_PEERS__TLS_CERT", "LEMAN_PEERS__TLS_KEY")


def check(
    address: str, service: str = "", *, tls: tuple[str, str, str] = ("", "", ""), timeout_seconds: float = 3.0
) -> str:
    """Return what is wrong with the process at `address`; empty when it is serving.

    Args:
        service: A name in its health service; empty: only check that the process answers calls.
        tls: Paths of CA certificates, of a certificate and of its key; empty: none.
    """
    options = proxy_options(address)
    if tls[0]:
        try:
            credentials = channel_credentials(*tls)
        except OSError as error:
            return f"{settings_named(error, dict(zip(_TLS, tls, strict=True)))} cannot be read, or used: {error}"
        channel = grpc.secure_channel(address, credentials, options)
    else:
        channel = grpc.insecure_channel(address, options)
    with channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_seconds)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return f"its health service knows no {service}"
            return str(error.details())
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return "" if answer.status == health_pb2.HealthCheckResponse.SERVING else status


def main(argv: list[str] | None = None) -> int:
    """Check once, and print what is wrong to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m leman_core.server.healthcheck", description="Is the service there serving?"
    )
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument(
        "--service",
        default="",
        metavar="NAME",
        help="ask about one name of its health service: leman.functions says whether an executor can run functions",
    )
    asked = parser.parse_args(argv)
    ca, cert, key = (os.environ.get(name, "") for name in _TLS)
    wrong = check(asked.address, asked.service, tls=(ca, cert, key))
    if wrong:
        sys.stderr.write(f"not serving: {wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
