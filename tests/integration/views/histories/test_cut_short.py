"""What refreshes that were cut short leave behind, and what the next ones make of it."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from core.domain.job import JobState
from core.errors import Internal
from tests.integration.views.histories import shapes
from tests.integration.views.histories.harness import rows_of
from tests.integration.views.histories.source import Source

SHUFFLED = shapes.SHAPES[1]


@pytest.fixture
def database(views_system, quick_folder):
    Source(f"{quick_folder}/source.lance")
    views_system.register(str(quick_folder))
    views_system.create(str(quick_folder), "view", shapes.query(SHUFFLED, str(quick_folder), "source"))
    return str(quick_folder)


def _stages(database):
    return sorted(path.name for path in Path(database).glob("__leman_stage_*"))


def _scores(database):
    rows = lance.dataset(f"{database}/source.lance").to_table().to_pylist()
    return {row["id"]: SHUFFLED.row(row)["score"] for row in rows if SHUFFLED.matches(row)}


def _check(database):
    _, rows = rows_of(f"{database}/view.lance")
    assert {row["id"]: row["score"] for row in rows} == _scores(database)
    assert len(rows) == len(_scores(database))


def _cut(monkeypatch, system, call):
    async def broken(*_args, **_named):
        raise Internal("CUT_SHORT", "no commit is made")

    monkeypatch.setattr(system.services.commits, call, broken)


def test_a_stage_is_not_taken_for_placeholders_that_were_laid_in_other_sizes(views_system, database, monkeypatch):
    with monkeypatch.context() as broken:
        _cut(broken, views_system, "fill_placeholders")
        for rows in (5, 7):
            assert views_system.refresh(database, "view", max_rows_per_fragment=rows).state is JobState.FAILED
    assert _stages(database)
    assert views_system.refresh(database, "view", max_rows_per_fragment=5).state is JobState.DONE
    _check(database)
    assert _stages(database) == []


def test_a_refresh_drops_stages_that_nobody_goes_on_with(views_system, database, monkeypatch):
    views_system.refresh(database, "view")
    source = lance.dataset(f"{database}/source.lance")
    source.update({"x": "x + 1"}, where="id < 20")
    with monkeypatch.context() as broken:
        _cut(broken, views_system, "splice_view")
        assert views_system.refresh(database, "view").state is JobState.FAILED
    assert len(_stages(database)) == 1
    source.update({"x": "x + 1"}, where="id >= 20")
    assert views_system.refresh(database, "view").state is JobState.DONE
    _check(database)
    assert _stages(database) == []
