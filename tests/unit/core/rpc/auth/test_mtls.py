"""Clients' certificates: whose they are, what they may do, and which are none."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import pytest
from cryptography import x509
from typer.testing import CliRunner

import leman
from leman import errors
from leman.cli import app
from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import InvalidArgument
from leman_core.server import healthcheck
from leman_core.server.authentication import Certificates
from leman_core.server.channels import open_peer
from leman_core.server.server import start_server
from leman_core.server.tls import channel_credentials
from leman_core.settings import Peers, Server, Settings
from tests.certificates import Authority, Files
from tests.unit.core.rpc.auth.every_method import error_info
from tests.unit.core.rpc_helpers import FakeService, running

ROLES = {
    "CN:etl": ("runner",),
    "DNS:dash.example": ("reader",),
    "URI:spiffe://example/planner": ("service",),
    "EMAIL:ada@example": ("editor",),
    "CN:two": ("reader",),
    "DNS:two.example": ("code",),
}
TOKEN = "one-for-everything"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def shown(ours):
    return ours.server()


def server(ours: Authority, shown: Files, **more) -> Server:
    return Server(tls_cert=shown.cert, tls_key=shown.key, tls_client_ca=ours.ca, tls_client_roles=ROLES, **more)


@contextlib.asynccontextmanager
async def channel_to(port: int, ours: Authority, client: Files | None):
    credentials = channel_credentials(ours.ca, *((client.cert, client.key) if client else ()))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        yield jobs_pb2_grpc.JobServiceStub(channel)


async def outcome(port: int, ours: Authority, client: Files | None, token: str = "", *, cancel: bool = False) -> str:
    """OK, the reason of the refusal, or UNAVAILABLE where there was no connection."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with channel_to(port, ours, client) as stub:
        try:
            if cancel:
                await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"), metadata=metadata, timeout=10)
            else:
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1"), metadata=metadata, timeout=10)
        except grpc.aio.AioRpcError as error:
            unreached = error.code() is grpc.StatusCode.UNAVAILABLE
            return "UNAVAILABLE" if unreached else error_info(error).reason
    return "OK"


def test_the_name_in_a_certificate_has_the_roles_of_the_settings_and_no_others(ours, theirs, shown):
    etl = ours.issue("etl")
    dash = ours.issue("dash", x509.DNSName("other.example"), x509.DNSName("dash.example"))
    stranger = ours.issue("stranger", x509.DNSName("etl"), x509.UniformResourceIdentifier("etl"))

    async def scenario():
        async with running(server(ours, shown, token=TOKEN)) as (up, _):
            port = up.port
            assert await outcome(port, ours, etl, cancel=True) == "OK"
            assert await outcome(port, ours, dash) == "OK"
            assert await outcome(port, ours, dash, cancel=True) == "ROLE_REQUIRED"
            assert await outcome(port, ours, stranger) == "TOKEN_REQUIRED", "it is one of ours, and no one's"
            assert await outcome(port, ours, stranger, TOKEN) == "OK", "a token counts before a certificate"
            assert await outcome(port, ours, etl, "some-other-token-here") == "TOKEN_INVALID"

    asyncio.run(scenario())


def test_without_a_certificate_of_the_authority_there_is_no_connection(ours, theirs, shown):
    clients = (None, theirs.issue("etl"), ours.issue("old", days=-1))

    async def scenario():
        async with running(server(ours, shown)) as (up, _):
            found = [await outcome(up.port, ours, client, TOKEN) for client in clients]
            assert found == ["UNAVAILABLE"] * 3

    asyncio.run(scenario())


def test_a_second_port_asks_for_certificates_where_the_first_does_not(ours, theirs, shown):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        second = held.getsockname()[1]

    async def scenario():
        both = server(ours, shown, mtls_port=second, token=TOKEN)
        async with running(both) as (up, _):
            assert await outcome(up.port, ours, None, TOKEN) == "OK"
            assert await outcome(up.port, ours, None) == "TOKEN_REQUIRED"
            assert await outcome(up.port, ours, ours.issue("etl")) == "TOKEN_REQUIRED", "it is not asked for"
            assert await outcome(second, ours, ours.issue("etl")) == "OK"
            assert await outcome(second, ours, None, TOKEN) == "UNAVAILABLE"
            assert await outcome(second, ours, theirs.issue("etl"), TOKEN) == "UNAVAILABLE"

    asyncio.run(scenario())


