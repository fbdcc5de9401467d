"""A service as callers meet it: health, reflection, token, request ids, errors, bounds, graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import logging
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import structlog
from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from leman.v1 import info_pb2, info_pb2_grpc, jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, Unavailable
from leman_core.server import healthcheck
from leman_core.server.channels import open_peer
from leman_core.server.server import start_server
from leman_core.settings import Advertise, Embedded, Log, Peers, Server, Settings
from leman_core.telemetry import logs as telemetry
from tests.certificates import Authority
from tests.unit.core.rpc_helpers import JOB_SERVICE, FakeService, client, running


@pytest.fixture(autouse=True)
def default_logging():
    yield
    logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
    structlog.reset_defaults()


#: Nothing listens there: a call that takes this way fails.
LONG_TOKEN = "no-one-guesses-this"
DEAD_PROXY = "http://127.0.0.1:9"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def get(job_id: str = "j1") -> jobs_pb2.GetJobRequest:
    return jobs_pb2.GetJobRequest(job_id=job_id)


def watch(job_id: str = "j1") -> jobs_pb2.WatchJobRequest:
    return jobs_pb2.WatchJobRequest(job_id=job_id)


def details(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    return status_pb2.Status.FromString(raw)


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert details(error).details[0].Unpack(info)
    return info


# --------------------------------------------------------------------------- what is served


def test_a_service_whose_event_loop_hangs_is_not_healthy_although_its_port_is_open():
    """As the chart's liveness probe asks: an open port alone would say that it lives."""

    async def scenario():
        async with running() as (up, _):
            address = f"127.0.0.1:{up.port}"
            with ThreadPoolExecutor(1) as probe:
                hung = probe.submit(healthcheck.check, address, timeout_seconds=0.3)
                assert "Deadline" in hung.result(), "the loop waits here, and answers no one meanwhile"
                socket.create_connection(("127.0.0.1", up.port), 5.0).close()
            assert await asyncio.to_thread(healthcheck.check, address) == ""

    asyncio.run(scenario())


