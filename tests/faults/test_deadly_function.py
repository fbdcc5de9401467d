"""A function that ends its process at one row, each time."""

from __future__ import annotations

import pytest

import leman
from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, CallLog, check_settled
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS, PER_FRAGMENT, FATAL = 600, 60, 390
LIVES = 3


def test_its_job_fails_and_says_where_and_others_go_on(lake, db, call_log, tmp_path):
    calm = CallLog(tmp_path, "calm")
    neighbour = db.create_table("neighbour", numbers(2 * ROWS), max_rows_per_file=PER_FRAGMENT)
    neighbour.add_columns({"y": calm.double()})
    table = db.create_table("deadly", numbers(ROWS), max_rows_per_file=PER_FRAGMENT)
    table.add_columns({"y": call_log.double(fatal=FATAL)})
    executor = lake.pid("executor")
    other = neighbour.backfill_async("y")
    with pytest.raises(leman.JobFailed) as caught:
        table.backfill("y", progress=False)
    assert caught.value.reason == "WORKER_LOST"
    assert call_log.seen().count(FATAL) == LIVES
    fragment, offset = divmod(FATAL, PER_FRAGMENT)
    assert f"died {LIVES} times while it computed row {offset} of fragment {fragment}:" in str(caught.value)

    assert db.job(other.result(timeout=60)).state is JobState.DONE
    assert sorted(calm.seen()) == list(range(2 * ROWS))
    check_settled(db, neighbour, 2 * ROWS)
    assert lake.pid("executor") == executor

    assert db.job(table.backfill("y", where=f"x != {FATAL}", progress=False)).state is JobState.DONE
    assert values(table, "y") == {x: None if x == FATAL else 2 * x for x in range(ROWS)}
    assert call_log.again() <= LIVES * ROWS_AT_RISK + LIVES - 1, "what was finished before was kept"
