"""Limits per caller: what one asks too much is refused with the time until there is room, and others notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from leman.v1 import jobs_pb2
from leman_core.model.service_errors import ResourceExhausted
from leman_core.server.admission import CallerLimits, TokenBucket
from leman_core.server.callers import make_caller, requirement_of
from leman_core.server.status import error_from_rpc
from leman_core.settings import Server
from leman_internal.v1 import planning_pb2, submission_pb2
from tests.unit.core.rpc_helpers import client, running

TOKEN = "0123456789abcdef"
TOKENS = {"ann": "ann's-0123456789abcdef", "bob": "bob's-0123456789abcdef"}
GET = requirement_of("/leman.v1.JobService/GetJob")
#: So low that a test cannot take long enough for room to come.
SELDOM = 0.001


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0.1, 50.0), st.lists(st.floats(0.0, 3.0), max_size=60))
def test_a_bucket_lets_in_what_its_rate_allows_and_says_truly_when_to_come_again(rate, pauses):
    clock = Clock()
    bucket = TokenBucket(rate, clock())
    for taken, pause in enumerate(pauses, start=1):
        clock.now += pause
        wait = bucket.take(clock())
        if wait:
            assert wait <= 1.0 / rate + 1e-9
            assert bucket.take(clock() + wait * 0.99 - 1e-9), "not before"
            clock.now += wait + 1e-6
            assert bucket.take(clock()) == 0.0
        assert taken <= max(1.0, rate) + rate * (clock() - 100.0) + 1e-6


def test_a_caller_is_told_the_time_until_there_is_room():
    clock = Clock()
    limits = CallerLimits(Server(caller_calls_per_second=2), clock)
    ann, bob, no_context = make_caller("ann", "token", ["reader"]), make_caller("bob", "token", ["reader"]), None
    for _ in range(2):
        limits.admit(ann, GET, no_context)
    clock.now += 0.125
    with pytest.raises(ResourceExhausted) as refused:
        limits.admit(ann, GET, no_context)
    assert (refused.value.reason, refused.value.retry_after_seconds) == ("CALLER_RATE", pytest.approx(0.375))
    limits.admit(bob, GET, no_context)
    limits.admit(make_caller("ann", "jwt", ["reader"]), GET, no_context)  # another one of that name
    clock.now += 0.375
    limits.admit(ann, GET, no_context)


def test_services_and_what_only_they_may_call_have_no_limit():
    limits = CallerLimits(Server(caller_calls_per_second=SELDOM, caller_streams=1), Clock())
    submit, plan = (
        requirement_of(f"/{service.full_name}/{service.methods[0].name}")
        for service in (
            submission_pb2.DESCRIPTOR.services_by_name["CommitSubmissionService"],
            planning_pb2.DESCRIPTOR.services_by_name["PlanningService"],
        )
    )
    nobody = make_caller("anonymous", "anonymous", ["admin", "code", "service"])  # where no one is asked who they are
    for _ in range(5):
        limits.admit(make_caller("planner", "certificate", ["service"]), GET, None)
        limits.admit(nobody, submit, None)
        limits.admit(nobody, plan, None)
    limits.admit(nobody, GET, None)
    with pytest.raises(ResourceExhausted):
        limits.admit(nobody, GET, None)


def test_accounts_of_callers_who_come_no_more_are_forgotten():
    clock = Clock()
    limits = CallerLimits(Server(caller_calls_per_second=1), clock)
    for n in range(20_000):
        clock.now += 0.01
        limits.admit(make_caller(f"caller-{n}", "jwt", ["reader"]), GET, None)
    assert len(limits._accounts) <= 4096 + 101


def as_(name: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {TOKENS.get(name, TOKEN)}"),)}


def settings(folder: Path, **limits: float) -> Server:
    entries = [f'[[token]]\nname = "{name}"\ntoken = "{token}"\nroles = ["runner"]\n' for name, token in TOKENS.items()]
    path = folder / "tokens.toml"
    path.write_text("".join(entries))
    return Server(token=TOKEN, tokens_file=str(path), **limits)


async def refused(call: Awaitable[Any]) -> ResourceExhausted:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = error_from_rpc(caught.value)
    assert isinstance(error, ResourceExhausted)
    return error


def test_one_caller_is_refused_and_nobody_else(tmp_path):
    async def scenario() -> None:
        get = jobs_pb2.GetJobRequest(database="/lake", job_id="j1")
        async with running(settings(tmp_path, caller_calls_per_second=SELDOM)) as (up, _), client(up) as stub:
            await stub.GetJob(get, **as_("ann"))
            for call in (stub.GetJob(get, **as_("ann")), stub.CancelJob(jobs_pb2.CancelJobRequest(), **as_("ann"))):
                error = await refused(call)
                assert (error.reason, error.facts["caller"]) == ("CALLER_RATE", "ann")
                assert 900 < error.retry_after_seconds <= 1000
            await stub.GetJob(get, **as_("bob"))
            for _ in range(3):
                await stub.GetJob(get, **as_("the token of the settings"))
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                for _ in range(3):
                    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())

    asyncio.run(scenario())


def test_a_stream_counts_until_it_is_over_however_it_ends(tmp_path):
    async def scenario() -> None:
        watch = jobs_pb2.WatchJobRequest(database="/lake", job_id="j1")
        failing = jobs_pb2.WatchJobRequest(database="/lake", job_id="error")
        async with running(settings(tmp_path, caller_streams=2)) as (up, service), client(up) as stub:
            streams = [stub.WatchJob(watch, **as_("ann")) for _ in range(2)]
            for stream in streams:
                await stream.read()
            error = await refused(stub.WatchJob(watch, **as_("ann")).read())
            assert (error.reason, error.retry_after_seconds) == ("CALLER_STREAMS", 1.0)
            assert (await refused(stub.WaitJob(jobs_pb2.WaitJobRequest(), **as_("ann")))).reason == "CALLER_STREAMS"
            await stub.GetJob(jobs_pb2.GetJobRequest(database="/lake"), **as_("ann"))
            await stub.WatchJob(watch, **as_("bob")).read()
            streams[0].cancel()
            await until_open(stub, failing)  # it hung up
            await until_open(stub, failing)  # it failed
            service.draining.set()
            assert (await streams[1].read()).sequence == 2
            assert await streams[1].read() is grpc.aio.EOF
            await until_open(stub, failing)  # it came to its end
            streams = [stub.WatchJob(watch, **as_("ann")) for _ in range(2)]
            assert [len([m async for m in stream]) for stream in streams] == [2, 2]

    asyncio.run(scenario())


async def until_open(stub: Any, watch: jobs_pb2.WatchJobRequest) -> None:
    """Opens a stream that fails, once the server has heard that another one is over."""
    while True:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [message async for message in stub.WatchJob(watch, **as_("ann"))]
        if caught.value.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            assert error_from_rpc(caught.value).reason == "JOB_NOT_FOUND"
            return
