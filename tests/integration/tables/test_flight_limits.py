"""Arrow Flight: who may, how much at once, and what a slow reader holds."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
from pathlib import Path

import grpc
import lance
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
import structlog

from leman_coordinator.tables import arrow_streams
from leman_core.server.callers import RANKS
from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.routes import FLIGHT
from leman_core.settings import Commit, Log, Server, Settings
from leman_core.telemetry import logs as telemetry
from tests.certificates import Authority
from tests.integration.tables import flight_helpers
from tests.integration.tables.flight_helpers import bearer, cmd, opened, path, put, refusal, served

ROWS = pa.table({"n": np.arange(10)})
LARGE = 64 << 20


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """`t` and `put` with ten rows; `large` with 64 MB that no compression makes smaller."""
    folder = tmp_path_factory.mktemp("lake")
    for name in ("t", "put"):
        lance.write_dataset(ROWS, folder / f"{name}.lance")
    numbers = np.random.default_rng(0).integers(0, 1 << 62, LARGE // 8)
    lance.write_dataset(pa.table({"x": numbers}), folder / "large.lance", max_rows_per_file=1 << 21)
    return folder


@pytest.fixture
def logs():
    """What is written to the log."""
    written = io.StringIO()
    telemetry.configure(Settings(log=Log(level="error")), "commit_coordinator", written)
    yield written
    logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
    structlog.reset_defaults()


def everything(lake):
    """Each call of Flight that is made with a request of its own, by name."""
    about = path(str(lake), "t")
    ticket = Flight_pb2.Ticket(ticket=cmd({"table": {"database": str(lake), "table": "t"}}).cmd)
    return {
        "Handshake": [Flight_pb2.HandshakeRequest()],
        "ListFlights": Flight_pb2.Criteria(expression=str(lake).encode()),
        "GetFlightInfo": about,
        "PollFlightInfo": about,
        "GetSchema": about,
        "DoGet": ticket,
        "DoPut": flight_helpers.flight_data(path(str(lake), "put"), ROWS),
        "DoExchange": [Flight_pb2.FlightData()],
        "DoAction": Flight_pb2.Action(type="x"),
        "ListActions": Flight_pb2.Empty(),
    }


def outcome(channel, method, request, token):
    """(code, reason) of a call."""
    try:
        call = opened(channel, method, request, metadata=(("authorization", f"Bearer {token}"),))
        list(call) if not isinstance(call, bytes) else None
    except grpc.RpcError as error:
        return flight_helpers.reason_of(error)[:2]
    return "OK", ""


def test_each_call_is_allowed_to_those_with_its_role_and_to_nobody_else(lake, tmp_path):
    lines = []
    for role in [*RANKS, "code"]:
        digest = hashlib.sha256(f"token-of-a-{role}".ljust(20, "-").encode()).hexdigest()
        lines.append(f'[[token]]\nname = "{role}"\nroles = ["{role}"]\nsha256 = "{digest}"\n')
    (tmp_path / "tokens.toml").write_text("\n".join(lines))
    wrong, tried = [], 0
    with (
        served(server=Server(tokens_file=str(tmp_path / "tokens.toml"))) as up,
        grpc.insecure_channel(f"127.0.0.1:{up.port}") as channel,
    ):
        for method in FLIGHT.methods:
            request = everything(lake)[method.name]
            offered = "UNIMPLEMENTED" if method.name in {"DoExchange", "DoAction"} else "OK"
            least = RANKS["editor" if method.name == "DoPut" else "reader"]
            for role in [*RANKS, "code"]:
                found = outcome(channel, method.name, request, f"token-of-a-{role}".ljust(20, "-"))
                allowed = RANKS.get(role, 0) >= least
                expected = offered if allowed else "PERMISSION_DENIED"
                tried += 1
                if found[0] != expected or (not allowed and found[1] != "ROLE_REQUIRED"):
                    wrong.append((method.name, role, found))
    assert wrong == []
    assert tried == len(everything(lake)) * (len(RANKS) + 1)


def test_a_stock_client_shows_the_server_a_certificate_and_asks_it_for_one(lake, tmp_path):
    (tmp_path / "ours").mkdir()
    ours = Authority(tmp_path / "ours")
    shown, etl = ours.server(), ours.issue("etl")
    server = Server(
        tls_cert=shown.cert, tls_key=shown.key, tls_client_ca=ours.ca, tls_client_roles={"CN:etl": ("reader",)}
    )
    root = Path(ours.ca).read_bytes()
    with served(server=server) as up:
        place = f"grpc+tls://localhost:{up.port}"
        pair = {"cert_chain": Path(etl.cert).read_bytes(), "private_key": Path(etl.key).read_bytes()}
        with fl.connect(place, tls_root_certs=root, **pair) as client:
            info = client.get_flight_info(fl.FlightDescriptor.for_path(str(lake), "t"))
            assert client.do_get(info.endpoints[0].ticket).read_all() == ROWS
            with pytest.raises(fl.FlightUnauthorizedError, match="takes the role 'editor'"):
                put(client, fl.FlightDescriptor.for_path(str(lake), "t"), ROWS)
        with fl.connect(place, tls_root_certs=root) as client, pytest.raises(fl.FlightUnavailableError):
            client.get_flight_info(fl.FlightDescriptor.for_path(str(lake), "t"), fl.FlightCallOptions(timeout=5))


def test_tls_with_a_token_that_came_as_a_password(lake, tmp_path):
    (tmp_path / "ours").mkdir()
    ours = Authority(tmp_path / "ours")
    shown, token = ours.server(), "a-token-of-some-length"
    root = Path(ours.ca).read_bytes()
    with (
        served(server=Server(tls_cert=shown.cert, tls_key=shown.key, token=token)) as up,
        fl.connect(f"grpc+tls://localhost:{up.port}", tls_root_certs=root) as client,
    ):
        header = client.authenticate_basic_token("", token)
        assert header == (b"authorization", f"Bearer {token}".encode())
        about, options = fl.FlightDescriptor.for_path(str(lake), "t"), fl.FlightCallOptions(headers=[header])
        assert client.get_schema(about, options).schema == ROWS.schema


def test_a_reader_that_reads_nothing_is_not_read_ahead_for(lake, monkeypatch):
    made = []
    messages = arrow_streams.flight_messages

    def counted(*arguments):
        mine = [0]
        made.append(mine)
        for window in messages(*arguments):
            mine[0] += sum(map(len, window))
            yield window

    monkeypatch.setattr(arrow_streams, "flight_messages", counted)
    with served() as up, flight_helpers.client_of(up) as idle, flight_helpers.client_of(up) as client:
        ticket = client.get_flight_info(fl.FlightDescriptor.for_path(str(lake), "large")).endpoints[0].ticket
        waiting = idle.do_get(ticket)
        largest = 0
        assert waiting.read_chunk().data.num_rows
        for chunk in client.do_get(ticket):
            largest = max(largest, chunk.data.nbytes)
        held = made[0][0]
        waiting.cancel()
    assert made[1][0] > LARGE
    assert largest <= 2 << 20, "a client in Go takes no message of 4 MiB"
    assert held < 40 << 20, "an idle reader's rows wait in storage, not in memory"


@pytest.mark.parametrize("spelt", ["{}/way", "file://{}/way"])
def test_flights_name_tables_as_the_caller_did(tmp_path, spelt):
    """Neither a descriptor, a ticket nor an error says where links lead, and a table that leads elsewhere has none."""
    real, elsewhere = tmp_path / "real", tmp_path / "elsewhere" / "secret.lance"
    lance.write_dataset(ROWS, real / "t.lance")
    lance.write_dataset(ROWS, elsewhere)
    (real / "out.lance").symlink_to(elsewhere)
    (tmp_path / "way").symlink_to(real)
    way = spelt.format(tmp_path)
    with served(server=Server(database_roots=(str(real),))) as up, flight_helpers.client_of(up) as client:
        listed = {info.descriptor.path[1]: info for info in client.list_flights(way.encode())}
        assert {name: info.total_records for name, info in listed.items()} == {b"t": len(ROWS), b"out": -1}
        assert {info.descriptor.path[0] for info in listed.values()} == {way.encode()}
        for info in (listed[b"t"], client.get_flight_info(fl.FlightDescriptor.for_path(way, "t"))):
            ticket = info.endpoints[0].ticket
            assert json.loads(ticket.ticket)["table"]["database"] == way
            assert client.do_get(ticket).read_all() == ROWS
        for table, said in (("nope", f"{way}/nope.lance"), ("out", f"'{way}/out.lance' does not lie")):
            with pytest.raises(pa.ArrowException) as caught:
                client.get_flight_info(fl.FlightDescriptor.for_path(way, table))
            assert said in str(caught.value)
            for hidden in (str(real), "elsewhere", "secret"):
                assert hidden not in str(caught.value)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [({"commit": Commit(max_reads=1)}, "TOO_MANY_READS"), ({"server": Server(caller_streams=1)}, "CALLER_STREAMS")],
)
def test_one_call_too_many_is_refused_and_a_cancelled_one_gives_its_place_back(lake, sections, reason):
    about = everything(lake)
    large = Flight_pb2.Ticket(ticket=cmd({"table": {"database": str(lake), "table": "large"}}).cmd)
    with served(**sections) as up, grpc.insecure_channel(f"127.0.0.1:{up.port}") as channel:
        first = opened(channel, "DoGet", large)
        next(first)
        assert refusal(channel, "DoGet", about["DoGet"])[:2] == ("RESOURCE_EXHAUSTED", reason)
        first.cancel()
        while (found := outcome(channel, "DoGet", about["DoGet"], ""))[0] == "RESOURCE_EXHAUSTED":
            assert found[1] == reason
        assert found == ("OK", "")


def test_a_message_that_is_too_large_is_refused_with_a_reason_in_either_direction(tmp_path):
    wide = pa.table({"b": [bytes(1 << 20)]})
    lance.write_dataset(wide, tmp_path / "t.lance")
    about = path(str(tmp_path), "t")
    ticket = Flight_pb2.Ticket(ticket=cmd({"table": {"database": str(tmp_path), "table": "t"}}).cmd)
    with (
        served(server=Server(max_message_mb=1)) as up,
        grpc.insecure_channel(f"127.0.0.1:{up.port}") as channel,
    ):
        for method, request in (("DoGet", ticket), ("DoPut", flight_helpers.flight_data(about, wide))):
            assert refusal(channel, method, request)[:2] == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
    assert lance.dataset(tmp_path / "t.lance").version == 1


def test_each_fragment_may_have_a_dictionary_of_its_own(tmp_path):
    with served() as up, flight_helpers.client_of(up) as client:
        for values in (["a", "b"], ["c", None, "a"], ["b"]):
            rows = pa.table({"d": pa.array(values).dictionary_encode()})
            put(client, flight_helpers.command(tmp_path, createTable=True), rows)
        found = flight_helpers.read(client, fl.FlightDescriptor.for_path(str(tmp_path), "t"))
    assert found["d"].to_pylist() == ["a", "b", "c", None, "a", "b"]
    assert found.schema.field("d").type == rows.schema.field("d").type


def test_a_coordinator_that_stops_says_so(lake):
    draining = asyncio.Event()
    with served(draining) as up, grpc.insecure_channel(f"127.0.0.1:{up.port}") as channel:
        large = Flight_pb2.Ticket(ticket=cmd({"table": {"database": str(lake), "table": "large"}}).cmd)
        call = opened(channel, "DoGet", large)
        next(call)
        draining.set()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert flight_helpers.reason_of(caught.value)[:2] == ("UNAVAILABLE", "DRAINING")
        rows = flight_helpers.flight_data(path(str(lake), "t"), ROWS)
        assert refusal(channel, "DoPut", rows)[:2] == ("UNAVAILABLE", "DRAINING")


def test_what_is_put_and_what_is_refused_stands_in_the_log(tmp_path, logs):
    token = "a-token-of-some-length"
    with served(server=Server(token=token)) as up, flight_helpers.client_of(up) as client:
        shown = bearer(token)
        about = flight_helpers.command(tmp_path, createTable=True)
        writer, _ = client.do_put(about, ROWS.schema, shown)
        writer.write_table(ROWS)
        writer.close()
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.get_flight_info(about)
    put_line, refused = [json.loads(line) for line in logs.getvalue().splitlines()]
    named = {"method": "FlightService/DoPut", "code": "OK", "caller": "token", "table": "t", "database": str(tmp_path)}
    assert named.items() <= put_line.items()
    assert (refused["method"], refused["reason"]) == ("FlightService/GetFlightInfo", "TOKEN_REQUIRED")
    assert token not in logs.getvalue()
