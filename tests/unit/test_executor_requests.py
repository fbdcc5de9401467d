"""A request and the job that it makes: one of both or none, whoever hangs up, and never another request's job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.domain.job import JobState
from core.domain.plan import BackfillSpec
from core.errors import AlreadyExists, Unavailable
from executor.jobs.history import History
from executor.service import JobServicer
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from tests.unit.manager_helpers import Executor


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
        jobs = JobServicer(executor.jobs, asyncio.Event())
        if when == "being made":
            executor.planner.may.clear()
        first = asyncio.ensure_future(jobs.CreateJob(backfill(database), None))
        await executor.planner.asked.wait()
        if when != "being made":
            await first
        if when == "after a restart":
            await executor.stop()
            executor = Executor(Path(database))
            jobs = JobServicer(executor.jobs, asyncio.Event())
        with pytest.raises(AlreadyExists) as caught:
            await jobs.CreateJob(other(database), None)
        assert caught.value.reason == "REQUEST_ID_REUSED"
        again = asyncio.ensure_future(jobs.CreateJob(backfill(database), None))
        executor.planner.may.set()
        assert (await again).job.job_id == (await first).job.job_id
        assert len(await executor.jobs.list_jobs(database, "")) == 1
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_retry_and_a_backfill_do_not_share_a_request_id(database):
    async def scenario() -> None:
        executor = Executor(Path(database))
        jobs = JobServicer(executor.jobs, asyncio.Event())
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
        original = getattr(History, cut)

        def cutting(*args: object) -> object:
            loop.call_soon_threadsafe(call.cancel)
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(History, cut, cutting)
            await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        if executor.planner.asked.is_set():
            await executor.works()
            (job,) = await executor.jobs.list_jobs(database, "")
            assert job.state is JobState.RUNNING
            assert (await executor.jobs.cancel(database, job.job_id)).state is JobState.CANCELLING
        else:
            assert await executor.jobs.list_jobs(database, "") == []
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_job_that_history_did_not_take_is_not_there(database, monkeypatch):
    async def scenario() -> None:
        executor = Executor(Path(database))
        with monkeypatch.context() as patch:
            patch.setattr(History, "save_all", _refuse)
            with pytest.raises(Unavailable, match="no room"):
                await executor.jobs.create(BackfillSpec(database, "t", "y"), "r1")
        assert await executor.jobs.list_jobs(database, "") == []
        assert not executor.jobs.busy()
        job = await executor.jobs.create(BackfillSpec(database, "t", "y"), "r1")
        assert job.state is JobState.RUNNING
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def _refuse(*_: object) -> None:
    raise OSError("no room")
