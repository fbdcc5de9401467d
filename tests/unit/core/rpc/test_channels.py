"""Calls between services: what they carry, and what becomes of them while a peer restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import grpc
import pytest
import structlog
from grpc._cython import cygrpc

from leman._wire import channel as _channel
from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import FailedPrecondition, LemanError, NotFound, Unavailable
from leman_core.process.addresses import proxy_options
from leman_core.server import channels, server, status
from leman_core.server.channels import open_peer
from leman_core.settings import Server, Settings
from tests.conftest import ROOT
from tests.unit.core.rpc_helpers import DEADLINE, peers, running

GET = jobs_pb2.GetJobRequest(job_id="j1")


def test_every_option_of_grpc_exists():
    """gRPC ignores options that it does not know: servers cut quiet streams as no one had told them of pings."""
    known = Path(cygrpc.__file__).read_bytes()
    sent = {name for name, _ in [*channels._options(Settings()), *server._options(Settings()), *_channel_options()]}
    assert len(sent) > 10
    assert {name for name in sent if name.encode() not in known} == set()


def _channel_options() -> list[tuple[str, object]]:
    """What a channel of the SDK is opened with."""
    with mock.patch.object(grpc, "insecure_channel") as opened:
        _channel.open_channel("127.0.0.1:1", _channel.Endpoints("", "", ""))
    return opened.call_args.args[1]


_STREAMS = """
import sys, threading
from concurrent import futures
import grpc
from leman_core.settings import Settings
from leman_core.server.server import _options

class Streams(grpc.GenericRpcHandler):
    def service(self, _details):
        return grpc.unary_stream_rpc_method_handler(self._stream)

    def _stream(self, _request, _context):
        yield b"x"
        threading.Event().wait()