def test_a_missing_ability_has_a_health_of_its_own_and_leaves_the_service_serving(monkeypatch):
    monkeypatch.setattr("leman_core.server.server._ABILITY_SECONDS", 0.01)
    missing = [Unavailable("STORE_DOWN", "the store is away")]

    class Unable(FakeService):
        def abilities(self):
            return {"leman.functions": missing[0] if missing else None}

    async def scenario():
        async with running(kind=Unable) as (up, _), grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            reporting = asyncio.ensure_future(up.report_abilities())
            stub = health_pb2_grpc.HealthStub(channel)

            async def seen(name):
                return (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status

            assert await seen("leman.functions") == NOT_SERVING, "it is there before the first report"
            for name in ("", JOB_SERVICE):
                assert await seen(name) == SERVING
            watch = stub.Watch(health_pb2.HealthCheckRequest(service="leman.functions"))
            assert (await watch.read()).status == NOT_SERVING
            address = f"127.0.0.1:{up.port}"
            assert await asyncio.to_thread(healthcheck.check, address, "leman.functions") == "NOT_SERVING"
            assert await asyncio.to_thread(healthcheck.check, address) == ""
            assert "knows no leman.wings" in await asyncio.to_thread(healthcheck.check, address, "leman.wings")
            missing.clear()
            assert (await watch.read()).status == SERVING
            reporting.cancel()

    asyncio.run(scenario())


def test_health_answers_for_the_process_and_each_service():
    async def scenario():
        async with running() as (up, _), grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", JOB_SERVICE, "leman.v1.InfoService"):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Check(health_pb2.HealthCheckRequest(service="leman.v1.PlannerService"))
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND

    asyncio.run(scenario())


def test_reflection_lists_every_service():
    async def listed(up) -> set[str]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            async for answer in stub.ServerReflectionInfo(iter([request])):
                return {service.name for service in answer.list_services_response.service}
        raise AssertionError

    async def scenario():
        async with running() as (up, _):
            assert await listed(up) == {
                JOB_SERVICE,
                "leman.v1.InfoService",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            }
        async with running(peers=Peers(planner="127.0.0.1:9")) as (up, _):
            assert await listed(up) >= {JOB_SERVICE, "leman.v1.CatalogService", "leman.v1.PlannerService"}
            assert "leman.v1.CommitService" not in await listed(up), "no one knows who would answer"
        async with (
            running(Server(reflection=False)) as (up, _),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            # nothing is sent: grpc.aio says INTERNAL of a message that meets a call which was refused already
            refused = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
            assert await refused.code() == grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("leman.v1.JobService", "leman/v1/jobs.proto"),
        ("leman.v1.JobService.GetJob", "leman/v1/jobs.proto"),
        ("leman.v1.Job", "leman/v1/jobs.proto"),
        ("leman.v1.Job.job_id", "leman/v1/jobs.proto"),
        ("leman.v1.Job.State", "leman/v1/jobs.proto"),
        ("leman.v1.Job.STATE_DONE", "leman/v1/jobs.proto"),
        ("leman.v1.CatalogService.GetUdf", "leman/v1/catalog.proto"),
        ("grpc.reflection.v1.ServerReflection.ServerReflectionInfo", "reflection/v1/reflection.proto"),
        ("grpc.reflection.v1.ErrorResponse", "reflection/v1/reflection.proto"),
        ("leman.v1.JobService.NoSuchCall", None),
        ("leman.v1.Job.no_such_field", None),
        ("nothing", None),
    ],
)
def test_reflection_describes_services_methods_and_messages(version, symbol, file):
    async def scenario():
        async with running() as (up, _), grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            ask = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )
            request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
            async for answer in ask(iter([request])):
                if file is None:
                    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
                    return
                files = [
                    descriptor_pb2.FileDescriptorProto.FromString(raw)
                    for raw in answer.file_descriptor_response.file_descriptor_proto
                ]
                sent = descriptor_database.DescriptorDatabase()
                for described in files:
                    sent.Add(described)
                assert descriptor_pool.DescriptorPool(sent).FindFileByName(files[0].name).name.endswith(file)
                return

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_info_never_names_an_address_that_stands_for_all(host):
    async def told(**sections) -> info_pb2.GetInfoResponse:
        server = Server(host=host, allow_insecure_bind=True, allow_anonymous=True)
        async with (
            running(server, **sections) as (up, _),
            grpc.aio.insecure_channel(f"localhost:{up.port}") as channel,
        ):
            return await info_pb2_grpc.InfoServiceStub(channel).GetInfo(info_pb2.GetInfoRequest())

    assert asyncio.run(told()).executor_address == ""
    assert asyncio.run(told(peers=Peers(executor="executor:7443"))).executor_address == "executor:7443"
    assert asyncio.run(told(peers=Peers(planner="0.0.0.0:1"))).planner_address == ""
    assert asyncio.run(told(advertise=Advertise(executor="leman.example:1"))).executor_address == "leman.example:1"


