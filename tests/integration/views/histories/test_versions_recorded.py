"""Refreshes of which all is that the view is right for another version of its source: they end where they begin."""

from __future__ import annotations

import lance
import pytest

from leman_core.model import view_metadata
from leman_core.model.job import JobState
from leman_core.model.service_errors import Aborted, Unavailable
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.source_rows import SourceRows
from leman_executor.refresh import refresh_work
from leman_executor.refresh.refresh_run import RefreshRun
from tests.integration.views.histories.harness import Commits
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SHAPE = SHAPES[0]


@pytest.fixture
def world(views_system, quick_folder):
    made = World(views_system, quick_folder / "db", [SHAPE])
    made.refresh_and_check()
    return made


@pytest.fixture
def runs(monkeypatch):
    """Plans of refreshes that did not end at once."""
    found, run = [], RefreshRun.run

    async def note(self, plan):
        found.append(plan)
        await run(self, plan)

    monkeypatch.setattr(RefreshRun, "run", note)
    return found


def recorded(world):
    return view_metadata.read(lance.dataset(world.uri(SHAPE)).schema).base_version


def refresh(world):
    return world.system.refresh(world.database, SHAPE.name)


def source_version(world):
    return lance.dataset(world.source.uri).version


def test_after_a_compaction_no_row_is_read_and_the_job_ends_at_once(world, runs, monkeypatch):
    before = source_version(world)
    lance.dataset(world.source.uri).optimize.compact_files()
    for reads in ("take", "rows_of", "matching_ids", "matching_rows", "all_ids"):
        monkeypatch.setattr(SourceRows, reads, lambda *_: pytest.fail("rows of the source are read"))
    job = refresh(world)
    result = job.refresh_result
    assert (job.state, runs) == (JobState.DONE, [])
    assert (result.source_version_before, result.source_version) == (before, source_version(world))
    assert (result.rows_added, result.rows_recomputed, result.rows_evicted, result.source_rows_read) == (0, 0, 0, 0)
    assert result.rows_reused == LanceTables().snapshot(world.uri(SHAPE)).live_rows > 0
    assert result.view_version == lance.dataset(world.uri(SHAPE)).version
    assert recorded(world) == source_version(world)
    assert refresh(world).refresh_result.mode.name == "NO_OP"


def test_rows_that_changed_are_work(world, runs):
    lance.dataset(world.source.uri).update({"x": "x + 1"}, where="id = 8")
    lance.dataset(world.source.uri).optimize.compact_files()
    assert refresh(world).state is JobState.DONE
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("error", "left"), [(Unavailable("UNAVAILABLE", "not now"), 0), (Aborted("VIEW_CHANGED", "too late"), 1)]
)
def test_a_commit_that_is_refused_is_left_to_the_job(world, runs, monkeypatch, error, left):
    lance.dataset(world.source.uri).optimize.compact_files()
    delta, errors = Commits.apply_view_delta, [error]

    async def later(self, *args, **kwargs):
        if errors:
            raise errors.pop()
        return await delta(self, *args, **kwargs)

    monkeypatch.setattr(Commits, "apply_view_delta", later)
    assert refresh(world).state is JobState.DONE
    assert len(runs) == left
    assert recorded(world) == source_version(world)


def test_a_commit_of_which_the_answer_is_lost_is_not_made_again(world, runs, monkeypatch):
    lance.dataset(world.source.uri).optimize.compact_files()
    delta, made = Commits.apply_view_delta, []

    async def unanswered(self, *args, **kwargs):
        made.append(await delta(self, *args, **kwargs))
        if len(made) == 1:
            raise Unavailable("UNAVAILABLE", "connection lost")
        return made[-1]

    monkeypatch.setattr(Commits, "apply_view_delta", unanswered)
    job = refresh(world)
    assert (job.state, runs) == (JobState.DONE, [])
    versions = {commit.version for commit in made}
    assert versions == {job.refresh_result.view_version} == {lance.dataset(world.uri(SHAPE)).version}
    assert job.refresh_result.rows_reused == LanceTables().snapshot(world.uri(SHAPE)).live_rows
    assert recorded(world) == source_version(world)


def test_rows_are_compared_once_for_a_plan_and_again_for_another(world, monkeypatch):
    compared, compare = [], refresh_work.row_outcome

    def note(plan, *source):
        compared.append(plan.target_version)
        return compare(plan, *source)

    monkeypatch.setattr(refresh_work, "row_outcome", note)
    world.change("append", 1)
    world.refresh_and_check()
    assert compared == [source_version(world)]
    world.change("append", 2)
    delta, errors = Commits.apply_view_delta, [Aborted("VIEW_CHANGED", "another refresh was faster")]

    async def later(self, *args, **kwargs):
        if errors:
            raise errors.pop()
        return await delta(self, *args, **kwargs)

    monkeypatch.setattr(Commits, "apply_view_delta", later)
    world.refresh_and_check()
    assert compared[1:] == [source_version(world)] * 2
