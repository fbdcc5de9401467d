"""Workers that are started while history does not know the job yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from leman_core.model.job import JobState
from leman_core.model.service_errors import PermissionDenied
from leman_executor.jobs import plan_execution
from leman_executor.jobs.backfill_run import BackfillRun
from tests.unit.executor.jobs.test_plan_execution import JOB, Commits, CountingSpark, services_of


class EarlySpark(CountingSpark):
    """Says when a worker begins and ends; its workers leave when they are asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.ended, self.stopped = 0, asyncio.Event(), False

    async def run_workers(self, unit_source: Any, *rest: object, **_more: object) -> None:
        self.begun += 1
        await super().run_workers(unit_source, *rest)
        self.ended.set()

    async def stop_job(self, _: str) -> None:
        self.stopped = True

    def cancel(self, _: str) -> None:
        return


def run_with(scenario: Callable[[EarlySpark, BackfillRun, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        spark = EarlySpark()
        run = BackfillRun(JOB, services_of(spark, Commits()))
        plan = await run.plan()
        run.prefetch(plan)
        for _ in range(5):
            await asyncio.sleep(0)
        await scenario(spark, run, plan)

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_worker_waits_for_its_first_unit_until_the_job_runs():
    async def scenario(spark: EarlySpark, run: BackfillRun, plan: Any) -> None:
        assert (spark.begun, spark.rows) == (1, 0)
        await run.run(plan)
        assert (spark.begun, spark.rows, spark.stopped) == (1, 20, False)
        assert run.status.job.state is JobState.DONE
        assert run.status.metrics.spark_jobs == 1

    run_with(scenario)


def test_workers_of_a_job_that_is_not_run_after_all_end_without_a_unit():
    async def scenario(spark: EarlySpark, run: BackfillRun, plan: Any) -> None:
        await run.abandon()
        await spark.ended.wait()
        assert (spark.rows, spark.stopped) == (0, True)
        await run.abandon()

    run_with(scenario)


def test_workers_of_a_job_that_is_cancelled_before_it_runs_end_without_a_unit():
    async def scenario(spark: EarlySpark, run: BackfillRun, plan: Any) -> None:
        run.cancel()
        await run.run(plan)
        await spark.ended.wait()
        assert (spark.rows, spark.stopped) == (0, True)
        assert run.status.job.state is JobState.CANCELLED

    run_with(scenario)


def test_another_plan_has_workers_of_its_own():
    async def scenario(spark: EarlySpark, run: BackfillRun, _: Any) -> None:
        await run.run(await run.plan())
        assert (spark.begun, spark.rows, spark.stopped) == (2, 20, True)
        assert run.status.job.state is JobState.DONE

    run_with(scenario)


def test_what_keeps_workers_from_starting_ends_the_job_once_it_runs(monkeypatch):
    def denied(*_: object) -> None:
        raise PermissionDenied("FUNCTION_ACCESS_DENIED", "no")

    monkeypatch.setattr(plan_execution, "work_context", denied)

    async def scenario(spark: EarlySpark, run: BackfillRun, plan: Any) -> None:
        assert spark.begun == 0
        await run.run(plan)
        assert run.status.job.state is JobState.FAILED
        assert run.status.job.error is not None
        assert run.status.job.error.reason == "FUNCTION_ACCESS_DENIED"

    run_with(scenario)
