"""FlightService: Arrow Flight as a second interface to TableService's rows, see docs/flight.md.

A command or ticket is a message of leman.v1, encoded in binary or as JSON. JSON begins with `{`, and none of these
messages begins with that byte in binary.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from leman.v1 import catalog_pb2, flight_pb2, tables_pb2
from leman_coordinator import convert_tables, flight_sql
from leman_coordinator.commits.commit_queue import CommitQueues, check_draining
from leman_coordinator.commits.commit_requests import ReadRequest, RequestMemory
from leman_coordinator.convert_tables import read_from_proto
from leman_coordinator.flight_sql import Catalogs, Question
from leman_coordinator.lance_io import row_commits, row_reading
from leman_coordinator.lance_io.row_reading import Prospect, RowReads, filter_now
from leman_coordinator.tables import arrow_streams
from leman_coordinator.tables.arrow_streams import Part
from leman_coordinator.tables.row_uploads import Uploads
from leman_core.model.service_errors import AlreadyExists, InvalidArgument, LemanError, Unimplemented
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.server import request_messages
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.request_messages import body_digest
from leman_core.server.routes import FLIGHT
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire.convert_values import schema_to_bytes

#: The maximum number of rows in a record batch, unless the caller asks for fewer.
_BATCH_ROWS = 1 << 16
#: The maximum size of a batch with several rows: by default, clients in Go refuse messages of 4 MiB.
_BATCH_BYTES = 2 << 20
#: The maximum size of a command in JSON, which is slow to parse.
_MOST_JSON_BYTES = 1 << 18
#: The parts of a path: database and table.
_PATH_PARTS = 2

_Command = TypeVar("_Command", bound=Message)


@dataclass(frozen=True, slots=True)
class DescriptorRequest:
    """A request for rows, with its descriptor."""

    carried: tables_pb2.ReadRowsRequest
    descriptor: Any


@dataclass(frozen=True, slots=True)
class Listing:
    """A request to list tables, and the caller's name for the database."""

    carried: catalog_pb2.ListTablesRequest
    database: str


@dataclass(frozen=True, slots=True)
class PutMessage:
    """One message of a DoPut; the first one has the descriptor."""

    carried: flight_pb2.PutRowsCommand | None
    part: Part


def descriptor_from_bytes(raw: bytes) -> DescriptorRequest | Question:
    """Parse a FlightDescriptor: a request for rows, or a Flight SQL command.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: the bytes are not a FlightDescriptor.
    """
    descriptor = Flight_pb2.FlightDescriptor.FromString(raw)
    is_command = descriptor.type == Flight_pb2.FlightDescriptor.CMD
    if is_command and (found := flight_sql.parse_question(descriptor.cmd)) is not None:
        return found
    return DescriptorRequest(_command(descriptor, tables_pb2.ReadRowsRequest), descriptor)


def ticket_from_bytes(raw: bytes) -> tables_pb2.ReadRowsRequest | Question:
    """Parse a Ticket.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: the bytes are not a Ticket.
    """
    ticket = Flight_pb2.Ticket.FromString(raw).ticket
    return flight_sql.parse_question(ticket) or _checked(ticket, tables_pb2.ReadRowsRequest, "ticket")


def listing_from_bytes(raw: bytes) -> Listing:
    """Parse a Criteria, which names the database to list.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST, MISSING_FIELD.
        DecodeError: the bytes are not a Criteria.
    """
    expression = Flight_pb2.Criteria.FromString(raw).expression
    try:
        database = expression.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("BAD_MESSAGE", "expression is not UTF-8 text", field="expression") from None
    if not database:
        raise InvalidArgument("MISSING_FIELD", "expression is empty; name a database", field="expression")
    return Listing(_bounded(catalog_pb2.ListTablesRequest(database=database)), database)


def put_from_bytes(raw: bytes) -> PutMessage:
    """Parse a message of a DoPut.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: its descriptor is invalid.
    """
    part = arrow_streams.part_of(raw)
    if part.descriptor is None:
        return PutMessage(None, part)
    descriptor = Flight_pb2.FlightDescriptor.FromString(bytes(part.descriptor))
    if descriptor.type == Flight_pb2.FlightDescriptor.CMD:
        flight_sql.refuse_to_write(descriptor.cmd)
    return PutMessage(_command(descriptor, flight_pb2.PutRowsCommand), part)


def flight_read_request(message: tables_pb2.ReadRowsRequest) -> ReadRequest:
    """Convert a read request, with batch sizes for Flight.

    Raises the errors of `read_from_proto`.
    """
    rows = message.batch_size or _BATCH_ROWS
    return read_from_proto(message).in_batches(rows, _BATCH_BYTES)


