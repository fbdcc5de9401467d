"""PlannerService: translates requests into domain values and answers back; and the planner's process as a whole."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, TypeAlias

import grpc

from core.config import Settings
from core.errors import InvalidArgument
from core.lance_io.tables import LanceTables
from core.rpc import channels, convert, convert_views, paging
from core.rpc.blocking import BlockingPool
from core.rpc.status import error_from_rpc
from core.udf.registry import UdfRegistry
from leman.v1 import catalog_pb2, catalog_pb2_grpc, planner_pb2, planner_pb2_grpc
from leman_internal.v1 import planning_pb2, planning_pb2_grpc, submission_pb2, submission_pb2_grpc
from planner.catalog import Catalog
from planner.catalog_service import CatalogServicer
from planner.explain_responses import explain_plan, explain_refresh
from planner.plan_reader import PlanReader
from planner.planning_service import PlanningServicer
from planner.row_states import StatesReader
from planner.views.catalog import ViewCatalog
from planner.views.refresh_reader import ViewReader

DEFAULT_DECISIONS = 20
MAX_DECISIONS = 1000
#: Row addresses in a page of GetRowStates: where the caller names no number, and at the most.
DEFAULT_ADDRESSES = 10_000
MAX_ADDRESSES = 100_000
_THREADS = 8
_SERVICES = (
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"].full_name,
    planner_pb2.DESCRIPTOR.services_by_name["PlannerService"].full_name,
    planning_pb2.DESCRIPTOR.services_by_name["PlanningService"].full_name,
)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def create(settings: Settings, draining: asyncio.Event) -> Planner:  # noqa: ARG001 -- it has no endless streams
    """Make the planner; see `core.rpc.server.Factory`."""
    return Planner(settings)


class Planner:
    """The planner's process. See `core.rpc.server.Service`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: BlockingPool | None = None
        self._coordinator: grpc.aio.Channel | None = None

    async def start(self, server: grpc.aio.Server) -> list[str]:
        """Add CatalogService, PlannerService and PlanningService; return their names."""
        self._pool = BlockingPool(_THREADS, name="planner")
        tables = LanceTables()
        views = ViewReader(tables)
        registry = functools.partial(UdfRegistry, workers_python=self._settings.spark.python_version)
        catalog = CatalogServicer(Catalog(tables, registry), ViewCatalog(tables), views, self._pool, self._commit)
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(catalog, server)
        plans = PlanReader(tables)
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(PlannerServicer(plans, views, self._pool), server)
        planning_pb2_grpc.add_PlanningServiceServicer_to_server(PlanningServicer(plans, views, self._pool), server)
        return list(_SERVICES)

    async def stop(self) -> None:
        """Drop what waits and close the channel to the coordinator."""
        if self._pool is not None:
            self._pool.close()
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _commit(self, request: submission_pb2.SubmitCommitRequest) -> int:
        """Have the commit coordinator commit it and return the table's version after that."""
        if self._coordinator is None:  # opened when first needed: a planner that only plans needs none
            self._coordinator = channels.open_peer(self._settings, "commit_coordinator")
        try:
            stub = submission_pb2_grpc.CommitSubmissionServiceStub(self._coordinator)
            answer = await stub.SubmitCommit(request)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return int(answer.version)


class PlannerServicer(planner_pb2_grpc.PlannerServiceServicer):
    """The RPCs of PlannerService. Their contracts stand in protos/leman/v1/planner.proto."""

    def __init__(self, plans: PlanReader, views: ViewReader, pool: BlockingPool) -> None:
        self._plans = plans
        self._views = views
        self._states = StatesReader(plans)
        self._pool = pool

    async def ExplainPlan(
        self, request: planner_pb2.ExplainPlanRequest, _context: Context
    ) -> planner_pb2.ExplainPlanResponse:
        wanted = request.max_decisions or DEFAULT_DECISIONS
        if not 0 <= wanted <= MAX_DECISIONS:
            raise InvalidArgument(
                "BAD_NUMBER",
                f"max_decisions is {wanted}; 0 to {MAX_DECISIONS} are allowed",
                field="max_decisions",
            )
        plan = await self._pool.run(self._plans.plan, convert.spec_from_proto(request.spec))
        return explain_plan(plan, wanted)

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
        )
