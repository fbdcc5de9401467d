"""What became of jobs is known after Redis forgot everything, and after a restart."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip
from tests.faults.lake import CallLog, Lake
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]


def ended(db: leman.Database, call_log: CallLog) -> list[str]:
    """One job that is done, one with failed rows, one that failed; newest first."""

    @leman.udf(data_type=pa.int64(), name="picky", version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
    def picky(x: int) -> int:
        if x == 3:
            raise ValueError("no")
        return x

    @leman.udf(data_type=pa.int64(), name="never", version="1")
    def never(x: int) -> int:
        raise ValueError("never")

    table = db.create_table("history", numbers(20))
    table.add_columns({"y": call_log.double(seconds=0), "z": picky, "w": never})
    table.backfill("y", progress=False)
    table.backfill("z", progress=False)
    with pytest.raises(leman.JobFailed):
        table.backfill("w", progress=False)
    return [job.job_id for job in db.jobs("history")]


def told(db: leman.Database) -> list[tuple[object, ...]]:
    """All that a user can ask about the jobs."""
    return [
        (
            job,
            db.job(job.job_id),
            [str(e) for e in db.get_errors(job.job_id)],
        )
        for job in db.jobs("history")
    ]


def test_jobs_are_known_after_redis_forgot_everything_and_after_a_restart(lake: Lake, db, call_log):
    job_ids = ended(db, call_log)
    before = told(db)
    assert [job.state for job, *_ in before] == [JobState.FAILED, JobState.DONE_WITH_ERRORS, JobState.DONE]
    assert [len(errors) for *_, errors in before] == [1, 1, 0]
    with lake.redis() as redis:
        redis.flushall()
    assert told(db) == before
    pid = lake.pid("executor")
    lake.kill(pid)
    lake.wait_back("executor", before=pid)
    assert told(db) == before
    assert [job.job_id for job in db.jobs("history")] == job_ids
    with pytest.raises(leman.errors.JobNotFound):
        db.job("job-of-nobody")