def flight_info(descriptor: Any, found: Prospect) -> Any:
    """Return the FlightInfo of rows that can be read. Its ticket reads only the version that was found.

    The ticket keeps the caller's name of the table, even if that is a link.
    """
    ticket = _command(descriptor, tables_pb2.ReadRowsRequest)
    ticket.version, ticket.where, ticket.incarnation = found.version, found.where, found.incarnation
    packed = json_format.MessageToJson(ticket, indent=None).encode()
    return Flight_pb2.FlightInfo(
        schema=schema_to_bytes(found.schema),
        flight_descriptor=descriptor,
        endpoint=[Flight_pb2.FlightEndpoint(ticket=Flight_pb2.Ticket(ticket=packed))],
        total_records=-1 if found.rows is None else found.rows,
        total_bytes=-1,
        ordered=True,
    )


def answer_flight_info(question: Question) -> Any:
    """Return the FlightInfo of a Flight SQL command. Its ticket is the command itself, which DoGet then answers."""
    descriptor = Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=question.raw)
    return Flight_pb2.FlightInfo(
        schema=schema_to_bytes(flight_sql.answer_schema(question)),
        flight_descriptor=descriptor,
        endpoint=[Flight_pb2.FlightEndpoint(ticket=Flight_pb2.Ticket(ticket=question.raw))],
        total_records=-1,
        total_bytes=-1,
    )


def schema_result(columns: pa.Schema) -> Any:
    """Return the response of a GetSchema."""
    return Flight_pb2.SchemaResult(schema=schema_to_bytes(columns))


def unreadable_flight_info(descriptor: Any) -> Any:
    """Return the FlightInfo of a table that cannot be read. Asking for its schema or rows raises the reason."""
    return Flight_pb2.FlightInfo(flight_descriptor=descriptor, total_records=-1, total_bytes=-1)


def table_descriptor(database: str, table: str) -> Any:
    """Return the descriptor of a table."""
    return Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.PATH, path=[database, table])


def put_result(version: int, rows: int) -> Any:
    """Return the response of a DoPut."""
    result = flight_pb2.PutRowsResult(version=version, rows_added=rows)
    said = json_format.MessageToJson(result, indent=None, always_print_fields_with_no_presence=True)
    return Flight_pb2.PutResult(app_metadata=said.encode())


def _command(descriptor: Any, kind: type[_Command]) -> _Command:
    if descriptor.type == Flight_pb2.FlightDescriptor.CMD:
        return _checked(descriptor.cmd, kind, "cmd")
    if descriptor.type == Flight_pb2.FlightDescriptor.PATH and len(descriptor.path) == _PATH_PARTS:
        database, table = descriptor.path
        return _bounded(kind(table=catalog_pb2.TableRef(database=database, table=table)))
    name = kind.DESCRIPTOR.full_name
    message = f"A descriptor is a path of database and table, or a command: a {name}, as bytes or as JSON"
    raise InvalidArgument("BAD_REQUEST", message, field="flight_descriptor")


def _checked(raw: bytes, kind: type[_Command], field: str) -> _Command:
    return _bounded(_parse_command(raw, kind, field))


def _bounded(command: _Command) -> _Command:
    request_messages.text_check(command.DESCRIPTOR)(command)
    return command


