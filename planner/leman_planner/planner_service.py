"""PlannerService: translates requests into domain values and answers back."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc

from leman.v1 import planner_pb2, planner_pb2_grpc
from leman_core.model.errors import InvalidArgument
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.wire import convert, convert_views
from leman_core.wire.convert_values import number_from_proto
from leman_planner.explain_responses import explain_plan, explain_refresh
from leman_planner.plan_maker import PlanMaker
from leman_planner.row_states import StatesReader
from leman_planner.run_history import expected_seconds
from leman_planner.views.refresh_reader import ViewReader

DEFAULT_DECISIONS = 20
MAX_DECISIONS = 1000
#: Row addresses in a page of GetRowStates: where the caller names no number, and at the most.
DEFAULT_ADDRESSES = 10_000
MAX_ADDRESSES = 100_000

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PlannerServicer(planner_pb2_grpc.PlannerServiceServicer):
    """The RPCs of PlannerService. Their contracts stand in protos/leman/v1/planner.proto."""

    def __init__(self, plans: PlanMaker, views: ViewReader, pool: BlockingPool) -> None:
        self._plans = plans
        self._views = views
        self._states = StatesReader(plans)
        self._pool = pool

    async def ExplainPlan(
        self, request: planner_pb2.ExplainPlanRequest, _context: Context
    ) -> planner_pb2.ExplainPlanResponse:
        wanted = number_from_proto(request, "max_decisions", least=0, default=DEFAULT_DECISIONS)
        if wanted > MAX_DECISIONS:
            raise InvalidArgument(
                "BAD_NUMBER",
                f"max_decisions is {wanted}; 0 to {MAX_DECISIONS} are allowed",
                field="max_decisions",
            )
        spec = convert.spec_from_proto(request.spec)
        if spec.columns:
            raise InvalidArgument("BAD_REQUEST", "a plan is of one column: set column", field="spec.columns")
        plan = await self._pool.run(self._plans.plan, spec)
        rows = plan.header.rows_to_compute
        seconds = await self._pool.run(expected_seconds, spec.database, spec.table, spec.column, rows)
        return explain_plan(plan, wanted, seconds)

    async def ExplainRefresh(
        self, request: planner_pb2.ExplainRefreshRequest, _context: Context
    ) -> planner_pb2.ExplainRefreshResponse:
        plan = await self._pool.run(self._views.plan, convert_views.refresh_spec_from_proto(request.spec))
        return explain_refresh(plan)

    async def GetRowStates(
        self, request: planner_pb2.GetRowStatesRequest, _context: Context
    ) -> planner_pb2.GetRowStatesResponse:
        table = request.table
        scope = f"GetRowStates {table.database} {table.table} {request.column} {request.state}"
        page = paging.read_page(request.page_size or DEFAULT_ADDRESSES, request.page_token, scope, MAX_ADDRESSES)
        listed = convert.value_state_from_proto(request.state)
        found = await self._pool.run(self._states.read, table.database, table.table, request.column, listed)
        addresses, token = paging.cut(found.addresses, page, lambda address: address)
        row_ids = await self._pool.run(StatesReader.row_ids, found, addresses)
        return planner_pb2.GetRowStatesResponse(
            version=found.version,
            rows_computed=found.computed,
            rows_null=found.null,
            rows_failed=found.failed,
            rows_not_computed=found.not_computed,
            kept=[convert.kept_to_proto(kept) for kept in found.kept],
            row_addresses=addresses,
            row_ids=row_ids,
            next_page_token=token,
            rows_checkpointed=found.checkpointed,
            rows_ready_to_commit=found.ready,
        )
