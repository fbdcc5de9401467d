"""Messages that are too large: their callers hear why, whichever way they went, and that it is no use to try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from leman.v1 import jobs_pb2
from leman_core.server.status import error_from_rpc
from leman_core.settings import Server
from tests.unit.core.rpc.test_forwarding import behind
from tests.unit.core.rpc_helpers import FakeService, client, running

SMALL = Server(max_message_mb=1)
LARGE = "x" * (3 << 19)


async def refused(call: grpc.aio.Call) -> str:
    """The reason; an error that is the same the next time does not say when to come again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    packed = status_pb2.Status.FromString(dict(caught.value.trailing_metadata())["grpc-status-details-bin"])
    assert not any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in packed.details)
    error = error_from_rpc(caught.value)
    assert error.facts == {"largest": str(1 << 20)}
    return error.reason


def large_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake service answers with more than may be sent."""
    job = jobs_pb2.Job(plan_summary=LARGE)

    async def get(*_: object) -> jobs_pb2.GetJobResponse:
        return jobs_pb2.GetJobResponse(job=job)

    async def watch(*_: object) -> AsyncIterator[jobs_pb2.WatchJobResponse]:
        yield jobs_pb2.WatchJobResponse(sequence=1)
        yield jobs_pb2.WatchJobResponse(job=job)

    monkeypatch.setattr(FakeService, "GetJob", get)
    monkeypatch.setattr(FakeService, "WatchJob", watch)


def test_a_request_that_is_too_large_never_reaches_its_handler():
    async def scenario() -> None:
        async with running(SMALL) as (up, service), client(up) as stub:
            assert await refused(stub.GetJob(jobs_pb2.GetJobRequest(job_id=LARGE))) == "MESSAGE_TOO_LARGE"
            assert service.seen == []
            unknown = b"\xfa\x7f\x80\x80\x20" + b"x" * (1 << 19)  # a field of a later release
            fitting = jobs_pb2.GetJobRequest(job_id="j1")
            fitting.MergeFromString(unknown)
            assert (await stub.GetJob(fitting)).job.job_id == "j1"

    asyncio.run(scenario())


def test_an_answer_that_is_too_large_ends_its_call_with_a_reason(monkeypatch):
    large_answers(monkeypatch)

    async def scenario() -> None:
        async with running(SMALL) as (up, _), client(up) as stub:
            assert await refused(stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1"))) == "MESSAGE_TOO_LARGE"
            stream = stub.WatchJob(jobs_pb2.WatchJobRequest(job_id="j1"))
            assert (await stream.read()).sequence == 1
            assert await refused(stream.read()) == "MESSAGE_TOO_LARGE"

    asyncio.run(scenario())


def test_what_is_passed_on_is_refused_by_the_service_that_it_is_for():
    async def scenario() -> None:
        async with behind(SMALL) as (_, _, service, stub):
            assert await refused(stub.GetJob(jobs_pb2.GetJobRequest(job_id=LARGE))) == "MESSAGE_TOO_LARGE"
            assert service.seen == []

    asyncio.run(scenario())
