"""kill -9 of the executor while a job is paused, and right after it was asked to: it stays so, and goes on later."""

from __future__ import annotations

import pytest

import leman
from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, WORKERS, CallLog, Lake, check_settled, wait_for
from tests.faults.views import ROWS as VIEW_ROWS
from tests.faults.views import check_settled as check_view
from tests.faults.views import make, matching
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 1200


def kill_executor(lake: Lake, job_id: str) -> None:
    """Its successor need not wait until the dead one's lease expires."""
    pid = lake.pid("executor")
    lake.kill(pid)
    with lake.redis() as redis:
        redis.delete(*redis.keys(f"leman:job:{job_id}@*"))
    lake.wait_back("executor", before=pid)


def begin(db: leman.Database, call_log: CallLog, name: str) -> tuple[leman.Table, leman.JobFuture]:
    table = db.create_table(name, numbers(ROWS), max_rows_per_file=40)
    table.add_columns({"y": call_log.double()})
    future = table.backfill_async("y")
    call_log.wait(ROWS // 4)
    return table, future


def taken_over(future: leman.JobFuture) -> leman.Job:
    """The job, once the next executor has it."""
    return wait_for(lambda: job if (job := future.job()).attempt == 2 else None)


@pytest.mark.long
def test_of_an_executor_with_a_paused_job(lake, db, call_log):
    table, future = begin(db, call_log, "paused")
    future.pause()
    wait_for(lambda: future.status() is JobState.PAUSED)
    before = future.progress().rows_checkpointed
    calls = len(call_log.seen())
    assert before == calls < ROWS
    kill_executor(lake, future.job_id)
    job = taken_over(future)
    assert (job.state, job.progress.rows_checkpointed) == (JobState.PAUSED, before), "it says what the dead one said"
    assert len(call_log.seen()) == calls
    future.resume()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() == 0
    check_settled(db, table, ROWS)


def test_of_an_executor_between_two_commits_of_rows_of_one_fragment(lake, db, call_log):
    table = db.create_table("partly", numbers(ROWS), max_rows_per_file=ROWS)
    table.add_columns({"y": call_log.double()})
    future = table.backfill_async("y", commit_rows=100)
    wait_for(lambda: table.row_states("y").computed >= 100)
    kill_executor(lake, future.job_id)
    assert table.row_states("y").computed >= 100, "they stay"
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    assert table.plan_backfill("y").rows_to_compute == 0


@pytest.mark.long
def test_of_an_executor_that_was_just_asked_to_pause_a_job(lake, db, call_log):
    table, future = begin(db, call_log, "pausing")
    future.pause()
    kill_executor(lake, future.job_id)
    assert taken_over(future).state is JobState.PAUSED
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    future.resume()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    check_settled(db, table, ROWS)


@pytest.mark.long
def test_of_an_executor_with_a_paused_refresh(lake, db, call_log):
    _, view = make(db, call_log, "paused_refresh", seconds=0.05)
    future = view.refresh_async()
    call_log.wait(VIEW_ROWS // 8)
    future.pause()
    wait_for(lambda: future.status() is JobState.PAUSED)
    assert len(call_log.seen()) < len(matching(range(VIEW_ROWS)))
    kill_executor(lake, future.job_id)
    assert taken_over(future).state is JobState.PAUSED
    future.resume()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() == 0
    check_view(lake, db, view, list(range(VIEW_ROWS)))
