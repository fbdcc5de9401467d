"""Messages of Arrow Flight that are put together and taken apart by hand, against protobuf's own."""

from __future__ import annotations

import contextlib
import json

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any
from hypothesis import given
from hypothesis import strategies as st

from leman_coordinator import flight_service
from leman_coordinator.tables import arrow_streams
from leman_core.model.service_errors import InvalidArgument
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
        with pytest.raises(InvalidArgument, match="may have 1048576"):
            read(sent.SerializeToString())
