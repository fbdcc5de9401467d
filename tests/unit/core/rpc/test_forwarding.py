"""One front address: calls of a peer's RPCs are passed on as they came, and answered as the peer answers."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from types import SimpleNamespace

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from leman.v1 import catalog_pb2, catalog_pb2_grpc, jobs_pb2
from leman_core.model.service_errors import NotFound
from leman_core.server import channels
from leman_core.server.callers import FORWARDED_BY
from leman_core.server.forwarding import ForwardedCall
from leman_core.server.routes import EVERYWHERE, SERVED_BY, callers_services, public_services
from leman_core.server.server import start_server
from leman_core.settings import Log, Peers, Server, Settings
from leman_core.telemetry import logs as telemetry
from tests.unit.core.rpc_helpers import DEADLINE, JOB_SERVICE, client, running

GET = jobs_pb2.GetJobRequest(job_id="j1")


class Nothing:
    """A service without RPCs of its own."""

    async def start(self, server, _locations):
        return []

    async def stop(self):
        pass


@contextlib.asynccontextmanager
async def front(name="planner", server=None, **peers):
    """A service that serves nothing itself."""
    settings = Settings(server=server or Server(), peers=Peers(**peers))
    draining = asyncio.Event()
    up = await start_server(settings, name, Nothing(), draining)
    async with asyncio.timeout(DEADLINE):
        try:
            yield up
        finally:
            await up.stop()


@contextlib.asynccontextmanager
async def behind(server=None, **sections):
    """(front, executor behind it with its fake JobService, stub at the front)"""
    async with (
        running(server, **sections) as (up, service),
        front(executor=f"127.0.0.1:{up.port}") as before,
        client(before) as stub,
    ):
        yield before, up, service, stub


def error_info(error) -> error_details_pb2.ErrorInfo:
    return unpacked(error, error_details_pb2.ErrorInfo())


def unpacked(error, detail):
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert any(packed.Unpack(detail) for packed in status_pb2.Status.FromString(raw).details)
    return detail


async def failing(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def test_every_public_service_has_its_process():
    assert set(SERVED_BY) == set(callers_services()) - {EVERYWHERE}


def test_answers_metadata_and_request_ids_pass_through():
    async def scenario():
        async with behind() as (_, _, service, stub):
            given = (("authorization", "Bearer abc"), ("x-request-id", "r1"), ("x-b-bin", b"\0"))
            call = stub.GetJob(GET, metadata=given)
            assert (await call).job.job_id == "j1"
            assert dict(await call.trailing_metadata())["x-request-id"] == "r1"
            seen = service.seen[0]
            assert (seen["authorization"], seen["x-request-id"], seen["x-b-bin"]) == ("Bearer abc", "r1", b"\0")
            assert seen[FORWARDED_BY] == "planner"
            bare = stub.GetJob(GET)
            await bare
            assert len(dict(await bare.trailing_metadata())["x-request-id"]) == 32

    asyncio.run(scenario())


def test_errors_arrive_as_the_peer_made_them():
    async def scenario():
        async with behind() as (_, up, service, stub), client(up) as direct:
            service.error = NotFound("JOB_NOT_FOUND", "größe\u2603 " * 2000, job_id="j\u2603")
            given = {"metadata": (("x-request-id", "r"),)}
            for ask in (
                lambda of: of.GetJob(jobs_pb2.GetJobRequest(job_id="error"), **given),
                lambda of: _read(of.WatchJob(jobs_pb2.WatchJobRequest(job_id="error"), **given)),
            ):
                through, straight = await failing(ask(stub)), await failing(ask(direct))
                assert through.code() == straight.code() == grpc.StatusCode.NOT_FOUND
                assert through.details() == straight.details()
                assert dict(through.trailing_metadata()) == dict(straight.trailing_metadata())

    asyncio.run(scenario())


async def _read(stream):
    async for _ in stream:
        pass


def test_the_peer_asks_for_the_token():
    async def scenario():
        async with behind(Server(token="s3cret")) as (_, _, service, stub):
            refused = await failing(stub.GetJob(GET))
            assert refused.code() == grpc.StatusCode.UNAUTHENTICATED
            assert error_info(refused).reason == "TOKEN_REQUIRED"
            assert service.seen == []
            answer = await stub.GetJob(GET, metadata=(("authorization", "Bearer s3cret"),))
            assert answer.job.job_id == "j1"

    asyncio.run(scenario())


def test_deadlines_and_cancellation_reach_the_peer():
    async def scenario():
        async with behind() as (_, _, service, stub):
            late = await failing(stub.GetJob(jobs_pb2.GetJobRequest(job_id="hang"), timeout=0.2))
            assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            await service.cancelled.wait()
            service.cancelled.clear()
            service.entered.clear()
            call = stub.GetJob(jobs_pb2.GetJobRequest(job_id="hang"))
            waiting = asyncio.ensure_future(_quietly(call))
            await service.entered.wait()
            call.cancel()
            await service.cancelled.wait()
            await waiting

    asyncio.run(scenario())


async def _quietly(call):
    with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
        await call


async def _code(call) -> grpc.StatusCode:
    await _quietly(call)
    return await call.code()


def test_a_watcher_that_hangs_up_ends_the_stream_at_the_peer():
    async def scenario():
        async with behind() as (before, up, _, stub):
            stream = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
            assert (await stream.read()).sequence == 1
            stream.cancel()
            await up.activity.quiet()
            await before.activity.quiet()

    asyncio.run(scenario())


def test_a_stream_that_nobody_reads_is_not_taken_from_the_peer(monkeypatch):
    """Else the service between would hold all that the peer can send."""
    sent = 0

    async def watch(self, request, context):
        nonlocal sent
        while True:
            sent += 1
            yield jobs_pb2.WatchJobResponse(sequence=sent, job=jobs_pb2.Job(job_id="x" * (1 << 20)))

    monkeypatch.setattr("tests.unit.core.rpc_helpers.FakeService.WatchJob", watch)

    async def scenario():
        async with behind() as (_, _, _, stub):
            stream = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
            await stream.read()
            seen = -1
            while seen != sent:  # until the windows between the three are full
                seen = sent
                await asyncio.sleep(0.3)
            assert sent < 60
            assert (await stream.read()).sequence == 2
            stream.cancel()

    asyncio.run(scenario())


def test_a_front_that_stops_ends_its_streams_and_says_so():
    async def scenario():
        async with behind() as (before, _, _, stub):
            stream = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
            assert (await stream.read()).sequence == 1
            stopping = asyncio.ensure_future(before.stop())
            ended = await failing(stream.read())
            assert error_info(ended).reason == "DRAINING"
            assert unpacked(ended, error_details_pb2.RetryInfo()).retry_delay.seconds == 1
            await stopping

    asyncio.run(scenario())


def test_a_peer_that_is_away_is_typed_and_comes_back():
    async def scenario():
        async with running() as (up, _):
            port = up.port
        async with front(executor=f"127.0.0.1:{port}") as before, client(before) as stub:
            for call in (stub.GetJob(GET), _read(stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1")))):
                away = await failing(call)
                assert away.code() == grpc.StatusCode.UNAVAILABLE
                assert error_info(away).reason == "PEER_UNAVAILABLE"
                assert f"the executor at 127.0.0.1:{port} (LEMAN_PEERS__EXECUTOR of the planner)" in away.details()
                assert unpacked(away, error_details_pb2.RetryInfo()).retry_delay.seconds == 1
                assert len(dict(away.trailing_metadata())["x-request-id"]) == 32
            async with running(Server(port=port)):
                while await _code(stub.GetJob(GET)) is grpc.StatusCode.UNAVAILABLE:  # noqa: ASYNC110 - gRPC has no event
                    await asyncio.sleep(0.05)
                assert (await stub.GetJob(GET)).job.job_id == "j1"

    asyncio.run(scenario())


def test_a_call_is_passed_on_once():
    """The planner takes the coordinator for the executor; the coordinator the planner."""

    async def scenario():
        async with (
            front("commit_coordinator") as wrong,
            front(executor=f"127.0.0.1:{wrong.port}") as before,
            client(before) as stub,
        ):
            refused = await failing(stub.GetJob(GET))
            assert refused.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert error_info(refused).reason == "WRONG_PEER"
            assert "LEMAN_PEERS__EXECUTOR for the planner" in refused.details()

    asyncio.run(scenario())


def test_a_service_without_the_peer_says_who_serves_it():
    async def scenario():
        async with front() as before, client(before) as stub:
            refused = await failing(stub.GetJob(GET))
            assert refused.code() == grpc.StatusCode.UNIMPLEMENTED
            assert error_info(refused).reason == "NOT_SERVED_HERE"
            assert "LEMAN_PEERS__EXECUTOR" in refused.details()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{before.port}") as channel:
                unknown = await failing(channel.unary_unary("/leman.v1.JobService/Nothing")(b""))
                assert unknown.code() == grpc.StatusCode.UNIMPLEMENTED
                assert error_info(unknown).reason == "CALL_NOT_OFFERED"

    asyncio.run(scenario())


def test_own_rpcs_are_answered_although_a_peer_is_named():
    async def scenario():
        async with running(peers=Peers(executor="127.0.0.1:9", planner="127.0.0.1:9")) as (up, _), client(up) as stub:
            assert (await stub.GetJob(GET)).job.job_id == "j1"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                catalog = catalog_pb2_grpc.CatalogServiceStub(channel)
                away = await failing(catalog.ListTables(catalog_pb2.ListTablesRequest()))
                assert error_info(away).reason == "PEER_UNAVAILABLE"

    asyncio.run(scenario())


def test_one_call_is_one_line_in_the_logs_but_for_where_it_went():
    stream = io.StringIO()
    telemetry.configure(Settings(log=Log(level="debug")), "executor", stream)

    async def scenario():
        async with behind() as (_, _, _, stub):
            await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"), metadata=(("x-request-id", "r5"),))

    asyncio.run(scenario())
    lines = [json.loads(raw) for raw in stream.getvalue().splitlines()]
    mine = [line for line in lines if line.get("request_id") == "r5"]
    assert [(line["event"], line["level"]) for line in mine] == [("audit", "info"), ("forwarded", "debug")]
    assert (mine[1]["method"], mine[1]["to"], mine[1]["code"]) == ("JobService/CancelJob", "executor", "OK")


def test_health_of_a_forwarded_service_follows_the_peer(monkeypatch):
    monkeypatch.setattr(channels, "_AGAIN_SECONDS", 0.01)
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

    async def scenario():
        async with (
            running() as (up, _),
            front(executor=f"127.0.0.1:{up.port}") as before,
            grpc.aio.insecure_channel(f"127.0.0.1:{before.port}") as channel,
        ):
            stub = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=JOB_SERVICE))

            async def until(status):
                while (await watch.read()).status != status:
                    pass

            await until(serving)
            await up.stop()
            await until(not_serving)
            whole = await stub.Check(health_pb2.HealthCheckRequest())
            assert whole.status == serving, "the front itself is well"
            unknown = await failing(stub.Check(health_pb2.HealthCheckRequest(service="leman.v1.CommitService")))
            assert unknown.code() == grpc.StatusCode.NOT_FOUND, "no peer, no answer"

    asyncio.run(scenario())


def test_client_streams_pass_through_piece_by_piece(monkeypatch):
    """No RPC of ours has one yet in every release: so the server behind is one of plain gRPC."""
    method = next(m for m in public_services()[JOB_SERVICE].methods if m.name == "GetJob")

    class Streaming:
        client_streaming, server_streaming = True, False
        containing_service, name = method.containing_service, method.name
        GetOptions = method.GetOptions

    async def count(requests, context):
        return str([len(request) async for request in requests]).encode()

    async def scenario():
        peer = grpc.aio.server()
        handlers = {"GetJob": grpc.stream_unary_rpc_method_handler(count)}
        peer.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(JOB_SERVICE, handlers),))
        port = peer.add_insecure_port("127.0.0.1:0")
        await peer.start()
        async with front(executor=f"127.0.0.1:{port}") as before:
            handler = before.forwarding._handler(Streaming())
            before.forwarding._handlers["/leman.v1.JobService/GetJob"] = handler
            async with grpc.aio.insecure_channel(f"127.0.0.1:{before.port}") as channel:
                call = channel.stream_unary("/leman.v1.JobService/GetJob")(iter([b"a" * n for n in (1, 2, 3)]))
                assert await call == b"[1, 2, 3]"
        await peer.stop(0)

    asyncio.run(scenario())


def test_a_fault_of_the_front_is_no_fault_of_the_caller_or_of_the_peer():
    call = SimpleNamespace(_request_id="r", _here="planner")
    error = ForwardedCall._bug(call, ZeroDivisionError())
    assert error.reason == "INTERNAL_BUG"
    assert error.message == "The planner has a bug: see its log"
