"""An executor is frozen past its lease in the middle of a job, another one takes the job over, and the first wakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import leman
from leman import JobState
from leman_executor.history.job_history import JobHistory
from tests.faults.lake import (
    WORKERS,
    CallLog,
    Lake,
    armed_lake,
    check_settled,
    checkpointed,
    wait_for,
    watch_until,
)
from tests.faults.second_executor import SecondExecutor, second_executor
from tests.faults.test_given_back import reserved
from tests.integration.call_log import numbers, values
from tests.shares import LONG

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS, TASK = 2000, 40
LEFT = "left to the executor that has taken the job over"
LEASE_SECONDS = 1.0
#: So long that nothing which is free again has merely expired.
RESERVATION_SECONDS = 120.0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One of its own, in which a job is soon taken over."""
    soon = {
        "LEMAN_EXECUTOR__JOB_LEASE_SECONDS": str(LEASE_SECONDS),
        "LEMAN_EXECUTOR__RESERVATION_TTL_SECONDS": str(RESERVATION_SECONDS),
        "LEMAN_EXECUTOR__COMMIT_INTERVAL_SECONDS": "0.5",
    }
    with armed_lake(tmp_path_factory.mktemp("frozen"), **soon) as running:
        running.connect().close()
        yield running


@pytest.fixture(scope="module")
def first(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondExecutor]:
    """The one that is frozen; the system's own takes over."""
    with second_executor(lake, tmp_path_factory.mktemp("first")) as running:
        yield running


@dataclass
class Two:
    """A job that `here` began, in the middle of which it was frozen, and that runs `there` now."""

    first: SecondExecutor
    here: leman.Database
    there: leman.Database
    job_id: str
    call_log: CallLog

    @property
    def table(self) -> leman.Table:
        return self.there.open_table("t")

    def calls(self) -> int:
        """Of the function, by workers of the one that was frozen."""
        return len([session for _, _, session in self.call_log.lines() if session == self.first.pid])


@pytest.fixture(params=["its process", "all its processes"] if LONG else ["all its processes"])
def two(request, lake: Lake, first: SecondExecutor, tmp_path: Path) -> Iterator[Two]:
    database, call_log = tmp_path / "shared", CallLog(tmp_path, tmp_path.name)
    database.mkdir()
    said = lake.said()
    with first.connect(database) as here:
        table = here.create_table("t", numbers(ROWS), max_rows_per_file=TASK)
        table.add_columns({"y": call_log.double(seconds=0.01)})
        future = table.backfill_async("y", task_size=TASK)
        watch_until(future, lambda progress: progress.rows_committed > 0 and checkpointed(ROWS // 8)(progress))
        try:
            first.freeze(wholly=request.param == "all its processes")
            with leman.connect(database, endpoint=said["executor"], token=said["token"]) as there:
                wait_for(lambda: there.job(future.job_id).attempt == 2)
                made = Two(first, here, there, future.job_id, call_log)
                assert made.calls() < ROWS, "nothing was left to do"
                wait_for(lambda: len(call_log.seen()) > made.calls())
                yield made
        finally:
            first.wake()


def test_a_job_is_led_and_watched_through_the_other_executor(lake, first, tmp_path):
    database, call_log, said = tmp_path / "shared", CallLog(tmp_path, tmp_path.name), lake.said()
    database.mkdir()
    with (
        first.connect(database) as here,
        leman.connect(database, endpoint=said["executor"], token=said["token"]) as there,
    ):
        table = here.create_table("t", numbers(ROWS), max_rows_per_file=TASK)
        table.add_columns({"y": call_log.double(seconds=0.02)})
        job_id = table.backfill_async("y", task_size=TASK).job_id
        future = there.job_future(job_id)
        watch_until(future, checkpointed(TASK))
        assert future.update(priority=3).priority == here.job(job_id).priority == 3
        future.pause()
        wait_for(lambda: there.job(job_id).state is JobState.PAUSED)
        future.resume()
        watch_until(future, lambda progress: progress.rows_checkpointed < ROWS)
        future.cancel()
        wait_for(lambda: here.job(job_id).state is JobState.CANCELLED)
        assert (there.job(job_id).state, there.job(job_id).attempt) == (JobState.CANCELLED, 1)


def wakes(two: Two) -> int:
    """The first executor comes back, until it has noticed what became of its job. Returns how many calls its workers
    had made by then."""
    two.first.wake()
    wait_for(lambda: LEFT in (line.get("event") for line in two.first.logged() if line.get("job_id") == two.job_id))
    assert two.here.job(two.job_id).attempt == 2
    return two.calls()


def is_well(two: Two, noticed: int) -> None:
    """The one that was frozen does other work as ever, and nothing more of what it lost, but what workers that are
    being killed had in hand."""
    other = two.here.create_table("other", numbers(40))
    other.add_columns({"y": CallLog(two.call_log.folder, "other").double(seconds=0)})
    assert two.here.job(other.backfill("y", progress=False)).state is JobState.DONE
    assert two.calls() - noticed <= WORKERS * TASK


def check_ended(two: Two, lake: Lake, state: JobState, version: int) -> None:
    """The end that the second executor wrote is the job's, and the last that happened to the table."""
    assert two.table.version == version
    assert [(db.job(two.job_id).state, db.job(two.job_id).attempt) for db in (two.here, two.there)] == [(state, 2)] * 2
    kept = JobHistory(str(two.there.uri)).load()[two.job_id]
    assert (kept.state.name, kept.attempt) == (state.name, 2)
    wait_for(lambda: not reserved(lake, two.job_id), seconds=RESERVATION_SECONDS / 3)
    with lake.redis() as redis:  # who woke may have renewed it before it looked who has the job
        wait_for(lambda: not redis.keys(f"leman:job:{two.job_id}@*"), seconds=RESERVATION_SECONDS / 3)


@pytest.mark.long
def test_it_wakes_while_the_other_is_at_work(lake, two):
    future = two.there.job_future(two.job_id)
    assert not future.done(), "the other one was through before"
    noticed = wakes(two)
    future.result(timeout=60)
    is_well(two, noticed)
    check_ended(two, lake, JobState.DONE, two.table.version)
    check_settled(two.there, two.table, ROWS)


@pytest.mark.long
def test_it_wakes_when_the_other_is_through(lake, two):
    two.there.job_future(two.job_id).result(timeout=60)
    version = two.table.version
    is_well(two, wakes(two))
    check_ended(two, lake, JobState.DONE, version)
    check_settled(two.there, two.table, ROWS)


def test_it_wakes_when_the_job_was_cancelled(lake, two):
    """No one commits what it had computed, until someone asks again."""
    future = two.there.job_future(two.job_id)
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    version, there = two.table.version, values(two.table, "y")
    assert len(left := [y for y in there.values() if y is None]) > 2 * WORKERS * TASK, len(left)
    is_well(two, wakes(two))
    check_ended(two, lake, JobState.CANCELLED, version)
    assert values(two.table, "y") == there
    assert two.there.job(two.table.backfill("y", progress=False)).state is JobState.DONE
    check_settled(two.there, two.table, ROWS)
