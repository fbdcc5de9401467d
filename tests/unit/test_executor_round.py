"""One round of a job over a Spark that starts no lane."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from core.config import Settings
from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec, FragmentTask, OutputField, Plan, PlanHeader, Reason
from core.domain.ranges import RowRange
from core.domain.table import TableField
from core.domain.udf import UdfDefinition, UdfKind
from core.errors import Unavailable
from executor.board import JobBoard
from executor.local_runner import LocalRunner
from executor.round import Round


class DeadSpark:
    """Gives up each time."""

    def __init__(self) -> None:
        self.asked = 0

    async def run_lanes(self, *_: object) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        raise Unavailable("SPARK_FAILED", "Spark gave up on a task")

    async def stop_job(self, _: str) -> None:
        return


class NoDispatcher:
    def open(self, *_: object) -> None:
        return

    async def close(self, _: str) -> None:
        return


async def release(*_: object) -> None:
    return


def test_a_spark_that_starts_no_lane_ends_the_job():
    async def work() -> None:
        output = OutputField(TableField(pa.field("y", pa.int64()), (1,)), "c0ffee")
        udf = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
        header = PlanHeader("/lake/t.lance", 1, "i", output, ("x",), udf, "", "")
        task = FragmentTask(0, 10, 0, Reason.MISSING, "f" * 32, "p", (), missing=(RowRange(0, 10),))
        job = Job("job-1", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0.0, 0.0)
        services: Any = SimpleNamespace(
            settings=Settings(), spark=spark, local=LocalRunner(), dispatcher=NoDispatcher(), commits=None, lanes=2
        )
        services.release = release
        async with asyncio.timeout(10):
            await Round(JobBoard(job), Plan(header, (task,)), services, None).work()

    spark = DeadSpark()
    with pytest.raises(Unavailable) as caught:
        asyncio.run(work())
    assert caught.value.reason == "SPARK_FAILED"
    assert spark.asked == 3
