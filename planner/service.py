"""CatalogService and PlannerService: translates requests into domain values and answers back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from core.config import Settings
from core.crash import crash_point
from core.domain.explain import summarise
from core.domain.plan import FollowedFile, FragmentTask
from core.domain.udf import UdfDefinition
from core.errors import InvalidArgument
from core.lance_io.tables import LanceTables
from core.rpc import channels, convert, convert_views, paging
from core.rpc.blocking import BlockingPool
from core.rpc.convert_carried import carried_to_proto
from core.rpc.status import error_from_rpc
from core.udf.registry import Registered
from core.udf.validation import NewColumn
from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    commit_pb2,
    commit_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
)
from planner.catalog import Addition, Catalog, computed_columns
from planner.snapshot import PlanReader
from planner.states import StatesReader
from planner.views.alteration import ViewChange
from planner.views.catalog import ViewCatalog
from planner.views.snapshot import ViewReader

#: A message of a plan's stream holds at most so many tasks, and no further one beyond so many bytes.
MAX_BATCH_TASKS = 1000
MAX_BATCH_BYTES = 1 << 20
DEFAULT_DECISIONS = 20
MAX_DECISIONS = 1000
#: Row addresses in a page of GetRowStates.
DEFAULT_ADDRESSES = 10_000
MAX_ADDRESSES = 100_000
_THREADS = 8
_SERVICES = (
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"].full_name,
    planner_pb2.DESCRIPTOR.services_by_name["PlannerService"].full_name,
)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Part = TypeVar("Part", bound=Message)


def create(settings: Settings, draining: asyncio.Event) -> Planner:  # noqa: ARG001 -- it has no endless streams
    """The services; see `core.rpc.server.Factory`."""
    return Planner(settings)


class Planner:
    """See `core.rpc.server.Service`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: BlockingPool | None = None
        self._coordinator: grpc.aio.Channel | None = None

    async def start(self, server: grpc.aio.Server) -> list[str]:
        """Adds CatalogService and PlannerService."""
        self._pool = BlockingPool(_THREADS, name="planner")
        tables = LanceTables()
        views = ViewReader(tables)
        catalog = CatalogServicer(Catalog(tables), ViewCatalog(tables), views, self._pool, self._commit)
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(catalog, server)
        planner = PlannerServicer(PlanReader(tables), views, self._pool)
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(planner, server)
        return list(_SERVICES)

    async def stop(self) -> None:
        """Drops what waits and closes the channel to the coordinator."""
        if self._pool is not None:
            self._pool.close()
        if self._coordinator is not None:
            await self._coordinator.close()

    async def _commit(self, request: commit_pb2.SubmitCommitRequest) -> int:
        """Has the commit coordinator do it; the table version after it."""
        if self._coordinator is None:  # opened when first needed: a planner that only plans needs none
            self._coordinator = channels.open_peer(self._settings, "commit_coordinator")
        try:
            answer = await commit_pb2_grpc.CommitServiceStub(self._coordinator).SubmitCommit(request)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return int(answer.version)


