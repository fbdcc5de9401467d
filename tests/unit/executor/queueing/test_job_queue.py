"""As many jobs run as may; others wait in the order in which they came, and each has its turn or its end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from leman_core.model.databases import DatabaseLimits, RegisteredDatabase, Registrations
from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import FailedPrecondition, ResourceExhausted, Unavailable
from leman_core.server.status import from_status, to_status
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Settings
from leman_executor.history.job_history import JobHistory
from leman_executor.manager import job_queue
from leman_executor.manager.job_admission import JobAttributes
from leman_executor.manager.job_databases import RegisteredLimits, follow_limits
from leman_executor.manager.job_queue import JobQueue, QueuedJob, TurnLimits
from tests.unit.executor.manager_helpers import UDF, Executor, with_executor

MOST = Settings(executor=ExecutorSettings(max_running_jobs=2, max_waiting_jobs=60))


async def create(executor: Executor, initiator: str = "", database: str = "") -> Job:
    spec = BackfillSpec(database or executor.database, "t", "y")
    return await executor.jobs.create(spec, "", attributes=JobAttributes(initiator=initiator))


async def until(executor: Executor, job_id: str, wanted: Callable[[Job], bool], database: str = "") -> Job:
    """The job as a watcher sees it once it is so."""
    async for _, job, *_ in executor.jobs.watch(database or executor.database, job_id, 0, 10.0):
        if wanted(job):
            return job
    raise AssertionError("it ended otherwise")


def is_running(job: Job) -> bool:
    return job.state is JobState.RUNNING


def ended(job: Job) -> bool:
    return job.state.terminal


def test_of_many_jobs_that_come_together_no_more_run_than_may_and_all_have_their_turn(tmp_path):
    async def work(executor: Executor) -> None:
        made = await asyncio.gather(*(create(executor) for _ in range(20)))
        states = Counter(job.state for job in made)
        assert states == {JobState.RUNNING: 2, JobState.PENDING: 18}
        assert all(bool(job.queue_position) is (job.state is JobState.PENDING) for job in made)
        jobs = await executor.jobs.list_jobs(executor.database)
        assert sorted(job.queue_position for job in jobs) == [0, 0, *range(1, 19)]
        order = [job.job_id for job in sorted(jobs, key=lambda job: (job.queue_position, job.created_at))]
        for n, job_id in enumerate(order):
            await until(executor, job_id, is_running)
            running = Counter(job.state for job in await executor.jobs.list_jobs(executor.database))
            assert running[JobState.RUNNING] <= 2
            assert running[JobState.PENDING] + running[JobState.PLANNING] + running[JobState.RUNNING] == 20 - n
            await executor.jobs.cancel(executor.database, job_id)
            await until(executor, job_id, ended)
        places = {job_id: n for n, job_id in enumerate(order)}
        assert all(abs(places[job_id] - n) <= 1 for n, job_id in enumerate(executor.spark.started)), "two plan at once"
        assert len(executor.spark.started) == 20
        assert executor.commits.begun == [], "no one had these jobs before: no table is told"

    with_executor(tmp_path, work, MOST)


def test_databases_and_callers_take_turns_as_their_places_say(tmp_path):
    async def work(executor: Executor) -> None:
        other = str(tmp_path / "other")
        loop = [await create(executor, "loop") for _ in range(5)]
        ann, shop = await create(executor, "ann"), await create(executor, "shop", other)
        order = [*loop[:2], shop, loop[2], ann, *loop[3:]]
        places = [(await executor.jobs.get(job.request.database, job.job_id)).queue_position for job in order]
        assert places == [0, 0, 1, 2, 3, 4, 5]
        for job in order[:2]:
            await until(executor, job.job_id, is_running)
        for n, over in enumerate(order[:-2]):
            await executor.jobs.cancel(over.request.database, over.job_id)
            running, *later = order[n + 2 :]
            # not by what Spark was given: of two jobs that begin together either may be first
            await until(executor, running.job_id, is_running, running.request.database)
            waiting = [(await executor.jobs.get(job.request.database, job.job_id)).queue_position for job in later]
            assert waiting == list(range(1, len(later) + 1))

    with_executor(tmp_path, work, MOST)


def test_jobs_beyond_a_limit_of_their_database_or_caller_wait_while_others_run(tmp_path):
    limits = ExecutorSettings(
        max_running_jobs=4,
        max_waiting_jobs=60,
        max_running_jobs_per_database=2,
        max_running_jobs_per_caller=1,
        max_waiting_jobs_per_caller=2,
    )

    async def work(executor: Executor) -> None:
        other = str(tmp_path / "other")
        ann = [await create(executor, "ann") for _ in range(3)]
        assert [job.state for job in ann] == [JobState.RUNNING, JobState.PENDING, JobState.PENDING]
        with pytest.raises(ResourceExhausted, match="2 jobs of 'ann' wait") as refused:
            await create(executor, "ann", other)
        assert (refused.value.reason, refused.value.retry_after_seconds) == ("TOO_MANY_WAITING_JOBS", 5.0)
        bob, cat = await create(executor, "bob"), await create(executor, "cat")
        dan = await create(executor, "dan", other)
        assert [job.state for job in (bob, cat, dan)] == [JobState.RUNNING, JobState.PENDING, JobState.RUNNING]
        nobody = [await create(executor, "", other) for _ in range(2)]
        assert [job.state for job in nobody] == [JobState.RUNNING, JobState.PENDING]
        assert sorted(executor.spark.started) == sorted(job.job_id for job in (ann[0], bob, dan, nobody[0]))
        await executor.jobs.cancel(executor.database, bob.job_id)
        await until(executor, cat.job_id, is_running)
        await executor.jobs.cancel(executor.database, ann[0].job_id)
        await until(executor, ann[1].job_id, is_running)
        assert (await create(executor, "ann", other)).state is JobState.PENDING, "there is room in the queue again"

    with_executor(tmp_path, work, Settings(executor=limits))


def test_a_job_that_waits_expects_its_turn_by_what_its_function_cost_before(tmp_path):
    async def work(executor: Executor) -> None:
        executor.planner.rows = 10
        blind = [await create(executor) for _ in range(3)]
        assert blind[2].queue_position == 1
        assert not blind[2].expected_start_at, "no one knows what the function costs"
        for job in blind:
            await executor.jobs.cancel(executor.database, job.job_id)
            await until(executor, job.job_id, ended)
        seen = replace(blind[0], job_id="job-seen", state=JobState.DONE, udf_name=UDF.name, udf_version=UDF.version)
        seen = replace(seen, progress=Progress(rows_evaluated=4, udf_seconds=80.0))
        await asyncio.to_thread(JobHistory(executor.database).save, seen)
        after = Executor(tmp_path, MOST)
        after.planner.rows = 10
        jobs = [await create(after) for _ in range(4)]
        assert [job.expected_start_at > 0 for job in jobs] == [False, False, True, True]
        begun = [(await after.job(job.job_id)).started_at for job in jobs[:2]]
        # 10 rows at 20 s, and each of two jobs has one of two task slots
        assert jobs[2].expected_start_at == pytest.approx(begun[0] + 200.0, abs=2.0)
        assert jobs[3].expected_start_at == pytest.approx(begun[1] + 200.0, abs=2.0)
        await after.stop()

    with_executor(tmp_path, work, MOST)


def test_a_full_queue_refuses_and_says_when_to_come_again(tmp_path):
    async def work(executor: Executor) -> None:
        results = await asyncio.gather(*(create(executor) for _ in range(9)), return_exceptions=True)
        refused = [r for r in results if isinstance(r, ResourceExhausted)]
        assert len(refused) == 9 - 2 - 3, results
        seen = from_status(to_status(refused[0]))
        assert (seen.reason, seen.retry_after_seconds) == ("TOO_MANY_JOBS", 5.0)
        jobs = await executor.jobs.list_jobs(executor.database)
        assert Counter(job.state for job in jobs) == {JobState.RUNNING: 2, JobState.PENDING: 3}
        await executor.jobs.cancel(executor.database, jobs[0].job_id)
        await until(executor, jobs[0].job_id, ended)
        assert (await create(executor)).state is JobState.PENDING

    with_executor(tmp_path, work, Settings(executor=ExecutorSettings(max_running_jobs=2, max_waiting_jobs=3)))


def test_a_job_with_nothing_to_do_needs_no_turn(tmp_path):
    async def work(executor: Executor) -> None:
        for _ in range(4):
            await create(executor)
        executor.planner.tasks = ()
        assert (await create(executor)).state is JobState.DONE

    with_executor(tmp_path, work, MOST)


def test_a_job_that_waits_is_cancelled_without_having_run_and_others_move_up(tmp_path):
    async def work(executor: Executor) -> None:
        jobs = [await create(executor) for _ in range(5)]
        first, second, third = jobs[2:]
        watched = asyncio.ensure_future(until(executor, third.job_id, lambda job: job.queue_position == 2))
        assert (await executor.jobs.cancel(executor.database, second.job_id)).state is JobState.CANCELLING
        assert (await until(executor, second.job_id, ended)).state is JobState.CANCELLED
        assert (await watched).state is JobState.PENDING
        assert (await executor.job(first.job_id)).queue_position == 1
        for job in (jobs[0], first, third):
            await executor.jobs.cancel(executor.database, job.job_id)
            assert (await until(executor, job.job_id, ended)).state is JobState.CANCELLED
        assert second.job_id not in executor.spark.started
        assert (await executor.job(jobs[1].job_id)).state is JobState.RUNNING

    with_executor(tmp_path, work, MOST)


@pytest.mark.parametrize("end", ["die", "stop"])
def test_jobs_that_wait_survive_their_executor_in_their_order(tmp_path, end):
    async def work(executor: Executor) -> None:
        jobs = [await create(executor) for _ in range(6)]
        await (executor.stop() if end == "stop" else executor.die())
        after = Executor(tmp_path, MOST)
        await after.jobs.open_database(after.database)
        for n, job in enumerate(jobs):
            found = await until(after, job.job_id, lambda job: job.state is JobState.RUNNING and job.attempt == 2)
            assert found.attempt - found.handed_back == (2 if end == "die" and n < 2 else 1)
            await after.jobs.cancel(after.database, job.job_id)
            await until(after, job.job_id, ended)
        places = {job.job_id: n for n, job in enumerate(jobs)}
        assert all(abs(places[job_id] - n) <= 1 for n, job_id in enumerate(after.spark.started)), "two plan at once"
        await after.stop()

    with_executor(tmp_path, work, MOST)


def test_a_job_that_fails_to_plan_when_its_turn_comes_ends_and_frees_its_turn(tmp_path):
    async def work(executor: Executor) -> None:
        jobs = [await create(executor) for _ in range(4)]
        executor.planner.error = FailedPrecondition("UNSUPPORTED_TABLE", "this table cannot be planned")
        await executor.jobs.cancel(executor.database, jobs[0].job_id)
        for job in jobs[2:]:
            failed = await until(executor, job.job_id, ended)
            assert (failed.state, failed.error.reason) == (JobState.FAILED, "UNSUPPORTED_TABLE")
        executor.planner.error = None
        assert (await create(executor)).state is JobState.RUNNING

    with_executor(tmp_path, work, MOST)


def test_a_job_that_was_accepted_waits_for_a_planner_that_has_too_much_to_do(tmp_path):
    async def work(executor: Executor) -> None:
        jobs = [await create(executor) for _ in range(3)]
        executor.planner.error = ResourceExhausted("TOO_MANY_CALLS", "the planner is busy")
        executor.planner.asked.clear()
        await executor.jobs.cancel(executor.database, jobs[0].job_id)
        await executor.planner.asked.wait()
        executor.planner.error = None
        await until(executor, jobs[2].job_id, is_running)

    with_executor(tmp_path, work, MOST)


def test_whoever_was_accepted_first_is_first_also_where_it_joins_late():
    async def scenario() -> None:
        queue = JobQueue(TurnLimits(running=1), 10)
        ages = {"now": 9.0, "late": 3.0, "early": 1.0, "mid": 2.0}
        turns = {name: queue.join(QueuedJob(key=name, accepted_at=at)) for name, at in ages.items()}
        assert queue.places() == {"early": 1, "mid": 2, "late": 3}
        queue.leave("mid")
        assert turns["mid"].result() is False
        queue.leave("now")
        assert turns["early"].result() is True
        queue.close()
        queue.leave("early")
        assert not turns["late"].done()

    asyncio.run(scenario())


def test_what_jobs_are_told_of_their_turns_fits_together_at_any_time(monkeypatch):
    """What is overdue is expected soon, and not in the past; who has an earlier place does not have a later time."""
    clock = SimpleNamespace(now=1000.25)
    monkeypatch.setattr(job_queue, "time", SimpleNamespace(time=lambda: clock.now))

    async def scenario() -> None:
        took = {"a": 0.5, "b": 30.0, "c": 4.0}
        queue = JobQueue(TurnLimits(running=2, per_database=1), 10, duration=lambda job: took.get(job.key))
        for number, (name, database) in enumerate(zip("abcdef", "xyxyxy", strict=True)):
            queue.join(QueuedJob(key=name, accepted_at=float(number), database=database))
        for seconds in (0.0, 0.3, 0.9, 1.6, 2.0, 40.0):
            clock.now = 1000.25 + seconds
            told = {name: queue.expected(name) for name in "cdef"}
            assert sorted(place for place, _ in told.values()) == [1, 2, 3, 4]
            starts = [start for _, start in sorted(told.values())]
            known = [start for start in starts if start]
            assert known == sorted(known) == starts[: len(known)]
            assert min(known) >= clock.now
        queue.leave("b")
        assert queue.expected("d") == (0, 0.0)
        assert {queue.expected(name)[0] for name in "cef"} == {1, 2, 3}

    asyncio.run(scenario())


class Kept:
    """Registrations of one database, whose limits change."""

    def __init__(self, root: str, *limits: int | None) -> None:
        self.root = root
        self.limits = DatabaseLimits(*limits)
        self.reads = 0
        #: They are read a second time: what the first one said is known.
        self.again = threading.Event()

    def read(self) -> Registrations:
        self.reads += 1
        if self.reads > 1:
            self.again.set()
        database = RegisteredDatabase(name="lake", root=self.root, limits=self.limits, created_at=1.0, updated_at=1.0)
        return Registrations(by_name={"lake": database})


def test_a_registered_database_has_limits_of_its_own(tmp_path):
    settings = Settings(executor=ExecutorSettings(max_running_jobs=4, max_running_jobs_per_database=1))

    async def work(executor: Executor) -> None:
        other, kept = str(tmp_path / "other"), Kept(executor.database, 2, 1)

        async def said() -> None:
            """The executor has read what is registered now."""
            kept.reads = 0
            kept.again.clear()
            following = asyncio.create_task(executor.jobs.follow_limits(kept.read, 0.01))
            assert await asyncio.to_thread(kept.again.wait, 10)
            following.cancel()

        await said()
        made = [await create(executor) for _ in range(3)]
        assert [job.state for job in made] == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
        with pytest.raises(ResourceExhausted, match="as its registration allows") as refused:
            await create(executor)
        assert refused.value.reason == "TOO_MANY_WAITING_JOBS"
        others = [await create(executor, "", other) for _ in range(2)]
        assert [job.state for job in others] == [JobState.RUNNING, JobState.PENDING], "the setting holds elsewhere"
        kept.limits = DatabaseLimits(3, None)
        await said()
        await until(executor, made[2].job_id, is_running)
        assert (await create(executor)).state is JobState.PENDING

    with_executor(tmp_path, work, settings)


def test_limits_hold_where_the_registry_cannot_be_read(tmp_path):
    async def scenario() -> None:
        kept, limits, changes = Kept("/data/lake", 1, None), RegisteredLimits(), []
        reads = asyncio.Event()

        class Broken:
            def read(self) -> Registrations:
                loop.call_soon_threadsafe(reads.set)
                raise Unavailable("STORE_UNAVAILABLE", "gone")

        loop = asyncio.get_running_loop()
        assert limits.set(kept.read())
        assert not limits.set(kept.read()), "nothing else is said"
        following = asyncio.create_task(follow_limits(Broken().read, limits, 0.01, lambda: changes.append(1)))
        async with asyncio.timeout(30):
            for _ in range(3):
                reads.clear()
                await reads.wait()
        following.cancel()
        assert limits.of("/data/lake") == DatabaseLimits(1, None)
        assert limits.of("/data/other") == DatabaseLimits()
        assert changes == []

    asyncio.run(scenario())
