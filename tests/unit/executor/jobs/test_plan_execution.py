"""One plan execution over a Spark that starts no worker, and over one that does not say when its workers have ended."""

from __future__ import annotations

import asyncio
import gc
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model.databases import StoreOptions
from leman_core.model.job import ColumnCommit, FragmentOutcome, Job, JobState
from leman_core.model.plan import (
    BackfillSpec,
    FragmentTask,
    OutputField,
    Plan,
    PlanHeader,
    Reason,
    StagedFile,
    StaleInput,
)
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Aborted, PermissionDenied, Unavailable
from leman_core.model.table import TableField
from leman_core.model.work import FragmentResult, ProgressReport, ServerAnswers, UnitFailure, UnitOutcome
from leman_core.settings import Settings
from leman_core.storage import object_stores
from leman_executor.jobs import backfill_run
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.columns_run import ColumnsRun
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.plan_execution import PlanExecution
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.scheduling.stalls import ReservationWaits
from tests.unit.executor.manager_helpers import Checkpoints, Reservations


class DeadSpark:
    """Gives up each time."""

    busy_for = staticmethod(lambda _job_id: "")
    trouble = None

    def __init__(self) -> None:
        self.asked = 0

    async def run_workers(self, *_: object, **_more: object) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        raise Unavailable("SPARK_FAILED", "Spark gave up on a task")

    async def stop_job(self, _: str) -> None:
        return

    def slots(self, here: int) -> int:
        return here


class SilentSpark:
    """One worker works units off; Spark itself never reports that its job has ended."""

    busy_for = staticmethod(lambda _job_id: "")
    trouble = None

    def __init__(self, failure: UnitFailure | None = None) -> None:
        self.failure = failure
        self.left = False

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        try:
            while (unit := await unit_source.next_unit("worker", heartbeats=False)) is not None:
                results = tuple(FragmentResult(w.fragment_id, staged=STAGED) for w in unit.works)
                unit_source.on_outcome(UnitOutcome(unit.unit_id, () if self.failure else results, self.failure))
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left = True
            raise

    async def stop_job(self, _: str) -> None:
        return

    def slots(self, here: int) -> int:
        return here


class CountingSpark(SilentSpark):
    """Its worker evaluates all rows that it is given, and writes a file."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        while (unit := await unit_source.next_unit("worker", heartbeats=False)) is not None:
            rows = [sum(r.rows for r in w.ranges) for w in unit.works]
            self.rows += sum(rows)
            results = (
                FragmentResult(w.fragment_id, staged=STAGED, rows_evaluated=n)
                for w, n in zip(unit.works, rows, strict=True)
            )
            unit_source.on_outcome(UnitOutcome(unit.unit_id, tuple(results)))

    def forget(self, _: str) -> None:
        return


class GrowingSpark(SilentSpark):
    """A cluster whose executors come after the job: it has one core, and five more once that one is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.cores = 1
        self.counts: list[int] = []
        self._enough = asyncio.Event()

    def slots(self, here: int) -> int:
        return self.cores

    async def run_workers(self, unit_source: Any, _: object, count: int, *__: object, **_more: object) -> None:
        self.counts.append(count)
        if sum(self.counts) == 6:
            self._enough.set()
        unit = await unit_source.next_unit("worker", heartbeats=False)
        self.cores = 6
        await self._enough.wait()
        while unit is not None:
            results = tuple(FragmentResult(w.fragment_id, staged=STAGED) for w in unit.works)
            unit_source.on_outcome(UnitOutcome(unit.unit_id, results))
            unit = await unit_source.next_unit("worker", heartbeats=False)


class FullSpark(GrowingSpark):
    """Of a cluster that others fill, until someone gives cores back."""

    def __init__(self) -> None:
        super().__init__()
        self.cores, self.free = 6, asyncio.Event()
        self.busy_for = lambda _job_id: "" if self.free.is_set() else "all 4 cores are in use"

    async def run_workers(self, unit_source: Any, context: object, count: int, *rest: object, **_more: object) -> None:
        await self.free.wait()
        await super().run_workers(unit_source, context, count, *rest)


class NoDispatcher:
    """Its address is the unit source itself."""

    def open(self, _: str, unit_source: Any, _context: Any) -> Any:
        return unit_source

    async def close(self, _: str) -> None:
        return


