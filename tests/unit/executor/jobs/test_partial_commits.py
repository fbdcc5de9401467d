"""Rows inside fragments that are still being computed are committed after a while, and then ever more seldom."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from leman._format.column_bindings import InputSource
from leman_core.model.job import ColumnCommit, FragmentOutcome
from leman_core.model.plan import CheckpointRef, FragmentTask, StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentResult, InFlightRows, UnitOutcome
from leman_core.settings import Settings
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.plan_execution import PartialCadence, PartialCommits, PlanExecution
from leman_executor.scheduling.stalls import ReservationWaits
from tests.unit.executor.jobs.test_plan_execution import JOB, STAGED, SilentSpark, a_plan, services_of
from tests.unit.executor.manager_helpers import Checkpoints

PARTIAL = StagedFile(file="p.lance", size_bytes=1, digest="d", physical_rows=10, rows_computed=4, rows_failed=0)


class SlowSpark(SilentSpark):
    """Its worker stores four rows of fragment 0, and goes on once these are committed, or at once."""

    def __init__(self, shown: asyncio.Event) -> None:
        super().__init__()
        self.shown = shown

    async def run_workers(self, unit_source: Any, *_: object, **_more: object) -> None:
        unit = await unit_source.next_unit("worker", heartbeats=False)
        ref = CheckpointRef("p_frag-0_range-0-4", RowRange(0, 4))
        unit_source.on_in_flight(unit, InFlightRows(0, stored=ref, stored_bytes=32))
        await self.shown.wait()
        while unit is not None:
            results = tuple(FragmentResult(w.fragment_id, staged=STAGED) for w in unit.works)
            unit_source.on_outcome(UnitOutcome(unit.unit_id, results))
            unit = await unit_source.next_unit("worker", heartbeats=False)


class Written(Checkpoints):
    """Writes partial files."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def write_partial(self, _context: object, task: Any, refs: Any, _stop: object) -> StagedFile:
        self.asked.append((task.fragment_id, [ref.range for ref in refs]))
        return PARTIAL


class Committed:
    """Keeps what is committed: the file of each fragment, and the one that it replaces."""

    def __init__(self, shown: asyncio.Event, *, refuses: bool = False) -> None:
        self.shown, self.refuses = shown, refuses
        self.files: list[list[tuple[int, str, str]]] = []

    async def replace_column(self, _header: object, _output: object, batch: Any, **_: object) -> ColumnCommit:
        self.files.append([(r.fragment_id, r.staged.file, r.replaces) for r in batch])
        taken = not (self.refuses and batch[0].staged is PARTIAL)
        self.shown.set()
        return ColumnCommit(2, [FragmentOutcome(fragment_id=r.fragment_id, committed=taken) for r in batch])


def settings_with(seconds: float) -> Settings:
    plain = Settings()
    return plain.model_copy(update={"executor": plain.executor.model_copy(update={"partial_commit_seconds": seconds})})


async def run(seconds: float, *, refuses: bool = False, **spec: Any) -> tuple[Committed, Written, JobStatus]:
    shown, written = asyncio.Event(), Written()
    commits = Committed(shown, refuses=refuses)
    settings = settings_with(seconds)
    services = replace(services_of(SlowSpark(shown), commits), settings=settings, checkpoints=written)
    job = replace(JOB, request=replace(JOB.backfill, concurrency=1, **spec))
    status = JobStatus(job)
    if seconds > 1:
        shown.set()
    async with asyncio.timeout(10):
        await PlanExecution(status, a_plan(), services, None, ReservationWaits(6.0, 30.0)).work()
    return commits, written, status


def test_stored_rows_are_committed_after_a_while_and_the_complete_file_replaces_them():
    commits, written, status = asyncio.run(run(0.02))
    assert written.asked[0] == (0, [RowRange(0, 4)])
    assert commits.files[0] == [(0, "p.lance", "")]
    assert (0, "f.lance", "p.lance") in commits.files[-1], "no longer what the plan saw"
    assert status.metrics.progress().rows_committed == 20


def test_a_refused_partial_file_settles_nothing():
    commits, _, status = asyncio.run(run(0.02, refuses=True))
    assert (0, "f.lance", "") in commits.files[-1]
    assert status.metrics.progress().rows_committed == 20


def test_a_short_job_makes_no_commit_of_its_own_for_that():
    commits, written, _ = asyncio.run(run(10.0))
    assert not written.asked
    assert {file for batch in commits.files for _, file, _ in batch} == {"f.lance"}


