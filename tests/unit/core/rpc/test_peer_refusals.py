"""A peer that does not take this service: an error of the set-up, never one of the caller's own token."""

from __future__ import annotations

import asyncio
import gc
import warnings

import grpc
import pytest
import structlog

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import (
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    PermissionDenied,
    Unavailable,
)
from leman_core.server import channels, status
from leman_core.server.channels import open_peer
from leman_core.settings import Peers, Server, Settings
from leman_internal.v1 import planning_pb2, planning_pb2_grpc
from tests.certificates import Authority
from tests.unit.core.rpc.test_forwarding import error_info, front
from tests.unit.core.rpc_helpers import client, peers, running

GET = jobs_pb2.GetJobRequest(job_id="j1")
RIGHT, WRONG = "a-token-of-enough-characters", "another-token-of-as-many"


async def failures(settings: Settings, *, service: str = "jobs", calls: int = 1) -> list[LemanError]:
    async with open_peer(settings, "executor") as channel:

        async def call() -> None:
            if service == "jobs":
                await jobs_pb2_grpc.JobServiceStub(channel).CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"))
            else:
                stub = planning_pb2_grpc.PlanningServiceStub(channel)
                await stub.CreatePlan(planning_pb2.CreatePlanRequest()).read()

        errors = []
        for _ in range(calls):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call()
            errors.append(status.error_from_rpc(caught.value))
        return errors


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (WRONG, "refuses the LEMAN_PEERS__TOKEN of this service: the token is not valid"),
        ("", "refuses this service, which shows neither token nor certificate: this service requires a token"),
    ],
)
def test_a_wrong_token_of_a_service_is_none_of_its_caller(token, said):
    """The caller of CreateJob heard TOKEN_INVALID, though its own token was good."""

    async def scenario() -> tuple[str, list[LemanError]]:
        async with running(Server(token=RIGHT)) as (up, _):
            return f"127.0.0.1:{up.port}", await failures(peers(up.port, token=token), calls=2)

    with structlog.testing.capture_logs() as lines:
        address, errors = asyncio.run(scenario())
    for error in errors:
        assert (type(error), error.reason) == (FailedPrecondition, "PEER_REFUSED")
        assert f"the executor at {address} (LEMAN_PEERS__EXECUTOR) {said}" in error.message
        assert error.facts == {"peer": "executor", "address": address, "setting": "LEMAN_PEERS__TOKEN"}
    told = [line["log_level"] for line in lines if line.get("address") == address]
    assert told == ["warning"], "once, until it takes a call"


def test_a_role_that_the_token_of_a_service_lacks_is_told_from_what_a_peer_forbids(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(f'[[token]]\nname = "executor"\nroles = ["reader"]\ntoken = "{RIGHT}"\n')

    async def scenario() -> None:
        async with running(Server(tokens_file=str(file))) as (up, service):
            settings = peers(up.port, token=RIGHT)
            (lacks,) = await failures(settings)
            assert (type(lacks), lacks.reason) == (FailedPrecondition, "PEER_REFUSED")
            assert "CancelJob takes the role 'runner', and 'executor' has reader" in lacks.message
            service.error = PermissionDenied("UDF_NOT_ALLOWED", "no functions of this kind")
            async with open_peer(settings, "executor") as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await jobs_pb2_grpc.JobServiceStub(channel).GetJob(jobs_pb2.GetJobRequest(job_id="error"))
            assert status.error_from_rpc(caught.value).reason == "UDF_NOT_ALLOWED"

    asyncio.run(scenario())


@pytest.mark.parametrize("service", ["jobs", "plans"])
def test_a_peer_whose_certificate_is_not_believed_is_an_error_of_the_set_up(tmp_path, monkeypatch, service):
    monkeypatch.setattr(channels, "NEVER_REACHED_SECONDS", 1.0)
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for folder in folders:
        folder.mkdir()
    ours, theirs = map(Authority, folders)
    shown = ours.server()

    async def scenario() -> None:
        async with running(Server(tls_cert=shown.cert, tls_key=shown.key, token=RIGHT)) as (up, _):
            address = f"127.0.0.1:{up.port}"
            (error,) = await failures(peers(up.port, token=RIGHT, tls_ca=theirs.ca), service=service)
            assert (type(error), error.reason) == (FailedPrecondition, "PEER_REFUSED")
            assert address in error.message
            assert "CERTIFICATE_VERIFY_FAILED" in error.message
            assert "LEMAN_PEERS__TLS_CA here" in error.message
            assert error.facts["setting"] == "LEMAN_PEERS__TLS_CA"
            (error,) = await failures(peers(up.port, token=RIGHT), service=service)
            assert (type(error), error.reason) == (Unavailable, "PEER_UNAVAILABLE")
            assert "if it speaks TLS, set LEMAN_PEERS__TLS_CA here" in error.message
            if service == "jobs":
                async with front(executor=address, tls_ca=theirs.ca) as before, client(before) as stub:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await stub.GetJob(GET)
                assert error_info(caught.value).reason == "PEER_REFUSED"

    asyncio.run(scenario())


def test_certificates_of_peers_that_cannot_be_read_end_a_service_and_say_nothing_else(tmp_path):
    async def scenario() -> None:
        with pytest.raises(InvalidArgument, match="LEMAN_PEERS__TLS_CA") as caught:
            async with front(executor="127.0.0.1:9", tls_ca=str(tmp_path / "none.pem")):
                pass
        assert caught.value.reason == "BAD_SETTING"

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(one.message) for one in told if "never awaited" in str(one.message)] == []


def test_an_address_of_another_service_is_told_as_such():
    async def scenario() -> None:
        async with running() as (up, _):
            (error,) = await failures(Settings(peers=Peers(executor=f"127.0.0.1:{up.port}")), service="plans")
            assert (type(error), error.reason) == (FailedPrecondition, "WRONG_PEER")
            assert f"the service at 127.0.0.1:{up.port} (LEMAN_PEERS__EXECUTOR) does not have" in error.message

    asyncio.run(scenario())


@pytest.mark.parametrize("peer", ["planner", "executor", "commit_coordinator"])
def test_a_peer_without_an_address_is_named_with_its_setting(peer):
    with pytest.raises(FailedPrecondition, match=f"set LEMAN_PEERS__{peer.upper()}") as caught:
        open_peer(Settings(peers=Peers(planner="", executor="", commit_coordinator="")), peer)
    assert caught.value.reason == "PEER_NOT_SET"
