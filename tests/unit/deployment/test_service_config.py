"""The published service config: gRPC takes it, and sends again what may be sent again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import ResourceExhausted, Unavailable
from leman_core.server.status import error_from_rpc
from tests.unit.core.rpc_helpers import running

CONFIG = Path(__file__).resolve().parents[3] / "protos" / "leman" / "v1" / "service_config.json"


def test_reads_are_sent_again_and_what_makes_something_is_not():
    async def scenario() -> None:
        async with running() as (up, service):
            options = [("grpc.service_config", CONFIG.read_text())]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}", options=options) as channel:
                jobs = jobs_pb2_grpc.JobServiceStub(channel)
                service.fail_first = 2
                answer = await jobs.GetJob(jobs_pb2.GetJobRequest(job_id="j1"), timeout=20)
                assert (answer.job.job_id, len(service.seen)) == ("j1", 3)
                service.error = Unavailable("STORE_UNAVAILABLE", "the store is away")
                with pytest.raises(grpc.aio.AioRpcError):
                    await jobs.CreateJob(jobs_pb2.CreateJobRequest(), timeout=20)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ResourceExhausted("MESSAGE_TOO_LARGE", "it is too large", retry_after_seconds=0.0), 1),
        (ResourceExhausted("TOO_MANY_CALLS", "come again", retry_after_seconds=0.001), 5),
        (Unavailable("STORE_UNAVAILABLE", "the store is away", retry_after_seconds=0.001), 5),
    ],
)
def test_services_say_whether_it_helps_to_send_a_call_again(error, calls):
    async def scenario() -> tuple[int, str | None]:
        async with running() as (up, service):
            service.error = error
            options = [("grpc.service_config", CONFIG.read_text())]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}", options=options) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await jobs_pb2_grpc.JobServiceStub(channel).GetJob(
                        jobs_pb2.GetJobRequest(job_id="error"), timeout=20
                    )
                return len(service.seen), error_from_rpc(caught.value).reason

    assert asyncio.run(scenario()) == (calls, error.reason)


def test_what_needs_a_request_id_to_be_done_once_is_not_among_them():
    names = {name["method"] for each in json.loads(CONFIG.read_text())["methodConfig"] for name in each["name"]}
    assert {"GetJob", "ListJobs", "WatchJob", "WaitJob", "CancelJob", "ReadRows", "GetInfo", "RegisterUdf"} <= names
    assert not names & {"CreateJob", "RetryJob", "AddColumns", "AlterColumns", "CreateMaterializedView", "AppendRows"}
