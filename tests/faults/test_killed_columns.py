"""kill -9 of the executor in a job of several columns: nothing is lost, and no call made twice that was stored."""

from __future__ import annotations

import pytest

from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, WORKERS, CallLog, check_settled, wait_for
from tests.faults.test_killed_pauses import kill_executor
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800
FRAGMENTS = 20


def test_of_the_executor_while_a_fragment_is_read_for_several_columns(lake, db):
    """It dies with the file of one of four columns stored for the third fragment."""
    names = ["y", "z", "v", "w"]
    table = db.create_table("killed_read", numbers(ROWS), max_rows_per_file=ROWS // FRAGMENTS)
    table.add_columns(dict.fromkeys(names, "x * 2"))
    lake.arm("worker.record_stored", passes=9)
    before = lake.pid("executor")
    future = table.backfill_async(names)
    wait_for(lambda: lake.went_off("worker.record_stored"))
    with lake.redis() as redis:  # its successor need not wait until the lease expires
        redis.delete(*redis.keys(f"leman:job:{future.job_id}@*"))
    lake.wait_back("executor", before=before)
    wait_for(lambda: future.job().attempt == 2)
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt, job.progress.rows_committed) == (JobState.DONE, 2, len(names) * ROWS)
    for name in names:
        check_settled(db, table, ROWS, name)


def test_of_the_executor_in_the_second_of_three_columns(lake, db, call_log, tmp_path):
    table = db.create_table("killed_columns", numbers(ROWS), max_rows_per_file=40)
    first, last = CallLog(tmp_path, "first"), CallLog(tmp_path, "last")
    table.add_columns(
        {"s": "x + 1", "a": first.double(), "y": call_log.double(seconds=0.002), "z": (last.double(), ["a"])}
    )
    future = table.backfill_async(["s", "a", "y", "z"])
    call_log.wait(ROWS // 4)
    assert values(table, "s") == {x: x + 1 for x in range(ROWS)}, "columns of SQL are there before Python is called"
    kill_executor(lake, future.job_id)
    wait_for(lambda: future.job().attempt == 2)
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt, job.columns) == (JobState.DONE, 2, ("s", "a", "y", "z"))
    assert job.progress.rows_committed == 4 * ROWS
    assert (first.again(), last.again()) == (0, 0)
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    assert values(table, "z") == {x: 4 * x for x in range(ROWS)}
    check_settled(db, table, ROWS)
