"""What is said over Arrow Flight, from and to protobuf: descriptors, tickets, commands and answers.

A command, or a ticket, is a message of leman.v1, as its bytes or as its JSON. JSON begins with `{`, which no message of
protobuf does here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from leman.v1 import catalog_pb2, flight_pb2, tables_pb2
from leman_coordinator import flight_sql
from leman_coordinator.convert_tables import read_from_proto
from leman_coordinator.flight_sql import Question
from leman_coordinator.lance_io.row_reading import Prospect
from leman_coordinator.tables import flight_data
from leman_coordinator.tables.flight_data import Part
from leman_coordinator.tables.requests import ReadRequest
from leman_core.model.errors import InvalidArgument
from leman_core.server import request_texts
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.wire.convert import schema_to_bytes

#: Rows of a record batch at the most, unless the caller asks for fewer.
_BATCH_ROWS = 1 << 16
#: Bytes of one at the most, where it has more than one row: clients in Go take no message of 4 MiB unless told to.
_BATCH_BYTES = 2 << 20
#: Parts of a path: database and table.
_PATH_PARTS = 2

_Command = TypeVar("_Command", bound=Message)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request about rows, with the descriptor that asks for it."""

    carried: tables_pb2.ReadRowsRequest
    descriptor: Any


@dataclass(frozen=True, slots=True)
class Listing:
    """A request about the tables of a database, and how the caller named that."""

    carried: catalog_pb2.ListTablesRequest
    database: str


@dataclass(frozen=True, slots=True)
class Put:
    """One message of a DoPut; the first one carries what the call is about."""

    carried: flight_pb2.PutRowsCommand | None
    part: Part


def asked(raw: bytes) -> Asked | Question:
    """Return what a FlightDescriptor asks for: rows, or what Flight SQL asks about tables.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: the bytes are no FlightDescriptor.
    """
    descriptor = Flight_pb2.FlightDescriptor.FromString(raw)
    is_command = descriptor.type == Flight_pb2.FlightDescriptor.CMD
    if is_command and (found := flight_sql.question(descriptor.cmd)) is not None:
        return found
    return Asked(_command(descriptor, tables_pb2.ReadRowsRequest), descriptor)


def redeemed(raw: bytes) -> tables_pb2.ReadRowsRequest | Question:
    """Return what a Ticket stands for.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: the bytes are no Ticket.
    """
    ticket = Flight_pb2.Ticket.FromString(raw).ticket
    return flight_sql.question(ticket) or _checked(ticket, tables_pb2.ReadRowsRequest, "ticket")


def listing(raw: bytes) -> Listing:
    """Return which tables a Criteria means: those of the database that it names.

    Raises:
        InvalidArgument: BAD_MESSAGE, MISSING_FIELD.
        DecodeError: the bytes are no Criteria.
    """
    expression = Flight_pb2.Criteria.FromString(raw).expression
    try:
        database = expression.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("BAD_MESSAGE", "expression is no text in UTF-8", field="expression") from None
    if not database:
        raise InvalidArgument("MISSING_FIELD", "expression is empty: it names a database", field="expression")
    return Listing(catalog_pb2.ListTablesRequest(database=database), database)


def put(raw: bytes) -> Put:
    """Return a message of a DoPut.

    Raises:
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
        Unimplemented: CALL_NOT_OFFERED.
        DecodeError: the descriptor in it is none.
    """
    part = flight_data.part_of(raw)
    if part.descriptor is None:
        return Put(None, part)
    descriptor = Flight_pb2.FlightDescriptor.FromString(bytes(part.descriptor))
    if descriptor.type == Flight_pb2.FlightDescriptor.CMD:
        flight_sql.refuse_to_write(descriptor.cmd)
    return Put(_command(descriptor, flight_pb2.PutRowsCommand), part)


def wanted(message: tables_pb2.ReadRowsRequest) -> ReadRequest:
    """Return which rows are to be read, in batches as Flight likes them.

    Raises:
        LemanError: what `read_from_proto` raises.
    """
    rows = message.batch_size or _BATCH_ROWS
    return read_from_proto(message).in_batches(rows, _BATCH_BYTES)


def info(descriptor: Any, found: Prospect) -> Any:
    """Return the FlightInfo of rows that can be read; its ticket is good for the version that was found alone.

    The ticket names the table as the caller did, and not where a link led.
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


def answer_info(question: Question) -> Any:
    """Return the FlightInfo of an answer of Flight SQL; its ticket is the command, and the answer what is then."""
    descriptor = Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=question.raw)
    return Flight_pb2.FlightInfo(
        schema=schema_to_bytes(flight_sql.schema(question)),
        flight_descriptor=descriptor,
        endpoint=[Flight_pb2.FlightEndpoint(ticket=Flight_pb2.Ticket(ticket=question.raw))],
        total_records=-1,
        total_bytes=-1,
    )


def schema(columns: pa.Schema) -> Any:
    """Return the answer to a GetSchema."""
    return Flight_pb2.SchemaResult(schema=schema_to_bytes(columns))


def unknown(descriptor: Any) -> Any:
    """Return the FlightInfo of a table that cannot be read; who asks about it, or reads it, hears why."""
    return Flight_pb2.FlightInfo(flight_descriptor=descriptor, total_records=-1, total_bytes=-1)


def path(database: str, table: str) -> Any:
    """Return the descriptor of a table."""
    return Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.PATH, path=[database, table])


def put_result(version: int, rows: int) -> Any:
    """Return the answer to a DoPut."""
    result = flight_pb2.PutRowsResult(version=version, rows_added=rows)
    said = json_format.MessageToJson(result, indent=None, always_print_fields_with_no_presence=True)
    return Flight_pb2.PutResult(app_metadata=said.encode())


def _command(descriptor: Any, kind: type[_Command]) -> _Command:
    if descriptor.type == Flight_pb2.FlightDescriptor.CMD:
        return _checked(descriptor.cmd, kind, "cmd")
    if descriptor.type == Flight_pb2.FlightDescriptor.PATH and len(descriptor.path) == _PATH_PARTS:
        database, table = descriptor.path
        return kind(table=catalog_pb2.TableRef(database=database, table=table))
    name = kind.DESCRIPTOR.full_name
    message = f"A descriptor is a path of database and table, or a command: a {name}, as bytes or as JSON"
    raise InvalidArgument("BAD_REQUEST", message, field="flight_descriptor")


def _checked(raw: bytes, kind: type[_Command], field: str) -> _Command:
    command = _said(raw, kind, field)
    request_texts.check_of(kind.DESCRIPTOR)(command)
    return command


def _said(raw: bytes, kind: type[_Command], field: str) -> _Command:
    try:
        if raw.lstrip()[:1] == b"{":
            return json_format.Parse(raw, kind())
        return kind.FromString(raw)
    except (json_format.ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{field} is no {kind.DESCRIPTOR.full_name}, neither as bytes nor as JSON: {error}"
        raise InvalidArgument("BAD_MESSAGE", message, field=field) from None
