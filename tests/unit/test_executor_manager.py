"""Jobs over the lives of several executors: what is handed back, what dies, what is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.config import Settings
from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from tests.unit.manager_helpers import Executor


def lives(database: Path, ends: list[str]) -> Job:
    """The job after executors that ended so."""

    async def live() -> Job:
        executor = Executor(database)
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        for end in ends:
            await executor.works()
            await (executor.stop() if end == "stop" else executor.die())
            executor = Executor(database)
            await executor.jobs.open_database(str(database))
            async with asyncio.timeout(10):
                while not (  # noqa: ASYNC110 - the job says so to nobody but who asks
                    executor.spark.at_work.is_set() or (await executor.job(job.job_id)).state.terminal
                ):
                    await asyncio.sleep(0.01)
        found = await executor.job(job.job_id)
        await executor.stop()
        return found

    return asyncio.run(live())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    (tmp_path / "_leman").mkdir()
    return tmp_path


def test_stops_in_good_order_are_no_deaths(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop"] * (most + 1))
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_deaths_are_counted_between_stops(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * (most - 1), "stop"])
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_a_job_that_executors_die_over_is_given_up(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * most])
    assert (job.state, job.error.reason) == (JobState.FAILED, "EXECUTOR_LOST")
    assert f"died {most} times" in job.error.message
