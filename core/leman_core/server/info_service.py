"""InfoService: who this is, and where the others are."""

from __future__ import annotations

import os
from typing import Any

import grpc

from leman.v1 import info_pb2, info_pb2_grpc
from leman_core.model.release import version
from leman_core.server.addresses import is_unspecified
from leman_core.settings import Settings


class InfoServicer(info_pb2_grpc.InfoServiceServicer):
    """What answers GetInfo. `bound` is the address that this service itself was bound to.

    What stands for all addresses of a machine is none that a caller could take: it is left out.
    """

    def __init__(self, settings: Settings, service: str, bound: str) -> None:
        def address(name: str) -> str:
            own = bound if name == service else ""
            known = (getattr(settings.advertise, name), own, getattr(settings.peers, name))
            return next((str(place) for place in known if place and not is_unspecified(place)), "")

        self._answer = info_pb2.GetInfoResponse(
            service=service,
            version=version(),
            pid=os.getpid(),
            planner_address=address("planner"),
            executor_address=address("executor"),
            commit_coordinator_address=address("commit_coordinator"),
            database=settings.embedded.database,
        )

    async def GetInfo(
        self,
        request: info_pb2.GetInfoRequest,  # noqa: ARG002 - given by gRPC; it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 - given by gRPC
    ) -> info_pb2.GetInfoResponse:
        """Answer GetInfo; see protos/leman/v1/info.proto."""
        return self._answer
