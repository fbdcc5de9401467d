"""Each service answers every public RPC as the service that serves it does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor

import leman
from leman_core.process.release import SERVICES
from leman_core.server.routes import EVERYWHERE, HANDSHAKE, SERVED_BY, callers_services, path_of
from tests.conftest import System

METHODS = [
    method
    for name, service in callers_services().items()
    for method in service.methods
    if name != EVERYWHERE and path_of(method) != HANDSHAKE
]
#: What is the same however often it is asked: in addition to the empty request, one that is answered.
ASKED = {
    "CatalogService/ListTables": {"database": "DATABASE"},
    "CatalogService/DescribeTable": {"table": {"database": "DATABASE", "table": "docs"}},
    "CatalogService/ListUdfs": {"database": "DATABASE"},
    "CommitService/VerifyDatabase": {"database": "DATABASE"},
    "FlightService/ListFlights": {"expression": "DATABASE_BYTES"},
    "JobService/CancelJob": {"database": "DATABASE", "job_id": "JOB"},
    "JobService/GetJob": {"database": "DATABASE", "job_id": "JOB"},
    "JobService/ListJobs": {"database": "DATABASE"},
    "JobService/WatchJob": {"database": "DATABASE", "job_id": "JOB"},
}


@pytest.fixture(scope="module")
def asked(system: System, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """ASKED, about a table with a column that was computed."""
    path = tmp_path_factory.mktemp("front")
    with system.connect(path) as db:
        table = db.create_table("docs", pa.table({"n": pa.array(range(10))}))
        table.add_columns({"twice": "n * 2"})
        job = table.backfill("twice")
    in_bytes = base64.b64encode(bytes(path.resolve())).decode()
    filled = {"DATABASE": str(path.resolve()), "DATABASE_BYTES": in_bytes, "JOB": job}

    def fill(value: Any) -> Any:
        return {key: fill(v) for key, v in value.items()} if isinstance(value, dict) else filled.get(value, value)

    return {name: fill(request) for name, request in ASKED.items()}


@pytest.fixture(scope="module")
def channels(system: System) -> Iterator[dict[str, grpc.Channel]]:
    opened = {name: grpc.insecure_channel(str(system.service[name])) for name in SERVICES}
    yield opened
    for channel in opened.values():
        channel.close()


def outcome(channel: grpc.Channel, method: MethodDescriptor, request: bytes, token: str) -> tuple[Any, ...]:
    """The messages, code, text and trailers that a call ends with."""
    kind = ("stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary")
    call = getattr(channel, "_".join(kind))(path_of(method))
    given = iter([request]) if method.client_streaming else request
    metadata = (("authorization", f"Bearer {token}"), ("x-request-id", "asked-of-all"))
    kind_of_answer = message_factory.GetMessageClass(method.output_type)
    messages = []  # read, as bytes of maps have no order
    try:
        if method.server_streaming:
            answer = call(given, metadata=metadata, timeout=30)
            messages.extend(map(kind_of_answer.FromString, answer))
        else:
            message, answer = call.with_call(given, metadata=metadata, timeout=30)
            messages.append(kind_of_answer.FromString(message))
    except grpc.RpcError as error:
        answer = error
    return messages, answer.code(), answer.details(), sorted(answer.trailing_metadata())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
def test_each_service_answers_as_the_one_that_serves_it(system, channels, asked, method):
    own = SERVED_BY[method.containing_service.full_name]
    token = str(system.service["token"])
    named = asked.get(f"{method.containing_service.name}/{method.name}", {})
    request = json_format.ParseDict(named, message_factory.GetMessageClass(method.input_type)())

    for body in {b"", request.SerializeToString()}:
        expected = outcome(channels[own], method, body, token)
        for name in SERVICES:
            assert outcome(channels[name], method, body, token) == expected, name
        if body:
            assert expected[1] is grpc.StatusCode.OK, expected

    garbage = outcome(channels[own], method, b"\xff\xff", token)
    assert garbage[1] is grpc.StatusCode.INVALID_ARGUMENT
    for name in SERVICES:
        assert outcome(channels[name], method, b"\xff\xff", token) == garbage
        refused = outcome(channels[name], method, b"", "wrong")
        assert refused[1] is grpc.StatusCode.UNAUTHENTICATED


def test_the_sdk_works_through_one_address_alone(system, tmp_path, monkeypatch):
    """As where a firewall lets callers through to one service: the addresses that it names lead nowhere."""
    service = system.service
    ask = leman._wire.channel.fetch_service_info

    def behind_a_firewall(address, endpoints, *, timeout):
        info = ask(address, endpoints, timeout=timeout)
        info.planner_address = info.executor_address = info.commit_coordinator_address = "127.0.0.1:9"
        return info

    monkeypatch.setattr("leman._wire.channel.fetch_service_info", behind_a_firewall)
    for name in SERVICES:
        path = Path(tmp_path / name)
        with leman.connect(path, endpoint=str(service[name]), token=str(service["token"])) as db:
            endpoints = db._services._endpoints
            assert {endpoints.planner, endpoints.executor, endpoints.commit_coordinator} == {service[name]}
            table = db.create_table("docs", pa.table({"n": pa.array(range(10))}))
            table.add_columns({"twice": "n * 2"})
            table.backfill("twice")
            assert table.to_arrow()["twice"].to_pylist() == [n * 2 for n in range(10)]
            assert len(db.jobs()) == 1
            assert db.verify().sound
