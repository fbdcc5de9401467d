"""Jobs that are paused in the middle: no call is made meanwhile, and none is made twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import leman
from leman import JobState
from tests.faults.lake import wait_for
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark

ROWS = 400
SECONDS = 0.005


def paused(future: leman.JobFuture, begun: Callable[[], bool]) -> leman.Job:
    """The job, paused once it has begun."""
    wait_for(begun)
    assert future.pause() in (JobState.PAUSING, JobState.PAUSED)
    for job, _ in future.watch(timeout=60):
        assert not job.state.terminal, "the job was over before it was paused"
        if job.state is JobState.PAUSED:
            return job
    raise AssertionError("it did not stop")


@pytest.mark.parametrize("per_fragment", [20, ROWS], ids=["many", "one"])
def test_what_was_computed_before_a_pause_is_not_computed_again(db, call_log, per_fragment):
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=per_fragment)
    table.add_columns({"y": call_log.double(seconds=SECONDS)})
    future = table.backfill_async("y", concurrency=2)
    job = paused(future, lambda: len(call_log.seen()) >= ROWS // 8)
    before = call_log.seen()
    assert len(before) == len(set(before)) < ROWS
    assert job.progress.rows_evaluated == job.progress.rows_checkpointed == len(before), "all that was called is stored"
    other = db.create_table("other", numbers(10))
    other.add_columns({"y": call_log.double()})
    other.backfill("y", progress=False)
    assert len(call_log.seen()) == len(before) + 10, "workers are free for others, and none goes on"
    assert future.status() is JobState.PAUSED
    assert future.resume() in (JobState.PENDING, JobState.PLANNING)
    future.result(timeout=60)
    done = future.job()
    assert (done.state, done.attempt, done.progress.rows_evaluated) == (JobState.DONE, 1, ROWS)
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    assert sorted(call_log.seen()) == sorted([*range(ROWS), *range(10)]), "every row once"


def test_a_paused_job_with_a_filter_keeps_no_reservation(db, call_log):
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=50)
    table.add_columns({"y": call_log.double(seconds=SECONDS)})
    future = table.backfill_async("y", where="x % 2 = 0", concurrency=2)
    paused(future, lambda: len(call_log.seen()) >= ROWS // 8)
    job = db.job(table.backfill("y", progress=False))
    assert job.state is JobState.DONE
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    future.resume()
    future.result(timeout=60)
    assert sorted(call_log.seen()) == list(range(ROWS)), "both found what the other had computed"


def test_a_refresh_is_paused_in_the_middle_and_goes_on(db, call_log):
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=50)
    query = table.search(None).select(["x"]).add_column("y", call_log.double(seconds=SECONDS)).shuffle(seed=7)
    view = db.create_materialized_view("v", query, max_rows_per_fragment=50)
    future = view.refresh_async()
    paused(future, lambda: len(call_log.seen()) >= ROWS // 8)
    before = call_log.seen()
    assert len(before) < ROWS
    assert db.job(future.job_id).state is JobState.PAUSED
    assert call_log.seen() == before
    table.add(numbers(20, start=1000))  # not this refresh's business
    future.resume()
    future.result(timeout=60)
    result = future.job().refresh_result
    assert (result.rows_added, result.rows_evaluated) == (ROWS, ROWS)
    assert sorted(call_log.seen()) == list(range(ROWS)), "every row once"
    view.refresh(progress=False)
    rows = view.to_arrow()
    assert sorted(rows["x"].to_pylist()) == [*range(ROWS), *range(1000, 1020)]
    assert rows["y"].to_pylist() == [2 * x for x in rows["x"].to_pylist()]


def test_a_sql_column_is_paused_too(db):
    """Whether it has stopped before it was done is the machine's business; that all is right is not."""
    table = db.create_table("t", numbers(200_000), max_rows_per_file=2_000)
    table.add_columns({"y": "x * 2"})
    future = table.backfill_async("y")
    future.pause()
    for job, _ in future.watch(timeout=60):
        if job.state.terminal or job.state is JobState.PAUSED:
            break
    if not future.done():
        future.resume()
        future.result(timeout=60)
    assert values(table, "y") == {x: 2 * x for x in range(200_000)}


def test_a_job_that_was_computing_is_cancelled_while_it_is_paused(db, tmp_path):
    log = CallLog(tmp_path)
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"y": log.double(seconds=SECONDS)})
    future = table.backfill_async("y", concurrency=2)
    paused(future, lambda: len(log.seen()) >= ROWS // 8)
    assert future.cancel() in (JobState.CANCELLING, JobState.CANCELLED)
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    table.backfill("y", progress=False)
    assert sorted(log.seen()) == list(range(ROWS)), "what it had computed is kept"