class CatalogServicer(catalog_pb2_grpc.CatalogServiceServicer):
    """The RPCs. Their contracts stand in protos/leman/v1/catalog.proto."""

    def __init__(
        self,
        catalog: Catalog,
        new_views: ViewCatalog,
        views: ViewReader,
        pool: BlockingPool,
        commit: Callable[[commit_pb2.SubmitCommitRequest], Awaitable[int]],
    ) -> None:
        self._catalog = catalog
        self._new_views = new_views
        self._views = views
        self._pool = pool
        self._commit = commit

    async def RegisterUdf(
        self, request: catalog_pb2.RegisterUdfRequest, _context: Context
    ) -> catalog_pb2.RegisterUdfResponse:
        udf = convert.udf_from_proto(request.definition)

        def put() -> bool:
            return self._catalog.registry(request.database).put(udf, request.bundle)

        return catalog_pb2.RegisterUdfResponse(created=await self._pool.run(put))

    async def GetUdf(self, request: catalog_pb2.GetUdfRequest, _context: Context) -> catalog_pb2.GetUdfResponse:
        def get() -> UdfDefinition:
            return self._catalog.registry(request.database).get(request.name, request.version)

        return catalog_pb2.GetUdfResponse(definition=convert.udf_to_proto(await self._pool.run(get)))

    async def ListUdfs(self, request: catalog_pb2.ListUdfsRequest, _context: Context) -> catalog_pb2.ListUdfsResponse:
        page = paging.read_page(request.page_size, request.page_token, f"ListUdfs {request.database}")

        def listed() -> list[Registered]:
            return self._catalog.registry(request.database).list()

        chosen, token = paging.cut(await self._pool.run(listed), page, lambda entry: entry.order)
        definitions = [convert.udf_to_proto(entry.udf) for entry in chosen]
        return catalog_pb2.ListUdfsResponse(definitions=definitions, next_page_token=token)

    async def AddColumns(
        self, request: catalog_pb2.AddColumnsRequest, _context: Context
    ) -> catalog_pb2.AddColumnsResponse:
        wanted = await self._pool.run(self._catalog.addition, *_wanted(request))
        operation = commit_pb2.AddNullColumns(schema=convert.schema_to_bytes(wanted.schema))
        return catalog_pb2.AddColumnsResponse(version=await self._submit(wanted, add_null_columns=operation))

    async def AlterColumns(
        self, request: catalog_pb2.AlterColumnsRequest, _context: Context
    ) -> catalog_pb2.AlterColumnsResponse:
        asked = _wanted(request)
        change = await self._pool.run(self._new_views.alteration, *asked)
        if change is not None:
            return catalog_pb2.AlterColumnsResponse(version=await self._alter_view(change))
        wanted = await self._pool.run(self._catalog.alteration, *asked)
        operation = commit_pb2.BindColumns(schema=convert.schema_to_bytes(wanted.schema))
        return catalog_pb2.AlterColumnsResponse(version=await self._submit(wanted, bind_columns=operation))

    async def _submit(self, wanted: Addition, **operation: Any) -> int:
        request = commit_pb2.SubmitCommitRequest(uri=wanted.uri, request_id=wanted.request_id, **operation)
        return await self._commit(request)

    async def _alter_view(self, change: ViewChange) -> int:
        if not change.metadata:
            return change.version
        return await self._commit(
            commit_pb2.SubmitCommitRequest(
                uri=change.uri,
                incarnation=change.incarnation,
                read_version=change.version,
                request_id=change.request_id,
                splice_view=commit_pb2.SpliceView(metadata=change.metadata),
            )
        )

    async def DescribeTable(
        self, request: catalog_pb2.DescribeTableRequest, _context: Context
    ) -> catalog_pb2.DescribeTableResponse:
        table = await self._pool.run(self._catalog.table, request.table.database, request.table.table)
        computed = [
            catalog_pb2.ComputedColumn(
                name=c.name,
                udf_name=c.udf_name,
                udf_version=c.udf_version,
                input_columns=c.input_columns,
                kept_versions=[str(function) for function in c.kept],
            )
            for c in computed_columns(table)
        ]
        return catalog_pb2.DescribeTableResponse(
            uri=table.uri,
            version=table.version,
            row_count=table.live_rows,
            fragment_count=len(table.fragments),
            schema=convert.schema_to_bytes(table.schema),
            computed_columns=computed,
            stable_row_ids=table.stable_row_ids,
        )

    async def ListTables(
        self, request: catalog_pb2.ListTablesRequest, _context: Context
    ) -> catalog_pb2.ListTablesResponse:
        page = paging.read_page(request.page_size, request.page_token, f"ListTables {request.database}")
        names = await self._pool.run(self._catalog.tables, request.database)
        chosen, token = paging.cut(names, page, lambda name: name)
        return catalog_pb2.ListTablesResponse(tables=chosen, next_page_token=token)

    async def CreateMaterializedView(
        self, request: catalog_pb2.CreateMaterializedViewRequest, _context: Context
    ) -> catalog_pb2.CreateMaterializedViewResponse:
        rows = request.max_rows_per_fragment
        if rows < 0:
            raise InvalidArgument(
                "BAD_NUMBER", f"max_rows_per_fragment is {rows}; it cannot be negative", field="max_rows_per_fragment"
            )
        query = convert_views.query_from_proto(request.query)
        asked = request.request_id or uuid.uuid4().hex
        made = await self._pool.run(self._new_views.creation, request.database, request.name, query, asked, rows)
        if not made.done:
            laid = commit_pb2.LayPlaceholders(
                schema=convert.schema_to_bytes(made.schema), max_rows_per_fragment=rows, create=True
            )
            await self._commit(commit_pb2.SubmitCommitRequest(uri=made.uri, request_id=asked, lay_placeholders=laid))
            crash_point("planner.view_made")
        view = await self._pool.run(self._views.view, request.database, request.name)
        return catalog_pb2.CreateMaterializedViewResponse(
            view=convert_views.view_to_proto(view), warnings=made.warnings
        )

    async def GetMaterializedView(
        self, request: catalog_pb2.GetMaterializedViewRequest, _context: Context
    ) -> catalog_pb2.GetMaterializedViewResponse:
        view = await self._pool.run(self._views.view, request.database, request.name)
        return catalog_pb2.GetMaterializedViewResponse(view=convert_views.view_to_proto(view))


