"""kill -9 in the midst of a retry: the failed rows are computed all the same, the others are not."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip
from tests.faults.lake import ROWS_AT_RISK, WORKERS, checkpointed, watch_until
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS, FAILING = 1200, 400


@leman.udf(data_type=pa.int64(), name="thirds", version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
def thirds(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(f"a third: {x}")
    return 2 * x


@pytest.fixture(
    params=[200, pytest.param(ROWS, marks=pytest.mark.long)], ids=["many", "one"]
)  # failed rows of a fragment take longer than an interval
def failed(request, db) -> tuple[leman.Table, str]:
    table = db.create_table(f"retry {request.node.name}", numbers(ROWS), max_rows_per_file=request.param)
    table.add_columns({"y": thirds})
    return table, table.backfill("y", progress=False)


def check(db: leman.Database, table: leman.Table, job: leman.Job, lost: int) -> None:
    assert job.state is JobState.DONE
    assert lost <= ROWS_AT_RISK
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    states = table.row_states("y")
    assert (states.computed, states.failed, states.not_computed) == (ROWS, 0, 0)
    assert [kept.rows for kept in states.kept] == [ROWS - FAILING]
    version = table.version
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 0
    assert table.version == version


def test_of_the_executor(lake, db, call_log, failed):
    table, job_id = failed
    pid = lake.pid("executor")
    future = db.retry_job_async(job_id, udf=call_log.double(), keep_others=True)
    watch_until(future, checkpointed(FAILING // 4))
    lake.kill(pid)
    job = db.job(future.result(timeout=60))
    assert job.attempt == 2
    assert set(call_log.seen()) == set(range(0, ROWS, 3)), "only rows that had failed"
    check(db, table, job, -(-call_log.again() // WORKERS))  # each worker loses its share
    lake.wait_back("executor", before=pid)


@pytest.mark.parametrize("point", ["worker.checkpoint_stored", "worker.record_stored"])
def test_of_a_worker(lake, db, call_log, failed, point):
    table, job_id = failed
    lake.arm(point)
    job = db.job(db.retry_job(job_id, udf=call_log.double(), keep_others=True, progress=False))
    assert lake.went_off(point)
    assert set(call_log.seen()) == set(range(0, ROWS, 3)), "only rows that had failed"
    check(db, table, job, call_log.again())