def test_info_names_the_addresses_that_callers_reach():
    async def scenario():
        sections = {
            "peers": Peers(planner="planner:1", executor="executor:2", commit_coordinator="commit:3"),
            "advertise": Advertise(planner="leman.example:7001"),
            "embedded": Embedded(database="/data/lake", idle_seconds=0),
        }
        async with (
            running(**sections) as (up, _),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            info = await info_pb2_grpc.InfoServiceStub(channel).GetInfo(info_pb2.GetInfoRequest())
            assert info.service == "executor"
            assert info.planner_address == "leman.example:7001"
            assert info.executor_address == f"127.0.0.1:{up.port}"
            assert info.commit_coordinator_address == "commit:3"
            assert info.database == "/data/lake"

    asyncio.run(scenario())


def test_healthcheck_command_tells_serving_from_not(capsys):
    async def scenario():
        async with running() as (up, _):
            address = f"127.0.0.1:{up.port}"
            assert await asyncio.to_thread(healthcheck.main, [address]) == 0
            await up.health.enter_graceful_shutdown()
            assert await asyncio.to_thread(healthcheck.main, [address]) == 1
            assert "NOT_SERVING" in capsys.readouterr().err
        assert await asyncio.to_thread(healthcheck.main, [address]) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("missing", ["CA", "CERT", "KEY"])
def test_the_healthcheck_command_says_in_a_line_which_file_it_cannot_read(tmp_path, monkeypatch, capsys, missing):
    authority = Authority(tmp_path)
    shown = authority.issue("etl")
    for name, path in (("CA", authority.ca), ("CERT", shown.cert), ("KEY", shown.key)):
        monkeypatch.setenv(f"LEMAN_PEERS__TLS_{name}", str(tmp_path / "none.pem") if name == missing else path)
    assert healthcheck.main(["127.0.0.1:9"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("not serving: LEMAN_PEERS__TLS_")
    assert (said.count("\n"), "No such file" in said) == (1, True)
    assert missing != "CA" or "LEMAN_PEERS__TLS_CA cannot be read, or used: " in said


# -------------------------------------------------------------------------- token, request id


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "TOKEN_REQUIRED"),
        ("Bearer wrong", "TOKEN_INVALID"),
        ("s3cret", "TOKEN_REQUIRED"),
        ("Basic s3cret", "TOKEN_REQUIRED"),
        ("Bearer", "TOKEN_REQUIRED"),
    ],
)
def test_a_call_without_the_token_never_reaches_the_service(given, reason):
    metadata = (("authorization", given),) if given else ()

    async def scenario():
        async with running(Server(token="s3cret")) as (up, service), client(up) as stub:
            for call in (stub.GetJob(get(), metadata=metadata), stub.WatchJob(watch(), metadata=metadata).read()):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
                assert error_info(caught.value).reason == reason
            assert service.seen == []
            assert not service.entered.is_set()

    asyncio.run(scenario())


def test_the_token_opens_and_health_needs_none():
    async def scenario():
        async with running(Server(token="s3cret")) as (up, _), client(up) as stub:
            for scheme in ("Bearer", "bearer"):
                answer = await stub.GetJob(get(), metadata=(("authorization", f"{scheme} s3cret"),))
                assert answer.job.job_id == "j1"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                checked = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                assert checked.status == SERVING

    asyncio.run(scenario())


def test_request_id_is_echoed_and_minted_where_there_is_no_usable_one():
    async def echoed(stub, metadata) -> str:
        call = stub.GetJob(get(), metadata=metadata)
        await call
        return dict(await call.trailing_metadata())["x-request-id"]

    async def scenario():
        async with running() as (up, _), client(up) as stub:
            assert await echoed(stub, (("x-request-id", "abc"),)) == "abc"
            minted = await echoed(stub, ())
            assert len(minted) == 32
            assert await echoed(stub, ()) != minted
            assert len(await echoed(stub, (("x-request-id", "x" * 129),))) == 32

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------ errors


def test_an_error_of_ours_arrives_with_code_reason_facts_and_request_id():
    async def scenario():
        async with running() as (up, _), client(up) as stub:
            calls = (
                stub.GetJob(get("error"), metadata=(("x-request-id", "r7"),)),
                stub.WatchJob(watch("error"), metadata=(("x-request-id", "r7"),)),
            )
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    async for _ in call if hasattr(call, "read") else _once(call):
                        pass
                error = caught.value
                assert error.code() == grpc.StatusCode.NOT_FOUND
                assert error.details() == "there is no such job"
                assert error_info(error).domain == "leman"
                assert error_info(error).reason == "JOB_NOT_FOUND"
                assert dict(error_info(error).metadata) == {"job_id": "j1"}
                assert dict(error.trailing_metadata())["x-request-id"] == "r7"

    asyncio.run(scenario())


async def _once(call):
    yield await call