class Commits:
    async def replace_column(self, _header: object, _output: object, batch: Any, **_: object) -> ColumnCommit:
        return ColumnCommit(2, [FragmentOutcome(fragment_id=r.fragment_id, committed=True) for r in batch])


class Refusing:
    """Takes no file, and always says the same."""

    def __init__(self, reason: str = "TYPE_MISMATCH") -> None:
        self.reason = reason

    async def replace_column(self, _header: object, _output: object, batch: Any, **_: object) -> ColumnCommit:
        outcomes = [
            FragmentOutcome(fragment_id=r.fragment_id, committed=False, reason=self.reason, message="not that column")
            for r in batch
        ]
        return ColumnCommit(0, outcomes)


class Jobs:
    """A history that no one reads."""

    async def save(self, job: Job) -> Job:
        return job

    def lost_commit(self, _job: Job, _version: int) -> None:
        return None


STAGED = StagedFile(file="f.lance", size_bytes=1, digest="d", physical_rows=10, rows_computed=10, rows_failed=0)


def a_plan() -> Plan:
    output = OutputField(TableField(pa.field("y", pa.int64()), (1,)), "c0ffee")
    udf = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
    header = PlanHeader(
        uri="/lake/t.lance",
        read_version=1,
        incarnation="i",
        output=output,
        input_columns=("x",),
        udf=udf,
        bundle_uri="",
        where="",
        rows_to_compute=20,
    )
    tasks = tuple(
        FragmentTask(i, 10, 0, Reason.MISSING, "f" * 32, "p", (), missing=(RowRange(0, 10),)) for i in range(2)
    )
    return Plan(header, tasks)


class Planner:
    async def create_plan(self, _: BackfillSpec) -> Plan:
        return a_plan()


JOB = Job("job-1", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0.0, 0.0)


def services_of(spark: Any, commits: object) -> Any:
    return JobEnvironment(
        settings=Settings(),
        spark=spark,
        local=LocalRunner(),
        dispatcher=NoDispatcher(),
        planner=Planner(),
        commits=commits,
        slots=2,
        jobs=Jobs(),
        checkpoints=Checkpoints(),
        reservations=Reservations(),
    )


async def work(spark: Any, status: JobStatus | None = None, commits: object = None) -> Any:
    status = status or JobStatus(JOB)
    async with asyncio.timeout(10):
        unsettled = await PlanExecution(
            status, a_plan(), services_of(spark, commits or Commits()), None, ReservationWaits(6.0, 30.0)
        ).work()
        await asyncio.sleep(0)
    return unsettled, status.metrics.fragments_committed


@pytest.mark.parametrize(("reason", "told"), [("FILE_DAMAGED", 2), ("FILE_MISSING", 2), ("FRAGMENT_CHANGED", 0)])
def test_a_file_that_was_changed_before_its_commit_is_an_event_of_the_job(reason, told):
    status = JobStatus(JOB)
    asyncio.run(work(SilentSpark(), status, Refusing(reason)))
    said = [event.message for event in status._events if event.kind == "error"]
    assert len(said) == told
    assert all(message.endswith("is not installed: not that column") for message in said)


@pytest.mark.parametrize(("reason", "overtaken"), [("VERSION_NOT_FOUND", True), ("FILE_MISSING", False)])
def test_a_version_that_others_cleaned_up_is_no_lack_of_progress(reason, overtaken):
    unsettled, _ = asyncio.run(work(SilentSpark(UnitFailure(reason, "gone"))))
    assert (unsettled.overtaken, unsettled.why) == (overtaken, "gone")


def test_a_spark_that_starts_no_worker_ends_the_job():
    spark = DeadSpark()
    with pytest.raises(Unavailable) as caught:
        asyncio.run(work(spark))
    assert caught.value.reason == "SPARK_FAILED"
    assert spark.asked == 3


def test_a_plan_execution_is_over_when_its_work_is_not_when_spark_says_so():
    spark = SilentSpark()
    unsettled, committed = asyncio.run(work(spark))
    assert unsettled is None
    assert committed == 2
    assert spark.left


def test_a_job_that_began_before_the_clusters_executors_gets_their_cores(monkeypatch):
    monkeypatch.setenv("LEMAN_WRITER__STALL_CHECK_SECONDS", "0.02")

    async def scenario() -> tuple[list[int], tuple[Any, int]]:
        spark = GrowingSpark()
        done = await work(spark)
        return spark.counts, done

    assert asyncio.run(scenario()) == ([1, 5], (None, 2))


