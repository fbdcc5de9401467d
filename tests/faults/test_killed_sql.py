"""kill -9 in the middle of a backfill of a SQL column: its units run in the executor itself, without Spark."""

from __future__ import annotations

import pytest

import leman
from leman import JobState
from leman_core.model.keys import parse_range_key
from leman_core.model.row_positions import count_offsets, merge_ranges
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from tests.faults.lake import Lake, check_settled, checkpointed, watch_until
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 2 * 65_536  # in one fragment
DEAR = " + ".join(f"length({'md5(' * 24}cast(x + {i} as string){')' * 24}) - 32" for i in range(4))


def begin(db: leman.Database, name: str) -> tuple[leman.Table, leman.JobFuture]:
    table = db.create_table(name, numbers(ROWS))
    table.add_columns({"y": f"x * 2 + {DEAR}"})
    future = table.backfill_async("y", checkpoint_size=10_000, concurrency=2)
    watch_until(future, checkpointed(ROWS // 8))
    return table, future


def covered(table: leman.Table) -> int:
    """Rows that checkpoints hold."""
    keys = LanceCheckpointStore(checkpoint_root(table.to_lance().uri)).list_keys()
    return count_offsets(merge_ranges(parsed.range for key in keys if (parsed := parse_range_key(key)) is not None))


@pytest.mark.long
def test_of_the_executor(lake: Lake, db: leman.Database):
    table, future = begin(db, "sql_executor")
    pid = lake.pid("executor")
    lake.kill(pid)
    kept = covered(table)
    assert ROWS // 8 <= kept < ROWS
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert job.progress.rows_evaluated == ROWS - kept
    check_settled(db, table, ROWS)
    lake.wait_back("executor", before=pid)


@pytest.mark.long
def test_of_the_coordinator(lake: Lake, db: leman.Database):
    table, future = begin(db, "sql_coordinator")
    pid = lake.pid("commit_coordinator")
    lake.kill(pid)
    assert covered(table) < ROWS
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt, job.progress.rows_evaluated) == (JobState.DONE, 1, ROWS)
    check_settled(db, table, ROWS)
    lake.wait_back("commit_coordinator", before=pid)
