"""Arrow Flight with its stock client, on real services: what is read, and what is put."""

from __future__ import annotations

import datetime as dt
import decimal

import grpc
import lance
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from leman.v1 import catalog_pb2, flight_pb2, tables_pb2
from leman_core.process.release import SERVICES
from tests.integration.tables.flight_helpers import (
    bearer,
    cmd,
    command,
    flight_data,
    opened,
    path,
    put,
    read,
    reason_of,
    refusal,
)
from tests.integration.tables.table_helpers import data_files, referenced, wait_for_files

ROWS = 30


@pytest.fixture(scope="module")
def lake(system, tmp_path_factory):
    """`t` in three fragments, changed since its tag `before`; `v`, a view of it."""
    folder = tmp_path_factory.mktemp("flights")
    data = pa.table({"id": pa.array(range(ROWS), pa.int64()), "s": [f"s{i % 3}" for i in range(ROWS)]})
    table = lance.write_dataset(data, folder / "t.lance", max_rows_per_file=10, enable_stable_row_ids=True)
    table.tags.create("before", table.version)
    table.delete("id >= 28")
    with system.connect(folder) as db:
        db.create_materialized_view("v", db.open_table("t").search().where("id > 20").select(["id"])).refresh()
    return folder


@pytest.fixture(scope="module")
def clients(system):
    """A stock client of each of the three services, which shows the token as a password once."""
    made = {}
    for name in SERVICES:
        plain = fl.connect(f"grpc://{system.service[name]}")
        header, value = plain.authenticate_basic_token("anybody", str(system.service["token"]))
        assert header == b"authorization"
        plain.close()
        made[name] = fl.connect(f"grpc://{system.service[name]}", middleware=[_Shown(value)])
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def client(clients):
    return clients["commit_coordinator"]


@pytest.fixture(scope="module")
def raw(system):
    """A channel to the planner, which passes the calls on, and what a call shows."""
    with grpc.insecure_channel(str(system.service["planner"])) as channel:
        yield channel, {"metadata": (("authorization", f"Bearer {system.service['token']}"),)}


class _Shown(fl.ClientMiddlewareFactory):
    """What a client does that keeps the header of the handshake."""

    def __init__(self, value):
        self._value = value

    def start_call(self, info):
        return self

    def sending_headers(self):
        return {"authorization": self._value.decode()}

    def received_headers(self, headers):
        pass

    def call_completed(self, error):
        pass


def ids(table):
    return table.column("id").to_pylist()


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_answers_to_a_client_that_knows_a_path_alone(lake, clients, name):
    client = clients[name]
    assert read(client, fl.FlightDescriptor.for_path(str(lake), "t")) == lance.dataset(lake / "t.lance").to_table()
    assert ids(read(client, fl.FlightDescriptor.for_path(str(lake), "v"))) == [*range(21, 28)]
    listed = {tuple(info.descriptor.path): info for info in client.list_flights(str(lake).encode())}
    assert set(listed) == {(str(lake).encode(), b"t"), (str(lake).encode(), b"v")}
    info = listed[str(lake).encode(), b"t"]
    assert (info.total_records, info.total_bytes, info.schema.names) == (28, -1, ["id", "s"])
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 28
    assert list(client.list_actions()) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"where": "id % 7 = 0"}, [0, 7, 14, 21]),
        ({"limit": 3}, [0, 1, 2]),
        ({"limit": 0}, []),
        ({"offset": 9, "limit": "3"}, [9, 10, 11]),
        ({"where": "id > 20", "limit": 2, "offset": 1}, [22, 23]),
        ({"where": "id > 99"}, []),
        ({"tag": "before", "offset": 27}, [27, 28, 29]),
        ({"version": 1, "where": "id > 27"}, [28, 29]),
        ({"columns": ["id"], "batchSize": 4}, [*range(28)]),
    ],
)
def test_a_query_says_what_read_rows_says(lake, client, asked, expected):
    found = read(client, command(lake, columns=["id"], **asked) if "columns" not in asked else command(lake, **asked))
    assert (ids(found), found.column_names) == (expected, ["id"])