def test_the_largest_error_there_can_be_keeps_its_code():
    """Trailers above 8 KB make gRPC drop the real status, at random up to 16 KB: hence many calls."""

    async def scenario():
        async with running() as (up, service), client(up) as stub:
            facts = {f"fact_{n}": "größe\u2603" * 3000 for n in range(40)}
            service.error = FailedPrecondition("TYPE_MISMATCH", "möp\u2603 " * 5000, **facts)
            for _ in range(50):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.GetJob(get("error"))
                assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
                assert error_info(caught.value).reason == "TYPE_MISMATCH"

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [KeyError("private detail"), OSError(errno.ENOSPC, "private detail")])
def test_a_bug_is_internal_says_nothing_of_the_inside_and_is_logged_with_its_traceback(error):
    """An error of storage above the boundary is a bug like any other: see `leman_core.storage.storage_errors`."""
    stream = io.StringIO()
    telemetry.configure(Settings(log=Log()), "executor", stream)

    async def scenario():
        async with running() as (up, service), client(up) as stub:
            service.error = error
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetJob(get("error"), metadata=(("x-request-id", "r9"),))
            assert caught.value.code() == grpc.StatusCode.INTERNAL
            assert error_info(caught.value).reason == "INTERNAL_BUG"
            assert "private" not in caught.value.details()
            assert "r9" in caught.value.details()

    asyncio.run(scenario())
    line = next(json.loads(raw) for raw in stream.getvalue().splitlines() if "rpc" in raw)
    assert line["request_id"] == "r9"
    assert line["code"] == "INTERNAL"
    assert line["level"] == "error"
    assert f"{type(error).__name__}: {error}" in line["exception"]


def test_calls_are_logged_with_duration_plain_reads_only_at_debug_and_changes_always():
    def logged(level: str) -> list[dict[str, object]]:
        stream = io.StringIO()
        telemetry.configure(Settings(log=Log(level=level)), "executor", stream)

        async def scenario():
            async with running() as (up, _), client(up) as stub:
                await stub.GetJob(get())
                await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"))

        asyncio.run(scenario())
        lines = [json.loads(raw) for raw in stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] in ("rpc", "audit")]

    (cancel,) = logged("info")
    assert (cancel["event"], cancel["method"], cancel["code"]) == ("audit", "JobService/CancelJob", "OK")
    assert cancel["duration_ms"] > 0
    assert cancel["service"] == "executor"
    assert [line["event"] for line in logged("debug")] == ["rpc", "audit"]
    assert [line["event"] for line in logged("error")] == ["audit"], "whatever the level"


def test_what_is_no_message_is_refused_with_a_reason():
    async def scenario():
        async with running() as (up, service), grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            one = channel.unary_unary(f"/{JOB_SERVICE}/GetJob")(b"\xff\xff")
            for call in (one, channel.unary_stream(f"/{JOB_SERVICE}/WatchJob")(b"\xff\xff").read()):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
                assert error_info(caught.value).reason == "BAD_MESSAGE"
            assert service.seen == []

    asyncio.run(scenario())


def test_a_change_goes_on_when_its_caller_hangs_up_and_a_read_does_not():
    async def scenario():
        async with running() as (up, service), client(up) as stub:
            service.may_end.clear()
            await _cut(stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1")), service)
            await _cut(stub.GetJob(get("hang")), service)
            await service.cancelled.wait()
            assert service.ended == []
            service.may_end.set()
            await up.activity.quiet()
            assert service.ended == ["j1"]

    asyncio.run(scenario())


def test_changes_without_callers_are_bounded():
    async def scenario():
        async with running(Server(max_calls=2)) as (up, service), client(up) as stub:
            service.may_end.clear()
            for name in "ab":
                await _cut(stub.CancelJob(jobs_pb2.CancelJobRequest(job_id=name)), service)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="c"))
            assert error_info(caught.value).reason == "TOO_MANY_CALLS"
            assert (await stub.GetJob(get())).job.job_id == "j1"
            service.may_end.set()
            await up.activity.quiet()
            assert service.ended == ["a", "b"]

    asyncio.run(scenario())