def _parse_command(raw: bytes, kind: type[_Command], field: str) -> _Command:
    is_json = raw.lstrip()[:1] == b"{"
    if is_json and len(raw) > _MOST_JSON_BYTES:
        message = f"{field} has {len(raw)} bytes of JSON; at most {_MOST_JSON_BYTES} are accepted: send it as protobuf"
        raise InvalidArgument("BAD_REQUEST", message, field=field)
    try:
        if is_json:
            return json_format.Parse(raw, kind())
        return kind.FromString(raw)
    except (json_format.ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{field} is not a {kind.DESCRIPTOR.full_name}, as bytes or as JSON: {error}"
        raise InvalidArgument("BAD_MESSAGE", message, field=field) from None


#: No actions are offered.
_ACTIONS: tuple[Any, ...] = ()
#: grpc.aio first ends the message stream of a cancelled call like a complete one, and cancels the handler a moment
#: later, even behind a forwarding service. Flight has no end mark that would show the difference, so wait this long for
#: a cancellation.
_CANCELLED_WITHIN_SECONDS = 0.05

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class FlightServicer:
    """The calls of Arrow Flight, except Handshake, which every process answers."""

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

    async def GetFlightInfo(self, request: DescriptorRequest | Question, _context: Context) -> Any:
        if isinstance(request, Question):
            return answer_flight_info(request)
        wanted = flight_read_request(request.carried)
        found = await self._reads.run(row_reading.inspect_rows, wanted, filter_now())
        return flight_info(request.descriptor, found)

    async def PollFlightInfo(self, request: DescriptorRequest | Question, context: Context) -> Any:
        return Flight_pb2.PollInfo(info=await self.GetFlightInfo(request, context), progress=1.0)

    async def GetSchema(self, request: DescriptorRequest | Question, _context: Context) -> Any:
        if isinstance(request, Question):
            return schema_result(flight_sql.answer_schema(request))
        wanted = flight_read_request(request.carried)
        found = await self._reads.run(row_reading.inspect_rows, wanted, filter_now())
        return schema_result(found.schema)

    async def DoGet(self, request: tables_pb2.ReadRowsRequest | Question, _context: Context) -> AsyncIterator[bytes]:
        if isinstance(request, Question):
            told = await self._reads.run(flight_sql.answer_question, request, self._catalogs)
            for messages in arrow_streams.flight_messages(told.schema, [told.to_batches()]):
                for message in messages:
                    yield message
            return
        reading = self._reads.each(
            flight_read_request(request), lambda rows: arrow_streams.flight_messages(rows.schema, rows.windows)
        )
        async with contextlib.aclosing(reading):
            async for _, messages in reading:
                for message in messages:
                    yield message
                    check_draining(self._draining)

    async def DoPut(self, requests: AsyncGenerator[PutMessage, None], _context: Context) -> AsyncIterator[Any]:
        check_draining(self._draining)
        first = await anext(requests, None)
        if first is None or first.carried is None:
            raise InvalidArgument(
                "MISSING_FIELD", "The first message must have a descriptor", field="flight_descriptor"
            )
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
        yield put_result(result.version, result.rows)

    async def DoExchange(self, requests: AsyncIterator[Any], _context: Context) -> AsyncIterator[Any]:
        async for _ in requests:
            yield _not_offered("DoExchange")

    async def DoAction(self, request: Any, _context: Context) -> AsyncIterator[Any]:
        yield _not_offered(f"The action '{request.type}'")

    async def ListActions(self, _request: Any, _context: Context) -> AsyncIterator[Any]:
        for action in _ACTIONS:
            yield action

    async def _listed(self, request: Listing, name: str) -> Any:
        descriptor, place = table_descriptor(request.database, name), request.carried.database
        message = tables_pb2.ReadRowsRequest(table=catalog_pb2.TableRef(database=place, table=name))
        try:
            await self._reads.run(self._catalogs.check_table, place, name)
            found = await self._reads.run(row_reading.inspect_rows, flight_read_request(message), filter_now())
        except LemanError:
            return unreadable_flight_info(descriptor)
        return flight_info(descriptor, found)

    async def _create(self, command: flight_pb2.PutRowsCommand, first: PutMessage) -> None:
        """Create the table of a DoPut if it does not exist."""
        uri = convert_tables.uri_of(command.table)
        if await self._reads.run(row_commits.made_by, uri) is not None:
            return
        message = tables_pb2.CreateTableRequest(
            table=command.table, schema=arrow_streams.schema_in(first.part), request_id=f"create-{command.request_id}"
        )
        wanted = convert_tables.create_from_proto(message)
        try:
            await self._memory.once((uri, wanted.request_id), wanted.body, lambda: self._queues.submit(wanted))
        except AlreadyExists as error:
            if error.reason != "TABLE_EXISTS":
                raise


def add_flight(servicer: FlightServicer, server: grpc.aio.Server) -> None:
    """Register the calls of Arrow Flight with a server."""
    one, many, both = (
        grpc.unary_unary_rpc_method_handler,
        grpc.unary_stream_rpc_method_handler,
        grpc.stream_stream_rpc_method_handler,
    )
    handlers: dict[str, Any] = {
        "ListFlights": many(servicer.ListFlights, listing_from_bytes, _serialised),
        "GetFlightInfo": one(servicer.GetFlightInfo, descriptor_from_bytes, _serialised),
        "PollFlightInfo": one(servicer.PollFlightInfo, descriptor_from_bytes, _serialised),
        "GetSchema": one(servicer.GetSchema, descriptor_from_bytes, _serialised),
        "DoGet": many(servicer.DoGet, ticket_from_bytes, _serialised),
        "DoPut": both(servicer.DoPut, put_from_bytes, _serialised),
        "DoExchange": both(servicer.DoExchange, Flight_pb2.FlightData.FromString, _serialised),
        "DoAction": many(servicer.DoAction, Flight_pb2.Action.FromString, _serialised),
        "ListActions": many(servicer.ListActions, Flight_pb2.Empty.FromString, _serialised),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FLIGHT.full_name, handlers),))


async def _stream(first: PutMessage, others: AsyncIterator[PutMessage]) -> AsyncGenerator[bytes | memoryview, None]:
    """Yield the bytes of an Arrow IPC stream, and add the end mark when the call ends regularly: Flight sends none."""
    for piece in first.part.pieces():
        yield piece
    async for message in others:
        if message.carried is not None:
            raise InvalidArgument(
                "BAD_STREAM", "Only the first message may have a descriptor", field="flight_descriptor"
            )
        for piece in message.part.pieces():
            yield piece
    await asyncio.sleep(_CANCELLED_WITHIN_SECONDS)
    yield arrow_streams.END


def _serialised(message: Any) -> bytes:
    return message.SerializeToString()  # type: ignore[no-any-return]


def _not_offered(what: str) -> bytes:
    message = f"{what} is not offered here; docs/flight.md lists the calls that are"
    raise Unimplemented("CALL_NOT_OFFERED", message)
