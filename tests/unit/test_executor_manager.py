"""Jobs over the lives of several executors: what is handed back, what dies, what is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from core.config import Settings
from core.coordination.leases import JobLeases
from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec, FragmentTask, OutputField, Plan, PlanHeader, Reason
from core.domain.ranges import RowRange
from core.domain.table import TableField
from core.domain.udf import UdfDefinition, UdfKind
from core.rpc.blocking import BlockingPool
from executor.lanes.local_runner import LocalRunner
from executor.manager import JobManager

OUTPUT = OutputField(TableField(pa.field("y", pa.int64()), (1,)), "c0ffee")
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
HEADER = PlanHeader("/lake/t.lance", 1, "i", OUTPUT, ("x",), UDF, "", "")
TASK = FragmentTask(0, 10, 0, Reason.MISSING, "f" * 32, "p", (), missing=(RowRange(0, 10),))


class BusySpark:
    """Runs lanes that never end by themselves."""

    def __init__(self) -> None:
        self.at_work = asyncio.Event()

    async def run_lanes(self, *_: object) -> None:
        self.at_work.set()
        await asyncio.Event().wait()

    async def stop_job(self, _: str) -> None:
        return

    def cancel(self, _: str) -> None:
        return

    forget = cancel


class Planner:
    async def create_plan(self, _: BackfillSpec) -> Plan:
        return Plan(HEADER, (TASK,))


class Dispatcher:
    def open(self, *_: object) -> None:
        return

    async def close(self, _: str) -> None:
        return


async def _nothing(*_: object) -> None:
    return


class Executor:
    """A job manager, and the process around it."""

    def __init__(self, database: Path) -> None:
        self.database = str(database)
        self.spark = BusySpark()
        self._pool = BlockingPool(2, name="test")

        def services(save_job: Any) -> Any:
            return SimpleNamespace(
                settings=Settings(),
                spark=self.spark,
                local=LocalRunner(),
                dispatcher=Dispatcher(),
                planner=Planner(),
                commits=None,
                lanes=2,
                save_job=save_job,
                release=_nothing,
            )

        self.jobs = JobManager(Settings(), services, JobLeases("", "me"), self._pool)

    async def works(self) -> None:
        async with asyncio.timeout(10):
            await self.spark.at_work.wait()

    async def die(self) -> None:
        """Ends without a word to history."""
        for task in [*self.jobs._tasks.values()]:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._pool.close()

    async def stop(self) -> None:
        await self.jobs.stop()
        self._pool.close()

    async def job(self, job_id: str) -> Job:
        return await self.jobs.get(self.database, job_id)


def lives(database: Path, ends: list[str]) -> Job:
    """The job after executors that ended so."""

    async def live() -> Job:
        executor = Executor(database)
        job = await executor.jobs.create(BackfillSpec(str(database), "t", "y"), "")
        for end in ends:
            await executor.works()
            await (executor.stop() if end == "stop" else executor.die())
            executor = Executor(database)
            await executor.jobs.open_database(str(database))
            async with asyncio.timeout(10):
                while not (  # noqa: ASYNC110 - the job says so to nobody but who asks
                    executor.spark.at_work.is_set() or (await executor.job(job.job_id)).state.terminal
                ):
                    await asyncio.sleep(0.01)
        found = await executor.job(job.job_id)
        await executor.stop()
        return found

    return asyncio.run(live())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    (tmp_path / "_leman").mkdir()
    return tmp_path


def test_stops_in_good_order_are_no_deaths(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop"] * (most + 1))
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_deaths_are_counted_between_stops(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * (most - 1), "stop"])
    assert (job.state, job.attempt) == (JobState.RUNNING, most + 2)


def test_a_job_that_executors_die_over_is_given_up(database):
    most = Settings().executor.job_attempts_max
    job = lives(database, ["stop", *["die"] * most])
    assert (job.state, job.error.reason) == (JobState.FAILED, "EXECUTOR_LOST")
    assert f"died {most} times" in job.error.message
