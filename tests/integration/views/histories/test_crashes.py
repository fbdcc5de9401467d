"""A refresh that dies at each of its steps, and is run again by hand: what the oracle expects, and each row computed
once in both. Processes that die are in tests/faults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import lance
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, Plan
from leman_core.model.service_errors import FailedPrecondition, NotFound, Unavailable
from leman_core.storage import scratch_table as view_scratch
from leman_executor.refresh import refresh_run, refresh_steps
from tests.integration.views.histories.harness import Commits, Planner, System
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SCRATCH = ["executor.scratch_written", "executor.scratch_filled"]
FIRST = ["executor.scratch_written", "executor.fill_answered"]
LATER = [*SCRATCH, "executor.view_files_written", "executor.delta_answered"]


class Killed(BaseException):
    """The process is dead: no code of it runs after that."""


class KillingSystem:
    """Refreshes die once at `point`, where they come to it, and are run again."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.point = ""
        self.deaths = 0

    def crash_point(self, name: str) -> None:
        if name == self.point:
            self.point = ""
            self.deaths += 1
            raise Killed(name)

    def refresh(self, database: str, view: str, **parameters: Any) -> Job:
        armed = self.point
        try:
            return self.system.refresh(database, view, **parameters)
        except Killed:
            return self.system.refresh(database, view, **parameters)
        finally:
            self.point = armed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.system, name)


class KilledWorld(World):
    """The job that died did part of it: what the one after it counts is no more than the rest."""

    def _check_cost(self, *_: Any) -> None:
        pass


@pytest.fixture
def killing(views_system, monkeypatch):
    system = KillingSystem(views_system)
    for module in (refresh_run, refresh_steps, view_scratch):
        monkeypatch.setattr(module, "crash_point", system.crash_point)
    return system


def deaths(point: str) -> int:
    """Views that come to the point: a scratch table is for those with a function."""
    return sum(shape.function is not None for shape in SHAPES) if point in SCRATCH else len(SHAPES)


@pytest.mark.parametrize("point", FIRST)
def test_in_the_first_fill(killing, quick_folder, point):
    world = KilledWorld(killing, quick_folder / "db")
    killing.point = point
    world.refresh_and_check()
    assert killing.deaths == deaths(point)


def test_in_a_first_fill_whose_placeholders_are_made_anew(killing, quick_folder):
    world = KilledWorld(killing, quick_folder / "db")
    world.change("append", 1)
    killing.point = "executor.placeholders_created"
    world.refresh_and_check()
    assert killing.deaths == len(SHAPES)


@pytest.mark.parametrize("point", LATER)
def test_in_a_refresh_of_what_changed(killing, quick_folder, point):
    world = KilledWorld(killing, quick_folder / "db")
    world.refresh_and_check()
    for number, operation in enumerate(("append", "delete", "update_read", "update_filtered", "compact")):
        world.change(operation, number)
    killing.point = point
    world.refresh_and_check()
    assert killing.deaths == deaths(point)


@pytest.mark.parametrize("point", ["executor.view_files_written", "executor.delta_answered"])
def test_whose_source_version_is_gone_when_it_is_taken_over(killing, quick_folder, point):
    """No one had asked for that version: the latest one will do. What was done is not done again."""
    shape = SHAPES[1]  # with a function: history knows the job
    world = KilledWorld(killing, quick_folder / "db", [shape])
    world.refresh_and_check()
    world.change("append", 1)
    killing.point = point
    with pytest.raises(Killed):
        killing.system.refresh(world.database, shape.name)
    dead = killing.status.job
    assert dead.refresh is not None
    world.change("delete", 1)
    world.change("compact", 1)
    lance.dataset(world.source.uri).cleanup_old_versions(timedelta(0), retain_versions=1)
    job = killing.take_over(dead)
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert job.refresh_result is not None
    assert job.refresh_result.source_version == world.source.version > dead.refresh.src_version
    world.filled[shape.name] = world.source.state.copy()
    world.refresh_and_check()


def test_another_refresh_is_creating_the_scratch_table_again(views_system, quick_folder, monkeypatch):
    """Its columns are not there for a moment, or all of it."""
    world = World(views_system, quick_folder / "db")
    create_plan = Planner.create_plan
    errors = [FailedPrecondition("COLUMN_NOT_DEFINED", "no column"), NotFound("TABLE_NOT_FOUND", "no scratch table")]

    async def not_yet(self: Planner, spec: BackfillSpec) -> Plan:
        if errors:
            raise errors.pop()
        return await create_plan(self, spec)

    monkeypatch.setattr(Planner, "create_plan", not_yet)
    world.refresh_and_check()
    assert not errors


@pytest.mark.parametrize("method", ["create_placeholders", "fill_placeholders", "apply_view_delta"])
def test_an_answer_of_the_coordinator_is_lost(views_system, quick_folder, monkeypatch, method):
    """The same request is sent again, and done once."""
    world = World(views_system, quick_folder / "db")
    if method == "apply_view_delta":
        world.refresh_and_check()
    world.change("append", 1)
    real, asked = getattr(Commits, method), []

    async def unanswered(self: Commits, *args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["request_id"])
        answer = await real(self, *args, **kwargs)
        if asked.count(asked[-1]) == 1:
            raise Unavailable("UNAVAILABLE", "connection lost")
        return answer

    monkeypatch.setattr(Commits, method, unanswered)
    before = [lance.dataset(world.uri(shape)).version for shape in SHAPES]
    world.refresh_and_check()
    assert len(asked) == 2 * len(set(asked)) == 2 * len(SHAPES)
    after = [lance.dataset(world.uri(shape)).version for shape in SHAPES]
    commits = 1 if method == "apply_view_delta" else 2
    assert after == [version + commits for version in before]
