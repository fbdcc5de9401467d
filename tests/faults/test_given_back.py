"""What a job reserved is free as soon as it has ended, however it ended: no one waits for reservations to expire."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from tests.faults.lake import CallLog, Lake
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 400


def reserved(lake: Lake, job_id: str) -> list[str]:
    """Ranges that a job has reserved."""
    with lake.redis() as redis:
        scopes = [key for key in redis.scan_iter("leman:reservation:*") if redis.type(key) == b"hash"]
        fields = [field.decode() for key in scopes for field in redis.hkeys(key)]
    return [field for field in fields if f"-{job_id}@" in field]


def begin(db: leman.Database, name: str, udf: leman.UDF) -> leman.JobFuture:
    table = db.create_table(name, numbers(ROWS), max_rows_per_file=100)
    table.add_columns({"y": udf})
    return table.backfill_async("y", task_size=100)


def test_of_a_cancelled_job(lake, db, call_log: CallLog):
    """Its workers sit in the function and are killed there: they give nothing back themselves."""
    future = begin(db, "cancelled_early", call_log.double(seconds=30))
    call_log.wait(2)
    assert reserved(lake, future.job_id)
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    assert not reserved(lake, future.job_id)


def test_of_a_job_that_ends_well_although_a_worker_died(lake, db, tmp_path):
    """What it had reserved no one else gives back."""

    def deadly(x: int) -> int:
        import os

        if x == 150:
            os._exit(1)
        return 2 * x

    skipping = leman.ErrorHandlingConfig(on_error=[leman.Skip(["WorkerLost"])])
    udf = leman.udf(data_type=pa.int64(), name="deadly", version="1", error_handling=skipping)(deadly)
    future = begin(db, "ends_well", udf)
    assert db.job(future.result(timeout=120)).state is leman.JobState.DONE_WITH_ERRORS
    assert not reserved(lake, future.job_id)


def test_of_a_failed_job(lake, db, call_log: CallLog):
    """One worker fails; the others are ended with what they hold."""
    slow = call_log.double(seconds=30).func

    def failing(x: int) -> int:
        if x == 0:
            raise ValueError(x)
        return slow(x)

    udf = leman.udf(data_type=pa.int64(), name="failing", version="1")(failing)
    future = begin(db, "failing_early", udf)
    with pytest.raises(leman.JobFailed):
        future.result(timeout=60)
    assert not reserved(lake, future.job_id)
