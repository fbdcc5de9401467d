"""A request and the job that it makes: one of both or none, no matter who hangs up, and never another request's job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from leman_core.model.job import JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import AlreadyExists, Unavailable
from leman_executor.api.job_service import JobServicer
from leman_executor.history.job_history import JobHistory
from tests.unit.executor.job_manager.test_takeover import Leases, until
from tests.unit.executor.manager_helpers import NO_OTHERS, NO_PREVIEWS, Executor


@pytest.fixture
def database(tmp_path: Path) -> str:
    (tmp_path / "_leman").mkdir()
    return str(tmp_path)


def backfill(database: str, request_id: str = "r1", **changes: object) -> jobs_pb2.CreateJobRequest:
    table = catalog_pb2.TableRef(database=database, table="t")
    spec = {"table": table, "column": "y", "where": "x > 1", **changes}
    return jobs_pb2.CreateJobRequest(backfill=planner_pb2.BackfillSpec(**spec), request_id=request_id)


def refresh(database: str, **changes: object) -> jobs_pb2.CreateJobRequest:
    spec = planner_pb2.RefreshSpec(view=catalog_pb2.TableRef(database=database, table="t"), **changes)
    return jobs_pb2.CreateJobRequest(refresh=spec, request_id="r1")


@pytest.mark.parametrize(
    "other",
    [
        lambda d: backfill(d, where="x > 2"),
        lambda d: backfill(d, where=""),
        lambda d: backfill(d, column="z"),
        lambda d: backfill(d, num_frags=1),
        lambda d: backfill(d, commit_granularity=7),
        refresh,
    ],
)
@pytest.mark.parametrize("when", ["made", "being made", "after a restart"])
def test_the_same_id_with_another_body_is_refused_and_with_the_same_body_gives_the_same_job(database, other, when):
    async def scenario() -> None:
        executor = Executor(Path(database))
        jobs = JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS)
        if when == "being made":
            executor.planner.may.clear()
        first = asyncio.ensure_future(jobs.CreateJob(backfill(database), None))
        await executor.planner.asked.wait()
        if when != "being made":
            await first
        if when == "after a restart":
            await executor.stop()
            executor = Executor(Path(database))
            jobs = JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS)
        with pytest.raises(AlreadyExists) as caught:
            await jobs.CreateJob(other(database), None)
        assert caught.value.reason == "REQUEST_ID_REUSED"
        again = asyncio.ensure_future(jobs.CreateJob(backfill(database), None))
        executor.planner.may.set()
        assert (await again).job.job_id == (await first).job.job_id
        assert len(await executor.jobs.list_jobs(database)) == 1
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_retry_and_a_backfill_do_not_share_a_request_id(database):
    async def scenario() -> None:
        executor = Executor(Path(database))
        jobs = JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS)
        made = (await jobs.CreateJob(backfill(database), None)).job
        with pytest.raises(AlreadyExists):
            await jobs.RetryJob(jobs_pb2.RetryJobRequest(database=database, job_id=made.job_id, request_id="r1"), None)
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("cut", ["news", "prepare", "save_all"])
@pytest.mark.parametrize("request_id", ["", "r1"])
def test_a_call_that_is_cut_off_leaves_no_job_or_one_that_runs(database, monkeypatch, cut, request_id):
    """Cut at each of the points where the making of a job waits for its history."""

    async def scenario() -> None:
        executor = Executor(Path(database))
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(executor.jobs.create(BackfillSpec(database, "t", "y"), request_id))
        original = getattr(JobHistory, cut)

        def cutting(*args: object) -> object:
            loop.call_soon_threadsafe(call.cancel)
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(JobHistory, cut, cutting)
            await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        if executor.planner.asked.is_set():
            await executor.works()
            (job,) = await executor.jobs.list_jobs(database)
            assert job.state is JobState.RUNNING
            cancelled = await executor.jobs.cancel(database, job.job_id)
            assert cancelled.state in {JobState.CANCELLING, JobState.CANCELLED}  # it may have ended meanwhile
        else:
            assert await executor.jobs.list_jobs(database) == []
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_job_that_history_did_not_take_is_not_there(database, monkeypatch):
    async def scenario() -> None:
        executor = Executor(Path(database))
        with monkeypatch.context() as patch:
            patch.setattr(JobHistory, "save_all", _refuse)
            with pytest.raises(Unavailable, match="no room"):
                await executor.jobs.create(BackfillSpec(database, "t", "y"), "r1")
        assert executor.spark.started == executor.spark.stopped, "workers that were started ahead end"
        assert await executor.jobs.list_jobs(database) == []
        assert not executor.jobs.busy()
        job = await executor.jobs.create(BackfillSpec(database, "t", "y"), "r1")
        assert job.state is JobState.RUNNING
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_one_request_id_in_two_databases_makes_two_jobs_that_run_side_by_side(tmp_path):
    databases = [str(tmp_path / name) for name in ("a", "b")]
    for path in databases:
        (Path(path) / "_leman").mkdir(parents=True)

    async def scenario() -> None:
        executor = Executor(Path(databases[0]))
        jobs = JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS)
        answers = [await jobs.CreateJob(backfill(path), None) for path in databases]
        made = [answer.job.job_id for answer in answers]
        assert len(set(made)) == 2
        for path, job_id in zip(databases, made, strict=True):
            assert [job.job_id for job in await executor.jobs.list_jobs(path)] == [job_id]
            job = await executor.jobs.get(path, job_id)
            assert (job.request.database, job.state) == (path, JobState.RUNNING)
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def _refuse(*_: object) -> None:
    raise Unavailable("STORE_UNAVAILABLE", "no room")


class Crossing:
    """Two executors of one database that are given one request at the same time: both are about to write the job
    down before either has."""

    def __init__(self, database: str) -> None:
        self.keys: dict[str, str] = {}
        self.both = [Executor(Path(database), leases=Leases(self.keys, name)) for name in ("first", "second")]
        self.servicers = [JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS) for executor in self.both]
        for executor in self.both:
            executor.planner.may.clear()

    async def make(self, *requests: jobs_pb2.CreateJobRequest) -> list[jobs_pb2.CreateJobResponse | BaseException]:
        pairs = zip(self.servicers, requests, strict=True)
        calls = [asyncio.ensure_future(servicer.CreateJob(request, None)) for servicer, request in pairs]
        for executor in self.both:
            await executor.planner.asked.wait()
        for executor in self.both:
            executor.planner.may.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    async def stop(self) -> None:
        for executor in self.both:
            await executor.stop()


@pytest.mark.parametrize("redis", ["there", "away"])
@pytest.mark.parametrize("work", ["some", "none"])
def test_two_executors_make_one_job_of_one_request(database, redis, work):
    async def scenario() -> None:
        crossing = Crossing(database)
        for executor in crossing.both:
            executor.leases.unknown = redis == "away"
            executor.planner.tasks = executor.planner.tasks if work == "some" else ()
        answers = await crossing.make(backfill(database), backfill(database))
        assert not [repr(answer) for answer in answers if isinstance(answer, BaseException)]
        (job_id,) = {answer.job.job_id for answer in answers}
        for executor in crossing.both:
            assert [job.job_id for job in await executor.jobs.list_jobs(database)] == [job_id]
        await until(lambda: _busy(crossing, 1 if work == "some" else 0))
        assert [job.attempt for job in JobHistory(database).load().values()] == [1]
        started = [executor.spark.started for executor in crossing.both]
        assert sorted(started) == ([[], [job_id]] if work == "some" else [[], []])
        again = await crossing.servicers[0].CreateJob(backfill(database), None)
        assert again.job.job_id == job_id
        await crossing.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("redis", ["there", "away"])
def test_of_two_requests_under_one_id_at_two_executors_one_is_refused(database, redis):
    async def scenario() -> None:
        crossing = Crossing(database)
        for executor in crossing.both:
            executor.leases.unknown = redis == "away"
        answers = await crossing.make(backfill(database), backfill(database, where="x > 2"))
        refused = [answer for answer in answers if isinstance(answer, AlreadyExists)]
        assert [error.reason for error in refused] == ["REQUEST_ID_REUSED"]
        (job,) = JobHistory(database).load().values()
        (made,) = [answer.job for answer in answers if answer not in refused]
        assert (made.job_id, made.backfill.where) == (job.job_id, job.backfill.where)
        await crossing.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_who_lost_a_request_to_another_executor_takes_the_job_over_when_that_one_dies(database):
    """What was cancelled here before it began is not cancelled."""

    async def scenario() -> None:
        crossing = Crossing(database)
        for executor in crossing.both:
            executor.leases.unknown = True
        await crossing.make(backfill(database), backfill(database))
        await until(lambda: _busy(crossing, 1))
        winner, loser = sorted(crossing.both, key=lambda executor: not executor.jobs.busy())
        for executor in crossing.both:
            executor.leases.unknown = False
        await winner.die()
        crossing.keys.clear()
        await loser.works()
        (job,) = await loser.jobs.list_jobs(database)
        assert (job.state, job.attempt) == (JobState.RUNNING, 2)
        await loser.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


async def _busy(crossing: Crossing, count: int) -> bool:
    return sum(executor.jobs.busy() for executor in crossing.both) == count