def test_services_know_one_another_by_certificate(ours, theirs, shown, monkeypatch):
    planner = ours.issue("planner", x509.UniformResourceIdentifier("spiffe://example/planner"))

    async def scenario():
        async with running(server(ours, shown)) as (up, _):
            address = f"127.0.0.1:{up.port}"
            for name, value in (("TLS_CA", ours.ca), ("TLS_CERT", planner.cert), ("TLS_KEY", planner.key)):
                monkeypatch.setenv(f"LEMAN_PEERS__{name}", value)
            peers = Peers(executor=address, tls_ca=ours.ca, tls_cert=planner.cert, tls_key=planner.key)
            async with open_peer(Settings(peers=peers), "executor") as channel:
                answer = await jobs_pb2_grpc.JobServiceStub(channel).CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"))
                assert answer.job.job_id == "j1"
            assert await asyncio.to_thread(healthcheck.main, [address]) == 0

    asyncio.run(scenario())


def test_names_of_all_kinds_count_and_add_up():
    certificates = Certificates(ROLES)
    two = certificates.caller_of({"x509_common_name": [b"two"], "peer_dns": [b"a.example", b"two.example"]})
    assert (two.name, two.shown_by, two.roles) == ("two", "certificate", ("code", "reader"))
    ada = certificates.caller_of({"x509_common_name": [b"x"], "peer_email": [b"ada@example"]})
    assert (ada.name, ada.roles) == ("ada@example", ("editor",))
    assert certificates.caller_of({"x509_common_name": [b"dash.example"], "peer_uri": [b"etl"]}) is None
    assert certificates.caller_of({"transport_security_type": [b"ssl"]}) is None


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tls_client_roles": {"etl": ("runner",)}}, "TLS_CLIENT_ROLES"),
        ({"tls_client_roles": {"CN:": ("runner",)}}, "TLS_CLIENT_ROLES"),
        ({"tls_client_ca": "/nowhere/ca.pem"}, "cannot be read"),
        ({"tls_client_ca": ""}, "TLS_CLIENT_CA"),
        ({"tls_client_ca": "", "tls_client_roles": {}, "mtls_port": 7444}, "TLS_CLIENT_CA"),
        ({"tls_cert": "", "tls_key": ""}, "TLS_CERT"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(ours, shown, more, problem):
    given = server(ours, shown).model_copy(update=more)
    service, draining = FakeService(asyncio.Event()), asyncio.Event()
    with pytest.raises(InvalidArgument, match=problem) as caught:
        asyncio.run(start_server(Settings(server=given), "planner", service, draining))
    assert caught.value.reason == "BAD_SETTING"


@pytest.mark.parametrize(
    "more", [{"tls_cert": "c.pem"}, {"tls_key": "k.pem"}, {"tls_cert": "c.pem", "tls_key": "k.pem"}]
)
def test_a_service_shows_a_certificate_with_its_key_and_over_tls_alone(ours, more):
    for ca in ("", ours.ca):
        if ca and len(more) > 1:
            more = {"tls_cert": "/nowhere/c.pem", "tls_key": "/nowhere/k.pem"}
        with pytest.raises(InvalidArgument) as caught:
            open_peer(Settings(peers=Peers(executor="127.0.0.1:1", tls_ca=ca, **more)), "executor")
        assert caught.value.reason == "BAD_SETTING"


def test_the_sdk_and_the_command_line_show_a_certificate(ours, shown, tmp_path):
    etl = ours.issue("etl")
    given = {"tls_ca": ours.ca, "tls_cert": etl.cert, "tls_key": etl.key}
    environment = {f"LEMAN_{name.upper()}": path for name, path in given.items()}

    async def scenario():
        async with running(server(ours, shown)) as (up, service):

            def call():
                with leman.connect(tmp_path, f"127.0.0.1:{up.port}", **given) as database:
                    return database._services.jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j1")).job.job_id

            assert await asyncio.to_thread(call) == "j1"
            command = ["jobs", "show", str(tmp_path), "j1", "--endpoint", f"127.0.0.1:{up.port}", "--json"]
            by_the_sdk = len(service.callers)
            await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)  # which cannot show this job
            assert len(service.callers) == 2 * by_the_sdk
            assert {(c.name, c.shown_by) for c in service.callers} == {("etl", "certificate")}

    asyncio.run(scenario())
    for left_out in given:
        with pytest.raises(errors.InvalidArgument, match="tls_cert and tls_key need each other"):
            leman.connect(tmp_path, "127.0.0.1:1", **{k: v for k, v in given.items() if k != left_out})
    with pytest.raises(errors.InvalidArgument, match="cannot be read"):
        leman.connect(tmp_path, "127.0.0.1:1", **(given | {"tls_key": "/nowhere/key.pem"}))
