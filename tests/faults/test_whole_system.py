"""The whole embedded system ends in the middle of a backfill: nothing stays behind, and the next one goes on."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, WORKERS, alive, check_settled, checkpointed, wait_for, watch_until
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS = 1200
ORPHANS_END_SECONDS = 15
KEY = "TEST_KEY_OF_A_JOB"


@pytest.mark.parametrize(
    ("number", "env"),
    [(signal.SIGKILL, {KEY: "a key of this job"}), pytest.param(signal.SIGTERM, {}, marks=pytest.mark.long)],
    ids=["killed", "ended"],
)
def test_the_supervisor_is_ended(lake, db, call_log, number, env):
    """SIGTERM lets workers store what they have, or it comes down to the same as SIGKILL: either is enough. A job with
    environment variables continues with them, as there is a folder for their values."""
    table = db.create_table(f"ended_by_{number.name}", numbers(ROWS), max_rows_per_file=300)
    table.add_columns({"y": call_log.double(variable=next(iter(env), ""))})
    future = table.backfill_async("y", env=env)
    watch_until(future, checkpointed(ROWS // 3))
    family = lake.family()
    supervisor = psutil.Process(lake.pid("supervisor"))
    names = {process.name() for process in family if alive(process)}
    assert {"java", "redis-server"} <= names
    assert call_log.worker() in {process.pid for process in family}

    os.kill(supervisor.pid, number)
    wait_for(lambda: not [process for process in family if alive(process)], seconds=ORPHANS_END_SECONDS)
    assert len(call_log.seen()) < ROWS, "nothing was left to do"

    with lake.connect() as again:
        assert lake.pid("supervisor") != supervisor.pid
        job = again.job(future.job_id)
        assert job.attempt <= 2
        job = again.job(future.result(timeout=60))
        assert (job.state, job.attempt) == (JobState.DONE, 2)
        assert call_log.again() <= WORKERS * ROWS_AT_RISK
        wait_for(lambda: not list(lake.env_folder.glob("*.env")))  # values are forgotten with the job's end
        check_settled(again, again.open_table(table.name), ROWS)
