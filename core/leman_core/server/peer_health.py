"""Say of a service that calls are forwarded to what its own process says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_AGAIN_SECONDS = 1.0


async def follow(channel: grpc.aio.Channel, services: Sequence[str], checks: health.aio.HealthServicer) -> None:
    """Tell `checks` how the peer's services are, until cancelled; NOT_SERVING while it cannot be reached.

    A peer that stops is left alone at once, so that it need not wait for us.
    """
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for service in services:
        await checks.set(service, _NOT_SERVING)
    while True:
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=services[0]))
        try:
            async for answer in watch:
                fit = answer.status == _SERVING
                for service in services:
                    await checks.set(service, _SERVING if fit else _NOT_SERVING)
                if not fit:
                    break
        except grpc.aio.AioRpcError:
            for service in services:
                await checks.set(service, _NOT_SERVING)
        finally:
            watch.cancel()
        await asyncio.sleep(_AGAIN_SECONDS)
