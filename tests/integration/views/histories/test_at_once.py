"""Refreshes that append or evict few rows and call no function: they are over before any job history knows of them."""

from __future__ import annotations

from typing import Any

import lance
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.service_errors import Aborted, Unavailable
from leman_core.model.view import RefreshMode, RefreshReason
from leman_executor.refresh import refresh_steps, row_diff
from leman_executor.refresh.refresh_run import RefreshRun
from tests.integration.views.histories.harness import Commits, Jobs
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SQL, FUNCTION = SHAPES[:1], SHAPES[1:2]


class Killed(BaseException):
    """The process is dead: no code of it runs after that."""


@pytest.fixture
def saved(monkeypatch) -> list[JobState]:
    """The states of jobs that history was given."""
    states: list[JobState] = []

    async def save(_: Jobs, job: Job) -> Job:
        states.append(job.state)
        return job

    monkeypatch.setattr(Jobs, "save", save)
    return states


@pytest.fixture
def world_of(views_system, quick_folder):
    def make(shapes) -> World:
        world = World(views_system, quick_folder / "db", shapes)
        world.refresh_and_check()
        return world

    return make


@pytest.mark.parametrize(
    ("shapes", "operation", "at_once"),
    [(SQL, "append", True), (SQL, "delete", True), (FUNCTION, "delete", True), (FUNCTION, "append", False)],
)
def test_history_is_told_of_its_end_alone(world_of, saved, shapes, operation, at_once):
    world = world_of(shapes)
    world.change(operation, 1)
    saved.clear()
    world.refresh_and_check()
    assert (saved == [JobState.DONE]) is at_once, saved


def test_of_many_rows_history_is_told_before(world_of, saved, monkeypatch):
    monkeypatch.setattr(refresh_steps, "_FEW_ROWS", 2)
    world = world_of(SQL)
    world.change("append", 1)
    saved.clear()
    world.refresh_and_check()
    assert len(saved) == 2, saved


def test_of_rows_that_may_be_large_history_is_told_before(world_of, saved, monkeypatch):
    """Their values were not read while they were compared: anyone who has the job's id can watch and stop it."""
    monkeypatch.setattr(row_diff, "_FEW_BYTES", 1)
    world = world_of(SQL)
    world.change("append", 1)
    saved.clear()
    world.refresh_and_check()
    assert len(saved) == 2, saved


def test_a_request_that_was_done_elsewhere_meanwhile_is_told_what_was_done(world_of, views_system, monkeypatch):
    """Two executors are given it: one commits, and the other one, which had planned before, plans again."""
    world = world_of(SQL)
    before = lance.dataset(world.uri(SQL[0])).count_rows()
    world.change("append", 1)
    real, runs = RefreshRun.ended_soon, []

    async def overtaken(self: RefreshRun, plan: Any) -> bool:
        runs.append(self)
        if len(runs) == 1:
            faster = RefreshRun(self.status.job, self._work.services)
            assert await real(faster, plan)
        return await real(self, plan)

    monkeypatch.setattr(RefreshRun, "ended_soon", overtaken)
    job = views_system.refresh(world.database, "sql", job_id="job-1")
    view = lance.dataset(world.uri(SQL[0]))
    assert (job.state, job.table_version) == (JobState.DONE, view.version)
    assert job.refresh_result.rows_added == view.count_rows() - before > 0
    assert job.refresh_result.mode is RefreshMode.INCREMENTAL


def test_the_request_of_one_that_died_is_told_what_it_did(world_of, views_system, monkeypatch):
    """It died when its commit was made and no one had been notified."""
    world = world_of(SQL)
    before = lance.dataset(world.uri(SQL[0])).count_rows()
    world.change("append", 1)

    def die(point: str) -> None:
        if point == "executor.delta_answered":
            raise Killed(point)

    with monkeypatch.context() as dying:
        dying.setattr(refresh_steps, "crash_point", die)
        with pytest.raises(Killed):
            views_system.refresh(world.database, "sql", job_id="job-1")
    view = lance.dataset(world.uri(SQL[0]))
    added = view.count_rows() - before
    assert added > 0

    again = views_system.refresh(world.database, "sql", job_id="job-1")
    assert (again.state, again.table_version) == (JobState.DONE, view.version)
    found = again.refresh_result
    assert (found.mode, found.reason) == (RefreshMode.INCREMENTAL, RefreshReason.SOURCE_CHANGED)
    assert (found.rows_added, found.rows_reused, found.view_version) == (added, before, view.version)
    assert found.source_version_before < found.source_version == world.source.version

    other = views_system.refresh(world.database, "sql", job_id="job-2")
    assert (other.refresh_result.mode, other.refresh_result.rows_added) == (RefreshMode.NO_OP, 0)
    assert lance.dataset(view.uri).version == view.version


@pytest.mark.parametrize("error", [Aborted("VIEW_CHANGED", "someone was faster"), Unavailable("UNAVAILABLE", "gone")])
def test_what_cannot_be_done_at_once_is_done_all_the_same(world_of, saved, monkeypatch, error):
    """A coordinator that is not there is asked again by itself; what it refuses is planned again."""
    world = world_of(SQL)
    world.change("append", 1)
    real, asked = Commits.apply_view_delta, []

    async def refused_once(self: Commits, *args: Any, **kwargs: Any) -> int:
        asked.append(kwargs["request_id"])
        if len(asked) == 1:
            raise error
        return await real(self, *args, **kwargs)

    monkeypatch.setattr(Commits, "apply_view_delta", refused_once)
    saved.clear()
    world.refresh_and_check()
    refused = isinstance(error, Aborted)
    assert len(set(asked)) == 1 + refused
    assert len(saved) == 1 + refused
