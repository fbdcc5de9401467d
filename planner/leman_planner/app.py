"""Assemble a planner: four servicers, what they read through, and the channel to the commit coordinator."""

from __future__ import annotations

import asyncio
import functools

import grpc

from leman.v1 import catalog_pb2, catalog_pb2_grpc, databases_pb2, databases_pb2_grpc, planner_pb2, planner_pb2_grpc
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.server import channels
from leman_core.server.blocking import SLOW_STORE_SECONDS, BlockingPool
from leman_core.server.database_locations import DatabaseLocations
from leman_core.server.status import error_from_rpc
from leman_core.settings import Settings
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_internal.v1 import planning_pb2, planning_pb2_grpc, submission_pb2, submission_pb2_grpc
from leman_planner.catalog.column_requests import ColumnRequests
from leman_planner.catalog.function_catalog import BundleUploads, PreviewPlans, Registrations
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.catalog_service import CatalogServicer
from leman_planner.database_service import DatabaseServicer
from leman_planner.planner_service import PlannerServicer, PlanningServicer
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog

_THREADS = 8
_SERVICES = (
    databases_pb2.DESCRIPTOR.services_by_name["DatabaseService"].full_name,
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"].full_name,
    planner_pb2.DESCRIPTOR.services_by_name["PlannerService"].full_name,
    planning_pb2.DESCRIPTOR.services_by_name["PlanningService"].full_name,
)


def create(settings: Settings, draining: asyncio.Event) -> Planner:  # noqa: ARG001 -- it has no endless streams
    """Create the planner; see `leman_core.server.server.Factory`."""
    return Planner(settings)


class Planner:
    """The planner's process. See `leman_core.server.server.Service`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: BlockingPool | None = None
        self._coordinator: grpc.aio.Channel | None = None
        self._uploads: BundleUploads | None = None

    async def start(self, server: grpc.aio.Server, locations: DatabaseLocations) -> list[str]:
        """Add CatalogService, DatabaseService, PlannerService and PlanningService; return their names."""
        self._pool = BlockingPool(_THREADS, name="planner", gives_way=True, slow_seconds=SLOW_STORE_SECONDS)
        settings = self._settings
        tables = LanceTables(roots=locations.roots)
        allowed = settings.udf
        policy = FunctionPolicy.of(allowed)
        registry = functools.partial(UdfRegistry, workers_python=settings.spark.python_version, policy=policy)
        views, new_views = ViewReader(tables, registry), ViewCatalog(tables, registry)
        self._uploads = BundleUploads(allowed, registry)
        known = Catalog(tables, registry)
        plans = PlanMaker(tables, registry=registry)
        registrations = Registrations(known.registry, policy, allowed.remote_credentials)
        catalog = CatalogServicer(
            catalog=known,
            columns=ColumnRequests(known, plans),
            new_views=new_views,
            views=views,
            pool=self._pool,
            commit=self._commit,
            uploads=self._uploads,
            registrations=registrations,
        )
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(catalog, server)
        databases = DatabaseServicer(locations.registry, self._pool)
        databases_pb2_grpc.add_DatabaseServiceServicer_to_server(databases, server)
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(PlannerServicer(plans, views, self._pool), server)
        planning = PlanningServicer(plans, views, PreviewPlans(known, plans, tables), registrations, self._pool)
        planning_pb2_grpc.add_PlanningServiceServicer_to_server(planning, server)
        return list(_SERVICES)

    async def stop(self) -> None:
        """Drop waiting work and close the channel to the coordinator."""
        if self._uploads is not None:
            await self._uploads.close()
        if self._pool is not None:
            self._pool.close()
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _commit(self, request: submission_pb2.SubmitCommitRequest) -> int:
        """Send a request to the commit coordinator; return the table's version afterwards."""
        if self._coordinator is None:  # opened on first use: planning needs none
            self._coordinator = channels.open_peer(self._settings, "commit_coordinator")
        try:
            stub = submission_pb2_grpc.CommitSubmissionServiceStub(self._coordinator)
            answer = await stub.SubmitCommit(request)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return int(answer.version)
