"""Fragments that several columns of one job read together: which ones, and what becomes of a pass that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorPolicy, UdfDefinition, UdfKind
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, FragmentTask, Plan, PlanHeader, Reason, StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Unavailable
from leman_core.model.work import FragmentResult, UnitFailure, UnitOutcome, WorkUnit
from leman_core.settings import Settings
from leman_executor.jobs import column_sharing
from leman_executor.jobs.column_sharing import SharedColumn, SharedReads
from leman_executor.jobs.columns_run import _divides_fragments
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.work_context import work_context
from tests.unit.executor.manager_helpers import HEADER

STAGED = StagedFile(file="f.lance", size_bytes=1, digest="d", physical_rows=10, rows_computed=10, rows_failed=0)
UDF = UdfDefinition("f", "1", UdfKind.SQL, ("x",), pa.int64())


def task(fragment_id: int, **more: Any) -> FragmentTask:
    whole = FragmentTask(fragment_id, 10, 0, Reason.MISSING, "f" * 32, "p", (), missing=(RowRange(0, 10),))
    return whole._replace(**more)


def a_column(tasks: int | list[FragmentTask] = 3, udf: UdfDefinition = UDF, **header: Any) -> SharedColumn:
    planned: PlanHeader = replace(HEADER, udf=udf, **header)
    job = Job("job-1", "", JobState.RUNNING, BackfillSpec("/lake", "t", "y"), 0.0, 0.0)
    plan = Plan(planned, tuple(map(task, range(tasks))) if isinstance(tasks, int) else tuple(tasks))
    metrics = JobMetrics()
    metrics.planned(plan, 0.0)
    return SharedColumn(plan, work_context(job, planned, Settings(), (), {}), metrics)


class Worker:
    """Stages what it is given; `does` says what else becomes of the first column's units."""

    def __init__(self, does: Callable[[WorkUnit], Any] = lambda _unit: None) -> None:
        self.does = does
        self.contexts: list[Any] = []

    def __call__(self, context: Any) -> Any:
        state, first = Worker(self.does), not self.contexts or context is self.contexts[0]
        self.contexts.append(context)
        state.run = lambda unit, *_, **__: (first and self.does(unit)) or _staged(unit)  # type: ignore[attr-defined]
        return state


def _staged(unit: WorkUnit) -> UnitOutcome:
    results = (
        FragmentResult(w.fragment_id, staged=STAGED, rows_evaluated=10, rows_computed=10, checkpoints=())
        for w in unit.works
    )
    return UnitOutcome(unit.unit_id, tuple(results))


class Reader:
    def __init__(self, *_: object) -> None:
        pass


def read(monkeypatch: pytest.MonkeyPatch, columns: list[SharedColumn], worker: Worker, workers: int = 2) -> SharedReads:
    monkeypatch.setattr(column_sharing, "WorkerState", worker)
    monkeypatch.setattr(column_sharing, "FragmentReader", Reader)
    reads = SharedReads(columns, workers)

    async def scenario() -> None:
        async with asyncio.timeout(10):
            while reads.left:
                await reads.run(60)

    worker.contexts.append(columns[0].context)
    asyncio.run(scenario())
    return reads


def staged(column: SharedColumn) -> list[int]:
    plan = column.take_staged()
    return [] if plan is None else [t.fragment_id for t in plan.tasks]


def test_whole_fragments_of_all_columns_are_staged(monkeypatch):
    columns = [a_column(), a_column([task(0), task(2), task(3)])]
    read(monkeypatch, columns, Worker())
    assert [staged(column) for column in columns] == [[0, 2], [0, 2]], "1 and 3 are of one column alone"
    assert [column.metrics.rows_computed for column in columns] == [20, 20]


@pytest.mark.parametrize(
    "other",
    [
        a_column([task(0, staged=STAGED)]),
        a_column([task(0, missing=(RowRange(5, 10),))]),
        a_column([task(0, rows_failed_before=1)]),
        a_column(where="x > 1"),
        a_column(failed_only=True),
        a_column(inputs_version=1),
        a_column(read_version=2),
        a_column(udf=replace(UDF, error_policy=ErrorPolicy(max_errors=5))),
        a_column(udf=replace(UDF, error_policy=ErrorPolicy(max_error_fraction=0.1))),
    ],
)
def test_a_column_that_needs_more_than_whole_fragments_of_the_version_is_not_shared(other):
    """Its own run looks for stored rows, filters, and ends the job where more rows fail than may."""
    assert not SharedReads([a_column(1), other], 2).left


def test_what_a_pass_does_not_do_is_left_to_the_run_of_its_column(monkeypatch):
    """An error of its function, or of a store: others are not in the way."""
    failed = UnitFailure("UDF_FAILED", "100 / 0")
    columns = [a_column(1), a_column(1)]
    read(monkeypatch, columns, Worker(lambda unit: UnitOutcome(unit.unit_id, (), failed)))
    assert [staged(column) for column in columns] == [[], [0]]

    def unavailable(_: WorkUnit) -> None:
        raise Unavailable("STORE_UNAVAILABLE", "a store is away")

    columns = [a_column(1), a_column(1)]
    read(monkeypatch, columns, Worker(unavailable))
    assert [staged(column) for column in columns] == [[], [0]]
    assert [column.metrics.rows_evaluated for column in columns] == [0, 10]


def test_a_bug_in_a_pass_ends_the_job_and_is_waited_for_by_nobody(monkeypatch):
    def bug(_: WorkUnit) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        read(monkeypatch, [a_column(5), a_column(5)], Worker(bug))


def test_passes_for_which_there_is_no_thread_end_the_job_and_are_waited_for_by_nobody(monkeypatch):
    """The scan waits until all members have begun: those that never do have to leave."""

    class Exhausted(column_sharing.ThreadPoolExecutor):  # type: ignore[name-defined,misc]
        left = 3

        def submit(self, *args: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("can't start new thread")
            return super().submit(*args, **more)

    monkeypatch.setattr(column_sharing, "ThreadPoolExecutor", Exhausted)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        read(monkeypatch, [a_column(1), a_column(1)], Worker(), workers=1)


def test_a_job_that_is_cancelled_while_fragments_are_read_stops(monkeypatch):
    monkeypatch.setattr(column_sharing, "WorkerState", Worker())
    monkeypatch.setattr(column_sharing, "FragmentReader", Reader)
    reads = SharedReads([a_column(), a_column()], 1)

    async def scenario() -> None:
        reading = asyncio.create_task(reads.run(60))
        await asyncio.sleep(0)
        reading.cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(scenario())
    assert not reads.left


@pytest.mark.parametrize(("columns", "workers"), [(2, 16), (32, 4), (200, 1)])
def test_passes_at_once_are_bounded(columns, workers):
    """Each has a writer with buffers of its own."""
    assert SharedReads([a_column(50) for _ in range(columns)], 16)._workers == workers


@pytest.mark.parametrize(
    ("option", "divides"),
    [
        ({}, False),
        ({"concurrency": 2}, False),
        ({"task_size": 1}, True),
        ({"task_shuffle_diversity": 2}, True),
        ({"commit_granularity": 1}, True),
        ({"commit_rows": 5}, True),
    ],
)
def test_options_about_fragments_and_commits_hold_for_each_column_by_itself(option, divides):
    assert _divides_fragments(BackfillSpec("/lake", "t", "", columns=("a", "b"), **option)) is divides
