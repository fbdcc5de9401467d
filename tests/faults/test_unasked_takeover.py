"""An executor is killed in the middle of a job, and another one continues the job without being asked."""

from __future__ import annotations

import contextlib

import pytest

from leman_core.model.job import Job
from leman_executor.history.job_history import JobHistory
from tests.faults.lake import WORKERS, CallLog, armed_lake, check_settled, checkpointed, wait_for, watch_until
from tests.faults.second_executor import second_executor
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.long]

ROWS, TASK = 2000, 40
#: Far more than a lease and two looks, which are 14 seconds.
ADOPTED_SECONDS = 60.0


def test_a_job_goes_on_by_itself(tmp_path):
    database, call_log = tmp_path / "shared", CallLog(tmp_path, "calls")
    folders = [tmp_path / name for name in ("shared", "lake", "first", "other")]
    for folder in folders:
        folder.mkdir()
    with contextlib.ExitStack() as open_things:
        lake = open_things.enter_context(armed_lake(tmp_path / "lake"))
        lake.connect().close()  # starts it
        first, other = (open_things.enter_context(second_executor(lake, folder)) for folder in folders[2:])
        with first.connect(database, other) as here:
            table = here.create_table("t", numbers(ROWS), max_rows_per_file=TASK)
            table.add_columns({"y": call_log.double(seconds=0.02)})
            future = table.backfill_async("y", task_size=TASK)
            watch_until(future, checkpointed(ROWS // 8))
            for process in first.family():
                process.kill()

            def job() -> Job:
                return JobHistory(str(database)).load()[future.job_id]

            wait_for(lambda: job().attempt == 2, seconds=ADOPTED_SECONDS)
            wait_for(lambda: job().state.terminal, seconds=120)
            assert future.result(timeout=60) == future.job_id, "its caller continues with the other executor"
        assert len(call_log.lines()) <= ROWS + WORKERS * TASK, "more was computed again than was lost"
        with other.connect(database) as there:
            check_settled(there, there.open_table("t"), ROWS)
        with lake.redis() as redis:
            assert redis.hlen("leman:open-jobs") == 0
