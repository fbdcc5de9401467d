"""Processes that die exactly between two steps: what the step before left must be found, and done once."""

from __future__ import annotations

import pytest

from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, check_settled
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800
LAYOUTS = {"many": 100, "one": ROWS}


@pytest.fixture(params=LAYOUTS)
def per_fragment(request: pytest.FixtureRequest) -> int:
    return LAYOUTS[request.param]


@pytest.fixture
def table(request, db, call_log, per_fragment):
    table = db.create_table(request.node.name, numbers(ROWS), max_rows_per_file=per_fragment)
    table.add_columns({"y": call_log.double()})
    return table


@pytest.mark.parametrize(
    ("point", "passes", "min_checkpoint_size", "lost"),
    [
        ("worker.checkpoint_stored", 2, None, 0),
        ("worker.file_written", 1, None, ROWS_AT_RISK),
        ("worker.record_stored", 1, ROWS, 0),  # no checkpoint in between, so that it must be the file that is found
    ],
)
def test_a_worker_dies(lake, db, call_log, table, point, passes, min_checkpoint_size, lost):
    lake.arm(point, passes)
    job = db.job(table.backfill("y", progress=False, min_checkpoint_size=min_checkpoint_size))
    assert lake.went_off(point)
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert call_log.again() <= lost
    check_settled(db, table, ROWS)


def test_the_coordinator_dies_before_it_says_that_columns_are_added(lake, db, call_log):
    table = db.create_table("unanswered", numbers(10))
    pid = lake.pid("commit_coordinator")
    lake.arm("coordinator.columns_added")
    version = table.add_columns({"y": call_log.double(seconds=0)})
    assert lake.went_off("coordinator.columns_added")
    assert table.version == version
    assert table.schema.names == ["x", "y"]
    table.backfill("y", progress=False)
    check_settled(db, table, 10)
    lake.wait_back("commit_coordinator", before=pid)


@pytest.mark.parametrize("per_fragment", [100])
@pytest.mark.parametrize("point", ["coordinator.before_commit", "coordinator.after_commit"])
def test_the_coordinator_dies(lake, db, call_log, table, point):
    """After the commit it had answered no one: asked again it finds the commit, and makes no other."""
    before, pid = table.version, lake.pid("commit_coordinator")
    lake.arm(point)
    job = db.job(table.backfill("y", progress=False))
    assert lake.went_off(point)
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert call_log.again() == 0
    assert table.version - before == job.progress.commits
    check_settled(db, table, ROWS)
    lake.wait_back("commit_coordinator", before=pid)
