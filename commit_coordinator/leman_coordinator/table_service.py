"""TableService: translate requests for tables and rows, and their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, TypeAlias

import grpc

from leman.v1 import tables_pb2, tables_pb2_grpc
from leman_coordinator import convert_tables
from leman_coordinator.commits.commit_queue import CommitQueues, check_draining
from leman_coordinator.commits.commit_requests import (
    ChangeColumnsRequest,
    DeleteRowsRequest,
    RequestMemory,
    UpdateRowsRequest,
)
from leman_coordinator.convert_commits import required_text
from leman_coordinator.lance_io import row_rewrites
from leman_coordinator.lance_io.row_reading import RowReads, filter_now
from leman_coordinator.tables import arrow_streams
from leman_coordinator.tables.drop_and_rename import Names
from leman_coordinator.tables.row_uploads import Uploads
from leman_core.server.request_messages import body_digest
from leman_core.sql.time_values import is_clock

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class TableServicer(tables_pb2_grpc.TableServiceServicer):
    """The RPCs of TableService; contracts in protos/leman/v1/tables.proto."""

    def __init__(
        self,
        reads: RowReads,
        uploads: Uploads,
        queues: CommitQueues,
        memory: RequestMemory,
        names: Names,
        draining: asyncio.Event,
    ) -> None:
        self._queues = queues
        self._memory = memory
        self._draining = draining
        self._reads = reads
        self._uploads = uploads
        self._names = names

    async def ReadRows(
        self, request: tables_pb2.ReadRowsRequest, _context: Context
    ) -> AsyncIterator[tables_pb2.ReadRowsResponse]:
        wanted = convert_tables.read_from_proto(request)
        reading = self._reads.each(wanted, lambda rows: arrow_streams.stream_pieces(rows.schema, rows.batches))
        first = True
        async with contextlib.aclosing(reading):
            async for rows, piece in reading:
                answer = tables_pb2.ReadRowsResponse(arrow_ipc=piece)
                if first:
                    answer.version, answer.incarnation = rows.version, rows.incarnation
                yield answer
                first = False
                check_draining(self._draining)

    async def CreateTable(
        self, request: tables_pb2.CreateTableRequest, _context: Context
    ) -> tables_pb2.CreateTableResponse:
        check_draining(self._draining)
        wanted = convert_tables.create_from_proto(request)
        key = wanted.uri, wanted.request_id
        result = await self._memory.once(key, wanted.body, lambda: self._queues.submit(wanted))
        return tables_pb2.CreateTableResponse(version=result.version)

    async def AppendRows(
        self, requests: AsyncIterator[tables_pb2.AppendRowsRequest], _context: Context
    ) -> tables_pb2.AppendRowsResponse:
        check_draining(self._draining)
        upload = convert_tables.upload_from_proto(await anext(requests, None))
        rows = upload.max_rows_per_fragment
        async with contextlib.aclosing(_pieces(requests)) as pieces:
            result = await self._uploads.append(
                upload.uri, upload.request_id, upload.body, pieces, max_rows_per_fragment=rows
            )
        return tables_pb2.AppendRowsResponse(version=result.version, rows_added=result.rows)

    async def DeleteRows(
        self, request: tables_pb2.DeleteRowsRequest, _context: Context
    ) -> tables_pb2.DeleteRowsResponse:
        check_draining(self._draining)
        uri, request_id = convert_tables.uri_of(request.table), required_text(request.request_id, "request_id")
        where = required_text(request.where, "where")
        checked = await self._reads.run(row_rewrites.pinned_condition, uri, where, filter_now())
        wanted = DeleteRowsRequest(uri, request_id, body_digest(request), checked)
        result = await self._memory.once((uri, request_id), wanted.body, lambda: self._queues.submit(wanted))
        return tables_pb2.DeleteRowsResponse(version=result.version, rows_deleted=result.rows)

    async def UpdateRows(
        self, request: tables_pb2.UpdateRowsRequest, _context: Context
    ) -> tables_pb2.UpdateRowsResponse:
        check_draining(self._draining)
        uri, request_id, moment = (
            convert_tables.uri_of(request.table),
            required_text(request.request_id, "request_id"),
            filter_now(),
        )
        asked, values = convert_tables.new_values_from_proto(request)
        where = await self._reads.run(row_rewrites.pinned_condition, uri, required_text(request.where, "where"), moment)
        expressions = await self._reads.run(row_rewrites.pinned_values, uri, asked, moment)
        wanted = UpdateRowsRequest(
            uri=uri,
            request_id=request_id,
            body=body_digest(request),
            where=where,
            expressions=expressions,
            clocks=frozenset(column for column, expression in asked.items() if is_clock(expression)),
            values=values,
        )
        result = await self._memory.once((uri, request_id), wanted.body, lambda: self._queues.submit(wanted))
        return tables_pb2.UpdateRowsResponse(version=result.version, rows_updated=result.rows)

    async def MergeRows(
        self, requests: AsyncIterator[tables_pb2.MergeRowsRequest], _context: Context
    ) -> tables_pb2.MergeRowsResponse:
        check_draining(self._draining)
        header = convert_tables.merge_from_proto(await anext(requests, None))
        rules = await self._reads.run(row_rewrites.pinned_rules, header.uri, header.rules, filter_now())
        async with contextlib.aclosing(_pieces(requests)) as pieces:
            result = await self._uploads.merge(header.uri, header.request_id, header.body, rules, pieces)
        return convert_tables.merged_to_proto(result)

    async def AddPlainColumns(
        self, request: tables_pb2.AddPlainColumnsRequest, _context: Context
    ) -> tables_pb2.AddPlainColumnsResponse:
        return tables_pb2.AddPlainColumnsResponse(version=await self._change(convert_tables.added_from_proto(request)))

    async def DropColumns(
        self, request: tables_pb2.DropColumnsRequest, _context: Context
    ) -> tables_pb2.DropColumnsResponse:
        return tables_pb2.DropColumnsResponse(version=await self._change(convert_tables.dropped_from_proto(request)))

    async def AlterPlainColumns(
        self, request: tables_pb2.AlterPlainColumnsRequest, _context: Context
    ) -> tables_pb2.AlterPlainColumnsResponse:
        wanted = convert_tables.altered_from_proto(request)
        return tables_pb2.AlterPlainColumnsResponse(version=await self._change(wanted))

    async def _change(self, wanted: ChangeColumnsRequest) -> int:
        check_draining(self._draining)
        key = wanted.uri, wanted.request_id
        return (await self._memory.once(key, wanted.body, lambda: self._queues.submit(wanted))).version

    async def DropTable(self, request: tables_pb2.DropTableRequest, _context: Context) -> tables_pb2.DropTableResponse:
        check_draining(self._draining)
        uri, request_id = convert_tables.uri_of(request.table), required_text(request.request_id, "request_id")
        work = partial(self._names.drop, uri, request_id, force=request.force)
        await self._memory.once((uri, request_id), body_digest(request), work)
        return tables_pb2.DropTableResponse()

    async def RenameTable(
        self, request: tables_pb2.RenameTableRequest, _context: Context
    ) -> tables_pb2.RenameTableResponse:
        check_draining(self._draining)
        uri, request_id = convert_tables.uri_of(request.table), required_text(request.request_id, "request_id")
        new_uri = convert_tables.new_uri_of(request)
        body = body_digest(request)
        work = partial(self._names.rename, uri, new_uri, request_id, body, force=request.force)
        result = await self._memory.once((uri, request_id), body, work)
        return tables_pb2.RenameTableResponse(version=result.version)


async def _pieces(
    requests: AsyncIterator[tables_pb2.AppendRowsRequest] | AsyncIterator[tables_pb2.MergeRowsRequest],
) -> AsyncGenerator[bytes, None]:
    async for request in requests:
        yield convert_tables.bytes_of(request)
