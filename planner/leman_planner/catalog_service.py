"""CatalogService: requests about tables, columns, functions and views ↔ domain values."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from leman._format.stored_functions import Registered, UdfDefinition
from leman.v1 import catalog_pb2, catalog_pb2_grpc, udf_pb2
from leman_core.functions.column_checks import NewColumn
from leman_core.functions.function_definitions import is_sha256
from leman_core.model.service_errors import AlreadyExists, InvalidArgument, LemanError
from leman_core.process.crash_points import crash_point
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.server.request_messages import body_digest
from leman_core.wire import convert_udfs, convert_values, convert_views
from leman_core.wire.convert_types import schema_to_json
from leman_core.wire.convert_values import duration_to_proto, number_from_proto, ref_to_proto
from leman_internal.v1 import submission_pb2
from leman_planner.catalog.column_changes import ColumnOutcome, OnChange, Outcome
from leman_planner.catalog.column_requests import ColumnRequest, ColumnRequests, ColumnWork
from leman_planner.catalog.function_catalog import AnnouncedBundle, BundleUploads, Registrations
from leman_planner.catalog.table_catalog import Addition, Catalog, computed_columns
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog, ViewChange

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all


_ON_CHANGE_FROM = {
    catalog_pb2.ON_CHANGE_UNSPECIFIED: OnChange.REFUSE_ANY,
    catalog_pb2.ON_CHANGE_ERROR: OnChange.ERROR,
    catalog_pb2.ON_CHANGE_UPDATE: OnChange.UPDATE,
    catalog_pb2.ON_CHANGE_KEEP: OnChange.KEEP,
}
_OUTCOME_TO = {
    Outcome.ADDED: catalog_pb2.ColumnOutcome.OUTCOME_ADDED,
    Outcome.UNCHANGED: catalog_pb2.ColumnOutcome.OUTCOME_UNCHANGED,
    Outcome.UPDATED: catalog_pb2.ColumnOutcome.OUTCOME_UPDATED,
    Outcome.KEPT: catalog_pb2.ColumnOutcome.OUTCOME_KEPT,
}


def on_change_from_proto(number: int) -> OnChange:
    found = {int(key): value for key, value in _ON_CHANGE_FROM.items()}.get(number)
    if found is None:
        raise InvalidArgument(
            "UNKNOWN_VALUE",
            f"on_change is {number}; known values are 0 to {max(_ON_CHANGE_FROM)}",
            field="on_change",
        )
    return found


def outcome_to_proto(outcome: ColumnOutcome) -> catalog_pb2.ColumnOutcome:
    seconds = outcome.expected_seconds
    return catalog_pb2.ColumnOutcome(
        column=outcome.column,
        outcome=_OUTCOME_TO[outcome.outcome],
        udf=ref_to_proto(*outcome.function),
        udf_before=None if outcome.before is None else ref_to_proto(*outcome.before),
        diff=outcome.diff,
        rows_stale=outcome.rows_stale,
        rows_not_computed=outcome.rows_not_computed,
        rows_stored=outcome.rows_stored,
        rows_lost=outcome.rows_lost,
        expected_duration=None if seconds is None else duration_to_proto(seconds),
        summary=outcome.summary,
    )


Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

#: Reasons with which a commit is rejected if columns changed after the request was checked.
_OVERTAKEN = frozenset({"COLUMN_EXISTS", "COLUMN_NOT_DEFINED"})
#: The maximum number of times that a request is checked while others keep changing the columns.
_TRIES = 5


class CatalogServicer(catalog_pb2_grpc.CatalogServiceServicer):
    """The RPCs of CatalogService, as protos/leman/v1/catalog.proto describes them."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        columns: ColumnRequests,
        new_views: ViewCatalog,
        views: ViewReader,
        pool: BlockingPool,
        commit: Callable[[submission_pb2.SubmitCommitRequest], Awaitable[int]],
        uploads: BundleUploads,
        registrations: Registrations,
    ) -> None:
        self._catalog = catalog
        self._columns = columns
        self._new_views = new_views
        self._views = views
        self._pool = pool
        self._commit = commit
        self._uploads = uploads
        self._registrations = registrations

    async def RegisterUdf(
        self, request: catalog_pb2.RegisterUdfRequest, _context: Context
    ) -> catalog_pb2.RegisterUdfResponse:
        described, warnings = None, list[str]()
        if (remote := convert_udfs.remote_from_proto(request.definition)) is not None:
            described, warnings = await self._pool.run(self._registrations.described, remote)
        udf = convert_udfs.udf_from_proto(request.definition, described)
        created = await self._pool.run(self._registrations.put, request.database, udf, request.bundle)
        return catalog_pb2.RegisterUdfResponse(
            created=created, definition=convert_udfs.udf_to_proto(udf, with_source=True), warnings=warnings
        )

    async def UploadBundle(
        self, requests: AsyncIterator[catalog_pb2.UploadBundleRequest], _context: Context
    ) -> catalog_pb2.UploadBundleResponse:
        announced = _announced(await anext(requests, None))
        async with contextlib.aclosing(_bytes(requests)) as pieces:
            return catalog_pb2.UploadBundleResponse(created=await self._uploads.take(announced, pieces))

    async def GetUdf(self, request: catalog_pb2.GetUdfRequest, _context: Context) -> catalog_pb2.GetUdfResponse:
        def get() -> tuple[UdfDefinition, bool]:
            registry = self._catalog.registry(request.database)
            udf = registry.get(request.udf.name, request.udf.version)
            return udf, registry.needs_bundle(udf)

        udf, needs_bundle = await self._pool.run(get)
        return catalog_pb2.GetUdfResponse(
            definition=convert_udfs.udf_to_proto(udf, with_source=True), needs_bundle=needs_bundle
        )

    async def ListUdfs(self, request: catalog_pb2.ListUdfsRequest, _context: Context) -> catalog_pb2.ListUdfsResponse:
        page = paging.read_page(request.page_size, request.page_token, f"ListUdfs {request.database}")

        def listed() -> list[Registered]:
            return self._catalog.registry(request.database).list()

        chosen, token = paging.cut(await self._pool.run(listed), page, lambda entry: entry.order)
        definitions = [convert_udfs.udf_to_proto(entry.udf) for entry in chosen]
        return catalog_pb2.ListUdfsResponse(definitions=definitions, next_page_token=token)

    async def AddColumns(
        self, request: catalog_pb2.AddColumnsRequest, _context: Context
    ) -> catalog_pb2.AddColumnsResponse:
        asked = _column_request(request)
        tries_left = 0 if asked.on_change is OnChange.REFUSE_ANY else _TRIES
        while True:
            try:  # in one thread, as this reads the table several times
                work = await self._pool.run(self._columns.work, asked)
                version = await self._make(work)
            except LemanError as error:  # another caller may have changed one of the columns meanwhile
                tries_left -= 1
                if error.reason not in _OVERTAKEN or tries_left < 0:
                    raise
                continue
            return catalog_pb2.AddColumnsResponse(
                version=version, columns=[outcome_to_proto(outcome) for outcome in work.outcomes]
            )

    async def _make(self, work: ColumnWork) -> int:
        """Commit a change through the coordinator, and return the table's new version."""
        version = work.version
        if work.added is not None:
            addition = submission_pb2.AddNullColumns(schema=convert_values.schema_to_bytes(work.added.schema))
            version = await self._submit(work.added, add_null_columns=addition)
        if work.changed is not None:
            binding = submission_pb2.BindColumns(schema=convert_values.schema_to_bytes(work.changed.schema))
            version = await self._submit(work.changed, bind_columns=binding)
        return version

    async def AlterColumns(
        self, request: catalog_pb2.AlterColumnsRequest, _context: Context
    ) -> catalog_pb2.AlterColumnsResponse:
        columns = [_column(each.column, keep_values=each.keep_values) for each in request.columns]
        asked = (request.table.database, request.table.table, columns, request.request_id, body_digest(request))
        wanted = await self._pool.run(self._catalog.alteration, *asked)
        outcomes = await self._pool.run(self._columns.alteration_outcomes, *asked[:3], wanted)
        operation = submission_pb2.BindColumns(schema=convert_values.schema_to_bytes(wanted.schema))
        version = await self._submit(wanted, bind_columns=operation)
        return catalog_pb2.AlterColumnsResponse(version=version, columns=map(outcome_to_proto, outcomes))

    async def _submit(self, wanted: Addition, **operation: Any) -> int:
        request = submission_pb2.SubmitCommitRequest(uri=wanted.uri, request_id=wanted.request_id, **operation)
        return await self._commit(request)

    async def AlterMaterializedView(
        self, request: catalog_pb2.AlterMaterializedViewRequest, _context: Context
    ) -> catalog_pb2.AlterMaterializedViewResponse:
        if list(request.update_mask.paths) != ["functions"]:
            raise InvalidArgument(
                "BAD_UPDATE_MASK", "update_mask must name the field to change: functions", field="update_mask"
            )
        database, name = request.view.database, request.view.table
        functions = [convert_views.function_from_proto(function) for function in request.functions]
        asked = (database, name, functions, request.request_id, body_digest(request))
        change = await self._pool.run(self._new_views.alteration, *asked)
        if change is not None and change.metadata:
            await self._alter_view(change)
        view = await self._pool.run(self._views.view, database, name)
        return catalog_pb2.AlterMaterializedViewResponse(view=convert_views.view_to_proto(view))

    async def _alter_view(self, change: ViewChange) -> None:
        await self._commit(
            submission_pb2.SubmitCommitRequest(
                uri=change.uri,
                incarnation=change.incarnation,
                read_version=change.version,
                request_id=change.request_id,
                apply_view_delta=submission_pb2.ApplyViewDelta(metadata=change.metadata),
            )
        )

    async def DescribeTable(
        self, request: catalog_pb2.DescribeTableRequest, _context: Context
    ) -> catalog_pb2.DescribeTableResponse:
        table = await self._pool.run(self._catalog.table, request.table.database, request.table.table)
        computed = [
            catalog_pb2.ComputedColumn(
                name=c.name,
                udf=ref_to_proto(c.udf_name, c.udf_version),
                input_columns=c.input_columns,
                kept=[udf_pb2.UdfRef(name=function.name, version=function.version) for function in c.kept],
            )
            for c in computed_columns(table)
        ]
        return catalog_pb2.DescribeTableResponse(
            uri=table.uri,
            version=table.version,
            row_count=table.live_rows,
            fragment_count=len(table.fragments),
            schema=convert_values.schema_to_bytes(table.schema),
            json_schema=schema_to_json(table.schema),
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
        rows = number_from_proto(request, "max_rows_per_fragment")
        database, name = request.view.database, request.view.table
        query = convert_views.query_from_proto(request.query)
        asked = request.request_id or uuid.uuid4().hex
        creation = functools.partial(
            self._new_views.creation, database, name, query, asked, rows, exist_ok=request.exist_ok
        )
        made = await self._pool.run(creation)
        if not made.done:
            operation = submission_pb2.CreatePlaceholders(
                schema=convert_values.schema_to_bytes(made.schema), max_rows_per_fragment=rows, create=True
            )
            try:
                await self._commit(
                    submission_pb2.SubmitCommitRequest(uri=made.uri, request_id=asked, create_placeholders=operation)
                )
            except AlreadyExists as error:
                if not request.exist_ok or error.reason != "TABLE_EXISTS":
                    raise
                made = await self._pool.run(creation)  # another caller created it, perhaps with the same query
            crash_point("planner.view_made")
        view = await self._pool.run(self._views.view, database, name)
        return catalog_pb2.CreateMaterializedViewResponse(
            view=convert_views.view_to_proto(view), warnings=made.warnings
        )

    async def GetMaterializedView(
        self, request: catalog_pb2.GetMaterializedViewRequest, _context: Context
    ) -> catalog_pb2.GetMaterializedViewResponse:
        view = await self._pool.run(self._views.view, request.view.database, request.view.table)
        return catalog_pb2.GetMaterializedViewResponse(view=convert_views.view_to_proto(view))

    async def ListMaterializedViews(
        self, request: catalog_pb2.ListMaterializedViewsRequest, _context: Context
    ) -> catalog_pb2.ListMaterializedViewsResponse:
        page = paging.read_page(request.page_size, request.page_token, f"ListMaterializedViews {request.database}")
        after = page.after if isinstance(page.after, str) else ""
        found = await self._pool.run(self._new_views.views, request.database, after, page.size)
        return catalog_pb2.ListMaterializedViewsResponse(
            views=[convert_views.summary_to_proto(view) for view in found.views],
            next_page_token=page.token(found.last) if found.last else "",
            warnings=found.warnings,
        )


def _announced(message: catalog_pb2.UploadBundleRequest | None) -> AnnouncedBundle:
    if message is None or message.WhichOneof("part") != "header":
        raise InvalidArgument("MISSING_FIELD", "The first message must be the header", field="header")
    header = message.header
    if not header.database:
        raise InvalidArgument("MISSING_FIELD", "header.database is empty: set it", field="header.database")
    if not is_sha256(header.sha256):  # it becomes a part of a path
        raise InvalidArgument("BAD_UDF", "header.sha256 is not a lower-case SHA-256 digest", field="header.sha256")
    if header.size_bytes < 1:
        text = f"header.size_bytes is {header.size_bytes}: set the size of the bundle"
        raise InvalidArgument("BAD_NUMBER", text, field="header.size_bytes")
    return AnnouncedBundle(database=header.database, sha256=header.sha256, size_bytes=header.size_bytes)


async def _bytes(requests: AsyncIterator[catalog_pb2.UploadBundleRequest]) -> AsyncGenerator[bytes, None]:
    async for request in requests:
        if request.WhichOneof("part") == "header":
            raise InvalidArgument("BAD_STREAM", "Only the first message may be a header", field="header")
        yield request.data


def _column_request(request: catalog_pb2.AddColumnsRequest) -> ColumnRequest:
    return ColumnRequest(
        database=request.table.database,
        table=request.table.table,
        columns=[_column(column) for column in request.columns],
        on_change=on_change_from_proto(request.on_change),
        request_id=request.request_id,
        body=body_digest(request),
    )


def _column(message: catalog_pb2.NewColumn, *, keep_values: bool = False) -> NewColumn:
    return NewColumn(
        message.name,
        message.udf.name,
        message.udf.version,
        tuple(message.input_columns),
        message.sql_expression,
        keep_values,
        convert_udfs.error_policy_from_proto(message.error_policy) if message.HasField("error_policy") else None,
    )
