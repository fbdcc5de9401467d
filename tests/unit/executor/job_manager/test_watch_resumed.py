"""WatchJob that is continued: over restarts and takeovers each event comes once, or is reported as missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.settings import Settings
from leman_executor.jobs.job_status import JobStatus, JobUpdate
from tests.unit.executor.job_manager.test_takeover import Pair, with_two
from tests.unit.executor.manager_helpers import Executor, with_executor

JOB = Job("job-1", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0, 0)


async def news(executor: Executor, job_id: str, after: int = 0) -> JobUpdate:
    """The first message to a watcher who has seen so much."""
    async with contextlib.aclosing(executor.jobs.watch(executor.database, job_id, after, 10.0)) as messages:
        return await anext(messages)


async def until(executor: Executor, job_id: str, after: int, state: JobState) -> list[JobUpdate]:
    """All messages to such a watcher, up to a state."""
    told = []
    async with contextlib.aclosing(executor.jobs.watch(executor.database, job_id, after, 0.05)) as messages:
        async for message in messages:
            told.append(message)
            if message.job.state is state:
                return told
    raise AssertionError("it ended otherwise")


async def running(executor: Executor) -> str:
    job = await executor.jobs.create(BackfillSpec(executor.database, "t", "y"), "")
    await executor.works()
    return job.job_id


def check_course(told: list[JobUpdate]) -> None:
    """No sequence falls, and no event comes twice, or before the message that it belongs to."""
    sequences = [message.sequence for message in told]
    assert sequences == sorted(sequences)
    events = [event.sequence for message in told for event in message.events]
    assert events == sorted(set(events))
    for before, message in zip([None, *told], told, strict=False):
        seen = before.sequence if before else 0
        assert all(seen < event.sequence <= message.sequence for event in message.events)


def with_executors(folder: Path, work: Callable[[Callable[[], Executor]], Awaitable[None]]) -> None:
    """Do something with executors of one database, one after the other."""

    async def scenario(first: Executor) -> None:
        await first.stop()
        await work(lambda: Executor(folder, Settings()))

    with_executor(folder, scenario, Settings())


def test_of_a_job_that_is_taken_over_a_watcher_hears_what_is_new_and_that_something_may_be_missing(tmp_path):
    async def work(start: Callable[[], Executor]) -> None:
        first = start()
        job_id = await running(first)
        told = await until(first, job_id, 0, JobState.RUNNING)
        assert not any(message.events_missing for message in told)
        assert told[0].events, "its beginning is told"
        await first.die()
        second = start()
        await second.jobs.open_database(second.database)
        await second.works()
        more = await until(second, job_id, told[-1].sequence, JobState.RUNNING)
        assert more[0].events_missing
        assert not any(message.events_missing for message in more[1:])
        await second.jobs.cancel(second.database, job_id)
        more += await until(second, job_id, more[-1].sequence, JobState.CANCELLED)
        check_course([*told, *more])
        await second.stop()

    with_executors(tmp_path, work)


def test_the_end_of_a_job_is_told_after_a_restart_under_the_sequence_that_it_had(tmp_path):
    async def work(start: Callable[[], Executor]) -> None:
        first = start()
        job_id = await running(first)
        before = (await news(first, job_id)).sequence
        await first.jobs.cancel(first.database, job_id)
        end = (await until(first, job_id, before, JobState.CANCELLED))[-1]
        again = await news(first, job_id, end.sequence)
        assert (again.sequence, list(again.events), again.events_missing) == (end.sequence, [], False)
        await first.stop()
        second = start()
        for seen in (0, before):
            told = await until(second, job_id, seen, JobState.CANCELLED)
            assert [message.sequence for message in told] == [end.sequence]
            assert list(told[0].events) == [end.events[-1]], "what it was, when, and under which sequence"
            assert told[0].events_missing
        again = await news(second, job_id, end.sequence)
        assert (again.sequence, list(again.events), again.events_missing) == (end.sequence, [], False)
        await second.stop()

    with_executors(tmp_path, work)


def test_who_asks_another_executor_meanwhile_misses_nothing_of_the_one_that_has_the_job(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        told = [await news(pair.first, job_id)]
        for _ in range(3):  # as it cannot know how far the first one is
            told.append(await news(pair.second, job_id, told[-1].sequence))
        assert told[-1].sequence == told[0].sequence
        status = pair.first.running.runs[pair.key(job_id)].status
        status.note("wait", "something is away")
        told += await until(pair.first, job_id, told[-1].sequence, JobState.RUNNING)
        assert [event.message for event in told[-1].events] == ["something is away"]
        assert not any(message.events_missing for message in told)
        check_course(told)
        fresh = await news(pair.second, job_id)
        whole = await news(pair.first, job_id, fresh.sequence)
        assert whole.events
        assert not whole.events_missing
        await pair.first.jobs.cancel(pair.database, job_id)
        end = (await until(pair.first, job_id, told[-1].sequence, JobState.CANCELLED))[-1]
        other = (await until(pair.second, job_id, told[-1].sequence, JobState.CANCELLED))[-1]
        assert other.sequence == end.sequence
        assert other.events == [end.events[-1]]

    with_two(database, scenario)


def test_of_more_than_a_thousand_events_the_last_are_told_and_that_others_are_missing():
    async def run() -> None:
        status = JobStatus(JOB)
        for number in range(1001):
            status.note("wait", str(number))
        async with contextlib.aclosing(status.watch(0, 10)) as watcher:
            first = await anext(watcher)
        assert [event.message for event in first.events] == [str(number) for number in range(1, 1001)]
        assert first.events_missing
        async with contextlib.aclosing(status.watch(first.events[0].sequence - 1, 10)) as watcher:
            second = await anext(watcher)
        assert len(second.events) == 1000
        assert not second.events_missing

    asyncio.run(run())
