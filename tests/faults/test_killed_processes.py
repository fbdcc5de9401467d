"""kill -9 of each process in the middle of a backfill, of a table of many fragments and of a table of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import leman
from leman import JobState
from tests.faults.lake import LANES, ROWS_AT_RISK, Evidence, Lake, check_settled, wait_for
from tests.integration.evidence import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 1200
LAYOUTS = {"many": 40, "one": ROWS}


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path, tmp_path.name)


def begin(db: leman.Database, evidence: Evidence, name: str, per_fragment: int) -> tuple[leman.Table, leman.JobFuture]:
    table = db.create_table(name, numbers(ROWS), max_rows_per_file=per_fragment)
    table.add_columns({"y": evidence.double()})
    return table, table.backfill_async("y")


def watch_until(future: leman.JobFuture, reached: Callable[[leman.Progress], bool]) -> None:
    """Until the job says so; it must not be over then."""
    for job, _ in future.watch(timeout=60):
        assert not job.state.terminal, "the job was over before the fault"
        if reached(job.progress):
            return


def half_checkpointed(progress: leman.Progress) -> bool:
    return progress.rows_checkpointed >= ROWS // 3


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def test_of_a_spark_worker(lake: Lake, db, evidence, layout):
    table, future = begin(db, evidence, f"worker_{layout}", LAYOUTS[layout])
    watch_until(future, half_checkpointed)
    victim = evidence.worker()
    lake.kill(victim)
    assert len(evidence.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert len(evidence.workers()) > LANES, "another worker took its place"
    assert evidence.again() <= ROWS_AT_RISK
    check_settled(db, table, ROWS)


def test_of_the_executor(lake: Lake, db, evidence, layout):
    table, future = begin(db, evidence, f"executor_{layout}", LAYOUTS[layout])
    watch_until(future, half_checkpointed)
    victim = lake.pid("executor")
    lake.kill(victim)
    assert len(evidence.seen()) < ROWS, "nothing was left to do"
    committed = {x: y for x, y in values(table, "y").items() if y is not None}
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert lake.pid("executor") != victim
    assert committed.items() <= values(table, "y").items()
    assert evidence.again() <= LANES * ROWS_AT_RISK
    check_settled(db, table, ROWS)


@pytest.mark.parametrize("victim", ["planner", "commit_coordinator", "redis"])
def test_of_a_process_that_computes_nothing(lake: Lake, db, evidence, layout, victim):
    table, future = begin(db, evidence, f"{victim}_{layout}", LAYOUTS[layout])
    watch_until(future, half_checkpointed)
    pid = lake.pid(victim)
    lake.kill(pid)
    assert len(evidence.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert sorted(evidence.seen()) == list(range(ROWS)), "nothing was computed again"
    check_settled(db, table, ROWS)
    lake.wait_back(victim, before=pid)