def test_a_command_may_be_the_message_itself(lake, client):
    message = tables_pb2.ReadRowsRequest(table=catalog_pb2.TableRef(database=str(lake), table="t"), where="id = 3")
    descriptor = fl.FlightDescriptor.for_command(message.SerializeToString())
    assert ids(read(client, descriptor)) == [3]
    assert ids(client.do_get(fl.Ticket(message.SerializeToString())).read_all()) == [3]


def test_batches_have_as_many_rows_as_are_asked_for(lake, client):
    info = client.get_flight_info(command(lake, batchSize=4))
    sizes = [chunk.data.num_rows for chunk in client.do_get(info.endpoints[0].ticket)]
    assert (max(sizes), sum(sizes)) == (4, 28)


def test_a_ticket_gives_what_its_flight_promised_or_says_that_it_cannot(system, tmp_path, client):
    with system.connect(tmp_path) as db:
        db.create_table("t", {"id": [1, 2]})
        info = client.get_flight_info(command(tmp_path, where="id < 10 AND now() > timestamp '2020-01-01'"))
        whole = client.get_flight_info(fl.FlightDescriptor.for_path(str(tmp_path), "t"))
        db.open_table("t").add({"id": [3]})
        assert ids(client.do_get(info.endpoints[0].ticket).read_all()) == [1, 2]
        assert ids(client.do_get(whole.endpoints[0].ticket).read_all()) == [1, 2]
        assert (whole.total_records, b"now()" in info.endpoints[0].ticket.ticket) == (2, False)
        db.drop_table("t")
        db.create_table("t", {"id": [7, 8]})
    with pytest.raises(pa.ArrowException, match="was replaced by another table"):
        client.do_get(whole.endpoints[0].ticket).read_all()


def odd_rows():
    """Types that a converter trips over, in batches with and without rows and NULLs."""
    return pa.table(
        {
            "d": pa.array(["a", None, "b"]).dictionary_encode(),
            "deep": pa.array([[{"k": "x"}], None, []], pa.list_(pa.struct([("k", pa.string())]))),
            "money": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-9.99")], pa.decimal128(20, 2)),
            "at": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
            "v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
            "b": pa.array([b"", None, b"\0\xff"], pa.large_binary()),
            "flag": [True, None, False],
            "nothing": pa.nulls(3),
            "größe": ["é", "", None],
        }
    )


