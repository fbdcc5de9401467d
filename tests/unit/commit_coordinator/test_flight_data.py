"""Messages of Arrow Flight that are put together and taken apart by hand, against protobuf's own."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any
from hypothesis import given
from hypothesis import strategies as st

from leman.v1 import catalog_pb2, flight_pb2
from leman_coordinator import flight_service
from leman_coordinator.tables import arrow_streams
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.server.authentication import bearer_token
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.flight_sql_protocol import FlightSqlCatalog_pb2 as flight_sql_pb2

PATH = Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.PATH, path=["d", "t"])


def stream_of(parts):
    """What a reader of Arrow IPC makes of the parts."""
    pieces = [piece for part in parts for piece in part.pieces()]
    return pa.ipc.open_stream(b"".join([*pieces, arrow_streams.END])).read_all()


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_a_part_is_what_protobuf_reads(header, body, metadata, described):
    message = Flight_pb2.FlightData(data_header=header, data_body=body, app_metadata=metadata)
    if described:
        message.flight_descriptor.CopyFrom(PATH)
    part = arrow_streams.part_of(message.SerializeToString())
    assert (bytes(part.header), bytes(part.body)) == (header, body)
    assert (part.descriptor is not None) is described
    if described:
        assert Flight_pb2.FlightDescriptor.FromString(bytes(part.descriptor)) == PATH


@given(st.binary(max_size=40))
def test_bytes_are_a_part_or_refused(raw):
    with contextlib.suppress(InvalidArgument):
        part = arrow_streams.part_of(raw)
        assert len(part.header) + len(part.body) < len(raw) or not raw


def test_fields_that_are_not_known_are_passed_over():
    known = Flight_pb2.FlightData(data_header=b"h").SerializeToString()
    others = b"\x20\xff\x01" + b"\x29" + bytes(8) + b"\x35" + bytes(4) + b"\x3a\x02xx"
    assert bytes(arrow_streams.part_of(others + known).header) == b"h"
    for cut in range(1, len(others)):
        if others[:cut] not in {others[:3], others[:12], others[:17]}:
            with pytest.raises(InvalidArgument):
                arrow_streams.part_of(others[:cut])


BATCHES = {
    "plain": pa.record_batch({"n": [1, None, 3], "s": ["a", "", None]}),
    "no rows": pa.record_batch({"n": pa.array([], pa.int64())}),
    "nothing but NULL": pa.record_batch({"n": pa.nulls(3)}),
    "dictionary": pa.record_batch({"d": pa.array(["x", None, "y"]).dictionary_encode()}),
    "dictionary within": pa.record_batch(
        {"d": pa.ListArray.from_arrays([0, 1, 3], pa.array(["x", "y", "x"]).dictionary_encode())}
    ),
    "of an extension": pa.record_batch({"u": pa.array([bytes(16)], pa.uuid())}),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_batches_come_back_from_messages_as_protobuf_has_them(batch):
    windows = arrow_streams.flight_messages(batch.schema, [[batch, batch.slice(1)], [batch]])
    made = [Flight_pb2.FlightData.FromString(message) for window in windows for message in window]
    assert all(message.data_header for message in made)
    parts = [arrow_streams.part_of(message.SerializeToString()) for message in made]
    assert stream_of(parts).equals(pa.Table.from_batches([batch, batch.slice(1), batch]))


@pytest.mark.parametrize(
    ("given_header", "basic", "expected"),
    [
        ("Basic dXNlcjpzZWNyZXQ=", True, b"secret"),
        ("basic dXNlcjpzZWNyZXQ", True, b"secret"),  # Go leaves out the padding
        ("Basic OnM6ZWNyZXQ", True, b"s:ecret"),
        ("Basic dXNlcg==", True, None),
        ("Basic !", True, None),
        ("Basic", True, None),
        ("Basic dXNlcjpzZWNyZXQ=", False, None),
        ("Bearer abc", True, b"abc"),
        (b"bearer abc", False, b"abc"),
        (None, True, None),
    ],
)
def test_a_token_may_be_a_password_where_that_is_allowed(given_header, basic, expected):
    assert bearer_token(given_header, basic=basic) == expected


@pytest.mark.parametrize("text", ["tag", "incarnation"])
def test_a_ticket_has_no_control_character_as_a_command_has_none(text):
    """As ReadRows refuses them."""
    said = json.dumps({text: "a\nb"}).encode()
    command = Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=said)
    for read, sent in (
        (flight_service.ticket_from_bytes, Flight_pb2.Ticket(ticket=said)),
        (flight_service.descriptor_from_bytes, command),
    ):
        with pytest.raises(InvalidArgument, match="control character") as caught:
            read(sent.SerializeToString())
        assert (caught.value.reason, caught.value.field) == ("BAD_REQUEST", text)


def test_commands_tickets_and_criteria_have_the_bounds_of_requests():
    names = json.dumps({"columns": ["c"] * 10_001}).encode()
    spaces = b" " * (1 << 18) + b"{}"
    catalog = flight_sql_pb2.CommandGetTables(catalog="x" * ((1 << 20) + 1))
    packed = Any()
    packed.Pack(catalog)
    for said in (names, spaces, packed.SerializeToString()):
        with pytest.raises(InvalidArgument, match="send") as caught:
            flight_service.ticket_from_bytes(Flight_pb2.Ticket(ticket=said).SerializeToString())
        assert caught.value.reason == "BAD_REQUEST"
    for read, sent in (
        (flight_service.listing_from_bytes, Flight_pb2.Criteria(expression=b"x" * ((1 << 20) + 1))),
        (
            flight_service.descriptor_from_bytes,
            Flight_pb2.FlightDescriptor(type=PATH.type, path=["x" * ((1 << 20) + 1), "t"]),
        ),
    ):
        with pytest.raises(InvalidArgument, match="may have at most 1048576"):
            read(sent.SerializeToString())


def command(cmd: bytes) -> bytes:
    return Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=cmd).SerializeToString()


def flight_sql(kind: str, **fields: str) -> bytes:
    packed = Any()
    packed.Pack(getattr(flight_sql_pb2, kind)(**fields))
    return packed.SerializeToString()


UNKNOWN_SQL = flight_sql("CommandGetTables").replace(b"CommandGetTables", b"CommandGetTokens")
BAD_SQL = Any(type_url=f"type.googleapis.com/{flight_sql_pb2.DESCRIPTOR.package}.CommandGetTables", value=b"\xff")
put = flight_service.put_from_bytes


def of_put(cmd: bytes) -> bytes:
    """The first message of a DoPut."""
    described = Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=cmd)
    return Flight_pb2.FlightData(flight_descriptor=described).SerializeToString()


@pytest.mark.parametrize(
    ("read", "raw", "reason", "told"),
    [
        (
            flight_service.descriptor_from_bytes,
            Flight_pb2.FlightDescriptor(type=PATH.type, path=["t"]).SerializeToString(),
            "BAD_REQUEST",
            "A descriptor is a path of database and table",
        ),
        (flight_service.descriptor_from_bytes, command(b"\xff"), "BAD_MESSAGE", "as bytes or as JSON"),
        (flight_service.descriptor_from_bytes, command(b'{"a": 1}'), "BAD_MESSAGE", "as bytes or as JSON"),
        (
            flight_service.descriptor_from_bytes,
            command(b"{" + b" " * (1 << 18)),
            "BAD_REQUEST",
            "send it as protobuf",
        ),
        (
            flight_service.listing_from_bytes,
            Flight_pb2.Criteria(expression=b"\xff").SerializeToString(),
            "BAD_MESSAGE",
            "expression is not UTF-8 text",
        ),
        (
            flight_service.listing_from_bytes,
            Flight_pb2.Criteria().SerializeToString(),
            "MISSING_FIELD",
            "expression is empty; name a database",
        ),
        (
            flight_service.descriptor_from_bytes,
            command(BAD_SQL.SerializeToString()),
            "BAD_MESSAGE",
            "This is not a command of Flight SQL",
        ),
        (
            flight_service.descriptor_from_bytes,
            command(flight_sql("CommandGetTables", table_name_filter_pattern="t" * 1001)),
            "BAD_REQUEST",
            "and names have fewer: give a shorter one",
        ),
        (flight_service.descriptor_from_bytes, command(UNKNOWN_SQL), "CALL_NOT_OFFERED", "it runs no SQL"),
        (put, of_put(UNKNOWN_SQL), "CALL_NOT_OFFERED", "is not offered here: rows are appended by a DoPut"),
        (put, b"\x0a\xff", "BAD_MESSAGE", r"the message is not an arrow\.flight\.protocol\.FlightData"),
    ],
)
def test_what_is_no_message_of_ours_is_refused(read, raw, reason, told):
    with pytest.raises(LemanError, match=told) as refused:
        read(raw)
    assert refused.value.reason == reason


NOTHING = flight_service.PutMessage(None, arrow_streams.Part(None, memoryview(b""), memoryview(b"")))
COMMAND = flight_pb2.PutRowsCommand(table=catalog_pb2.TableRef(database="/lake", table="t"))


class Uploads:
    """Reads the stream, and stores nothing."""

    async def append(self, _uri: str, _request_id: str, _digest: str, pieces, **_: int):
        return [piece async for piece in pieces]


async def each(*messages):
    for message in messages:
        yield message


def servicer() -> flight_service.FlightServicer:
    return flight_service.FlightServicer(None, Uploads(), None, None, None, asyncio.Event())


@pytest.mark.parametrize(
    ("call", "reason", "told"),
    [
        (lambda up: up.DoPut(each(), None), "MISSING_FIELD", "The first message must have a descriptor"),
        (lambda up: up.DoPut(each(NOTHING), None), "MISSING_FIELD", "The first message must have a descriptor"),
        (
            lambda up: up.DoPut(each(*[flight_service.PutMessage(COMMAND, NOTHING.part)] * 2), None),
            "BAD_STREAM",
            "Only the first message may have a descriptor",
        ),
        (
            lambda up: up.DoAction(Flight_pb2.Action(type="CreatePreparedStatement"), None),
            "CALL_NOT_OFFERED",
            "is not offered here; docs/flight.md lists the calls",
        ),
        (lambda up: up.DoExchange(each(NOTHING), None), "CALL_NOT_OFFERED", "docs/flight.md lists the calls that are"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(call, reason, told):
    async def answers():
        return [answer async for answer in call(servicer())]

    with pytest.raises(LemanError, match=told) as refused:
        asyncio.run(answers())
    assert refused.value.reason == reason