@pytest.mark.parametrize(
    ("spec", "scratch", "commits"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"commit_granularity": 1}, False, False),
        ({"commit_granularity": 1, "commit_rows": 5}, False, True),
    ],
)
def test_the_request_may_ask_for_whole_fragments(spec, scratch, commits):
    async def never() -> bool:
        job = replace(JOB, request=replace(JOB.backfill, **spec))
        services = services_of(SilentSpark(), Committed(asyncio.Event()))
        waits = ReservationWaits(6.0, 30.0)
        return PlanExecution(JobStatus(job), a_plan(), services, None, waits, is_scratch=scratch).commits_partial_files

    assert asyncio.run(never()) is commits


@pytest.mark.parametrize(
    "change",
    [
        {"where": "x > 1"},
        {"failed_only": True},
        {"inputs_version": 1},
        {"input_source": InputSource("/lake/s.lance", 1, ("x",))},
    ],
    ids=str,
)
def test_a_plan_that_leaves_rows_out_for_other_reasons_commits_whole_fragments(change):
    header = a_plan().header
    assert PartialCommits.are_for(header)
    assert not PartialCommits.are_for(replace(header, **change))


def parts(*stored: tuple[FragmentTask, list[CheckpointRef]], refused: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """The fragments of which a partial file would be made, and how many rows it would have."""
    units: Any = SimpleNamespace(stored=lambda: {task.fragment_id: (task, refs) for task, refs in stored})
    committer: Any = SimpleNamespace(takes_partial=lambda fragment_id: fragment_id not in refused)
    nothing: Any = None
    found = PartialCommits(nothing, nothing, committer, PartialCadence(1.0), units)._parts()
    return [(part.task.fragment_id, part.rows) for part in found]


def test_what_a_partial_file_would_hide_or_cannot_have_is_left_to_the_whole_fragment():
    first, second = a_plan().tasks
    some, more = [CheckpointRef("a", RowRange(0, 4))], [CheckpointRef("b", RowRange(0, 6))]
    assert parts((first, some), (second, more)) == [(1, 6), (0, 4)]
    assert parts((first, some), (second, more), refused=(1,)) == [(0, 4)]
    current = first._replace(current_file="f.lance")
    assert parts((current, some)) == [], "its rows have values of another version until all have new ones"
    assert parts((current._replace(extend_current=True), some)) == [(0, 4)]
    assert parts((first, [*some, CheckpointRef("c", RowRange(4, 10))])) == [], "the whole file is about to come"
    with_gaps = CheckpointRef("d", RowRange(4, 8), settles=False)
    assert parts((first, [with_gaps])) == []
    assert parts((first, [*some, with_gaps])) == [(0, 4)]


def test_a_day_of_work_makes_a_dozen_partial_commits():
    cadence, now, times = PartialCadence(Settings().executor.partial_commit_seconds), 0.0, []
    while now < 24 * 3600:
        now += cadence.left(0.0, 1000, 5)
        times.append(now)
        cadence.committed(0.1)
    assert times[:3] == [10, 30, 70]
    assert len(times) == 14


def test_partial_files_take_a_twentieth_of_the_time_at_the_most():
    cadence = PartialCadence(10.0, rows=100)
    assert cadence.left(5.0, 0, 99) > 0, "too few rows"
    assert cadence.left(1.0, 0, 100) <= 0
    cadence.committed(3.0)
    assert cadence.left(1.0, 0, 100) == pytest.approx(59)
    assert PartialCadence(10.0).left(0.0, 400 << 20, 5) == pytest.approx(40), "what is not written yet is estimated"
    assert PartialCadence(0.0, rows=100).never


def test_a_file_with_all_rows_may_replace_a_partial_one_with_the_same_values():
    print_, other = "a" * 32, "b" * 32
    record = FragmentRecord(
        file=f"{print_}-1.lance",
        src_data_files=(),
        output_field_ids=(1,),
        column_id="c",
        fingerprint=print_,
        size_bytes=1,
        digest="d",
        physical_rows=1,
        rows_computed=1,
        rows_failed=0,
        replaces="",
    )
    assert record.may_replace("")
    assert record.may_replace(f"{print_}-partial-2.lance")
    assert not record.may_replace(f"{other}-partial-2.lance")
    assert not record.may_replace(f"{print_}-2.lance")
    assert not replace(record, file=f"{print_}-partial-1.lance").may_replace(f"{print_}-partial-2.lance")
