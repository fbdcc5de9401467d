"""Calls that one service passes on to another: each is its caller's, with what they may do and no more."""

from __future__ import annotations

import asyncio
import hashlib

import grpc
import pytest
from cryptography import x509
from google.protobuf.message_factory import GetMessageClass

from leman.v1 import catalog_pb2, jobs_pb2, jobs_pb2_grpc
from leman_core.server.callers import FORWARDED_BY, KEYS
from leman_core.server.tls import channel_credentials
from leman_core.settings import Server
from tests.certificates import Authority
from tests.unit.core.rpc.auth.every_method import ask, error_info, every_service, methods, with_field
from tests.unit.core.rpc.test_forwarding import failing, front
from tests.unit.core.rpc_helpers import client, running

GET = jobs_pb2.GetJobRequest(job_id="j1")
CANCEL = jobs_pb2.CancelJobRequest(job_id="j1")


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


async def outcome(call):
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error_info(error).reason
    return "OK"


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.toml"
    entries = ("reader", "editor", "runner")
    digests = {role: hashlib.sha256(f"the-token-of-{role}".encode()).hexdigest() for role in entries}
    path.write_text("\n".join(f'[[token]]\nname = "{r}"\nroles = ["{r}"]\nsha256 = "{d}"' for r, d in digests.items()))
    return str(path)


def test_a_front_lets_nobody_through_to_a_peer_that_asks_nobody(tokens):
    async def scenario():
        asking = Server(tokens_file=tokens)
        async with (
            running() as (up, service),
            front(server=asking, executor=f"127.0.0.1:{up.port}") as before,
            client(before) as stub,
        ):
            assert await outcome(stub.GetJob(GET)) == "TOKEN_REQUIRED"
            said = ((FORWARDED_BY, "anybody"),)
            assert await outcome(stub.GetJob(GET, metadata=said)) == "TOKEN_REQUIRED"
            assert (
                await outcome(anext(aiter(stub.WatchJob(jobs_pb2.WatchJobRequest(), metadata=said))))
                == "TOKEN_REQUIRED"
            )
            known = (*said, *bearer("the-token-of-reader"))
            assert "anybody" not in (await failing(stub.GetJob(GET, metadata=known))).details()
            assert await outcome(stub.GetJob(GET, metadata=known)) == "WRONG_PEER"
            assert await outcome(stub.GetJob(GET, metadata=bearer("some-other-token-x"))) == "TOKEN_INVALID"
            assert await outcome(stub.CancelJob(CANCEL, metadata=bearer("the-token-of-reader"))) == "ROLE_REQUIRED"
            stream = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
            assert await outcome(stream.read()) == "TOKEN_REQUIRED"
            assert service.seen == service.ended == []
            assert await outcome(stub.GetJob(GET, metadata=bearer("the-token-of-reader"))) == "OK"
            assert await outcome(stub.CancelJob(CANCEL, metadata=bearer("the-token-of-runner"))) == "OK"
            (seen,) = service.callers
            assert (seen.name, seen.roles) == ("reader", ("reader",)), "as the front knows them"

    asyncio.run(scenario())


def test_a_front_reads_what_takes_the_right_to_send_code(tokens):
    register = next(m for m in methods() if m.name == "RegisterUdf")
    assert register.input_type is catalog_pb2.RegisterUdfRequest.DESCRIPTOR

    async def scenario():
        async with (
            every_service(Server()) as (up, service),
            front(name="executor", server=Server(tokens_file=tokens), planner=f"127.0.0.1:{up.port}") as before,
            grpc.aio.insecure_channel(f"127.0.0.1:{before.port}") as channel,
        ):
            pickled = with_field(register, ("definition", "python_bundle"))
            assert (await ask(channel, register, pickled, "the-token-of-editor"))[1].reason == "ROLE_REQUIRED"
            assert service.answered == []
            plain = GetMessageClass(register.input_type)()
            assert (await ask(channel, register, plain, "the-token-of-editor"))[0] == "OK"
            assert service.answered == [("RegisterUdf", "editor")]
            garbage = channel.unary_unary("/leman.v1.CatalogService/RegisterUdf")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await garbage(b"\xff", metadata=bearer("the-token-of-editor"))
            assert error_info(caught.value).reason == "BAD_MESSAGE"

    asyncio.run(scenario())


def test_a_caller_with_a_certificate_keeps_name_and_roles_behind_a_front(tmp_path):
    ours = Authority(tmp_path)
    shown, planner = ours.server(), ours.issue("planner", x509.DNSName("planner.example"))
    etl, stranger = ours.issue("etl"), ours.issue("stranger")
    roles = {"CN:etl": ("runner",), "DNS:planner.example": ("service",)}
    server = Server(tls_cert=shown.cert, tls_key=shown.key, tls_client_ca=ours.ca, tls_client_roles=roles)

    def stub(port, files):
        credentials = channel_credentials(ours.ca, files.cert, files.key)
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials)

    async def scenario():
        async with running(server) as (up, service):
            peers = {"tls_ca": ours.ca, "tls_cert": planner.cert, "tls_key": planner.key}
            async with (
                front(server=server, executor=f"127.0.0.1:{up.port}", **peers) as before,
                stub(before.port, etl) as known,
                stub(before.port, stranger) as unknown,
                stub(up.port, etl) as direct,
            ):
                calls = jobs_pb2_grpc.JobServiceStub(known)
                assert await outcome(calls.CancelJob(CANCEL)) == "OK"
                assert await outcome(calls.GetJob(GET)) == "OK"
                boast = zip(KEYS, ("root", "token", "admin", "here"), strict=True)
                assert await outcome(calls.GetJob(GET, metadata=tuple(boast))) == "OK"
                found = {(c.name, c.shown_by, c.roles) for c in service.callers}
                assert found == {("etl", "certificate", ("runner",))}
                assert await outcome(jobs_pb2_grpc.JobServiceStub(unknown).GetJob(GET)) == "TOKEN_REQUIRED"
                boast = ((FORWARDED_BY, "planner"), *zip(KEYS, ("root", "token", "admin", "here"), strict=True))
                calls = jobs_pb2_grpc.JobServiceStub(direct)
                assert await outcome(calls.GetJob(GET, metadata=boast)) == "TOKEN_REQUIRED", "it is no service"

    asyncio.run(scenario())


def test_a_call_that_a_service_passes_on_without_a_caller_is_nobodys(tmp_path):
    """As an older release does: the certificate is the service's, the call is not."""
    ours = Authority(tmp_path)
    shown, planner = ours.server(), ours.issue("planner")
    server = Server(
        tls_cert=shown.cert, tls_key=shown.key, tls_client_ca=ours.ca, tls_client_roles={"CN:planner": ("service",)}
    )

    async def scenario():
        async with running(server) as (up, _):
            credentials = channel_credentials(ours.ca, planner.cert, planner.key)
            async with grpc.aio.secure_channel(f"127.0.0.1:{up.port}", credentials) as channel:
                calls = jobs_pb2_grpc.JobServiceStub(channel)
                assert await outcome(calls.GetJob(GET)) == "OK"
                passed_on = ((FORWARDED_BY, "planner"),)
                assert await outcome(calls.GetJob(GET, metadata=passed_on)) == "TOKEN_REQUIRED"

    asyncio.run(scenario())
