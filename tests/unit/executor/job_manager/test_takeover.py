"""An executor that lost its job to another one: it stops, says nothing more, and tells what the other one does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from leman_core.model.job import Attempt, Job, JobState
from leman_core.model.keys import job_key
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import ATTEMPT_FENCED, FailedPrecondition
from leman_core.model.view import RefreshSpec
from leman_core.settings import Settings
from leman_executor.coordination.leases import JobLeases, LeaseOutcome
from leman_executor.history.job_history import JobHistory
from leman_executor.manager import job_store
from tests.unit.executor.manager_helpers import Executor

LEASE_SECONDS = 0.15


class Leases:
    """Those of one executor; `keys` are shared with the others. While it is `frozen` it renews nothing."""

    lease_seconds = LEASE_SECONDS
    is_alone = False

    def __init__(self, keys: dict[str, str], owner: str, open_jobs: dict[str, str] | None = None) -> None:
        self._keys = keys
        self._open_jobs = open_jobs if open_jobs is not None else {}
        self._owner = owner
        self.frozen = False
        self.unknown = False
        self._thaw = asyncio.Event()
        self.asked = 0

    def patience(self, attempt: int, *, lost: bool) -> float:
        return 3600.0 if lost else attempt * 4 * LEASE_SECONDS

    async def acquire(self, key: str, database: str = "") -> LeaseOutcome:
        self.asked += 1
        if self.unknown:
            return LeaseOutcome.UNKNOWN
        if database:
            self._open_jobs[key] = database
        return LeaseOutcome.OURS if self._keys.setdefault(key, self._owner) == self._owner else LeaseOutcome.HELD

    async def renew(self, key: str) -> bool:
        if self.frozen:
            await self._thaw.wait()
        if self._keys.get(key) == self._owner and not self.unknown:
            return True
        await self.acquire(key)
        return False

    async def release(self, key: str, *, ended: bool = False) -> None:
        if self._keys.get(key) == self._owner:
            del self._keys[key]
        if ended:
            self._open_jobs.pop(key, None)

    kept, _renew_until = JobLeases.kept, JobLeases._renew_until

    async def open_jobs(self) -> dict[str, str] | None:
        return None if self.unknown else dict(self._open_jobs)

    async def without_holder(self, jobs: Collection[str]) -> set[str] | None:
        return None if self.unknown else set(jobs) - self._keys.keys()

    async def close(self) -> None:
        return

    def wake(self) -> None:
        self.frozen = False
        self._thaw.set()


class Pair:
    """Two executors of one database; the first one runs a job."""

    def __init__(self, database: Path) -> None:
        self.keys: dict[str, str] = {}
        self.open_jobs: dict[str, str] = {}
        self.leases = [Leases(self.keys, name, self.open_jobs) for name in ("first", "second")]
        self.first, self.second = (Executor(database, leases=leases) for leases in self.leases)
        self.database = str(database)

    async def begin(self) -> str:
        spec = BackfillSpec(self.database, "t", "y")
        job = await self.first.jobs.create(spec, "")
        await self.first.works()
        return job.job_id

    def key(self, job_id: str) -> str:
        return job_key(self.database, job_id)

    async def taken_over(self) -> str:
        """The first one freezes past its lease, and the second one goes on."""
        job_id = await self.begin()
        self.leases[0].frozen = True
        del self.keys[self.key(job_id)]
        await self.second.jobs.open_database(self.database)
        await self.second.works()
        return job_id

    async def stop(self) -> None:
        await self.first.stop()
        await self.second.stop()


def with_two(database: Path, scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair(database)
        try:
            async with asyncio.timeout(20):
                await scenario(pair)
        finally:
            await pair.stop()

    asyncio.run(run())


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    while not await what():  # noqa: ASYNC110 - an executor tells no one that it has noticed
        await asyncio.sleep(0.01)


async def nothing_waits(executor: Executor) -> bool:
    return not executor.jobs._takeovers.waiting


async def forgotten(pair: Pair) -> bool:
    return not pair.open_jobs


async def states(executor: Executor, job_id: str) -> AsyncIterator[Job]:
    async for _, job, *_ in executor.jobs.watch(executor.database, job_id, 0, 0.05):
        yield job


def test_who_wakes_up_without_its_lease_stops_and_leaves_the_job(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.taken_over()
        watched = asyncio.create_task(last(pair.first, job_id))
        pair.leases[0].wake()
        await until(lambda: idle(pair.first))
        assert pair.first.spark.cancelled == [job_id]
        seen = await pair.first.job(job_id)
        assert (seen.state, seen.attempt) == (JobState.RUNNING, 2)
        assert pair.keys == {pair.key(job_id): "second"}
        await pair.second.jobs.cancel(pair.database, job_id)
        assert (await watched).state is JobState.CANCELLED, "who watches it here sees its end there"
        assert pair.second.commits.begun == [(f"{database}/t.lance", Attempt(job_id, 2))]

    async def last(executor: Executor, job_id: str) -> Job:
        return [job async for job in states(executor, job_id)][-1]

    with_two(database, scenario)


def test_whether_it_is_busy_can_be_asked_at_any_moment_of_a_job_that_it_loses(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.taken_over()
        pair.leases[0].wake()
        while pair.first.jobs.busy():  # noqa: ASYNC110 - at each turn of the loop: its run and its task go together
            await asyncio.sleep(0)
        assert (await pair.first.job(job_id)).attempt == 2

    with_two(database, scenario)


def test_a_job_that_ended_elsewhere_stays_ended_though_its_lease_is_free(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.taken_over()
        await pair.second.jobs.cancel(pair.database, job_id)
        await until(lambda: idle(pair.second))
        assert pair.key(job_id) not in pair.keys
        pair.leases[0].wake()
        await until(lambda: idle(pair.first))
        assert (await pair.first.job(job_id)).state is JobState.CANCELLED
        assert pair.keys == {}
        gone = "a job that no history has"
        pair.open_jobs.update(
            {pair.key(name): pair.database for name in (job_id, gone)}
        )  # as notes may outlive their jobs
        await pair.first.jobs._takeovers.take_over_abandoned(pair.database, map(pair.key, (job_id, gone)))
        await until(lambda: forgotten(pair))
        assert pair.keys == {}

    with_two(database, scenario)
    (job,) = JobHistory(str(database)).load().values()
    assert (job.state, job.attempt) == (JobState.CANCELLED, 2)


def test_an_open_job_of_a_copied_database_is_another_job_than_the_one_with_its_id_that_it_was_copied_from(tmp_path):
    database, copied = str(tmp_path / "lake"), str(tmp_path / "copy")
    (tmp_path / "lake" / "_leman").mkdir(parents=True)
    keys: dict[str, str] = {}
    held: dict[str, str] = {}

    async def scenario() -> None:
        async def last(path: str, job_id: str) -> Job:
            return [news.job async for news in executor.jobs.watch(path, job_id, 0, 0.05)][-1]

        dead = Executor(database, leases=Leases(keys, "dead", held))
        job_id = (await dead.jobs.create(BackfillSpec(database, "t", "y"), "")).job_id
        await dead.works()
        await dead.die()
        keys.clear()
        shutil.copytree(database, copied)
        executor = Executor(database, leases=Leases(keys, "me", held))
        for path in (database, copied):
            await executor.jobs.open_database(path)
            while job_id not in executor.spark.started[path == copied :]:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
        assert executor.spark.started == [job_id, job_id], "each has workers of its own"
        assert held == {job_key(path, job_id): path for path in (database, copied)}
        watched = asyncio.create_task(last(copied, job_id))
        await executor.jobs.cancel(copied, job_id)
        assert (await watched).state is JobState.CANCELLED
        left = await executor.jobs.get(database, job_id)
        assert (left.request.database, left.state, left.attempt) == (database, JobState.RUNNING, 2)
        assert executor.jobs.has(database, job_id)
        await executor.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_who_is_refused_by_the_coordinator_leaves_the_job(database):
    """Before its heart beats again."""

    async def scenario(pair: Pair) -> None:
        job_id = await pair.taken_over()
        run = pair.first.running.runs[pair.key(job_id)]
        workers = pair.first.spark._running[pair.key(job_id)]
        workers.set_exception(FailedPrecondition(ATTEMPT_FENCED, "attempt 2 has begun"))
        await until(lambda: idle(pair.first))
        assert run.status.lost
        assert (await pair.first.job(job_id)).attempt == 2

    with_two(database, scenario)
    assert JobHistory(str(database)).load().popitem()[1].state is JobState.RUNNING


def test_a_lease_that_somebody_else_holds_takes_no_job_away_that_history_says_is_ours(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        pair.keys[pair.key(job_id)] = "a key of the same name"
        asked = pair.leases[0].asked
        await until(lambda: beaten(pair.leases[0], asked + 3))
        assert pair.first.jobs.busy()
        assert not pair.first.spark.cancelled

    with_two(database, scenario)


def test_of_two_that_take_a_job_over_the_one_has_it_that_history_names(database, monkeypatch):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        pair.leases[0].frozen = True
        del pair.keys[pair.key(job_id)]
        real = pair.second.store.save

        async def save(job: Job) -> Job:
            return await real(replace(job, executor="third"))

        monkeypatch.setattr(pair.second.store, "save", save)
        await pair.second.jobs.open_database(pair.database)
        await until(lambda: nothing_waits(pair.second))
        assert pair.keys == {}
        assert not pair.second.running.runs
        assert (await pair.second.job(job_id)).executor == "third"
        pair.leases[0].wake()

    with_two(database, scenario)


@pytest.mark.parametrize(
    ("state", "attempt", "handed_back", "deadly"),
    [
        (JobState.RUNNING, 3, 0, True),
        (JobState.RUNNING, 2, 0, False),
        (JobState.RUNNING, 4, 2, False),
        (JobState.PENDING, 9, 0, False),
        (JobState.PAUSED, 9, 0, False),
        (JobState.PAUSING, 9, 0, False),
    ],
)
def test_a_job_is_given_up_when_executors_died_over_it_and_not_while_it_rests(
    database, state, attempt, handed_back, deadly
):
    async def scenario(pair: Pair) -> None:
        job = Job("j", "", state, BackfillSpec(pair.database, "t", "y"), 0.0, 0.0)
        job = replace(job, attempt=attempt, handed_back=handed_back)
        assert pair.first.jobs._takeovers._is_deadly(job) == deadly

    assert Settings().executor.job_attempts_max == 3
    with_two(database, scenario)


@pytest.mark.parametrize(
    ("state", "here", "handed_back"),
    [
        (JobState.RUNNING, True, [1]),
        (JobState.PENDING, True, []),
        (JobState.PAUSED, True, []),
        (JobState.DONE, True, []),
        (JobState.RUNNING, False, []),
    ],
)
def test_an_executor_that_stops_hands_back_what_it_works_on_and_nothing_else(
    database, monkeypatch, state, here, handed_back
):
    saved: list[int] = []

    async def scenario(pair: Pair) -> None:
        job = await pair.first.job(await pair.begin())

        async def save(job: Job) -> Job:
            saved.append(job.handed_back)
            return job

        with monkeypatch.context() as patched:
            patched.setattr(pair.first.store, "save", save)
            asked = replace(job, state=state) if here else replace(job, state=state, job_id="another's")
            await pair.first.jobs._takeovers.hand_back(asked)

    with_two(database, scenario)
    assert saved == handed_back


def test_what_is_stored_is_asked_of_the_planner_only_where_a_plan_is_one_of_rows(database):
    async def scenario(pair: Pair) -> None:
        job = await pair.first.job(await pair.begin())
        pair.first.planner.create_plan = None
        refresh = replace(job, request=RefreshSpec(pair.database, "v"), progress=replace(job.progress, rows_planned=9))
        for one in (refresh, replace(job, progress=replace(job.progress, rows_planned=0))):
            assert await pair.first.jobs._takeovers._with_stored(one) is one

    with_two(database, scenario)


def test_while_redis_is_away_a_job_is_taken_over_late_and_only_once(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        for leases in pair.leases:
            leases.unknown = True
        begin = asyncio.get_running_loop().time()
        await pair.second.jobs.open_database(pair.database)
        await pair.second.works()
        assert asyncio.get_running_loop().time() - begin >= pair.leases[1].patience(1, lost=False)
        await until(lambda: idle(pair.first))
        seen = await pair.first.job(job_id)
        assert (seen.state, seen.attempt) == (JobState.RUNNING, 2)
        assert pair.second.jobs.busy()

    with_two(database, scenario)


def test_a_job_that_was_asked_to_stop_and_lost_its_executor_is_cancelled_for_good(database):
    """No one runs it, and yet its last executor may wake up."""

    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        run = pair.first.running.runs[pair.key(job_id)]
        pair.leases[0].frozen = True
        del pair.keys[pair.key(job_id)]
        JobHistory(pair.database).save(replace(run.status.job, state=JobState.CANCELLING))
        await pair.second.jobs.open_database(pair.database)
        await until(lambda: _ended(pair.second, job_id))
        assert pair.second.commits.begun == [(f"{database}/t.lance", Attempt(job_id, 2))]
        await until(lambda: free(pair))
        pair.leases[0].wake()
        await until(lambda: idle(pair.first))
        assert (await pair.first.job(job_id)).state is JobState.CANCELLED

    with_two(database, scenario)


def test_a_cancel_that_was_answered_holds_though_its_executor_dies_before_the_work_has_stopped(database, monkeypatch):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        monkeypatch.setattr(pair.first.spark, "cancel", lambda _: None)  # its workers get no message
        assert (await pair.first.jobs.cancel(pair.database, job_id)).state is JobState.CANCELLING
        pair.leases[0].frozen = True
        del pair.keys[pair.key(job_id)]
        await pair.second.jobs.open_database(pair.database)
        await until(lambda: _ended(pair.second, job_id))
        assert (await pair.second.job(job_id)).state is JobState.CANCELLED
        assert not pair.second.spark.started
        monkeypatch.undo()
        pair.leases[0].wake()

    with_two(database, scenario)


async def idle(executor: Executor) -> bool:
    return not executor.jobs.busy()


async def free(pair: Pair) -> bool:
    return not pair.keys


class Noted(Leases):
    """Those of one executor, with what it gave up: whether as ended."""

    def __init__(self, keys: dict[str, str], owner: str) -> None:
        super().__init__(keys, owner)
        self.released: list[bool] = []
        self.renewed = 0

    async def renew(self, job_id: str) -> bool:
        self.renewed += 1
        return await super().renew(job_id)

    async def release(self, job_id: str, *, ended: bool = False) -> None:
        self.released.append(ended)
        await super().release(job_id, ended=ended)


def left_by_the_dead(database: Path, state: JobState) -> tuple[JobHistory, Job]:
    """A job whose executor is no more, and the history that it is in."""
    history = JobHistory(str(database))
    history.prepare()
    spec = BackfillSpec(str(database), "t", "y")
    job = Job("job-1", "r1", state, spec, 1.0, 2.0, executor="that died")
    history.save(job)
    return history, job


def test_a_lease_is_renewed_while_a_job_is_only_ended_and_is_the_others_where_one_has_the_job_since(
    database, monkeypatch
):
    async def live() -> None:
        history, job = left_by_the_dead(database, JobState.CANCELLING)
        keys: dict[str, str] = {}
        leases = Noted(keys, "me")
        executor = Executor(database, leases=leases)
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def begin_attempt(*_: object, **__: object) -> int:
            asked.set()
            await go_on.wait()
            return 1

        monkeypatch.setattr(executor.commits, "begin_attempt", begin_attempt)
        await executor.jobs.open_database(str(database))
        async with asyncio.timeout(10):
            await asked.wait()
            while leases.renewed < 3:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
            keys[job_key(str(database), "job-1")] = "another"
            await asyncio.to_thread(history.save, replace(job, attempt=3, executor="another"))
            go_on.set()
            while not leases.released:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
        assert (leases.released, keys) == ([False], {job_key(str(database), "job-1"): "another"})
        assert (await executor.job("job-1")).state is JobState.CANCELLING
        await executor.stop()

    asyncio.run(live())


def test_a_takeover_that_fails_gives_the_lease_back_and_is_no_attempt(database, monkeypatch):
    """Else a job that lost one executor would have lost too many, by the time its history can be written again."""

    async def live() -> None:
        left_by_the_dead(database, JobState.RUNNING)
        keys: dict[str, str] = {}
        leases = Noted(keys, "me")
        executor = Executor(database, leases=leases)

        def refuse(_: JobHistory, __: list[Job]) -> list[Job]:
            raise FailedPrecondition("STORAGE_FULL", "no space left")

        monkeypatch.setattr(JobHistory, "save_all", refuse)
        await executor.jobs.open_database(str(database))
        async with asyncio.timeout(10):
            for tries in range(1, 6):
                while len(leases.released) < tries:  # noqa: ASYNC110 - it tells no one
                    await asyncio.sleep(0.01)
                assert (leases.released, keys) == ([False] * tries, {})
                assert (await executor.job("job-1")).attempt == 1
                if tries == 5:
                    monkeypatch.undo()
                await executor.jobs._takeovers.take_over_abandoned(str(database), ["job-1"])
            await executor.works()
        job = await executor.job("job-1")
        assert (job.state, job.attempt) == (JobState.RUNNING, 2)
        await executor.stop()

    asyncio.run(live())


def test_the_lease_of_a_job_that_is_only_ended_is_kept_until_its_end_is_written(database, monkeypatch):
    monkeypatch.setattr(job_store, "_SAVE_AGAIN_SECONDS", 0.01)
    save = JobHistory.save_all

    def refuse(self: JobHistory, jobs: list[Job]) -> list[Job]:
        if any(job.state.terminal for job in jobs):
            raise FailedPrecondition("STORAGE_FULL", "no space left")
        return save(self, jobs)

    async def live() -> None:
        left_by_the_dead(database, JobState.CANCELLING)
        monkeypatch.setattr(JobHistory, "save_all", refuse)
        keys: dict[str, str] = {}
        leases = Noted(keys, "me")
        released = leases.released
        executor = Executor(database, leases=leases)
        await executor.jobs.open_database(str(database))
        async with asyncio.timeout(10):
            while not executor.store.unsaved:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
            del keys[
                job_key(str(database), "job-1")
            ]  # it has run out, and who looks for jobs that no one has finds this one
            await executor.jobs._takeovers.take_over_abandoned(str(database), ["job-1"])
            while keys != {job_key(str(database), "job-1"): "me"}:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert (keys, released) == ({job_key(str(database), "job-1"): "me"}, [])
            monkeypatch.setattr(JobHistory, "save_all", save)
            while keys:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
        assert (await executor.job("job-1")).state is JobState.CANCELLED
        assert released == [True]
        await executor.stop()

    asyncio.run(live())


async def beaten(leases: Leases, times: int) -> bool:
    return leases.asked > times


async def _ended(executor: Executor, job_id: str) -> bool:
    return (await executor.job(job_id)).state.terminal