def test_what_is_put_comes_back_as_it_was(tmp_path, client):
    rows = odd_rows()
    made = put(client, command(tmp_path, createTable=True), rows, size=2)
    assert made["rowsAdded"] == 3
    assert lance.dataset(tmp_path / "t.lance").version == made["version"]
    again = put(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"), rows)
    found = read(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"))
    assert again["version"] == made["version"] + 1
    assert found.to_pylist() == rows.to_pylist() * 2
    assert found.schema.equals(rows.schema)
    assert read(client, command(tmp_path, limit=0)).schema.equals(rows.schema)
    assert read(client, command(tmp_path, columns=["nothing"])).num_rows == 6


def test_a_table_is_made_where_there_is_none_and_added_to_where_there_is_one(tmp_path, client):
    with pytest.raises(pa.ArrowKeyError, match="no table"):
        put(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"), pa.table({"n": [1]}))
    empty = pa.table({"n": pa.array([], pa.int64())})
    assert put(client, command(tmp_path, createTable=True), empty)["rowsAdded"] == 0
    put(
        client,
        command(tmp_path, createTable=True, maxRowsPerFragment=2),
        pa.table({"n": pa.array(range(5), pa.int8())}),
    )
    table = lance.dataset(tmp_path / "t.lance")
    assert (table.to_table()["n"].to_pylist(), len(table.get_fragments())) == ([*range(5)], 3)
    assert table.schema.field("n").type == pa.int64()


def test_rows_that_are_put_again_under_their_id_are_added_once(system, tmp_path, client):
    rows = pa.table({"n": np.arange(200_000)})  # more than what is on its way when the answer is known
    first = put(client, command(tmp_path, createTable=True, requestId="mine"), rows, size=1000)
    assert put(client, command(tmp_path, createTable=True, requestId="mine"), rows, size=1000) == first
    message = flight_pb2.PutRowsCommand(
        table=catalog_pb2.TableRef(database=str(tmp_path), table="t"), request_id="mine"
    )
    assert put(client, fl.FlightDescriptor.for_command(message.SerializeToString()), rows) == first
    for others in (rows.slice(1), rows.set_column(0, "n", pa.array(np.arange(200_000)[::-1]))):
        with pytest.raises(pa.ArrowException, match=r"came with it first.*Send them under a new id"):
            put(client, command(tmp_path, createTable=True, requestId="mine"), others, size=1000)
    assert lance.dataset(tmp_path / "t.lance").count_rows() == 200_000
    put(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"), rows.slice(0, 1))
    put(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"), rows.slice(0, 1))
    assert lance.dataset(tmp_path / "t.lance").count_rows() == 200_002


def test_a_dictionary_that_is_another_one_in_each_batch_is_put_into_a_column_of_text(tmp_path, client):
    lance.write_dataset(pa.table({"s": ["first"]}), tmp_path / "t.lance")
    batches = [pa.array(["a", None, f"b{i}", "a"]).dictionary_encode() for i in range(3)]
    put(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"), pa.table({"s": pa.chunked_array(batches)}))
    found = lance.dataset(tmp_path / "t.lance").to_table()["s"]
    assert found.type == pa.string()
    assert found.to_pylist() == ["first", *(word for i in range(3) for word in ("a", None, f"b{i}", "a"))]


def test_a_put_that_is_cut_leaves_the_table_as_it_was(raw, tmp_path):
    table = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"n": [0]}), table)
    rows = pa.Table.from_batches([pa.record_batch({"n": range(i, i + 100)}) for i in range(50)])
    channel, shown = raw
    about = cmd({"table": {"database": str(tmp_path), "table": "t"}, "maxRowsPerFragment": 100})
    messages = flight_data(about, rows)

    def cut():
        yield from messages[:-1]
        wait_for_files(table, 3)  # it is at work, and does not know yet that this was all
        call.cancel()

    call = opened(channel, "DoPut", cut(), **shown)
    with pytest.raises(grpc.RpcError):
        list(call)
    answers = list(opened(channel, "DoPut", flight_data(path(str(tmp_path), "t"), rows.slice(0, 5)), **shown))
    assert len(answers) == 1
    found = lance.dataset(table)
    assert (found.version, found.to_table()["n"].to_pylist()) == (2, [0, *range(5)])
    wait_until_only(table, referenced(str(table)))


def wait_until_only(table, files):
    """Returns once what was given up is removed."""
    import threading
    import time

    pause, deadline = threading.Event(), time.monotonic() + 60
    while data_files(str(table)) != files:
        assert time.monotonic() < deadline
        pause.wait(0.01)


def test_a_client_may_send_application_metadata_and_messages_without_rows(raw, tmp_path):
    channel, shown = raw
    about = cmd({"table": {"database": str(tmp_path), "table": "t"}, "createTable": True})
    first, batch = flight_data(about, pa.table({"n": [1, 2]}))
    alone = type(batch)(app_metadata=b"half way")
    batch.app_metadata = b"more"
    (answer,) = opened(channel, "DoPut", [first, alone, batch, alone], **shown)
    assert b'"rowsAdded": "2"' in answer


#: One character more than a request id may have.
LONG_ID = "x" * 1025


def refused(lake):
    """(method, request, code, reason, field)."""
    there = {"table": {"database": str(lake), "table": "t"}}
    rows = pa.table({"id": [1], "s": ["x"]})
    first, batch = flight_data(path(str(lake), "t"), rows)
    nothing = type(first)()
    return [
        ("GetFlightInfo", path(str(lake)), "INVALID_ARGUMENT", "BAD_REQUEST", "flight_descriptor"),
        ("GetFlightInfo", path(str(lake), "t", "more"), "INVALID_ARGUMENT", "BAD_REQUEST", "flight_descriptor"),
        ("GetFlightInfo", type(path())(), "INVALID_ARGUMENT", "BAD_REQUEST", "flight_descriptor"),
        ("GetFlightInfo", b"\xff\xff", "INVALID_ARGUMENT", "BAD_MESSAGE", ""),
        ("GetSchema", cmd(b"{nonsense"), "INVALID_ARGUMENT", "BAD_MESSAGE", "cmd"),
        ("GetSchema", cmd(b"\xff\xff"), "INVALID_ARGUMENT", "BAD_MESSAGE", "cmd"),
        ("GetSchema", cmd({**there, "colums": ["id"]}), "INVALID_ARGUMENT", "BAD_MESSAGE", "cmd"),
        ("GetFlightInfo", cmd({**there, "where": "id >"}), "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ("GetFlightInfo", cmd({**there, "columns": ["nope"]}), "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ("GetFlightInfo", cmd({**there, "version": 99}), "NOT_FOUND", "VERSION_NOT_FOUND", ""),
        ("GetFlightInfo", cmd({**there, "version": 0}), "INVALID_ARGUMENT", "BAD_NUMBER", "version"),
        ("GetFlightInfo", cmd({**there, "limit": -1}), "INVALID_ARGUMENT", "BAD_NUMBER", "limit"),
        ("GetFlightInfo", path(str(lake), "nope"), "NOT_FOUND", "TABLE_NOT_FOUND", ""),
        ("GetFlightInfo", path("not absolute", "t"), "INVALID_ARGUMENT", "BAD_DATABASE", "table.database"),
        ("DoGet", type(ticket())(), "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("DoGet", ticket(b"{"), "INVALID_ARGUMENT", "BAD_MESSAGE", "ticket"),
        ("DoGet", ticket({**there, "incarnation": "another"}), "ABORTED", "TABLE_REPLACED", ""),
        ("DoGet", ticket({**there, "where": "1 / (id - 5) > 0"}), "FAILED_PRECONDITION", "FILTER_FAILED", ""),
        ("ListFlights", criteria(b""), "INVALID_ARGUMENT", "MISSING_FIELD", "expression"),
        ("ListFlights", criteria(b"\xff"), "INVALID_ARGUMENT", "BAD_MESSAGE", "expression"),
        ("DoPut", [], "INVALID_ARGUMENT", "MISSING_FIELD", "flight_descriptor"),
        ("DoPut", [batch], "INVALID_ARGUMENT", "MISSING_FIELD", "flight_descriptor"),
        ("DoPut", [b"\x0a\xff"], "INVALID_ARGUMENT", "BAD_MESSAGE", ""),
        ("DoPut", [first, first], "INVALID_ARGUMENT", "BAD_STREAM", "flight_descriptor"),
        ("DoPut", [first, b"\x12\x04oops"], "INVALID_ARGUMENT", "BAD_STREAM", "arrow_ipc"),
        ("DoPut", flight_data(path(str(lake), "v"), rows), "FAILED_PRECONDITION", "IS_A_VIEW", ""),
        (
            "DoPut",
            flight_data(path(str(lake), "t"), pa.table({"x": [1]})),
            "FAILED_PRECONDITION",
            "COLUMN_NOT_FOUND",
            "",
        ),
        (
            "DoPut",
            flight_data(cmd({**there, "maxRowsPerFragment": -1}), rows),
            *("INVALID_ARGUMENT", "BAD_NUMBER"),
            "max_rows_per_fragment",
        ),
        (
            "DoPut",
            flight_data(cmd({**there, "requestId": LONG_ID}), rows),
            "INVALID_ARGUMENT",
            "BAD_REQUEST",
            "request_id",
        ),
        (
            "DoPut",
            [described(nothing, cmd({"table": {"database": str(lake), "table": "new"}, "createTable": True}))],
            "INVALID_ARGUMENT",
            "BAD_SCHEMA",
            "schema",
        ),
        (
            "DoPut",
            flight_data(cmd({"table": {"database": str(lake), "table": ".x"}, "createTable": True}), rows),
            "INVALID_ARGUMENT",
            "BAD_TABLE_NAME",
            "table.table",
        ),
        ("DoExchange", [first], "UNIMPLEMENTED", "CALL_NOT_OFFERED", ""),
        ("DoAction", action("CancelFlightInfo"), "UNIMPLEMENTED", "CALL_NOT_OFFERED", ""),
    ]


def test_what_cannot_be_done_is_refused_with_a_reason_by_way_of_another_service_too(lake, raw):
    channel, shown = raw
    version = lance.dataset(lake / "t.lance").version
    for method, request, *expected in refused(lake):
        assert refusal(channel, method, request, **shown) == tuple(expected), (method, request)
    assert lance.dataset(lake / "t.lance").version == version
    assert not (lake / "new.lance").exists()


def test_a_table_that_cannot_be_read_is_listed_beside_the_others(system, tmp_path, client):
    for name in ("a", "b", "c"):
        lance.write_dataset(pa.table({"n": [1]}), tmp_path / f"{name}.lance")
    (manifest,) = (tmp_path / "b.lance" / "_versions").glob("*.manifest")
    manifest.write_bytes(b"damaged")
    listed = {info.descriptor.path[1]: info.total_records for info in client.list_flights(str(tmp_path).encode())}
    assert listed == {b"a": 1, b"b": -1, b"c": 1}


def test_a_flight_that_is_polled_is_complete(lake, raw):
    from leman_core.server.flight_protocol import Flight_pb2

    channel, shown = raw
    answer = Flight_pb2.PollInfo.FromString(opened(channel, "PollFlightInfo", path(str(lake), "t"), **shown))
    assert (answer.progress, answer.info.total_records, answer.HasField("flight_descriptor")) == (1.0, 28, False)


def test_who_shows_nothing_or_something_wrong_is_refused(system, lake, raw):
    service = system.service
    with fl.connect(f"grpc://{service['executor']}") as client:
        with pytest.raises(fl.FlightUnauthenticatedError, match="requires a token"):
            client.get_flight_info(fl.FlightDescriptor.for_path(str(lake), "t"))
        with pytest.raises(fl.FlightUnauthenticatedError, match="is not valid"):
            client.authenticate_basic_token("anybody", "somebody-elses-token")
        shown = bearer(str(service["token"]))
        info = client.get_flight_info(fl.FlightDescriptor.for_path(str(lake), "t"), shown)
        assert client.do_get(info.endpoints[0].ticket, shown).read_all().num_rows == 28
    basic = {"metadata": (("authorization", "Basic YTpi"),)}
    assert refusal(raw[0], "GetFlightInfo", path(str(lake), "t"), **basic)[:2] == ("UNAUTHENTICATED", "TOKEN_REQUIRED")
    with pytest.raises(grpc.RpcError) as caught:
        list(opened(raw[0], "DoPut", flight_data(path(str(lake), "t"), pa.table({"id": [1]}))))
    assert reason_of(caught.value)[1] == "TOKEN_REQUIRED"


def ticket(said=b""):
    from leman_core.server.flight_protocol import Flight_pb2

    return Flight_pb2.Ticket(ticket=cmd(said).cmd)


def criteria(expression):
    from leman_core.server.flight_protocol import Flight_pb2

    return Flight_pb2.Criteria(expression=expression)


def action(kind):
    from leman_core.server.flight_protocol import Flight_pb2

    return Flight_pb2.Action(type=kind)


def described(message, descriptor):
    message.flight_descriptor.CopyFrom(descriptor)
    return message
