"""Certificates that are renewed while services run: on the gRPC ports, on the HTTP port, and towards peers."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl

import grpc
import pytest

import leman
from leman._wire import credentials as _tls_files
from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import InvalidArgument
from leman_core.server import tls
from leman_core.server.channels import open_peer
from leman_core.server.server import bind
from leman_core.server.tls import TlsFiles
from leman_core.settings import Peers, Server, Settings
from tests.certificates import Authority, Files
from tests.unit.core.rpc_helpers import running

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch):
    monkeypatch.setattr(tls, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(_tls_files, "_LOOK_SECONDS", 0.0)


@pytest.fixture
def authority(tmp_path):
    folder = tmp_path / "ca"
    folder.mkdir()
    return Authority(folder)


def shown_at(port: int, authority: Authority, protocol: str) -> int:
    """The serial number of the certificate that a server shows in a new handshake."""
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_alpn_protocols([protocol])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        return int(str(connection.getpeercert()["serialNumber"]), 16)


def test_a_service_shows_a_renewed_certificate_without_a_restart(authority):
    async def scenario() -> None:
        files = authority.server()
        async with running(Server(http_port=0, tls_cert=files.cert, tls_key=files.key, token=TOKEN)) as (up, _):

            async def shown() -> tuple[int, int]:
                at = ((up.port, "h2"), (up.http.port, "http/1.1"))
                grpc_s, http_s = [await asyncio.to_thread(shown_at, port, authority, name) for port, name in at]
                return grpc_s, http_s

            first = await shown()
            assert first[0] == first[1]
            shutil.copy(files.key, f"{files.key}.old")
            authority.server()  # in the place of the first
            second = await shown()
            assert second[0] == second[1] != first[0]
            shutil.copy(f"{files.key}.old", files.key)  # half of a renewal
            assert await shown() == second

    asyncio.run(scenario())


def test_a_service_believes_a_renewed_authority_of_its_callers(authority, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    newer, files = Authority(other), authority.server()
    clients = authority.issue("etl"), newer.issue("etl")
    believed = str(tmp_path / "clients.pem")
    shutil.copy(authority.ca, believed)

    async def scenario() -> None:
        roles = {"CN:etl": ("runner",)}
        server = Server(tls_cert=files.cert, tls_key=files.key, tls_client_ca=believed, tls_client_roles=roles)
        async with running(server) as (up, _):

            async def may_call(client: Files) -> bool:
                credentials = tls.channel_credentials(authority.ca, client.cert, client.key)
                async with grpc.aio.secure_channel(f"127.0.0.1:{up.port}", credentials) as channel:
                    call = jobs_pb2_grpc.JobServiceStub(channel).GetJob(jobs_pb2.GetJobRequest(job_id="j1"))
                    return await call.code() is grpc.StatusCode.OK

            assert [await may_call(client) for client in clients] == [True, False]
            shutil.copy(newer.ca, believed)
            assert [await may_call(client) for client in clients] == [False, True]

    asyncio.run(scenario())


def test_a_service_shows_its_peers_a_renewed_certificate(authority, tmp_path):
    """A call that runs meanwhile goes on."""
    other = tmp_path / "other"
    other.mkdir()
    newer, files, mine = Authority(other), authority.server(), authority.issue("planner")
    believed = str(tmp_path / "clients.pem")
    shutil.copy(authority.ca, believed)

    async def scenario() -> None:
        roles = {"CN:planner": ("service",)}
        server = Server(tls_cert=files.cert, tls_key=files.key, tls_client_ca=believed, tls_client_roles=roles)
        async with running(server) as (up, _):
            peers = Peers(executor=f"127.0.0.1:{up.port}", tls_ca=authority.ca, tls_cert=mine.cert, tls_key=mine.key)
            async with open_peer(Settings(peers=peers), "executor") as channel:
                stub = jobs_pb2_grpc.JobServiceStub(channel)
                cancel = jobs_pb2.CancelJobRequest(job_id="j1")
                assert (await stub.CancelJob(cancel)).job.job_id == "j1"
                watch = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
                await watch.read()
                shutil.copy(newer.ca, believed)
                renewed = newer.issue("planner")
                shutil.copy(renewed.cert, mine.cert)
                shutil.copy(renewed.key, mine.key)
                assert (await stub.CancelJob(cancel)).job.job_id == "j1"
                assert channel._channel is not channel._left[0][1]
                watch.cancel()

    asyncio.run(scenario())


def test_the_sdk_shows_a_renewed_certificate_and_believes_a_renewed_authority(authority, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    newer, files, mine = Authority(other), authority.server(), authority.issue("etl")
    believed = str(tmp_path / "believed.pem")
    shutil.copy(authority.ca, believed)

    async def scenario() -> None:
        roles = {"CN:etl": ("runner",)}
        server = Server(tls_cert=files.cert, tls_key=files.key, tls_client_ca=believed, tls_client_roles=roles)
        async with running(server) as (up, _):
            given = {"tls_ca": believed, "tls_cert": mine.cert, "tls_key": mine.key}
            with await asyncio.to_thread(leman.connect, tmp_path, f"127.0.0.1:{up.port}", **given) as database:

                def called() -> str:
                    return database._services.jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j1")).job.job_id

                assert await asyncio.to_thread(called) == "j1"
                before = dict(database._services._channels)
                shutil.copy(newer.ca, believed)  # that of both sides
                for renewed, place in ((newer.issue("etl"), mine), (newer.server(), files)):
                    shutil.copy(renewed.cert, place.cert)
                    shutil.copy(renewed.key, place.key)
                assert await asyncio.to_thread(called) == "j1"
                (address,) = database._services._channels
                assert database._services._channels[address] is not before[address]

    asyncio.run(scenario())


def test_files_that_do_not_fit_are_refused_at_the_start(authority):
    files, other = authority.server(), authority.issue("other")
    with pytest.raises(OSError, match="MISMATCH"):
        TlsFiles(cert=files.cert, key=other.key)


@pytest.mark.parametrize(
    ("missing", "setting"),
    [
        ("tls_cert", "LEMAN_SERVER__TLS_CERT"),
        ("tls_key", "LEMAN_SERVER__TLS_KEY"),
        ("tls_client_ca", "LEMAN_SERVER__TLS_CLIENT_CA"),
    ],
)
def test_a_server_names_the_setting_of_a_file_that_is_not_there(authority, missing, setting):
    files = authority.server()
    paths = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.ca, missing: "/no/such.pem"}

    async def scenario() -> None:
        bind(Server(**paths), grpc.aio.server())

    with pytest.raises(InvalidArgument, match=rf"^{setting}: .*/no/such\.pem") as refused:
        asyncio.run(scenario())
    assert refused.value.reason == "BAD_SETTING"


def test_settings_are_named_where_files_of_peers_cannot_be_used(authority):
    files, other = authority.server(), authority.issue("other")

    def refusal(**paths: str) -> str:
        with pytest.raises(InvalidArgument) as refused:
            open_peer(Settings(peers=Peers(planner="localhost:1", **paths)), "planner")
        return refused.value.message

    assert refusal(tls_ca="/no/such.pem").startswith("LEMAN_PEERS__TLS_CA: ")
    unfit = refusal(tls_ca=authority.ca, tls_cert=files.cert, tls_key=other.key)
    assert unfit.startswith("LEMAN_PEERS__TLS_CA, LEMAN_PEERS__TLS_CERT, LEMAN_PEERS__TLS_KEY: ")