server = grpc.server(futures.ThreadPoolExecutor(1), options=_options(Settings()))
server.add_generic_rpc_handlers((Streams(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""


@pytest.mark.long
@pytest.mark.parametrize("options", [channels._options(Settings()), _channel_options()], ids=["services", "sdk"])
def test_a_peer_that_freezes_beside_a_quiet_stream_is_noticed_within_a_minute(options):
    """Twenty seconds until it is asked, ten for its answer; gRPC by itself waits a minute for that."""
    with subprocess.Popen([sys.executable, "-c", _STREAMS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as peer:
        try:
            assert peer.stdout is not None
            with grpc.insecure_channel(f"127.0.0.1:{int(peer.stdout.readline())}", options) as channel:
                stream = channel.unary_stream("/a/b")(b"", timeout=50)
                assert next(stream) == b"x"
                os.kill(peer.pid, signal.SIGSTOP)
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            peer.kill()


def test_calls_are_repeated_that_change_nothing_or_are_known_again():
    (config,) = json.loads(channels.service_config())["methodConfig"]
    repeated = {f"{name['service']}/{name['method']}" for name in config["name"]}
    assert {
        "leman.v1.CatalogService/RegisterUdf",  # says the same when it is sent twice
        "leman.v1.JobService/CreateJob",  # has a request id
        "leman.v1.JobService/GetJob",  # changes nothing
        "leman.internal.v1.CommitSubmissionService/SubmitCommit",
        "leman.internal.v1.PlanningService/CreatePlan",
    } <= repeated
    assert "leman.v1.TableService/AppendRows" not in repeated  # what was sent of the stream is gone


def test_calls_carry_token_request_id_and_a_deadline():
    async def scenario():
        async with running(Server(token="s3cret")) as (up, service):
            settings = peers(up.port, token="s3cret", timeout_seconds=0.2)
            async with open_peer(settings, "executor") as channel:
                stub = jobs_pb2_grpc.JobServiceStub(channel)
                with structlog.contextvars.bound_contextvars(request_id="r1"):
                    await stub.GetJob(GET)
                await stub.GetJob(GET)
                assert (await stub.WatchJob(jobs_pb2.WatchJobRequest()).read()).sequence == 1
                with pytest.raises(grpc.aio.AioRpcError):
                    await stub.GetJob(jobs_pb2.GetJobRequest(job_id="hang"))
            assert service.seen[0]["x-request-id"] == "r1"
            assert len(service.seen[1]["x-request-id"]) == 32

    asyncio.run(scenario())


def test_calls_on_this_machine_take_no_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")

    async def scenario():
        async with running() as (up, _), open_peer(peers(up.port, timeout_seconds=5.0), "executor") as channel:
            assert (await jobs_pb2_grpc.JobServiceStub(channel).GetJob(GET)).job.job_id == "j1"

    asyncio.run(scenario())


def test_calls_to_other_machines_keep_the_proxy():
    assert proxy_options("leman.internal:7443") == []
    assert proxy_options("10.0.0.1:7443") == []
    assert proxy_options("[::1]:7443") == proxy_options("localhost:1") == [("grpc.enable_http_proxy", 0)]


def test_a_peers_error_comes_back_as_the_same_error():
    async def scenario():
        async with running() as (up, _), open_peer(peers(up.port), "executor") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await jobs_pb2_grpc.JobServiceStub(channel).GetJob(jobs_pb2.GetJobRequest(job_id="error"))
            error = status.error_from_rpc(caught.value)
            assert type(error) is NotFound
            assert (error.reason, error.facts) == ("JOB_NOT_FOUND", {"job_id": "j1"})

    asyncio.run(scenario())


def test_unavailable_is_tried_again_for_calls_that_may_be_repeated_only():
    async def scenario():
        async with running() as (up, service), open_peer(peers(up.port), "executor") as channel:
            service.fail_first = 2
            stub = jobs_pb2_grpc.JobServiceStub(channel)
            assert (await stub.GetJob(GET)).job.job_id == "j1"
            assert len(service.seen) == 3
            assert len({call["x-request-id"] for call in service.seen}) == 1

    asyncio.run(scenario())


def test_a_call_waits_for_a_peer_that_restarts():
    async def scenario():
        async with running() as (up, _):
            port = up.port
        async with open_peer(peers(port), "executor") as channel:
            call = asyncio.ensure_future(jobs_pb2_grpc.JobServiceStub(channel).GetJob(GET))
            state = channel.get_state(try_to_connect=True)
            while state != grpc.ChannelConnectivity.TRANSIENT_FAILURE:  # it stays in that one until it is ready
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            assert not call.done()
            async with running(Server(port=port)):
                assert (await call).job.job_id == "j1"

    asyncio.run(scenario())


def test_a_peer_without_address_is_named():
    with pytest.raises(FailedPrecondition) as caught:
        open_peer(Settings(), "commit_coordinator")
    assert "LEMAN_PEERS__COMMIT_COORDINATOR" in caught.value.message


async def failure(call) -> LemanError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return status.error_from_rpc(caught.value)


def unused_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def test_a_peer_that_was_never_reached_is_named_and_given_up_soon(monkeypatch):
    """An executor with a wrong address of its planner waited for 120 s, and said "Deadline Exceeded" after that."""
    monkeypatch.setattr(channels, "NEVER_REACHED_SECONDS", 0.3)
    port = unused_port()

    async def scenario():
        async with open_peer(peers(port), "executor") as channel:
            stub = jobs_pb2_grpc.JobServiceStub(channel)
            return [
                await failure(call) for call in (stub.GetJob(GET), stub.WatchJob(jobs_pb2.WatchJobRequest()).read())
            ]

    with structlog.testing.capture_logs() as lines:
        for error in asyncio.run(scenario()):
            assert (type(error), error.reason) == (Unavailable, "PEER_UNAVAILABLE")
            assert f"the executor at 127.0.0.1:{port} (LEMAN_PEERS__EXECUTOR) was not reached since" in error.message
            assert "Connection refused" in error.message
            assert error.facts["never_reached"]
    (line,) = lines
    assert (line["log_level"], line["address"]) == ("warning", f"127.0.0.1:{port}")
    assert line["setting"] == "LEMAN_PEERS__EXECUTOR"


def test_a_peer_that_went_away_is_named_after_the_whole_patience_and_in_the_log_once():
    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            up, _ = await stack.enter_async_context(running())
            address = f"127.0.0.1:{up.port}"
            async with open_peer(peers(up.port, timeout_seconds=0.5), "executor") as channel:
                stub = jobs_pb2_grpc.JobServiceStub(channel)
                with structlog.contextvars.bound_contextvars(request_id="first"):
                    assert (await stub.GetJob(GET)).job.job_id == "j1"
                await stack.aclose()
                for _ in range(2):
                    error = await failure(stub.GetJob(GET))
                    assert (type(error), error.reason) == (Unavailable, "PEER_UNAVAILABLE")
                    assert f"the executor at {address} (LEMAN_PEERS__EXECUTOR) cannot be reached" in error.message
                    assert error.facts == {"peer": "executor", "address": address, "setting": "LEMAN_PEERS__EXECUTOR"}
                async with running(Server(port=up.port)):
                    assert (await stub.GetJob(GET, timeout=DEADLINE)).job.job_id == "j1"
        return address

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        address = asyncio.run(scenario())
    assert "first" not in {line.get("request_id") for line in lines if line.get("address") == address}, (
        "it ended before"
    )
    said = [(line["log_level"], line["event"]) for line in lines if line.get("address") == address]
    assert said == [("warning", "a peer cannot be reached"), ("info", "a peer is reached again")]


def test_a_peer_that_does_not_answer_in_time_is_told_from_one_that_is_away():
    async def scenario():
        async with running() as (up, _), open_peer(peers(up.port, timeout_seconds=0.3), "executor") as channel:
            stub = jobs_pb2_grpc.JobServiceStub(channel)
            error = await failure(stub.GetJob(jobs_pb2.GetJobRequest(job_id="hang")))
            assert (type(error), error.reason) == (Unavailable, "PEER_UNAVAILABLE")
            assert "has not answered within 0.3 s (LEMAN_PEERS__TIMEOUT_SECONDS)" in error.message

    asyncio.run(scenario())
