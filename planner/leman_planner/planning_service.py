"""PlanningService: whole plans for the executor."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import grpc

from leman_core.server.blocking import BlockingPool
from leman_core.server.made_ahead import MadeAhead
from leman_core.wire import convert, convert_previews, convert_refresh_plans, convert_views
from leman_internal.v1 import planning_pb2, planning_pb2_grpc
from leman_planner.measured_plans import phase
from leman_planner.plan_maker import PlanMaker
from leman_planner.plan_stream import messages
from leman_planner.previews import PreviewPlans
from leman_planner.registrations import Registrations
from leman_planner.stale_inputs import refuse_stale, refuse_stale_refresh
from leman_planner.views.refresh_reader import ViewReader

#: Where so much of all plans waits for readers, further plans are refused; the plan of 100,000 fragments has 30 MB.
_UNREAD_BYTES = 256 << 20

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PlanningServicer(planning_pb2_grpc.PlanningServiceServicer):
    """The RPCs of PlanningService. Their contracts stand in protos/leman/internal/v1/planning.proto."""

    def __init__(
        self,
        plans: PlanMaker,
        views: ViewReader,
        previews: PreviewPlans,
        registrations: Registrations,
        pool: BlockingPool,
    ) -> None:
        self._plans = plans
        self._views = views
        self._previews = previews
        self._registrations = registrations
        self._pool = pool
        self._streams = MadeAhead(pool, _UNREAD_BYTES)

    async def CreatePlan(
        self, request: planning_pb2.CreatePlanRequest, _context: Context
    ) -> AsyncIterator[planning_pb2.CreatePlanResponse]:
        spec = convert.spec_from_proto(request.spec)

        def planned() -> Iterator[planning_pb2.CreatePlanResponse]:
            plan = refuse_stale(self._plans.plan(spec), spec.on_stale_input)
            with phase("backfill", "send"):
                yield from messages(
                    plan,
                    untouched=request.reads_untouched,
                    checkpointed=request.reads_checkpointed,
                    compared=request.reads_compared,
                )

        async with contextlib.aclosing(self._streams.stream(planned)) as made:
            async for message in made:
                yield message

    async def PlanRefresh(
        self, request: planning_pb2.PlanRefreshRequest, _context: Context
    ) -> planning_pb2.PlanRefreshResponse:
        spec = convert_views.refresh_spec_from_proto(request.spec)
        plan = refuse_stale_refresh(await self._pool.run(self._views.plan, spec), spec)
        return convert_refresh_plans.refresh_plan_to_proto(plan)

    async def PlanPreview(
        self, request: planning_pb2.PlanPreviewRequest, _context: Context
    ) -> planning_pb2.PlanPreviewResponse:
        described = None
        if (remote := convert.remote_from_proto(request.preview.definition)) is not None:
            described, _ = await self._pool.run(self._registrations.described, remote)
        header = await self._pool.run(
            self._previews.plan, convert_previews.preview_from_proto(request.preview, described)
        )
        return planning_pb2.PlanPreviewResponse(header=convert.header_to_proto(header))
