"""Budgets of calls: each method has its own, refusals say when to come again, health is never refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from leman.v1 import jobs_pb2
from leman_core.server.admission import CallBudget
from leman_core.server.status import error_from_rpc
from leman_core.settings import Server
from tests.unit.core.rpc_helpers import FakeService, client, running

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
SERVING = health_pb2.HealthCheckResponse.SERVING


def get(job_id: str = "j1") -> jobs_pb2.GetJobRequest:
    return jobs_pb2.GetJobRequest(job_id=job_id)


def watch() -> jobs_pb2.WatchJobRequest:
    return jobs_pb2.WatchJobRequest(job_id="j1")


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The reason; a refusal for want of room says when to come again, too."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "leman"
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() > 0
    return info.reason


async def refused(call) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() == EXHAUSTED
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "r7"
    return reason_of(caught.value)


@contextlib.asynccontextmanager
async def hanging(stub, service: FakeService):
    """A GetJob that is at work."""
    call = stub.GetJob(get("hang"))
    waiting = asyncio.ensure_future(call.code())
    await service.entered.wait()
    yield
    call.cancel()
    await service.cancelled.wait()
    await waiting


ID = (("x-request-id", "r7"),)


def test_a_call_that_is_one_too_many_is_refused_with_its_reason_before_it_is_read():
    async def scenario():
        async with running(Server(max_calls=1)) as (up, service), client(up) as stub:
            async with hanging(stub, service):
                assert await refused(stub.GetJob(get(), metadata=ID)) == "TOO_MANY_CALLS"
                async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                    raw = channel.unary_unary("/leman.v1.JobService/GetJob")
                    assert await refused(raw(b"\xff no message", metadata=ID)) == "TOO_MANY_CALLS"
                assert (await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"))).job.job_id == "j1"
            assert (await stub.GetJob(get())).job.job_id == "j1"

    asyncio.run(scenario())


def test_of_calls_at_once_none_is_lost_and_none_goes_without_a_reason():
    """Half of them come while their method is full: whichever way they are refused, their callers are notified."""

    async def outcome(call) -> str:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {reason_of(error)}"
        return "OK"

    async def scenario():
        async with running(Server(max_calls=10)) as (up, service), client(up) as stub:
            service.may_end.clear()
            jobs = [stub.CancelJob(jobs_pb2.CancelJobRequest(job_id=str(n))) for n in range(60)]
            outcomes = [asyncio.ensure_future(outcome(call)) for call in jobs]
            refusals = [one async for one in _first(outcomes, 50)]
            assert refusals == ["RESOURCE_EXHAUSTED TOO_MANY_CALLS"] * 50
            service.may_end.set()
            assert sorted(await asyncio.gather(*outcomes))[:10] == ["OK"] * 10
            assert len(service.ended) == 10

    asyncio.run(scenario())


def test_streams_that_come_all_at_once_are_opened_or_refused_and_none_is_dropped():
    """gRPC itself would cancel some of them, without a word, once it holds a thousand that no one has taken yet."""

    async def outcome(stream) -> str:
        try:
            await stream.read()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {reason_of(error)}"
        return "OK"

    async def scenario():
        async with running(Server(max_streams=5)) as (up, _), client(up) as stub:
            streams = [stub.WatchJob(watch()) for _ in range(2500)]
            seen = Counter(await asyncio.gather(*map(outcome, streams)))
            assert seen == {"OK": 5, "RESOURCE_EXHAUSTED TOO_MANY_CALLS": 2495}

    asyncio.run(scenario())


def test_a_burst_of_calls_is_answered_or_refused_and_none_is_dropped():
    async def outcome(call) -> str:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {reason_of(error)}"
        return "OK"

    async def scenario():
        async with running(Server(max_calls=100)) as (up, _), client(up) as stub:
            seen = Counter(await asyncio.gather(*(outcome(stub.GetJob(get())) for _ in range(3000))))
            assert set(seen) <= {"OK", "RESOURCE_EXHAUSTED TOO_MANY_CALLS"}
            assert seen["OK"]

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_an_unknown_call_is_refused_with_a_reason(kind):
    async def scenario():
        async with running() as (up, _), grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            for method in ("/leman.v1.JobService/Nothing", "/other.v1.Service/Call", f"/a.B/{'m' * 1_000}"):
                call = getattr(channel, kind)(method)(b"\xff", metadata=ID)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await (call.read() if kind == "unary_stream" else call)
                assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
                error = error_from_rpc(caught.value)
                assert error.reason == "CALL_NOT_OFFERED"
                assert f"This service has no method {method[:200]}" in error.message
                assert dict(caught.value.trailing_metadata())["x-request-id"] == "r7"

    asyncio.run(scenario())


def test_large_metadata_is_refused_with_a_reason():
    async def scenario():
        async with running() as (up, service), client(up) as stub:
            assert (await stub.GetJob(get(), metadata=(("x-note", "v" * 15_000),))).job.job_id == "j1"
            for size in (17_000, 40_000):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.GetJob(get(), metadata=(("x-note", "v" * size),))
                error = error_from_rpc(caught.value)
                assert (caught.value.code(), error.reason) == (EXHAUSTED, "MESSAGE_TOO_LARGE")
                assert "metadata" in error.message
            assert len(service.seen) == 1

    asyncio.run(scenario())


async def _first(outcomes, count):
    """Results as they come, at most n of them."""
    for done, next_one in enumerate(asyncio.as_completed(outcomes), 1):
        yield await next_one
        if done == count:
            return


def test_with_every_stream_taken_health_and_calls_are_answered():
    async def scenario():
        async with running(Server(max_streams=2)) as (up, _), client(up) as stub:
            open_streams = [stub.WatchJob(watch()) for _ in range(2)]
            for stream in open_streams:
                assert (await stream.read()).sequence == 1
            assert await refused(stub.WatchJob(watch(), metadata=ID).read()) == "TOO_MANY_CALLS"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                health = health_pb2_grpc.HealthStub(channel)
                for _ in range(5):
                    assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
                watching = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(5)]
                assert {(await one.read()).status for one in watching} == {SERVING}
            assert (await stub.GetJob(get())).job.job_id == "j1"
            assert (await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"))).job.job_id == "j1"
            open_streams[0].cancel()
            await _until_free(stub)

    asyncio.run(scenario())


async def _until_free(stub) -> None:
    """Opens a stream as soon as there is room again."""
    while True:
        stream = stub.WatchJob(watch())
        with contextlib.suppress(grpc.aio.AioRpcError):
            assert (await stream.read()).sequence == 1
            return


def test_a_stream_that_nobody_reads_ends_and_lets_go_of_what_it_sends(monkeypatch):
    made, closed = [], asyncio.Event()

    async def endless(self, request, context):
        try:
            while True:
                made.append(1)
                yield jobs_pb2.WatchJobResponse(job=jobs_pb2.Job(plan_summary="x" * (1 << 20)))
        finally:
            closed.set()

    monkeypatch.setattr(FakeService, "WatchJob", endless)

    async def scenario():
        async with running(Server(stalled_stream_seconds=0.2)) as (up, _), client(up) as stub:
            stream = stub.WatchJob(watch())
            await closed.wait()
            assert len(made) < 50
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stream:
                    pass
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert reason_of(caught.value) == "READER_STALLED"
            closed.clear()
            stream = stub.WatchJob(watch())
            await stream.read()
            stream.cancel()
            await closed.wait()

    asyncio.run(scenario())


# ------------------------------------------------------------------------------- overload


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run_for(budget: CallBudget, clock: Clock, seconds: float, *, callers: int, rate: float) -> list[int]:
    """A number of callers ask again and again, and a number of calls a second are answered; how many were at work each
    time."""
    at_work: list[float] = []
    seen = []
    for _ in range(int(seconds * rate)):
        while len(at_work) < callers and not budget.is_full():
            at_work.append(budget.begin())
        clock.now += 1 / rate
        seen.append(len(at_work))
        budget.end(at_work.pop(0))
    for begun in at_work:
        budget.end(begun)
    return seen


def test_a_burst_may_fill_the_budget_and_a_method_that_stays_slow_gets_less():
    clock = Clock()
    budget = CallBudget("M", 256, clock=clock)
    seen = run_for(budget, clock, 20, callers=1000, rate=100)
    assert seen[0] == 256
    assert set(seen[-1000:]) == {32}, "and it stays so while there are too many"
    assert run_for(budget, clock, 1, callers=200, rate=100)[0] == 200, "no one was at work in between"


def test_many_callers_that_are_answered_quickly_are_no_overload():
    clock = Clock()
    budget = CallBudget("M", 256, clock=clock)
    assert set(run_for(budget, clock, 20, callers=200, rate=1000)) == {200}


def test_few_callers_that_wait_long_are_no_overload():
    clock = Clock()
    budget = CallBudget("M", 256, clock=clock)
    assert set(run_for(budget, clock, 20, callers=20, rate=5)) == {20}


def test_open_streams_are_no_overload():
    clock = Clock()
    budget = CallBudget("M", 256, sheds=False, clock=clock)
    assert set(run_for(budget, clock, 20, callers=1000, rate=10)) == {256}
