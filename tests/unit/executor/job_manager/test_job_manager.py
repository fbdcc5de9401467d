"""Jobs over the lives of several executors: what is handed back, what dies, what is given up."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leman_core.model.job import Job, JobError, JobState, Progress
from leman_core.model.plan import BackfillSpec, FragmentTask
from leman_core.model.service_errors import Aborted, FailedPrecondition, LemanError, Unavailable
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Settings
from leman_executor.history.job_history import JobHistory
from leman_executor.manager import job_store, job_supervisor
from leman_executor.manager.job_admission import RetryOptions
from leman_executor.manager.job_databases import JobDatabase
from tests.unit.executor.manager_helpers import Executor


def lives(database: Path, ends: list[str], until: Callable[[], bool] = lambda: True) -> Job:
    """The job after executors that ended so; the last one stops once `until` holds."""

    async def live() -> Job:
        executor = Executor(database)
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        for end in ends:
            await executor.works()
            await (executor.stop() if end == "stop" else executor.die())
            executor = Executor(database)
            await executor.jobs.open_database(str(database))
            async with asyncio.timeout(10):
                while not (  # noqa: ASYNC110 - the job says so to no one but who asks
                    executor.spark.at_work.is_set() or (await executor.job(job.job_id)).state.terminal
                ):
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while not until():  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
        found = await executor.job(job.job_id)
        await executor.stop()
        return found

    return asyncio.run(live())


def test_stops_in_good_order_are_no_deaths(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop"] * (most + 1))
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_columns_are_watched_that_a_job_fills_alone_or_with_others(database):
    """Compactions of their tables are followed."""

    async def live() -> None:
        executor = Executor(database)
        await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        await executor.jobs.create(BackfillSpec(str(database), "t", "", columns=("a", "b")), "")
        assert executor.jobs.columns() == {(str(database), "t", name) for name in ("y", "a", "b")}
        await executor.stop()

    asyncio.run(live())


def test_deaths_are_counted_between_stops(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * (most - 1), "stop"])
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_a_job_that_executors_die_over_is_given_up(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * most])
    assert (job.state, job.error.reason) == (JobState.FAILED, "EXECUTOR_LOST")
    assert f"died {most} times" in job.error.message


def test_a_retry_is_about_the_table_of_the_job_that_it_retries(database):
    """Also where the table is replaced when the retry was looked at already."""

    async def live() -> LemanError:
        history = JobHistory(str(database))
        history.prepare()
        of = BackfillSpec(str(database), "t", "y")
        history.save(Job("job-1", "r1", JobState.DONE, of, 1.0, 2.0, incarnation="that was dropped"))
        executor = Executor(database)
        with pytest.raises(Aborted) as caught:
            await executor.jobs.retry(str(database), RetryOptions(job_id="job-1"), "r2")
        assert executor.spark.started == []
        await executor.stop()
        return caught.value

    assert asyncio.run(live()).reason == "TABLE_REPLACED"


def test_a_job_ends_for_those_who_wait_also_where_its_end_cannot_be_written(database, monkeypatch):
    monkeypatch.setattr(job_store, "_SAVE_AGAIN_SECONDS", 0.01)

    async def live() -> tuple[Job, Job, Job]:
        executor = Executor(database)
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        await executor.works()
        save = JobHistory.save_all

        def refuse(self: JobHistory, jobs: list[Job]) -> list[Job]:
            raise FailedPrecondition("STORAGE_FULL", "no space left")

        monkeypatch.setattr(JobHistory, "save_all", refuse)
        run, task = executor.running.runs[job.key], executor.running.tasks[job.key]
        task.cancel()  # or the job might come to another end before this one
        await asyncio.wait([task])
        await run.end(
            JobState.FAILED, JobError(kind="FailedPrecondition", reason="STORAGE_FULL", message="no space left")
        )
        ended = await executor.job(job.job_id)
        stored = await asyncio.to_thread(JobHistory(str(database)).find, job.job_id)
        monkeypatch.setattr(JobHistory, "save_all", save)
        async with asyncio.timeout(10):
            while executor.store.unsaved:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
        kept = await asyncio.to_thread(JobHistory(str(database)).find, job.job_id)
        await executor.stop()
        return ended, stored, kept

    ended, stored, kept = asyncio.run(live())
    assert (ended.state, stored.state, kept.state) == (JobState.FAILED, JobState.RUNNING, JobState.FAILED)
    assert kept.error.reason == "STORAGE_FULL"


def test_a_failure_is_told_once_also_where_another_state_is_written_with_it(database):
    async def live() -> list[object]:
        executor = Executor(database)
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        await executor.works()
        task = executor.running.tasks[job.key]
        task.cancel()  # or the job might come to another end
        await asyncio.wait([task])
        error = JobError(kind="Internal", reason="INTERNAL_BUG", message="bug")
        with capture_logs() as lines:
            kept = await asyncio.gather(
                executor.store.save(replace(job, state=JobState.FAILED, error=error)),
                executor.store.save(replace(job, state=JobState.RUNNING, updated_at=job.updated_at + 1)),
            )
        assert [one.state for one in kept] == [JobState.FAILED] * 2
        await executor.stop()
        return [line["reason"] for line in lines if line["event"] == "a job failed"]

    assert asyncio.run(live()) == ["INTERNAL_BUG"]


def test_runs_of_jobs_with_nothing_to_do_are_forgotten_and_the_jobs_are_not(database, monkeypatch):
    monkeypatch.setattr(job_supervisor, "_RUNS_KEPT", 3)

    async def live() -> None:
        executor = Executor(database)
        at_work = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        await executor.works()
        executor.planner.tasks = ()
        ended = [await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "") for _ in range(12)]
        assert len(executor.running.runs) <= 1 + 2 * 3
        assert executor.running.run_of(at_work) is not None
        for job in ended:
            assert (await executor.job(job.job_id)).state is JobState.DONE
        await executor.stop()

    asyncio.run(live())


def test_a_job_with_nothing_to_do_waits_for_another_append_where_one_is_dear(database, monkeypatch):
    monkeypatch.setattr(JobDatabase, "writes_are_dear", True)

    async def live() -> tuple[list[str], Job, list[str]]:
        executor = Executor(database)
        executor.planner.tasks = ()
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "request")
        again = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "request")
        assert (again.job_id, again.state) == (job.job_id, JobState.DONE)
        history = JobHistory(str(database))
        before = list(history.load())
        found = await executor.job(job.job_id)
        await executor.stop()
        assert found.job_id == job.job_id
        return before, found, list(history.load())

    before, found, after = asyncio.run(live())
    assert (before, found.state, after) == ([], JobState.DONE, [found.job_id])


@pytest.mark.parametrize(("commits", "known"), [(0, []), (1, ["job-1"])])
def test_a_job_that_committed_is_written_down_although_nobody_did_so_before(database, monkeypatch, commits, known):
    """It was reported as done, so callers that ask after a kill get the same answer."""
    monkeypatch.setattr(JobDatabase, "writes_are_dear", True)

    async def live() -> list[str]:
        executor = Executor(database)
        await executor.jobs.list_jobs(str(database))  # which opens it
        spec = BackfillSpec(str(database), "t", "y")
        await executor.store.save(Job("job-1", "", JobState.DONE, spec, 1.0, 2.0, progress=Progress(commits=commits)))
        found = list(JobHistory(str(database)).load())
        await executor.stop()
        return found

    assert asyncio.run(live()) == known


def test_a_job_that_waits_for_its_turn_does_not_keep_its_plan(database):
    """It makes another one in its turn: a thousand jobs may wait, each with the tasks of all its fragments."""

    class Tasks(list[FragmentTask]):
        """A list that can be asked for whether it is still there."""

    async def live() -> None:
        executor = Executor(database, Settings(executor=ExecutorSettings(max_running_jobs=1)))
        await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        await executor.works()
        executor.planner.tasks = Tasks(executor.planner.tasks)
        planned = weakref.ref(executor.planner.tasks)
        waiting = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        assert waiting.state is JobState.PENDING
        executor.planner.tasks = ()
        gc.collect()
        assert planned() is None
        await executor.stop()

    asyncio.run(live())


def test_a_job_that_could_not_be_noted_is_nobodys_to_take_over_while_it_is_given_up(database, monkeypatch):
    """Its workers take a moment to end; who listed and looked meanwhile made a second attempt of it, without a turn."""
    real, refused = JobHistory.save_all, []

    def refuse_the_first(history: JobHistory, jobs: Sequence[Job]) -> list[Job]:
        if not refused:
            refused.append(jobs)
            raise Unavailable("STORE_UNAVAILABLE", "no room")
        return real(history, jobs)

    monkeypatch.setattr(JobHistory, "save_all", refuse_the_first)

    async def scenario() -> None:
        executor = Executor(database)
        giving_up, may = asyncio.Event(), asyncio.Event()

        async def stop_job(_: str) -> None:
            giving_up.set()
            await may.wait()

        executor.spark.stop_job = stop_job
        creating = asyncio.ensure_future(executor.jobs.create(BackfillSpec(str(database), "t", "y"), "r1"))
        await giving_up.wait()
        for seen in await executor.jobs.list_jobs(str(database)):
            with contextlib.suppress(LemanError):
                await executor.jobs.get(str(database), seen.job_id)
        may.set()
        with pytest.raises(Unavailable):
            await creating
        assert await executor.jobs.list_jobs(str(database)) == []
        assert not executor.jobs.busy()
        again = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "r1")
        assert (again.state, again.attempt) == (JobState.RUNNING, 1)
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))
