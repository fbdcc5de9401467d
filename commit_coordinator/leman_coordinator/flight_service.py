"""FlightService: Arrow Flight as another way to TableService's rows. What is asked and promised: docs/flight.md."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeAlias

import grpc

from leman.v1 import catalog_pb2, flight_pb2, tables_pb2
from leman_coordinator import convert_flight, convert_tables, flight_sql
from leman_coordinator.commit_queues import CommitQueues
from leman_coordinator.convert_flight import Asked, Listing, Put
from leman_coordinator.draining import check_draining
from leman_coordinator.flight_sql import Question
from leman_coordinator.lance_io import row_commits, row_reading
from leman_coordinator.request_deduplication import RequestMemory
from leman_coordinator.tables import flight_data
from leman_coordinator.tables.catalogs import Catalogs
from leman_coordinator.tables.row_reads import RowReads, now
from leman_coordinator.tables.uploads import Uploads
from leman_core.model.errors import AlreadyExists, InvalidArgument, LemanError, Unimplemented
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.server.flight_calls import FLIGHT
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.request_digest import body_digest
from leman_core.storage.tables import LanceTables

#: There are none.
_ACTIONS: tuple[Any, ...] = ()
#: grpc.aio ends the messages of a call that its caller cancels as those of one that is over, and cancels the handler a
#: moment later, through a forwarding service as well. Flight has no mark of its own for the end of the rows.
_CANCELLED_WITHIN_SECONDS = 0.05

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class FlightServicer:
    """The calls of Arrow Flight, but for Handshake, which every process answers."""

    def __init__(
        self,
        reads: RowReads,
        uploads: Uploads,
        queues: CommitQueues,
        memory: RequestMemory,
        catalogs: Catalogs,
        draining: asyncio.Event,
    ) -> None:
        self._reads = reads
        self._uploads = uploads
        self._queues = queues
        self._memory = memory
        self._catalogs = catalogs
        self._draining = draining

    async def ListFlights(self, request: Listing, _context: Context) -> AsyncIterator[Any]:
        names = await self._reads.run(LanceTables().list_tables, request.carried.database)
        for name in names:
            if not name.startswith(SCRATCH_PREFIX):
                yield await self._listed(request, name)
                check_draining(self._draining)

    async def GetFlightInfo(self, request: Asked | Question, _context: Context) -> Any:
        if isinstance(request, Question):
            return convert_flight.answer_info(request)
        wanted = convert_flight.wanted(request.carried)
        found = await self._reads.run(row_reading.look_at_rows, wanted, now())
        return convert_flight.info(request.descriptor, found)

    async def PollFlightInfo(self, request: Asked | Question, context: Context) -> Any:
        return Flight_pb2.PollInfo(info=await self.GetFlightInfo(request, context), progress=1.0)

    async def GetSchema(self, request: Asked | Question, _context: Context) -> Any:
        if isinstance(request, Question):
            return convert_flight.schema(flight_sql.schema(request))
        wanted = convert_flight.wanted(request.carried)
        found = await self._reads.run(row_reading.look_at_rows, wanted, now())
        return convert_flight.schema(found.schema)

    async def DoGet(self, request: tables_pb2.ReadRowsRequest | Question, _context: Context) -> AsyncIterator[bytes]:
        if isinstance(request, Question):
            told = await self._reads.run(flight_sql.answer, request, self._catalogs)
            for messages in flight_data.messages(told.schema, [told.to_batches()]):
                for message in messages:
                    yield message
            return
        reading = self._reads.each(
            convert_flight.wanted(request), lambda rows: flight_data.messages(rows.schema, rows.windows)
        )
        async with contextlib.aclosing(reading):
            async for _, messages in reading:
                for message in messages:
                    yield message
                    check_draining(self._draining)

    async def DoPut(self, requests: AsyncGenerator[Put, None], _context: Context) -> AsyncIterator[Any]:
        check_draining(self._draining)
        first = await anext(requests, None)
        if first is None or first.carried is None:
            raise InvalidArgument("MISSING_FIELD", "The first message has a descriptor", field="flight_descriptor")
        command = first.carried
        command.request_id = command.request_id or uuid.uuid4().hex
        if command.create_table:
            await self._create(command, first)
        header = tables_pb2.AppendRowsHeader(table=command.table, request_id=command.request_id)
        header.max_rows_per_fragment = rows = convert_tables.not_negative(
            command.max_rows_per_fragment, "max_rows_per_fragment"
        )
        async with contextlib.aclosing(_stream(first, requests)) as pieces:
            result = await self._uploads.append(
                convert_tables.uri_of(command.table),
                command.request_id,
                body_digest(header),
                pieces,
                max_rows_per_fragment=rows,
            )
        yield convert_flight.put_result(result.version, result.rows)

    async def DoExchange(self, requests: AsyncIterator[Any], _context: Context) -> AsyncIterator[Any]:
        async for _ in requests:
            yield _not_offered("DoExchange")

    async def DoAction(self, request: Any, _context: Context) -> AsyncIterator[Any]:
        yield _not_offered(f"The action '{request.type}'")

    async def ListActions(self, _request: Any, _context: Context) -> AsyncIterator[Any]:
        for action in _ACTIONS:
            yield action

    async def _listed(self, request: Listing, name: str) -> Any:
        descriptor, place = convert_flight.path(request.database, name), request.carried.database
        message = tables_pb2.ReadRowsRequest(table=catalog_pb2.TableRef(database=place, table=name))
        try:
            await self._reads.run(self._catalogs.check_table, place, name)
            found = await self._reads.run(row_reading.look_at_rows, convert_flight.wanted(message), now())
        except LemanError:
            return convert_flight.unknown(descriptor)
        return convert_flight.info(descriptor, found)

    async def _create(self, command: flight_pb2.PutRowsCommand, first: Put) -> None:
        """Make the table where there is none."""
        uri = convert_tables.uri_of(command.table)
        if await self._reads.run(row_commits.made_by, uri) is not None:
            return
        message = tables_pb2.CreateTableRequest(
            table=command.table, schema=flight_data.schema_in(first.part), request_id=f"create-{command.request_id}"
        )
        wanted = convert_tables.create_from_proto(message)
        try:
            await self._memory.once((uri, wanted.request_id), wanted.body, lambda: self._queues.submit(wanted))
        except AlreadyExists as error:
            if error.reason != "TABLE_EXISTS":
                raise


def add_flight(servicer: FlightServicer, server: grpc.aio.Server) -> None:
    """Answer the calls of Arrow Flight on this server."""
    one, many, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    handlers: dict[str, Any] = {
        "ListFlights": many(servicer.ListFlights, convert_flight.listing, _serialised),
        "GetFlightInfo": one(servicer.GetFlightInfo, convert_flight.asked, _serialised),
        "PollFlightInfo": one(servicer.PollFlightInfo, convert_flight.asked, _serialised),
        "GetSchema": one(servicer.GetSchema, convert_flight.asked, _serialised),
        "DoGet": many(servicer.DoGet, convert_flight.redeemed, _serialised),
        "DoPut": both(servicer.DoPut, convert_flight.put, _serialised),
        "DoExchange": both(servicer.DoExchange, Flight_pb2.FlightData.FromString, _serialised),
        "DoAction": many(servicer.DoAction, Flight_pb2.Action.FromString, _serialised),
        "ListActions": many(servicer.ListActions, Flight_pb2.Empty.FromString, _serialised),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FLIGHT.full_name, handlers),))


async def _stream(first: Put, others: AsyncIterator[Put]) -> AsyncGenerator[bytes | memoryview, None]:
    """Yield the bytes of an Arrow IPC stream, with its end: in Flight that is where a call ends in order."""
    for piece in first.part.pieces():
        yield piece
    async for message in others:
        if message.carried is not None:
            raise InvalidArgument("BAD_STREAM", "Only the first message has a descriptor", field="flight_descriptor")
        for piece in message.part.pieces():
            yield piece
    await asyncio.sleep(_CANCELLED_WITHIN_SECONDS)
    yield flight_data.END


def _serialised(message: Any) -> bytes:
    return message.SerializeToString()  # type: ignore[no-any-return]


def _not_offered(what: str) -> bytes:
    message = f"{what} is not offered here; docs/flight.md lists the calls that are"
    raise Unimplemented("CALL_NOT_OFFERED", message)