@pytest.mark.parametrize("in_time", [True, False])
def test_stop_waits_for_changes_without_callers_as_long_as_the_grace(in_time):
    async def scenario():
        async with running(Server(grace_seconds=3600 if in_time else 0.2)) as (up, service), client(up) as stub:
            service.may_end.clear()
            await _cut(stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1")), service)
            stopping = asyncio.ensure_future(up.stop())
            await service.draining.wait()
            if in_time:
                service.may_end.set()
            await stopping
            assert service.stopped
            assert service.cancelled.is_set() is not in_time
            assert service.ended == (["j1"] if in_time else [])

    asyncio.run(scenario())


async def _cut(call, service) -> None:
    """Hangs up once the service is at it."""
    await asyncio.sleep(0)
    await service.entered.wait()
    service.entered.clear()
    call.cancel()
    await _outcome(call)


async def _outcome(call) -> grpc.StatusCode:
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        await call
    return await call.code()


# ------------------------------------------------------------------------------------- stop


def test_stop_ends_watch_streams_and_turns_health_watchers_away_before_the_grace_is_over():
    async def scenario():
        async with running(Server(grace_seconds=3600)) as (up, service), client(up) as stub:
            stream = stub.WatchJob(watch())
            assert (await stream.read()).sequence == 1
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                assert (await health.read()).status == SERVING
                stopping = asyncio.ensure_future(up.stop())
                assert (await health.read()).status == NOT_SERVING
                assert (await stream.read()).sequence == 2
                assert await stream.read() is grpc.aio.EOF
                assert await stream.code() == grpc.StatusCode.OK
                await stopping
            assert service.stopped

    asyncio.run(scenario())


def test_stop_gives_a_running_call_the_grace_and_no_more():
    async def scenario():
        async with running(Server(grace_seconds=0.2)) as (up, service), client(up) as stub:
            call = asyncio.ensure_future(_outcome(stub.GetJob(get("hang"))))
            await service.entered.wait()
            await up.stop()
            assert service.cancelled.is_set()
            assert await call in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}

    asyncio.run(scenario())


_STUCK_IN_A_STORE = """
import asyncio, sys, threading
from leman_core.server import server
from leman_core.settings import Server, Settings

class Stuck:
    async def start(self, _server, _locations):
        threading.Thread(target=threading.Event().wait, name="in-a-store").start()
        return []

    async def stop(self):
        await asyncio.to_thread(threading.Event().wait)

server._LAST_SECONDS = 0.1
sys.exit(server.main("planner", lambda *_: Stuck(), Settings(server=Server(port=0, grace_seconds=0.1))))
"""


def test_a_service_ends_soon_after_its_grace_whatever_a_thread_or_its_stop_waits_for():
    command = [sys.executable, "-c", _STUCK_IN_A_STORE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "port" in json.loads(process.stdout.readline())
        process.terminate()
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "in-a-store" in next(line for line in errors.splitlines() if "ended before all had stopped" in line)


def test_idle_time_counts_from_the_last_call_and_not_while_the_service_works():
    async def scenario():
        async with running() as (up, service), client(up) as stub:
            stream = stub.WatchJob(watch())
            await stream.read()
            assert up.idle_seconds() == 0
            stream.cancel()
            async with asyncio.timeout(10):
                await up.activity.quiet()
            up.activity._last -= 100
            assert up.idle_seconds() >= 100
            service.working = True
            assert up.idle_seconds() < 100

    asyncio.run(scenario())


# -------------------------------------------------------------------------------- bind, TLS


def test_a_bind_that_others_reach_is_refused_without_tls():
    async def scenario():
        for host in ("0.0.0.0", "::", "leman.example"):
            with pytest.raises(InvalidArgument) as caught:
                await start_server(
                    Settings(server=Server(host=host)), "planner", FakeService(asyncio.Event()), asyncio.Event()
                )
            assert caught.value.reason == "INSECURE_BIND"
            assert "LEMAN_SERVER__ALLOW_INSECURE_BIND" in caught.value.message

    asyncio.run(scenario())


def test_it_is_allowed_when_asked_for():
    async def scenario():
        server = Server(host="0.0.0.0", allow_insecure_bind=True, allow_anonymous=True)
        async with running(server) as (up, _), client(up) as stub:
            assert (await stub.GetJob(get())).job.job_id == "j1"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "exposed",
    [
        Server(host="0.0.0.0", allow_insecure_bind=True),
        Server(host="0.0.0.0", tls_cert="cert.pem", tls_key="key.pem"),
        Server(host="127.0.0.1", tls_cert="cert.pem", tls_key="key.pem"),
        Server(host="0.0.0.0", allow_insecure_bind=True, token=LONG_TOKEN, anonymous_roles=("reader",)),
    ],
    ids=["insecure", "TLS", "TLS on loopback", "a token, and roles without one"],
)
def test_a_server_that_others_reach_does_not_answer_everyone_by_accident(exposed):
    """Anyone who may call it may register code: without a token that has to be said in so many words."""

    async def scenario():
        with pytest.raises(InvalidArgument) as caught:
            await start_server(Settings(server=exposed), "planner", FakeService(asyncio.Event()), asyncio.Event())
        assert caught.value.reason == "ANONYMOUS_BIND"
        assert "LEMAN_SERVER__TOKEN" in caught.value.message
        assert "LEMAN_SERVER__ALLOW_ANONYMOUS" in caught.value.message

    asyncio.run(scenario())


