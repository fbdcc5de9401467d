"""Views that are dropped and made anew while they are refreshed."""

from __future__ import annotations

import shutil

import lance
import pytest

from core.domain.job import JobState
from core.errors import FailedPrecondition
from executor.refresh.refresh_run import RefreshRun
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SHAPE = SHAPES[1]


@pytest.fixture
def world(views_system, quick_folder):
    return World(views_system, quick_folder / "db", [SHAPE])


def test_a_step_that_meets_another_view_does_not_say_what_is_wrong_with_that_one(world, monkeypatch):
    async def step(*_):
        shutil.rmtree(world.uri(SHAPE))
        lance.write_dataset(world.source.rows(), world.uri(SHAPE))
        raise FailedPrecondition("EXPRESSION_FAILED", "it has no __source_row_id")

    monkeypatch.setattr(RefreshRun, "_step", step)
    job = world.system.refresh(world.database, SHAPE.name)
    assert (job.state, job.error.reason) == (JobState.FAILED, "TABLE_REPLACED")
