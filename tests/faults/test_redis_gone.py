"""Redis saves work and never holds a value: it hangs, or forgets everything, while jobs run."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from leman import JobState
from leman_executor.coordination.leases import JobLeases
from tests.faults.lake import CallLog, check_settled, checkpointed, watch_until
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800


@pytest.fixture
def table(request, db, call_log):
    table = db.create_table(request.node.name, numbers(ROWS), max_rows_per_file=40)
    table.add_columns({"y": call_log.double()})
    return table


def test_it_hangs_from_the_middle_of_one_job_to_the_end_of_the_next(lake, db, call_log, table, tmp_path):
    other = CallLog(tmp_path, "while_redis_hangs")
    more = db.create_table("while_redis_hangs", numbers(ROWS), max_rows_per_file=40)
    future = table.backfill_async("y")
    watch_until(future, checkpointed(ROWS // 4))
    pid = lake.pid("redis")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert len(call_log.seen()) < ROWS
        assert db.job(future.result(timeout=60)).state is JobState.DONE
        more.add_columns({"y": other.double(seconds=0)})
        assert db.job(more.backfill("y", progress=False)).state is JobState.DONE
    finally:
        os.kill(pid, signal.SIGCONT)
    assert sorted(call_log.seen()) == sorted(other.seen()) == list(range(ROWS))
    assert lake.pid("redis") == pid
    check_settled(db, table, ROWS)
    check_settled(db, more, ROWS)


def test_it_forgets_everything_under_two_jobs_on_one_column(lake, db, call_log, table):
    """Who reserved what is lost: both may compute what the other has in hand, and what it finished meanwhile."""
    futures = [table.backfill_async("y", task_size=20) for _ in range(2)]
    call_log.wait(ROWS // 4)
    with lake.redis() as redis:
        assert redis.dbsize() > 2
        redis.flushall()
    assert len(set(call_log.seen())) < ROWS, "nothing was left to do"
    for future in futures:
        assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() < ROWS
    check_settled(db, table, ROWS)


def test_a_lease_that_was_forgotten_is_taken_again_by_its_holder(lake, db):
    async def renewed() -> bytes | None:
        leases = JobLeases(lake.redis_url, "holder")
        await leases.acquire("some job")
        with lake.redis() as redis:
            redis.flushall()
            await leases.renew("some job")
            await leases.close()
            return redis.get("leman:job:some job")

    assert asyncio.run(renewed()) == b"holder"
