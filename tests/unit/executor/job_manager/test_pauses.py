"""Jobs that are paused: what they give back, that they stay so over the lives of executors, and how they go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.keys import job_key
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Settings
from leman_executor.history.job_history import JobHistory
from leman_executor.history.job_index import JobFilter
from tests.unit.executor.job_manager.test_takeover import Pair, with_two
from tests.unit.executor.manager_helpers import Executor, with_executor

ONE = Settings(executor=ExecutorSettings(max_running_jobs=1))


async def create(executor: Executor, table: str = "t") -> str:
    return (await executor.jobs.create(BackfillSpec(executor.database, table, "y"), "")).job_id


async def until(executor: Executor, job_id: str, state: JobState) -> Job:
    async for _, job, *_ in executor.jobs.watch(executor.database, job_id, 0, 10.0):
        if job.state is state:
            return job
    raise AssertionError("it ended otherwise")


async def pause(executor: Executor, job_id: str) -> Job:
    """The job, once it has stopped."""
    await executor.jobs.pause(executor.database, job_id)
    return await until(executor, job_id, JobState.PAUSED)


async def refused(call: Coroutine[Any, Any, Job]) -> str:
    with pytest.raises(LemanError) as caught:
        await call
    return caught.value.reason


def test_a_paused_job_gives_its_turn_to_another_and_waits_for_it_again_with_its_age(tmp_path):
    async def work(executor: Executor) -> None:
        first, second, third = [await create(executor) for _ in range(3)]
        await executor.works()
        seen: list[JobState] = []

        async def watch() -> None:
            async for _, job, events, _ in executor.jobs.watch(executor.database, first, 0, 10.0):
                seen.extend(JobState(event.message) for event in events if event.kind == "state")
                if job.state.terminal:
                    return

        watching = asyncio.ensure_future(watch())
        asked = await executor.jobs.pause(executor.database, first)
        assert asked.state in (JobState.PAUSING, JobState.PAUSED)
        paused = await until(executor, first, JobState.PAUSED)
        assert (paused.attempt, paused.queue_position, paused.ended_at) == (1, 0, 0.0)
        await until(executor, second, JobState.RUNNING)
        stored = await asyncio.to_thread(JobHistory(executor.database).find, first)
        assert stored.state is JobState.PAUSED
        states = frozenset({JobState.PAUSED})
        assert await executor.jobs.count_jobs(executor.database, JobFilter(states=states)) == 1

        resumed = await executor.jobs.resume(executor.database, first)
        assert resumed.state is JobState.PENDING
        assert (await executor.job(third)).queue_position == 2
        assert (await executor.job(first)).queue_position == 1, "it is the oldest one"
        await executor.jobs.cancel(executor.database, second)
        await until(executor, first, JobState.RUNNING)
        await executor.jobs.cancel(executor.database, first)
        await watching
        states_of_a_pause = [JobState.PAUSING, JobState.PAUSED, JobState.PENDING, JobState.PLANNING, JobState.RUNNING]
        at = seen.index(JobState.PAUSING)
        assert seen[at:] == [*states_of_a_pause, JobState.CANCELLING, JobState.CANCELLED]
        assert executor.commits.begun == [], "no one else had the job: its table is told nothing"

    with_executor(tmp_path, work, ONE)


def test_a_job_that_waits_is_paused_at_once_and_keeps_nobody_waiting(tmp_path):
    async def work(executor: Executor) -> None:
        first, second, third = [await create(executor) for _ in range(3)]
        assert (await executor.jobs.pause(executor.database, second)).state is JobState.PAUSED
        assert (await executor.job(third)).queue_position == 1
        await executor.jobs.cancel(executor.database, first)
        await until(executor, third, JobState.RUNNING)
        assert second not in executor.spark.started
        await executor.jobs.resume(executor.database, second)
        await executor.jobs.cancel(executor.database, third)
        assert not (await until(executor, second, JobState.RUNNING)).queue_position

    with_executor(tmp_path, work, ONE)


def test_pause_and_resume_may_be_sent_again_and_refuse_what_has_ended(tmp_path):
    async def work(executor: Executor) -> None:
        job_id, database = await create(executor), executor.database
        await executor.works()
        assert (await executor.jobs.resume(database, job_id)).state is JobState.RUNNING, "it is not paused"
        await pause(executor, job_id)
        assert (await executor.jobs.pause(database, job_id)).state is JobState.PAUSED
        assert (await executor.jobs.update(database, job_id, priority=7)).priority == 7
        await executor.jobs.resume(database, job_id)
        await until(executor, job_id, JobState.RUNNING)
        await pause(executor, job_id)
        await executor.jobs.cancel(database, job_id)
        cancelled = await until(executor, job_id, JobState.CANCELLED)
        assert cancelled.ended_at
        for call, done in ((executor.jobs.pause, "paused"), (executor.jobs.resume, "resumed")):
            with pytest.raises(FailedPrecondition, match=f"has ended and cannot be {done}$") as ended:
                await call(database, job_id)
            assert ended.value.reason == "JOB_ENDED"
            assert await refused(call(database, "job-0")) == "JOB_NOT_FOUND"
        other = await create(executor)
        await executor.works()
        executor.running.runs[job_key(database, other)].status.update(state=JobState.CANCELLING)
        assert await refused(executor.jobs.pause(database, other)) == "JOB_CANCELLING"

    with_executor(tmp_path, work, ONE)


@pytest.mark.parametrize("calls", ["resume", "resume pause", "resume pause resume", "cancel"])
def test_whoever_changes_their_mind_while_the_job_stops_has_their_way(tmp_path, calls):
    ends = {"resume": JobState.RUNNING, "pause": JobState.PAUSED, "cancel": JobState.CANCELLED}

    async def work(executor: Executor) -> None:
        busy, job_id = await create(executor), await create(executor)
        executor.planner.may.clear()
        executor.planner.asked.clear()
        await executor.jobs.cancel(executor.database, busy)
        await executor.planner.asked.wait()  # its turn has come, and it is being planned
        assert (await executor.jobs.pause(executor.database, job_id)).state is JobState.PAUSING
        for call in calls.split():
            await getattr(executor.jobs, call)(executor.database, job_id)
        executor.planner.may.set()
        executor.spark.at_work.clear()
        await until(executor, job_id, ends[calls.split()[-1]])
        if calls.endswith("resume"):
            await executor.works()
        assert (job_id in executor.spark.started) is calls.endswith("resume")

    with_executor(tmp_path, work, ONE)


@pytest.mark.parametrize("end", ["die", "stop"])
def test_a_paused_job_stays_paused_over_any_number_of_executors(tmp_path, end):
    async def work(executor: Executor) -> None:
        running, waiting = await create(executor), await create(executor)
        await executor.works()
        await executor.jobs.pause(executor.database, waiting)
        await pause(executor, running)
        lives = ONE.executor.job_attempts_max + 2
        for life in range(2, lives + 1):
            await (executor.stop() if end == "stop" else executor.die())
            executor = Executor(tmp_path, ONE)
            await executor.jobs.open_database(executor.database)
            for job_id in (running, waiting):
                while (await executor.job(job_id)).attempt < life:  # noqa: ASYNC110 - it tells no one
                    await asyncio.sleep(0.01)
                assert (await executor.job(job_id)).state is JobState.PAUSED
        assert executor.spark.started == []
        assert not executor.jobs.busy(), "an embedded system may end"
        await executor.jobs.resume(executor.database, running)
        await until(executor, running, JobState.RUNNING)
        assert [attempt for _, attempt in executor.commits.begun] == [(running, lives)], "earlier ones are refused"
        await executor.jobs.cancel(executor.database, waiting)
        assert (await until(executor, waiting, JobState.CANCELLED)).attempt == lives
        assert executor.jobs.busy()
        await executor.stop()

    with_executor(tmp_path, work, ONE)


def test_a_job_whose_executor_dies_while_it_stops_is_paused(tmp_path):
    async def work(executor: Executor) -> None:
        busy, job_id = await create(executor), await create(executor)
        executor.planner.may.clear()
        executor.planner.asked.clear()
        await executor.jobs.cancel(executor.database, busy)
        await executor.planner.asked.wait()
        await executor.jobs.pause(executor.database, job_id)
        await executor.die()
        after = Executor(tmp_path, ONE)
        paused = await until(after, job_id, JobState.PAUSED)
        assert (paused.attempt, paused.handed_back) == (2, 0)
        await after.stop()

    with_executor(tmp_path, work, ONE)


def test_a_pause_holds_although_it_cannot_be_written(tmp_path, monkeypatch):
    async def work(executor: Executor) -> None:
        job_id = await create(executor)
        await executor.works()
        save = JobHistory.save_all

        def refuse(self: JobHistory, jobs: list[Job]) -> list[Job]:
            raise FailedPrecondition("STORAGE_FULL", "no space left")

        monkeypatch.setattr(JobHistory, "save_all", refuse)
        await pause(executor, job_id)
        monkeypatch.setattr(JobHistory, "save_all", save)
        await executor.jobs.resume(executor.database, job_id)
        await until(executor, job_id, JobState.RUNNING)

    with_executor(tmp_path, work, ONE)


def test_a_paused_job_is_its_executors_until_that_one_is_silent(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        await pause(pair.first, job_id)
        assert (await pair.second.job(job_id)).state is JobState.PAUSED
        for call in (pair.second.jobs.pause, pair.second.jobs.resume, pair.second.jobs.cancel):
            with pytest.raises(Unavailable, match="another executor"):
                await call(pair.database, job_id)
        pair.leases[0].frozen = True
        del pair.keys[pair.key(job_id)]
        while (await pair.second.job(job_id)).attempt == 1:  # noqa: ASYNC110 - it tells no one
            await asyncio.sleep(0.01)
        assert (await pair.second.jobs.resume(pair.database, job_id)).state in (JobState.PENDING, JobState.PLANNING)
        await pair.second.works()
        pair.leases[0].wake()
        while pair.first.running.tasks:  # noqa: ASYNC110 - it tells no one that it has noticed
            await asyncio.sleep(0.01)
        assert (await pair.first.job(job_id)).attempt == 2
        assert pair.first.spark.started == [job_id], "it has not gone on"

    with_two(database, scenario)