def test_no_more_workers_are_started_than_there_are_rows():
    class OneWorker(SilentSpark):
        count = 0

        async def run_workers(self, unit_source: Any, _: object, count: int, *__: object, **more: object) -> None:
            self.count = count
            await super().run_workers(unit_source, **more)

    spark = OneWorker()
    greedy = replace(JOB, request=replace(JOB.backfill, concurrency=2**31 - 1))
    assert asyncio.run(work(spark, JobStatus(greedy))) == (None, 2)
    assert spark.count == 20


class LosingSpark(SilentSpark):
    """Its two workers give up row after row, as servers break the connections."""

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        units = [await unit_source.next_unit(worker, heartbeats=False) for worker in ("one", "other")]
        for lost in itertools.count(1):
            for unit in units:
                answers = ServerAnswers(lost=lost, message="gone", refusals=("its certificate has ended",))
                unit_source.on_report(ProgressReport(unit_id=unit.unit_id, servers=answers))
                await asyncio.sleep(0)


def test_a_job_ends_whose_servers_answer_no_worker():
    status = JobStatus(JOB)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(work(LosingSpark(), status))
    assert caught.value.reason == "FUNCTION_UNAVAILABLE"
    said = [event.message for event in status._events if event.kind == "error"]
    assert said == ["a server of the function is not used: its certificate has ended"]


class UnluckySpark(SilentSpark):
    """One of its two workers gets no server; the other one is answered, or is not."""

    def __init__(self, *, answered: bool) -> None:
        super().__init__()
        self.answers = ServerAnswers(answered=int(answered))

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        one = await unit_source.next_unit("one", heartbeats=False)
        other = await unit_source.next_unit("other", heartbeats=False)
        unit_source.on_report(ProgressReport(unit_id=one.unit_id, servers=self.answers))
        no_server = UnitFailure("FUNCTION_UNAVAILABLE", "none could be had", elsewhere=True)
        unit_source.on_outcome(UnitOutcome(other.unit_id, (), no_server))
        unit = one
        while unit is not None:
            results = tuple(FragmentResult(w.fragment_id, staged=STAGED) for w in unit.works)
            unit_source.on_outcome(UnitOutcome(unit.unit_id, results))
            unit = await unit_source.next_unit("one", heartbeats=False)
        await asyncio.Event().wait()


def test_one_worker_that_gets_no_server_ends_no_job_where_others_are_answered():
    status = JobStatus(JOB)
    assert asyncio.run(work(UnluckySpark(answered=True), status)) == (None, 2)
    said = [event.message for event in status._events if event.kind == "error"]
    assert said == ["other returns its rows because servers answer other workers: none could be had"]
    with pytest.raises(Unavailable, match="none could be had"):
        asyncio.run(work(UnluckySpark(answered=False)))


class SplittingSpark(UnluckySpark):
    """Its workers report again and again that a batch was given to the function in parts."""

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        unit = await unit_source.next_unit("one", heartbeats=False)
        while unit is not None:
            unit_source.on_report(ProgressReport(unit_id=unit.unit_id, split="ValueError: odd"))
            results = tuple(FragmentResult(w.fragment_id, staged=STAGED) for w in unit.works)
            unit_source.on_outcome(UnitOutcome(unit.unit_id, results))
            unit = await unit_source.next_unit("one", heartbeats=False)
        await asyncio.Event().wait()


def test_a_job_says_once_that_a_batch_is_given_to_the_function_again():
    status = JobStatus(JOB)
    assert asyncio.run(work(SplittingSpark(answered=True), status)) == (None, 2)
    (said,) = [event.message for event in status._events if event.kind == "error"]
    assert said.startswith("a batch failed and is retried in smaller parts")
    assert said.endswith(": ValueError: odd")


