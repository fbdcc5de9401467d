"""Bits of checkpoints change while no job runs: the next one computes what they held, and no process dies of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import leman
from leman import JobState
from tests.faults.lake import ROW_SECONDS, check_settled, checkpointed, watch_until
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 800


def flip_a_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    bit = chance.randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_job_goes_on_from_damaged_checkpoints(lake, db, call_log):
    table = db.create_table("flipped", numbers(ROWS), max_rows_per_file=ROWS // 2)
    table.add_columns({"y": call_log.double(seconds=4 * ROW_SECONDS)})
    future = table.backfill_async("y")
    watch_until(future, checkpointed(ROWS // 4))
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result()
    folder = lake.database / "flipped.lance" / "_checkpoints"
    stored = sorted(folder.glob("*_range-*.lance"))
    assert len(stored) > 2
    chance = random.Random(len(stored))
    for path in stored:
        flip_a_bit(path, chance)
    report = db.verify()
    assert sorted(found.path for found in report.findings) == [f"flipped.lance/_checkpoints/{p.name}" for p in stored]
    pids = {name: lake.pid(name) for name in ("planner", "executor", "commit_coordinator")}
    done = set(call_log.seen())
    job = db.job(table.backfill("y", progress=False))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    check_settled(db, table, ROWS)
    assert call_log.again() == len(done), "nothing that a damaged checkpoint held was believed"
    assert {name: lake.pid(name) for name in pids} == pids
    assert len(list(folder.glob("*.damaged"))) == len(stored)
