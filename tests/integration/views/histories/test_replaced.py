"""Views and sources that are dropped and made again under their names while a view is refreshed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.view import SCRATCH_PREFIX, RefreshPlan, RefreshSpec
from leman_core.storage import scratch_table as view_scratch
from leman_core.storage import stored_jobs
from leman_core.storage.lance_tables import INCARNATION_KEY
from leman_executor.refresh import refresh_steps
from leman_executor.refresh.refresh_run import RefreshRun
from tests.integration.views.histories.functions import scored
from tests.integration.views.histories.harness import Planner, rows_of
from tests.integration.views.histories.shapes import SHAPES, query
from tests.integration.views.histories.world import World

SQL, SHAPE = SHAPES[:2]
#: What another source has beyond the one that the view was made of, in its column `x`.
OTHER = 1000


class Killed(BaseException):
    """The process is dead: no code of it runs after that."""


@pytest.fixture(params=[True, False], ids=["incarnation", "files"])
def world(views_system, quick_folder, request):
    """Views of a source at version 4 or 5, which Leman has written to, or has not."""
    made = World(views_system, quick_folder / "db", [SQL, SHAPE])
    if request.param:
        lance.dataset(made.source.uri).update_config({INCARNATION_KEY: "first"})
    made.change("append", 1)
    made.change("append", 2)
    made.change("append", 3)
    return made


def make_anew(world: World, versions: int = 0) -> None:
    """Another source under the name, at so many versions, or later than the former one, with rows of the same ids."""
    source = world.source
    versions = versions or source.version + 3
    known = lance.dataset(source.uri).config().get(INCARNATION_KEY)
    shutil.rmtree(source.uri)
    for version in range(1, versions + 1):
        ids = range(10 * version - 10, 10 * version)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array([i % 10 for i in ids], pa.int64()),
                "x": pa.array([i + OTHER for i in ids], pa.int64()),
                "y": pa.array([i % 4 for i in ids], pa.int64()),
                "u": pa.array(ids, pa.int64()),
            }
        )
        lance.write_dataset(rows, source.uri, mode="append" if version > 1 else "create", enable_stable_row_ids=True)
    if known:
        lance.dataset(source.uri).update_config({INCARNATION_KEY: "second"})


def check_rows(world: World) -> None:
    """The views are as the latest version of the source says."""
    rows = lance.dataset(world.source.uri).to_table().to_pylist()
    scores = {r["id"]: scored(r["id"], r["x"], r["y"]) for r in rows if r["k"] < 7 and r["id"] >= 3}
    assert {r["id"]: r["score"] for r in rows_of(world.uri(SHAPE))[1]} == scores


def after_plan(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    real, once = Planner.plan_refresh, [act]

    async def plan_refresh(self: Planner, spec: RefreshSpec) -> RefreshPlan:
        plan = await real(self, spec)
        if once:
            once.pop()()
        return plan

    monkeypatch.setattr(Planner, "plan_refresh", plan_refresh)


def at_point(point: str) -> Callable[[pytest.MonkeyPatch, Callable[[], None]], None]:
    def arrange(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
        once = [act]

        def crash_point(name: str) -> None:
            if name == point and once:
                once.pop()()

        for module in (view_scratch, refresh_steps):
            monkeypatch.setattr(module, "crash_point", crash_point)

    return arrange


AT: Any = [after_plan, at_point("executor.scratch_written"), at_point("executor.scratch_filled")]
NAMES = ["planned", "scratch table made", "computed"]


def ended(job: Job) -> tuple[JobState, str]:
    return job.state, job.error.reason if job.error else ""


@pytest.mark.parametrize("at", AT, ids=NAMES)
def test_a_refresh_to_the_latest_version_goes_to_that_of_another_source(world, monkeypatch, at):
    world.system.refresh(world.database, SHAPE.name, src_version=1)
    at(monkeypatch, lambda: make_anew(world))
    job = world.system.refresh(world.database, SHAPE.name)
    assert ended(job) == (JobState.DONE, "")
    assert job.refresh_result.source_version == world.source.version
    check_rows(world)


@pytest.mark.parametrize("at", AT[:2], ids=NAMES[:2])
def test_a_first_fill_begins_anew_with_another_source(world, monkeypatch, at):
    at(monkeypatch, lambda: make_anew(world))
    job = world.system.refresh(world.database, SHAPE.name)
    assert ended(job) == (JobState.DONE, "")
    assert job.refresh_result.source_version == world.source.version
    check_rows(world)


@pytest.mark.parametrize("named", [False, True], ids=["latest", "named"])
def test_a_function_that_fails_for_rows_of_another_source_is_not_to_blame(world, monkeypatch, named):
    real, once = RefreshRun._step, [True]

    async def step(self: RefreshRun, plan: RefreshPlan) -> bool:
        if once:
            once.clear()
            make_anew(world)
            raise FailedPrecondition("UDF_FAILED", "it takes no such value")
        return await real(self, plan)

    monkeypatch.setattr(RefreshRun, "_step", step)
    version = world.source.version if named else 0
    job = world.system.refresh(world.database, SHAPE.name, src_version=version)
    assert ended(job) == ((JobState.FAILED, "TABLE_REPLACED") if named else (JobState.DONE, ""))
    if not named:
        check_rows(world)


@pytest.mark.parametrize("at", AT, ids=NAMES)
def test_a_version_that_the_caller_named_is_not_that_of_another_source(world, monkeypatch, at):
    world.system.refresh(world.database, SHAPE.name, src_version=1)
    before, version = rows_of(world.uri(SHAPE)), world.source.version
    at(monkeypatch, lambda: make_anew(world))
    job = world.system.refresh(world.database, SHAPE.name, src_version=version)
    assert ended(job) == (JobState.FAILED, "TABLE_REPLACED")
    assert "view's source was dropped" in job.error.message
    assert rows_of(world.uri(SHAPE)) == before


def test_rows_that_no_function_computes_are_not_those_of_another_source(world, monkeypatch):
    world.system.refresh(world.database, SQL.name, src_version=1)
    version = world.source.version
    after_plan(monkeypatch, lambda: make_anew(world))
    job = world.system.refresh(world.database, SQL.name)
    assert ended(job) == (JobState.DONE, "")
    assert job.refresh_result.source_version == world.source.version != version
    rows = lance.dataset(world.source.uri).to_table(filter="k >= 5").to_pylist()
    assert {r["id"]: r["twice"] for r in rows_of(world.uri(SQL))[1]} == {r["id"]: r["x"] * 2 + r["y"] for r in rows}


def left(world: World, monkeypatch: pytest.MonkeyPatch, version: int = 0) -> Job:
    """The refresh of an executor that died when it had computed rows, as history has it."""

    def die() -> None:
        raise Killed

    with monkeypatch.context() as patched:
        AT[2](patched, die)
        with pytest.raises(Killed):
            world.system.refresh(world.database, SHAPE.name, src_version=version)
    return stored_jobs.decode_job(stored_jobs.encode_job(world.system.status.job))


@pytest.mark.parametrize("named", [False, True], ids=["latest", "named"])
@pytest.mark.parametrize("fewer", [False, True], ids=["later", "earlier"])
def test_who_takes_a_refresh_over_knows_which_source_it_began_with(world, monkeypatch, named, fewer):
    world.system.refresh(world.database, SHAPE.name, src_version=1)
    before, version = rows_of(world.uri(SHAPE)), world.source.version
    job = left(world, monkeypatch, version if named else 0)
    known = bool(lance.dataset(world.source.uri).config())
    make_anew(world, 2 if fewer else 0)
    job = world.system.take_over(job)
    if not named:
        assert ended(job) == (JobState.DONE, "")
        assert job.refresh_result.source_version == world.source.version
        check_rows(world)
        return
    unknown = fewer and not known  # what tells it from the former one was in that version
    assert ended(job) == (JobState.FAILED, "VERSION_NOT_FOUND" if unknown else "TABLE_REPLACED")
    assert rows_of(world.uri(SHAPE)) == before


def test_a_record_of_an_earlier_release_does_not_know_its_source(world, monkeypatch):
    world.system.refresh(world.database, SHAPE.name, src_version=1)
    job = replace(left(world, monkeypatch), source_incarnation="")
    version = world.source.version
    job = world.system.take_over(job)
    assert ended(job) == (JobState.DONE, "")
    assert job.refresh_result.source_version == version


def test_a_source_that_is_put_back_is_the_same(world, monkeypatch, quick_folder):
    world.system.refresh(world.database, SHAPE.name, src_version=1)

    def move_there_and_back() -> None:
        shutil.move(world.source.uri, quick_folder / "away")
        shutil.copytree(quick_folder / "away", world.source.uri)

    AT[2](monkeypatch, move_there_and_back)
    job = world.system.refresh(world.database, SHAPE.name, src_version=world.source.version)
    assert ended(job) == (JobState.DONE, "")


def test_who_takes_a_refresh_over_of_a_view_that_was_replaced_removes_what_it_left(world, monkeypatch):
    world.system.refresh(world.database, SHAPE.name, src_version=1)
    job = left(world, monkeypatch)
    (scratch,) = Path(world.database).glob(f"{SCRATCH_PREFIX}*")
    of_another = scratch.with_name(f"{SCRATCH_PREFIX}{SHAPE.name}_{'ab' * 8}.lance")
    shutil.copytree(scratch, of_another)
    shutil.rmtree(world.uri(SHAPE))
    world.system.create(world.database, SHAPE.name, query(SHAPE, world.database, "t"))
    job = world.system.take_over(job)
    assert ended(job) == (JobState.FAILED, "TABLE_REPLACED")
    assert (scratch.exists(), of_another.exists()) == (False, True)


def test_a_step_that_meets_another_view_does_not_say_what_is_wrong_with_that_one(world, monkeypatch):
    async def step(*_: object) -> bool:
        shutil.rmtree(world.uri(SHAPE))
        lance.write_dataset(world.source.rows(), world.uri(SHAPE))
        raise FailedPrecondition("EXPRESSION_FAILED", "it has no __source_row_id")

    monkeypatch.setattr(RefreshRun, "_step", step)
    job = world.system.refresh(world.database, SHAPE.name)
    assert ended(job) == (JobState.FAILED, "TABLE_REPLACED")