def test_a_token_that_can_be_guessed_guards_no_open_network():
    async def scenario():
        exposed = Server(host="0.0.0.0", allow_insecure_bind=True, token="s3cret")
        with pytest.raises(InvalidArgument) as caught:
            await start_server(Settings(server=exposed), "planner", FakeService(asyncio.Event()), asyncio.Event())
        assert (caught.value.reason, "s3cret" in caught.value.message) == ("WEAK_TOKEN", False)

    asyncio.run(scenario())


def test_health_check_passes_by_a_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", DEAD_PROXY)

    async def scenario():
        async with running() as (up, _):
            return await asyncio.to_thread(healthcheck.check, f"127.0.0.1:{up.port}")

    assert asyncio.run(scenario()) == ""


def test_places_are_canonical_before_a_handler_sees_them(tmp_path):
    async def scenario():
        async with running() as (up, service), client(up) as stub:
            for spelling in (f"{tmp_path}/", f"file://{tmp_path}", f"{tmp_path}/x/.."):
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1", database=spelling))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1", database=f"{tmp_path}/_leman"))
            assert error_info(caught.value).reason == "RESERVED_DATABASE"
            watching = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1", database="relative"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await watching.read()
            assert error_info(caught.value).reason == "BAD_DATABASE"
            assert service.databases == [str(tmp_path.resolve())] * 3

    asyncio.run(scenario())


def test_a_port_in_use_is_a_typed_error_and_a_held_one_can_be_shared():
    async def scenario():
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            with pytest.raises(Unavailable) as caught:
                async with running(Server(port=port)):
                    pass
            assert caught.value.reason == "BIND_FAILED"
            assert f"127.0.0.1:{port}: LEMAN_SERVER__PORT: another process listens there" in caught.value.message
            async with running(Server(port=port, reuse_port=True)) as (up, _), client(up) as stub:
                assert up.port == port
                assert (await stub.GetJob(get())).job.job_id == "j1"

    asyncio.run(scenario())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_tls_with_a_token_between_peers(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    alternative = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make.split(), *alternative], check=True, capture_output=True)

    async def scenario():
        server = Server(host="0.0.0.0", tls_cert=str(cert), tls_key=str(key), token=LONG_TOKEN)
        async with running(server) as (up, _):
            address = f"localhost:{up.port}"
            settings = Settings(peers=Peers(executor=address, token=LONG_TOKEN, tls_ca=str(cert)))
            async with open_peer(settings, "executor") as channel:
                answer = await jobs_pb2_grpc.JobServiceStub(channel).GetJob(get())
                assert answer.job.job_id == "j1"
            async with grpc.aio.insecure_channel(address) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await jobs_pb2_grpc.JobServiceStub(channel).GetJob(get(), timeout=5)

    asyncio.run(scenario())


def test_unreadable_certificates_are_named():
    async def scenario():
        for server in (
            Server(tls_cert="/nowhere/c", tls_key="/nowhere/k", token=LONG_TOKEN),
            Server(tls_cert="/nowhere/c"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                async with running(server):
                    pass
            assert caught.value.reason == "BAD_SETTING"

    asyncio.run(scenario())
