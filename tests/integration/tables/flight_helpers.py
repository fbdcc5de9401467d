"""Arrow Flight as its stock client speaks it, and as raw messages where that client cannot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
from google.rpc import error_details_pb2, status_pb2

from leman_core.server.flight_protocol import Flight_pb2
from leman_core.server.server import RunningServer, start_server
from leman_core.settings import Settings

DEADLINE = 60.0
_SERVICE = "/arrow.flight.protocol.FlightService/"


def command(database: Any, table: str = "t", **more: Any) -> fl.FlightDescriptor:
    """A query, or what is to become of rows, as JSON."""
    return fl.FlightDescriptor.for_command(json.dumps({"table": {"database": str(database), "table": table}, **more}))


def read(client: fl.FlightClient, descriptor: fl.FlightDescriptor) -> pa.Table:
    """What the endpoints of a descriptor give."""
    info = client.get_flight_info(descriptor)
    found = pa.concat_tables([client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints])
    assert found.schema.equals(info.schema)
    assert client.get_schema(descriptor).schema.equals(info.schema)
    assert info.total_records in {-1, found.num_rows}
    return found


def put(
    client: fl.FlightClient, descriptor: fl.FlightDescriptor, rows: pa.Table, size: int = 1 << 16
) -> dict[str, int]:
    """What the server answers once the rows are in the table."""
    writer, answers = client.do_put(descriptor, rows.schema)
    with writer:
        writer.write_table(rows, max_chunksize=size)
        writer.done_writing()
        said = json.loads(answers.read().to_pybytes())
        assert answers.read() is None
    return {name: int(value) for name, value in said.items()}


@contextlib.contextmanager
def served(draining: asyncio.Event | None = None, **sections: Any) -> Iterator[RunningServer]:
    """A coordinator on loopback, on an event loop of its own: the stock client blocks its thread."""
    from leman_coordinator.app import create

    settings, started, stop = Settings(**sections), threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        asked = draining or asyncio.Event()
        up = await start_server(settings, "commit_coordinator", create(settings, asked), asked)
        found.extend((up, asyncio.get_running_loop()))
        started.set()
        await stop.wait()
        await up.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(DEADLINE)
    try:
        yield found[0]
    finally:
        found[1].call_soon_threadsafe(stop.set)
        thread.join(DEADLINE)


def client_of(up: RunningServer) -> fl.FlightClient:
    return fl.connect(f"grpc://127.0.0.1:{up.port}")


def bearer(token: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=DEADLINE)


def flight_data(descriptor: Any, rows: pa.Table) -> list[Any]:
    """The messages of a DoPut: the schema, then a batch each."""
    pieces = [rows.schema.serialize(), *(batch.serialize() for batch in rows.to_batches())]
    messages = []
    for piece in pieces:
        content = memoryview(piece)
        end = 8 + int.from_bytes(content[4:8], "little")
        messages.append(Flight_pb2.FlightData(data_header=bytes(content[8:end]), data_body=bytes(content[end:])))
    messages[0].flight_descriptor.CopyFrom(descriptor)
    return messages


def path(*parts: str) -> Any:
    return Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.PATH, path=parts)


def cmd(said: Any) -> Any:
    raw = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Flight_pb2.FlightDescriptor(type=Flight_pb2.FlightDescriptor.CMD, cmd=raw)


def opened(channel: grpc.Channel, method: str, requests: Any, **options: Any) -> Any:
    """A call with messages of protobuf, of which an iterable is a stream."""
    streams = isinstance(requests, (list, Iterator))
    answers_once = method in {"GetFlightInfo", "GetSchema", "PollFlightInfo"}
    kind = "unary_unary" if answers_once else "stream_stream" if streams else "unary_stream"
    call = getattr(channel, kind)(
        _SERVICE + method,
        request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
        response_deserializer=bytes,
    )
    return call(iter(requests) if streams else requests, timeout=DEADLINE, **options)


#: What gRPC's own client says, now and then, of a call that is refused in the moment in which it still sends.
_LOST_BY_GRPC = "Internal error from Core"
_TRIES = 3


def refusal(channel: grpc.Channel, method: str, requests: Any, **options: Any) -> tuple[str, str, str]:
    """(code, reason, field) of a call that is refused."""
    for _ in range(_TRIES):
        try:
            call = opened(channel, method, requests, **options)
            for _answer in call if hasattr(call, "__iter__") else ():
                pass
        except grpc.RpcError as error:
            if error.details() == _LOST_BY_GRPC:
                continue
            return reason_of(error)
        raise AssertionError(f"{method} was answered")
    raise AssertionError(f"{method} was never answered with a reason")


def reason_of(error: Any) -> tuple[str, str, str]:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    for detail in status_pb2.Status.FromString(raw).details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return error.code().name, info.reason, bad.field_violations[0].field if bad.field_violations else ""
