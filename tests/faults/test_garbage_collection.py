"""Garbage collection around processes that die."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, check_settled, checkpointed, watch_until
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800


def beside(table) -> set[Path]:
    return set(Path(table.uri, "_checkpoints").iterdir())


@pytest.mark.long
def test_what_a_killed_job_left_survives_and_is_used(lake, db, call_log):
    table = db.create_table("gc_killed", numbers(ROWS))
    table.add_columns({"y": call_log.double()})
    future = table.backfill_async("y", checkpoint_size=20)
    watch_until(future, checkpointed(200))
    lake.kill(lake.pid("executor"))
    old = time.time() - 30 * 86400
    left = {path for path in beside(table) if path.suffix == ".lance"}  # a worker may be finishing another one
    for path in left:
        os.utime(path, (old, old))
    assert left
    assert table.collect_checkpoints().files_removed == 0
    assert table.collect_checkpoints(older_than="0").files_removed == 0
    assert beside(table) >= left
    assert future.result(timeout=60)
    assert call_log.again() <= 4 * ROWS_AT_RISK
    check_settled(db, table, ROWS)


def test_the_coordinator_dies_in_a_collection(lake, db, call_log):
    """Asked again, as the SDK does by itself, it goes on."""
    table = db.create_table("gc_dies", numbers(ROWS))
    table.add_columns({"y": call_log.double(seconds=0.0005)})
    assert db.job(table.backfill("y", checkpoint_size=50, task_size=100, progress=False)).state is JobState.DONE
    found, pid = len(table.checkpoints()), lake.pid("commit_coordinator")
    assert found > 3
    lake.arm("coordinator.garbage_removed", 3)
    collected = table.collect_checkpoints(older_than="0")
    assert lake.went_off("coordinator.garbage_removed")
    assert collected.files_removed == found - 3
    assert not beside(table)
    lake.wait_back("commit_coordinator", before=pid)
    check_settled(db, table, ROWS)
