"""Environment variables of jobs: workers have them, history has their names, a takeover continues with them or
fails."""

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from leman._format.stored_functions import UdfKind
from leman.v1 import jobs_pb2
from leman_core.model.job import Job, JobState
from leman_core.model.keys import job_key
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, PermissionDenied, Unavailable
from leman_core.server.callers import CURRENT, make_caller
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Settings, Udf
from leman_executor.api.job_service import JobServicer
from leman_executor.history.job_history import JobHistory
from tests.unit.executor.job_manager.test_request_deduplication import backfill
from tests.unit.executor.job_manager.test_takeover import Leases, idle, until
from tests.unit.executor.manager_helpers import NO_OTHERS, NO_PREVIEWS, UDF, Executor

ENV = {"B": "2", "API_KEY": "a-canary-of-the-environment"}


@pytest.fixture
def database(tmp_path: Path) -> str:
    (tmp_path / "_leman").mkdir()
    return str(tmp_path)


class Values:
    """In place of Redis: what all executors share. While it is `away` no one can ask it."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, str]] = {}
        self.away = False
        self.asked = asyncio.Event()

    async def keep(self, job_id: str, env: Mapping[str, str]) -> bool:
        if env:
            self.kept[job_id] = dict(env)
        return not env

    async def renew(self, job_id: str, env: Mapping[str, str]) -> None:
        await self.keep(job_id, env)

    async def find(self, job_id: str) -> dict[str, str] | None:
        self.asked.set()
        if self.away:
            raise Unavailable("STORE_UNAVAILABLE", "it is away")
        return self.kept.get(job_id)

    async def forget(self, job_id: str) -> None:
        self.kept.pop(job_id, None)

    async def close(self) -> None:
        return


async def create(executor: Executor, env: Mapping[str, str] = ENV, request_id: str = "r") -> jobs_pb2.Job:
    servicer = JobServicer(executor.jobs, asyncio.Event(), NO_PREVIEWS, NO_OTHERS)
    request = backfill(executor.database, request_id)
    request.env.update(env)
    return (await servicer.CreateJob(request, None)).job


def test_workers_have_the_values_and_history_has_the_names(database):
    async def scenario() -> None:
        values = Values()
        executor = Executor(Path(database), env_values=values)
        job = await create(executor)
        await executor.works()
        assert list(job.env_names) == ["API_KEY", "B"]
        told = executor.spark.contexts[job.job_id]
        assert told.env == ENV
        assert "canary" not in repr(told)
        assert values.kept == {job_key(database, job.job_id): ENV}
        await executor.jobs.cancel(database, job.job_id)
        await until(lambda: idle(executor))
        run = executor.running.here(job_key(database, job.job_id))
        assert run is not None
        assert not run.status.env, "the values are forgotten with the job's end"
        assert (await executor.job(job.job_id)).env_names == ("API_KEY", "B")
        await executor.stop()

    asyncio.run(scenario())
    stored = b"".join(path.read_bytes() for path in Path(database).rglob("*") if path.is_file())
    assert b"API_KEY" in stored
    assert b"canary" not in stored


def test_a_request_id_with_other_variables_or_values_is_another_request(database):
    async def scenario() -> None:
        executor = Executor(Path(database), env_values=Values())
        job = await create(executor)
        assert (await create(executor)).job_id == job.job_id
        for other in ({**ENV, "B": "3"}, {"B": "2"}, {}):
            with pytest.raises(AlreadyExists) as caught:
                await create(executor, other)
            assert caught.value.reason == "REQUEST_ID_REUSED"
        await executor.jobs.cancel(database, job.job_id)
        await until(lambda: idle(executor))
        assert (await create(executor, {**ENV, "B": "3"})).job_id == job.job_id, "the values are forgotten"
        await executor.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [UdfKind.SQL, UdfKind.REMOTE])
def test_functions_without_an_environment_refuse_it(database, kind):
    async def scenario() -> None:
        executor = Executor(Path(database))
        executor.planner.udf = dataclasses.replace(UDF, kind=kind)
        executor.planner.tasks = ()  # also where nothing is to be done
        with pytest.raises(FailedPrecondition) as caught:
            await create(executor)
        assert caught.value.reason == "ENV_NOT_USABLE"
        assert (await create(executor, {})).state == jobs_pb2.Job.STATE_DONE
        await executor.stop()

    asyncio.run(scenario())


def test_names_that_operators_do_not_list_are_refused_before_anything_is_planned(database):
    async def scenario() -> None:
        executor = Executor(Path(database), Settings(udf=Udf(env_names=("*_KEY",))))
        with pytest.raises(PermissionDenied) as caught:
            await create(executor)
        assert caught.value.reason == "ENV_NOT_ALLOWED"
        assert not executor.planner.asked.is_set()
        await executor.stop()

    asyncio.run(scenario())


def test_who_may_not_send_code_may_give_what_operators_list_alone(database):
    async def scenario(listed: tuple[str, ...]) -> None:
        CURRENT.set(make_caller("nightly", "token", ["runner"]))
        executor = Executor(Path(database), Settings(udf=Udf(env_names=listed)))
        try:
            job = await create(executor)
            await executor.jobs.cancel(database, job.job_id)
        finally:
            await executor.stop()

    with pytest.raises(PermissionDenied) as caught:
        asyncio.run(scenario(()))
    assert caught.value.reason == "ROLE_REQUIRED"
    asyncio.run(scenario(("B", "API_*")))


class Pair:
    """Two executors of one database, the first of which dies over a job."""

    def __init__(self, database: str) -> None:
        self.values, self.keys = Values(), dict[str, str]()
        self.leases = [Leases(self.keys, name) for name in ("first", "second")]
        self.first, self.second = (
            Executor(Path(database), leases=leases, env_values=self.values) for leases in self.leases
        )
        self.database = database

    async def orphan(self) -> str:
        job = await create(self.first)
        await self.first.works()
        await self.first.die()
        self.keys.clear()
        return job.job_id

    async def ended(self, job_id: str) -> Job:
        async for news in self.second.jobs.watch(self.database, job_id, 0, 0.05):
            if news.job.state.terminal:
                return news.job
        raise AssertionError("the watch ended before the job")


def test_who_takes_a_job_over_has_its_values(database):
    async def scenario() -> None:
        pair = Pair(database)
        job_id = await pair.orphan()
        await pair.second.jobs.open_database(database)
        await pair.second.works()
        assert pair.second.spark.contexts[job_id].env == ENV
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_job_whose_values_are_lost_fails_and_says_what_to_do(database):
    async def scenario() -> None:
        pair = Pair(database)
        pair.first.planner.rows, pair.second.planner.rows = 300, 73
        job_id = await pair.orphan()
        pair.values.kept.clear()
        await pair.second.jobs.open_database(database)
        job = await pair.ended(job_id)
        assert job.state is JobState.FAILED
        assert job.error is not None
        assert job.error.reason == "ENV_LOST"
        assert "(227 rows)" in job.error.message, "what is stored is found by a plan"
        assert (job.progress.rows_checkpointed, job.progress.rows_computed) == (227, 227)
        assert "API_KEY, B" in job.error.message
        assert "again with env" in job.error.message
        assert not pair.second.spark.started, "nothing was computed without them"
        assert job_key(pair.database, job_id) not in pair.keys
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_the_first_job_with_variables_says_once_that_they_are_lost_with_the_services(database):
    async def notices(pair: Pair, request_id: str) -> list[str]:
        job = await create(pair.first, request_id=request_id)
        await pair.first.works()
        async for news in pair.first.jobs.watch(database, job.job_id, 0, 0.05):
            return [event.message for event in news.events if event.kind == "resources"]
        return []

    async def scenario() -> None:
        pair = Pair(database)
        (told,) = await notices(pair, "r")
        assert told == "API_KEY, B kept in memory only: if all services stop, run the job again with env"
        assert await notices(pair, "another") == []
        await pair.first.stop()
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_values_are_not_given_to_a_function_that_the_column_was_given_meanwhile(database):
    async def scenario() -> None:
        pair = Pair(database)
        job_id = await pair.orphan()
        pair.second.planner.udf = dataclasses.replace(UDF, version="2")
        await pair.second.jobs.open_database(database)
        job = await pair.ended(job_id)
        assert job.state is JobState.FAILED
        assert job.error is not None
        assert job.error.reason == "ENV_NOT_ALLOWED"
        assert "had f@1" in job.error.message
        assert "It now has f@2" in job.error.message
        assert "canary" not in job.error.message
        assert not pair.second.spark.started
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_without_values_a_job_goes_on_with_another_function(database):
    async def scenario() -> None:
        settings = Settings(executor=ExecutorSettings(max_running_jobs=1))
        executor = Executor(Path(database), settings)
        first = await create(executor, {}, "1")
        waiting = await create(executor, {}, "2")
        refused = await create(executor, ENV, "3")
        executor.planner.udf = dataclasses.replace(UDF, version="2")
        await executor.works()
        executor.spark.at_work.clear()
        await executor.jobs.cancel(database, first.job_id)
        await executor.works()
        assert executor.spark.started == [first.job_id, waiting.job_id]
        await executor.jobs.cancel(database, waiting.job_id)
        await until(lambda: idle(executor))
        assert (await executor.job(refused.job_id)).state is JobState.FAILED
        assert refused.job_id not in executor.spark.started
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


async def free(pair: Pair) -> bool:
    return not pair.keys


def test_while_nobody_knows_the_values_a_job_is_left_as_it_is_and_goes_on_once_somebody_does(database):
    async def scenario() -> None:
        pair = Pair(database)
        job_id = await pair.orphan()
        pair.values.away = True
        await pair.second.jobs.open_database(database)
        await pair.values.asked.wait()
        await until(lambda: free(pair))
        job = JobHistory(database).load()[job_id]  # no one asks the executor
        assert (job.state, job.attempt) == (JobState.RUNNING, 1)
        pair.values.away = False
        await pair.second.works()
        assert pair.second.spark.contexts[job_id].env == ENV
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_who_looks_for_values_ends_with_its_executor(database):
    async def scenario() -> None:
        pair = Pair(database)
        await pair.orphan()
        pair.values.away = True
        await pair.second.jobs.open_database(database)
        await pair.values.asked.wait()
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(
    ("left", "ended", "reason"),
    [
        ({"state": JobState.CANCELLING}, JobState.CANCELLED, None),
        ({"attempt": Settings().executor.job_attempts_max}, JobState.FAILED, "EXECUTOR_LOST"),
    ],
    ids=["cancelling", "deadly"],
)
def test_a_job_that_is_not_run_again_ends_without_values(database, left, ended, reason):
    async def scenario() -> None:
        pair = Pair(database)
        job_id = await pair.orphan()
        history = JobHistory(database)
        history.save(dataclasses.replace(history.load()[job_id], **left))
        pair.values.away = True
        await pair.second.jobs.open_database(database)
        job = await pair.ended(job_id)
        assert job.state is ended
        assert (job.error.reason if job.error else None) == reason
        assert not pair.values.asked.is_set()
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_who_wakes_up_after_its_job_has_ended_elsewhere_leaves_no_values(database):
    async def scenario() -> None:
        pair = Pair(database)
        job_id = (await create(pair.first)).job_id
        await pair.first.works()
        pair.leases[0].frozen = True
        pair.keys.clear()
        await pair.second.jobs.open_database(database)
        await pair.second.works()
        await pair.second.jobs.cancel(database, job_id)
        await until(lambda: idle(pair.second))
        pair.values.kept.clear()  # as Redis does when the lease of an ended job is given up
        pair.leases[0].wake()
        await until(lambda: idle(pair.first))
        assert not pair.values.kept
        assert not await pair.leases[0].open_jobs(), "and gives up what Redis has of it"
        await pair.first.stop()
        await pair.second.stop()

    asyncio.run(asyncio.wait_for(scenario(), 30))