class PlannerServicer(planner_pb2_grpc.PlannerServiceServicer):
    """The RPCs. Their contracts stand in protos/leman/v1/planner.proto."""

    def __init__(self, plans: PlanReader, views: ViewReader, pool: BlockingPool) -> None:
        self._plans = plans
        self._views = views
        self._states = StatesReader(plans)
        self._pool = pool

    async def CreatePlan(
        self, request: planner_pb2.CreatePlanRequest, _context: Context
    ) -> AsyncIterator[planner_pb2.CreatePlanResponse]:
        plan = await self._pool.run(self._plans.plan, convert.spec_from_proto(request.spec))
        yield planner_pb2.CreatePlanResponse(header=convert.header_to_proto(plan.header))
        batches = task_batches(plan.tasks)
        while (batch := await self._pool.run(next, batches, None)) is not None:
            yield planner_pb2.CreatePlanResponse(tasks=batch)
        for files in followed_batches(plan.followed):
            yield planner_pb2.CreatePlanResponse(followed=files)
        for rows in _sized(map(carried_to_proto, plan.carried)):
            yield planner_pb2.CreatePlanResponse(carried=planner_pb2.CarriedRowsBatch(rows=rows))

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
        first = next(task_batches(plan.tasks[:wanted]), planner_pb2.FragmentTaskBatch())
        return planner_pb2.ExplainPlanResponse(
            header=convert.header_to_proto(plan.header), tasks=first.tasks, summary=summarise(plan)
        )

    async def PlanRefresh(
        self, request: planner_pb2.PlanRefreshRequest, _context: Context
    ) -> planner_pb2.PlanRefreshResponse:
        plan = await self._pool.run(self._views.plan, convert_views.refresh_spec_from_proto(request.spec))
        return convert_views.plan_to_proto(plan)

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


def _wanted(
    request: catalog_pb2.AddColumnsRequest | catalog_pb2.AlterColumnsRequest,
) -> tuple[str, str, list[NewColumn], str]:
    columns = [
        NewColumn(c.name, c.udf_name, c.udf_version, tuple(c.input_columns), c.sql_expression, c.keep_values)
        for c in request.columns
    ]
    return request.table.database, request.table.table, columns, request.request_id


def followed_batches(followed: Iterable[FollowedFile]) -> Iterator[planner_pb2.FollowedFileBatch]:
    """In messages of such a size, too."""
    for files in _sized(map(convert.followed_to_proto, followed)):
        yield planner_pb2.FollowedFileBatch(files=files)


def _sized(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Lists of so many parts, and of about so many bytes."""
    batch: list[Part] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += part.ByteSize()
        if len(batch) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def task_batches(tasks: Sequence[FragmentTask]) -> Iterator[planner_pb2.FragmentTaskBatch]:
    """The tasks in messages that stay far below the 4 MiB that a client takes unasked, if a task allows."""
    batch = planner_pb2.FragmentTaskBatch()
    size = 0
    for task in tasks:
        size += convert.add_task(batch, task).ByteSize()
        if len(batch.tasks) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = planner_pb2.FragmentTaskBatch(), 0
    if batch.tasks:
        yield batch
