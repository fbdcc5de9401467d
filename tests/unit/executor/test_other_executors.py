"""Two executors of one database behind one name: whichever a caller reaches answers as the one that has the job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.server.callers import FORWARDED_BY, current_caller
from leman_core.server.server import RunningServer, start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Server, Settings
from leman_executor.api import job_forwarding
from leman_executor.api.job_forwarding import OtherExecutors
from leman_executor.api.job_service import JobServicer
from leman_executor.app import _reached_at
from tests.unit.executor.job_manager.test_takeover import Leases, Pair
from tests.unit.executor.manager_helpers import NO_PREVIEWS, Executor

State = jobs_pb2.Job.State
TOKEN = "0123456789abcdef"
SETTINGS = Settings(server=Server(token=TOKEN))
NOWHERE = "127.0.0.1:9"


class Holders:
    """Who has a job, as one executor reads it; leases are long compared with the test, and their ends known."""

    lease_seconds = 20.0

    def __init__(self, keys: dict[str, str], name: str, addresses: dict[str, str]) -> None:
        self._keys, self._name, self._addresses = keys, name, addresses
        #: How often it could not be read.
        self.not_told = 0
        self.unknown = False

    async def holder(self, key: str) -> str | None:
        if self.unknown:
            self.not_told += 1
            return ""
        owner = self._keys.get(key)
        return None if owner in (None, self._name) else self._addresses.get(owner, "")


class Service:
    """JobService of one executor."""

    def __init__(self, executor: Executor, holders: Holders, draining: asyncio.Event) -> None:
        self.others = OtherExecutors(SETTINGS, holders)
        self.servicer = JobServicer(executor.jobs, draining, NO_PREVIEWS, self.others)

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        return self.servicer.add_to(server)

    async def stop(self) -> None:
        await self.others.close()


class Frozen(jobs_pb2_grpc.JobServiceServicer):
    """Takes a call, and never says a word."""

    async def WatchJob(self, _request: object, _context: object) -> AsyncIterator[jobs_pb2.WatchJobResponse]:
        await asyncio.Event().wait()
        yield jobs_pb2.WatchJobResponse()


class Both(Pair):
    """Both executors as servers, and a caller who reaches the second one alone; the first one has the job."""

    async def start(self) -> None:
        self.addresses: dict[str, str] = {}
        self.holders: dict[str, Holders] = {}
        self.servers: list[RunningServer] = []
        for name, executor in (("first", self.first), ("second", self.second)):
            await self.serve(name, executor)
        self.channel = grpc.aio.insecure_channel(self.addresses["second"])
        self._stub: Any = jobs_pb2_grpc.JobServiceStub(self.channel)

    async def serve(self, name: str, executor: Executor) -> None:
        """Have an executor answer at the address of that name."""
        draining = asyncio.Event()
        self.holders[name] = Holders(self.keys, name, self.addresses)
        service = Service(executor, self.holders[name], draining)
        self.servers.append(await start_server(SETTINGS, "executor", service, draining))
        self.addresses[name] = f"127.0.0.1:{self.servers[-1].port}"

    async def taken_over_by_second(self, job_id: str) -> None:
        """Have the second one get a job whose lease it is given."""
        self.keys[self.key(job_id)] = "second"
        await self.second.jobs.open_database(self.database)
        await self.second.works()

    def call(self, name: str, *more: tuple[str, str], **fields: Any) -> Any:
        request = getattr(jobs_pb2, f"{name}Request")(database=self.database, **fields)
        metadata = (("authorization", f"Bearer {TOKEN}"), *more)
        return getattr(self._stub, name)(request, metadata=metadata, timeout=15)

    async def end(self) -> None:
        await self.channel.close()
        await self.stop()
        for server in self.servers:
            await server.stop()


@contextlib.asynccontextmanager
async def both(folder: Path) -> AsyncIterator[Both]:
    (folder / "_leman").mkdir()
    pair = Both(folder)
    await pair.start()
    try:
        async with asyncio.timeout(30):
            yield pair
    finally:
        await pair.end()


async def reason(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value).reason


def test_what_only_the_one_that_has_the_job_can_do_is_done_there_for_the_same_caller(tmp_path, monkeypatch):
    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            callers = []
            update = pair.first.jobs.update

            async def noted(*given: Any, **changes: Any) -> Any:
                callers.append(current_caller())
                return await update(*given, **changes)

            monkeypatch.setattr(pair.first.jobs, "update", noted)
            mask = FieldMask(paths=["priority"])
            job = (await pair.call("UpdateJob", job_id=job_id, priority=7, update_mask=mask)).job
            assert (job.priority, pair.first.running.runs[pair.key(job_id)].status.job.priority) == (7, 7)
            assert [caller and (caller.name, caller.shown_by) for caller in callers] == [("token", "token")]
            pair.first.running.runs[pair.key(job_id)].status.metrics.commit_seconds = 5.0
            assert (await pair.call("GetJob", job_id=job_id)).job.progress.commit_duration.seconds == 5
            assert (await pair.call("PauseJob", job_id=job_id)).job.state == State.STATE_PAUSING
            resumed = (await pair.call("ResumeJob", job_id=job_id)).job.state
            assert resumed in (State.STATE_PENDING, State.STATE_PLANNING, State.STATE_RUNNING)
            asked = await pair.call("CancelJobs", filter=jobs_pb2.JobFilter())
            assert ([job.job_id for job in asked.jobs], list(asked.jobs_elsewhere)) == ([job_id], [])
            done = (await pair.call("WaitJob", job_id=job_id)).job
            assert done.state == State.STATE_CANCELLED
            assert await reason(pair.call("PauseJob", job_id=job_id)) == "JOB_ENDED"

    asyncio.run(scenario())


def test_a_call_is_passed_on_once_and_only_where_the_way_is_known(tmp_path):
    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            assert await reason(pair.call("CancelJob", (FORWARDED_BY, "executor"), job_id=job_id)) == "JOB_ELSEWHERE"
            del pair.addresses["first"]
            assert await reason(pair.call("CancelJob", job_id=job_id)) == "JOB_ELSEWHERE"
            asked = await pair.call("CancelJobs", filter=jobs_pb2.JobFilter())
            assert (list(asked.jobs), list(asked.jobs_elsewhere)) == ([], [job_id])
            assert (await pair.call("GetJob", job_id=job_id)).job.state == State.STATE_RUNNING, "as history has it"

    asyncio.run(scenario())


def test_the_job_of_an_executor_that_is_gone_is_waited_for(tmp_path):
    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            pair.addresses["first"] = NOWHERE
            cancelling = asyncio.ensure_future(pair.call("CancelJob", job_id=job_id))
            await asyncio.wait((cancelling,), timeout=0.1)
            assert not cancelling.done(), "it may be taken over"
            pair.leases[0].frozen = True
            del pair.keys[pair.key(job_id)]
            assert (await cancelling).job.state in (State.STATE_CANCELLING, State.STATE_CANCELLED)
            assert (await pair.call("WaitJob", job_id=job_id)).job.attempt == 2

    asyncio.run(scenario())


def test_a_watch_tells_what_happens_elsewhere_and_goes_on_when_that_one_is_gone(tmp_path):
    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            watch, told = pair.call("WatchJob", job_id=job_id), []

            async def until(wanted: Any) -> None:
                async for message in watch:
                    told.append(message)
                    if wanted(message):
                        return

            await until(lambda message: message.events)
            pair.first.running.runs[pair.key(job_id)].status.note("wait", "something is away")
            await pair.first.running.runs[pair.key(job_id)].status.publish()
            await until(lambda message: any("is away" in event.message for event in message.events))
            pair.leases[0].frozen = True
            await pair.servers[0].server.stop(0)
            del pair.keys[pair.key(job_id)]
            await until(lambda message: message.job.attempt == 2 and message.job.state == State.STATE_RUNNING)
            await pair.call("CancelJob", job_id=job_id)
            await until(lambda message: message.job.state == State.STATE_CANCELLED)
            sequences = [message.sequence for message in told]
            assert sequences == sorted(sequences)
            events = [event.sequence for message in told for event in message.events]
            assert events == sorted(set(events))

    asyncio.run(scenario())


def test_a_watch_does_not_stay_with_an_executor_that_began_anew_and_has_the_job_no_more(tmp_path):
    """At its address answers one that knows the job from history alone, where no progress stands."""

    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            pair.leases[0].frozen = True
            restarted = Executor(tmp_path, leases=Leases(pair.keys, "anew", pair.open_jobs))
            await pair.serve("first", restarted)
            watch, told = pair.call("WatchJob", job_id=job_id), asyncio.Event()

            async def until_progress() -> int:
                async for message in watch:
                    told.set()
                    if message.job.progress.commit_duration.seconds:
                        return int(message.job.attempt)
                raise AssertionError("the watch ended")

            watched = asyncio.ensure_future(until_progress())
            await told.wait()
            await pair.taken_over_by_second(job_id)
            status = pair.second.running.runs[pair.key(job_id)].status
            status.metrics.rows_total, status.metrics.commit_seconds = 1, 5.0
            await status.publish()
            assert await watched == 2
            await restarted.stop()

    asyncio.run(scenario())


def test_a_watch_stays_with_a_silent_executor_while_nobody_can_tell_who_has_the_job(tmp_path, monkeypatch):
    """Redis is away, and rows take long."""
    monkeypatch.setattr(job_forwarding, "_SILENT_SECONDS", 0.02)

    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            watch, told = pair.call("WatchJob", job_id=job_id), asyncio.Event()

            async def until_progress() -> None:
                async for message in watch:
                    if message.events:
                        told.set()
                    if message.job.progress.commit_duration.seconds:
                        return
                raise AssertionError("the watch ended")

            watched = asyncio.ensure_future(until_progress())
            await told.wait()
            holders, status = pair.holders["second"], pair.first.running.runs[pair.key(job_id)].status
            holders.unknown = True
            while holders.not_told < 3:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
            status.metrics.commit_seconds = 5.0
            await status.publish()
            await watched

    asyncio.run(scenario())


def test_a_watch_does_not_stay_with_an_executor_that_is_frozen(tmp_path):
    """Its connection is open, and nothing comes by it."""

    async def scenario() -> None:
        async with both(tmp_path) as pair:
            job_id = await pair.begin()
            pair.leases[0].frozen = True
            frozen = grpc.aio.server()
            jobs_pb2_grpc.add_JobServiceServicer_to_server(Frozen(), frozen)
            pair.addresses["first"] = f"127.0.0.1:{frozen.add_insecure_port('127.0.0.1:0')}"
            await frozen.start()
            watch, told = pair.call("WatchJob", job_id=job_id), asyncio.Event()

            async def until_taken_over() -> int:
                async for message in watch:
                    told.set()
                    if message.job.attempt > 1:
                        return int(message.job.attempt)
                raise AssertionError("the watch ended")

            watched = asyncio.ensure_future(until_taken_over())
            await told.wait()
            await pair.taken_over_by_second(job_id)
            assert await watched == 2
            await frozen.stop(0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "bound", "address"),
    [
        (Settings(), "127.0.0.1:7002", "127.0.0.1:7002"),
        (Settings(), "0.0.0.0:7002", "here:7002"),
        (Settings(server=Server(mtls_port=7443)), "[::]:7002", "here:7443"),
        (
            Settings(executor=ExecutorSettings(address="executor-0.internal:7443")),
            "0.0.0.0:7002",
            "executor-0.internal:7443",
        ),
    ],
)
def test_where_an_executor_is_reached(settings, bound, address, monkeypatch):
    monkeypatch.setattr("leman_executor.app.os.uname", lambda: type("Name", (), {"nodename": "here"}))
    assert _reached_at(settings, bound) == address