class CancelledSpark(SilentSpark):
    """Its workers, and replacements of silent ones, say only after the job's end that they were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stopped, self.ended = 0, asyncio.Event(), 0

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        self.begun += 1
        if self.begun == 1:
            unit = await unit_source.next_unit("worker", heartbeats=False)
            unit_source.reassign(unit)
        await self.stopped.wait()
        self.ended += 1
        raise Cancelled("job-1")

    async def stop_job(self, _: str) -> None:
        self.stopped.set()


@pytest.mark.parametrize("how", ["by its workers", "from outside", "by a failure"])
def test_whatever_ends_a_job_no_worker_complains_that_nobody_hears_it(how):
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        spark = CancelledSpark()
        services = services_of(spark, Commits())
        execution = PlanExecution(JobStatus(JOB), a_plan(), services, None, ReservationWaits(6.0, 30.0))
        working = asyncio.ensure_future(execution.work())
        while spark.begun < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        if how == "by its workers":
            spark.stopped.set()
        elif how == "from outside":
            working.cancel()
        else:
            execution._units.fail(Unavailable("UNIT_FAILED", "no"))
        with pytest.raises((Cancelled, asyncio.CancelledError, Unavailable)):
            await working
        if how == "by its workers":
            assert spark.ended == 2

    asyncio.run(asyncio.wait_for(scenario(), 10))
    gc.collect()
    assert [str(complaint.get("message")) for complaint in complaints] == []


def test_a_job_says_that_it_waits_for_a_full_cluster(monkeypatch):
    monkeypatch.setenv("LEMAN_WRITER__STALL_CHECK_SECONDS", "0.02")
    monkeypatch.setenv("LEMAN_WRITER__STALL_IDLE_CHECKS", "2")

    async def scenario() -> JobStatus:
        spark, status = FullSpark(), JobStatus(JOB)
        execution = PlanExecution(status, a_plan(), services_of(spark, Commits()), None, ReservationWaits(6.0, 30.0))
        working = asyncio.ensure_future(execution.work())
        while not status.job.stalls:  # noqa: ASYNC110 - a status tells its watchers only while it ticks
            await asyncio.sleep(0.01)
        (stall,) = status.job.stalls
        assert "no worker has asked for work: all 4 cores are in use" in stall.message
        spark.free.set()
        assert await working is None
        return status

    status = asyncio.run(asyncio.wait_for(scenario(), 10))
    told = [event.message for event in status._events if event.kind == "wait"]
    assert told == ["the job waits for workers: all 4 cores are in use"]
    assert status.job.stalls == ()


def test_what_workers_are_waited_for_is_told_at_once(monkeypatch):
    """Before the first look for stalls: Spark starts with the first job."""
    monkeypatch.setenv("LEMAN_WRITER__STALL_CHECK_SECONDS", "60")

    async def scenario() -> JobStatus:
        spark, status = FullSpark(), JobStatus(JOB)
        execution = PlanExecution(status, a_plan(), services_of(spark, Commits()), None, ReservationWaits(6.0, 30.0))
        working = asyncio.ensure_future(execution.work())
        while not status._events:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        spark.free.set()
        assert await working is None
        return status

    status = asyncio.run(asyncio.wait_for(scenario(), 10))
    assert next(event.kind for event in status._events) == "wait"


@pytest.mark.parametrize(("setting", "concurrency"), [("1", 0), ("0", 1)])
def test_a_job_whose_workers_were_chosen_keeps_them(monkeypatch, setting, concurrency):
    monkeypatch.setenv("LEMAN_EXECUTOR__SLOTS", setting)
    services = services_of(SimpleNamespace(slots=lambda _: 6), Commits())
    services = replace(services, slots=int(setting) or 2)
    assert task_slots_for(a_plan().header.udf, concurrency, services).count == 1


def test_a_function_that_this_executor_does_not_run_ends_the_job_whatever_the_planner_says(monkeypatch):
    monkeypatch.setenv("LEMAN_UDF__ALLOW", '["sql"]')
    spark = SilentSpark(UnitFailure("FRAGMENT_GONE", "fragment 0 is gone"))
    with pytest.raises(PermissionDenied) as caught:
        asyncio.run(work(spark))
    assert caught.value.reason == "UDF_NOT_ALLOWED"


def test_so_is_one_that_has_to_be_planned_again():
    spark = SilentSpark(UnitFailure("FRAGMENT_GONE", "fragment 0 is gone"))
    unsettled, committed = asyncio.run(work(spark))
    assert "fragment 0 is gone" in unsettled.why
    assert committed == 0
    assert spark.left


async def work_again_and_again(spark: Any) -> Job:
    run = BackfillRun(JOB, services_of(spark, Refusing()))
    async with asyncio.timeout(10):
        await run.run(await run.plan())
    return run.status.job


def test_rows_of_a_file_that_is_always_refused_are_not_computed_for_ever():
    spark = CountingSpark()
    job = asyncio.run(work_again_and_again(spark))
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert (job.error.reason, job.error.message.count("not that column")) == ("NO_PROGRESS", 1)
    assert spark.rows == 5 * 20


def test_a_worker_is_told_of_credentials_that_were_renewed_since_its_job_began():
    async def units() -> list[tuple[StoreOptions, ...]]:
        object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="gs://lake", token="old")]))
        header = replace(a_plan().header, uri="gs://lake/t.lance")
        plan = replace(a_plan(), header=header)
        spark = SilentSpark()
        execution = PlanExecution(
            JobStatus(JOB), plan, services_of(spark, Commits()), None, ReservationWaits(6.0, 30.0)
        )
        source = execution._units
        same = await source.next_unit("a", heartbeats=False)
        source.on_lost(same)
        object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="gs://lake", token="new")]))
        renewed = await source.next_unit("a", heartbeats=False)
        source.on_lost(renewed)
        object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="gs://lake", token="old")]))
        return [same.stores, renewed.stores, (await source.next_unit("a", heartbeats=False)).stores]

    try:
        told = [[store.token for store in stores] for stores in asyncio.run(units())]
        assert told == [[], ["new"], ["old"]], "also one that is as at first again: workers have another one by now"
    finally:
        object_stores.set_store_source(object_stores.GivenStores())


def test_why_a_job_plans_again_is_told_in_a_few_lines():
    status = JobStatus(JOB)
    status.replans("rows moved")
    status.replans(f"it cannot be read: {'/lake/t.lance/_checkpoints/a-long-name ' * 40}")
    short, long = (event.message for event in status._events)
    assert short == "planning again: rows moved"
    assert long.startswith("planning again: it cannot be read: /lake/t.lance")
    assert long.endswith(" …")
    assert len(long) < 330


def inputs_run(stale: object, plans: list[object]) -> SimpleNamespace:
    """A run whose plans come one after the other; those that are `stale` have it compute inputs first."""
    return SimpleNamespace(
        _computes_inputs=lambda plan: plan is stale,
        _inputs=SimpleNamespace(compute=AsyncMock()),
        _check_stop=None,
        status=SimpleNamespace(job=JOB, metrics=SimpleNamespace(inputs_computed=lambda _: None)),
        plan=AsyncMock(side_effect=plans),
    )


def test_inputs_that_become_stale_as_fast_as_they_are_computed_end_the_job():
    stale = SimpleNamespace(header=SimpleNamespace(stale_inputs=(StaleInput("x", 5),)))
    run = inputs_run(stale, [stale] * backfill_run._PLANS_WITHOUT_PROGRESS)
    told = "become stale again as soon as they are computed, because other jobs write to the"
    with pytest.raises(Aborted, match=told) as refused:
        asyncio.run(BackfillRun._after_inputs(run, stale))
    assert refused.value.reason == "NO_PROGRESS"
    assert run._inputs.compute.await_count == run.plan.await_count > 1


def test_inputs_that_are_fresh_after_the_last_plan_are_read():
    """The last computation allowed counts: its plan is looked at as those before it are."""
    stale, fresh = SimpleNamespace(header=SimpleNamespace(stale_inputs=[1])), SimpleNamespace(header=SimpleNamespace())
    run = inputs_run(stale, [*[stale] * (backfill_run._PLANS_WITHOUT_PROGRESS - 1), fresh])
    assert asyncio.run(BackfillRun._after_inputs(run, stale)) is fresh


def test_columns_that_wait_for_each_other_end_the_job():
    column = SimpleNamespace(name="y", waits={"z"}, plan=None, ended=False)
    other = SimpleNamespace(name="z", waits={"y"}, plan=None, ended=False)
    run = SimpleNamespace(_open=[column, other], _check_stop=lambda: None, _plan_missing=AsyncMock())
    with pytest.raises(Aborted, match="each column now waits for another one") as refused:
        asyncio.run(ColumnsRun._work(run))
    assert refused.value.reason == "NO_PROGRESS"
