"""Executors of an embedded system whose database lies in an object store: their jobs are in the history's tail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from leman_core.model.job import JobState
from leman_core.model.plan import BackfillSpec
from leman_core.storage.append_log import AppendLog
from leman_core.storage.stored_jobs import open_jobs_of
from leman_executor.history.job_history import _JOBS, JobHistory
from tests.unit.core.lance_io import small_store
from tests.unit.core.lance_io.small_store import known_store
from tests.unit.executor.manager_helpers import Executor

DATABASE = "s3://lake/db"
SPEC = BackfillSpec(DATABASE, "t", "y")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch):
    """A store that this process knows, which was tried."""
    monkeypatch.setattr(small_store, "_LATENCY_SECONDS", 0.0)
    monkeypatch.setattr("leman_executor.history.job_history.check_conditional_puts", lambda _: None)
    with known_store(atomic=True) as running:
        yield running


def in_table() -> list[tuple[object, object]]:
    rows = AppendLog(f"{DATABASE}/_leman/jobs.lance", _JOBS, ordered=True).read(["job_id", "state"])
    return [(row["job_id"], row["state"]) for row in rows]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def test_a_job_whose_executor_died_is_taken_over_and_the_dead_one_has_nothing_to_say(store):
    async def live() -> None:
        first = Executor(DATABASE, has_tail=True)
        job = await first.jobs.create(SPEC, "request")
        await first.works()
        assert not in_table()
        assert open_jobs_of(DATABASE) == [job.job_id]

        second = Executor(DATABASE, has_tail=True)
        await second.jobs.open_database(DATABASE)
        await second.works()
        found = await second.job(job.job_id)
        assert (found.state, found.attempt) == (JobState.RUNNING, 2)
        again = await second.jobs.create(SPEC, "request")
        assert again.job_id == job.job_id, "its request is known"

        late = await first.store.save(replace(job, state=JobState.DONE))
        assert (late.attempt, late.executor) == (2, found.executor)
        assert JobHistory(DATABASE).find(job.job_id).state is JobState.RUNNING
        await first.die()
        await second.die()

    run(live)


def test_what_has_ended_is_in_the_table_when_the_executor_stops_and_what_goes_on_is_not(store):
    going_on: list[str] = []

    async def live() -> None:
        executor = Executor(DATABASE, has_tail=True)
        at_work = await executor.jobs.create(SPEC, "")
        await executor.works()
        executor.planner.tasks = ()
        ended = await executor.jobs.create(SPEC, "")
        await executor.stop()
        assert {job_id for job_id, _ in in_table()} == {ended.job_id}
        going_on.append(at_work.job_id)

    run(live)
    assert open_jobs_of(DATABASE) == going_on


def test_a_job_is_made_without_a_look_for_what_others_made(store):
    async def live() -> None:
        executor = Executor(DATABASE, has_tail=True)
        executor.planner.tasks = ()
        await executor.jobs.create(SPEC, "first")
        before = store.requests
        job = await executor.jobs.create(SPEC, "second")
        assert job.state is JobState.DONE
        assert (await executor.job(job.job_id)).state is JobState.DONE
        assert store.requests == before
        await executor.stop()

    run(live)
