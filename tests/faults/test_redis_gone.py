"""Redis saves work and never holds a value: it hangs, or forgets everything, while jobs run."""

from __future__ import annotations

import os
import signal

import pytest

from leman import JobState
from tests.faults.lake import check_settled, checkpointed, wait_for, watch_until
from tests.integration.evidence import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800


@pytest.fixture
def table(request, db, evidence):
    table = db.create_table(request.node.name, numbers(ROWS), max_rows_per_file=40)
    table.add_columns({"y": evidence.double()})
    return table


def test_it_hangs_from_the_middle_of_one_job_to_the_end_of_the_next(lake, db, evidence, table):
    more = db.create_table("while_redis_hangs", numbers(ROWS), max_rows_per_file=40)
    future = table.backfill_async("y")
    watch_until(future, checkpointed(ROWS // 4))
    pid = lake.pid("redis")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert len(evidence.seen()) < ROWS
        assert db.job(future.result(timeout=60)).state is JobState.DONE
        more.add_columns({"y": evidence.double(seconds=0)})
        assert db.job(more.backfill("y", progress=False)).state is JobState.DONE
    finally:
        os.kill(pid, signal.SIGCONT)
    assert sorted(evidence.seen()) == sorted([*range(ROWS)] * 2)
    assert lake.pid("redis") == pid
    check_settled(db, table, ROWS)
    check_settled(db, more, ROWS)


def test_it_forgets_everything_under_two_jobs_on_one_column(lake, db, evidence, table):
    """Who reserved what is lost: both may compute what the other has in hand, and what it finished meanwhile."""
    futures = [table.backfill_async("y", task_size=20) for _ in range(2)]
    watch_until(futures[0], checkpointed(ROWS // 4))
    with lake.redis() as redis:
        assert redis.dbsize() > 2
        redis.flushall()
    assert len(set(evidence.seen())) < ROWS
    for future in futures:
        assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert evidence.again() < ROWS
    check_settled(db, table, ROWS)


def test_leases_of_running_jobs_are_taken_again(lake, db, evidence, table):
    future = table.backfill_async("y", concurrency=1)
    lease = f"leman:job:{future.job_id}"
    with lake.redis() as redis:
        assert redis.exists(lease)
        redis.flushall()
        wait_for(lambda: redis.exists(lease), seconds=10)
    assert not future.done()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    check_settled(db, table, ROWS)
