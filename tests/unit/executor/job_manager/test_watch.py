"""WatchJob, where the caller goes away in the middle of it: nothing goes on, and the log stays clean."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import grpc
import pytest
from structlog.testing import capture_logs

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.server.server import RunningServer, start_server
from leman_core.settings import Settings
from leman_executor.api.job_service import JobServicer
from leman_executor.jobs.job_status import JobStatus, JobUpdate, WatcherPace, last_sequence
from tests.unit.core.rpc_helpers import DEADLINE, JOB_SERVICE, client
from tests.unit.executor.manager_helpers import NO_OTHERS, NO_PREVIEWS

JOB = Job("job-1", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0, 0)


@pytest.fixture(autouse=True)
def only_new_objects() -> Iterator[None]:
    """Collections look at what a test has made, and not for half a second each at all that pytest holds."""
    gc.freeze()
    yield
    gc.unfreeze()


class Manager:
    """Has one job that runs until it is stopped."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.watched = 0
        self.news = JobUpdate(1, JOB)

    def has(self, _database, _job_id):
        return True

    async def watch(self, *_):
        self.watched += 1
        try:
            yield self.news
            await self.end.wait()
        finally:
            self.watched -= 1


class Service:
    """JobService alone."""

    def __init__(self, manager: Manager, draining: asyncio.Event) -> None:
        self._servicer = JobServicer(manager, draining, NO_PREVIEWS, NO_OTHERS)

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        jobs_pb2_grpc.add_JobServiceServicer_to_server(self._servicer, server)
        return [JOB_SERVICE]

    async def stop(self) -> None:
        return


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[RunningServer, Manager, list[str]]]:
    """A server, its jobs, and what asyncio would log."""
    logged: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(str(context)))
    manager, draining = Manager(), asyncio.Event()
    async with asyncio.timeout(DEADLINE):
        up = await start_server(Settings(), "executor", Service(manager, draining), draining)
        try:
            yield up, manager, logged
        finally:
            await up.stop()


async def collect() -> None:
    """What no one refers to any more says so now."""
    for _ in range(10):
        await asyncio.sleep(0)
        gc.collect()


def test_a_caller_that_goes_away_leaves_nothing_behind():
    async def run() -> None:
        async with serving() as (up, manager, logged):
            async with client(up) as jobs:
                call = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="job-1"))
                assert (await call.read()).sequence == 1
                call.cancel()
            await up.activity.quiet()
            left = manager.watched
            manager.end.set()
            await collect()
            assert (left, logged) == (0, [])

    asyncio.run(run())


def test_a_watch_ends_with_the_last_message_before_its_caller_hangs_up():
    async def run() -> None:
        async with serving() as (up, manager, _), client(up) as jobs:
            ended = replace(JOB, state=JobState.DONE)
            manager.news = JobUpdate(last_sequence(ended.attempt), ended)
            with capture_logs() as lines:
                call = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="job-1"))
                await call.read()
                await up.activity.quiet()  # the call is over, although nothing ended the manager's own watch
                call.cancel()
            assert manager.watched == 0
            assert [line["code"] for line in lines if line["event"] == "rpc"] in ([], ["OK"])

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["job", "executor"])
def test_a_caller_that_stays_sees_the_end(ends):
    async def run() -> None:
        async with serving() as (up, manager, logged), client(up) as jobs:
            call = jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id="job-1"))
            assert (await call.read()).sequence == 1
            if ends == "job":
                manager.end.set()
                assert await call.read() is grpc.aio.EOF
            else:
                up.draining.set()
                with pytest.raises(grpc.aio.AioRpcError, match="shutting down: watch again"):
                    await call.read()
            await up.activity.quiet()
            await collect()
            assert (manager.watched, logged) == (0, [])

    asyncio.run(run())


def test_all_watchers_are_given_one_object_until_there_is_news():
    async def run() -> None:
        status = JobStatus(JOB)
        watchers = [status.watch(0, 10) for _ in range(3)]

        async def told() -> set[int]:
            return {id(job) for _, job, *_ in await asyncio.gather(*(anext(watcher) for watcher in watchers))}

        before = await told()
        waiting = asyncio.ensure_future(told())
        await asyncio.sleep(0)
        await status.move(JobState.CANCELLING)
        after = await waiting
        assert len(before) == len(after) == 1
        assert (await anext(status.watch(0, 10)))[1].state is JobState.CANCELLING
        for watcher in watchers:
            await watcher.aclose()

    asyncio.run(run())


class FixedPace(WatcherPace):
    """Of so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._fixed = seconds

    @property
    def seconds(self) -> float:
        return self._fixed


@pytest.mark.parametrize(("pace", "told_of_progress"), [(0.0, True), (3600.0, False)])
def test_many_watchers_are_told_of_events_at_once_and_of_progress_when_there_is_time(pace, told_of_progress):
    async def run() -> None:
        status = JobStatus(JOB)
        status.pace = FixedPace(pace)
        watcher = status.watch(0, 3600)
        await anext(watcher)
        upcoming = asyncio.ensure_future(anext(watcher))
        await asyncio.wait((upcoming,), timeout=0.01)
        await status.publish()
        if told_of_progress:
            _, _, events, _ = await upcoming
            assert events == []
            upcoming = asyncio.ensure_future(anext(watcher))
            await asyncio.sleep(0)
        else:
            for _ in range(20):
                await asyncio.sleep(0)
            assert not upcoming.done()
        await status.move(JobState.CANCELLING)
        _, job, events, _ = await upcoming
        assert (job.state, [event.kind for event in events]) == (JobState.CANCELLING, ["state"])
        await watcher.aclose()

    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE):
            await run()

    asyncio.run(in_time())


def test_the_pace_follows_the_number_of_watchers_of_all_jobs():
    async def run() -> None:
        pace, paces = WatcherPace(), []
        statuses = [JobStatus(JOB), JobStatus(JOB)]
        watchers = []
        for status in statuses:
            status.pace = pace
            watchers += [status.watch(0, 10) for _ in range(250)]
        for watcher in watchers:
            await anext(watcher)
            paces.append(pace.seconds)
        assert (paces[0], paces[-1]) == (0.002, 1.0)
        for watcher in watchers:
            await watcher.aclose()
        assert pace.seconds == 0

    asyncio.run(run())
