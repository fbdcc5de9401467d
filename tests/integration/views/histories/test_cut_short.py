"""What refreshes that were cut short leave behind, and what the next ones make of it."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from leman_core.model.job import JobState
from leman_core.model.service_errors import Internal
from tests.integration.views.histories import functions, shapes
from tests.integration.views.histories.harness import Commits, rows_of
from tests.integration.views.histories.source import Source

SHUFFLED = shapes.SHAPES[1]


@pytest.fixture
def database(views_system, quick_folder):
    Source(f"{quick_folder}/source.lance")
    views_system.register(str(quick_folder))
    views_system.create(str(quick_folder), "view", shapes.query(SHUFFLED, str(quick_folder), "source"))
    return str(quick_folder)


def _scratch_tables(database):
    return sorted(path.name for path in Path(database).glob("__leman_scratch_*"))


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


def test_what_was_computed_is_taken_for_placeholders_that_were_made_in_other_sizes(views_system, database, monkeypatch):
    functions.EVALUATED.clear()
    with monkeypatch.context() as broken:
        _cut(broken, views_system, "fill_placeholders")
        for rows in (5, 7):
            assert views_system.refresh(database, "view", max_rows_per_fragment=rows).state is JobState.FAILED
    assert _scratch_tables(database)
    assert views_system.refresh(database, "view", max_rows_per_fragment=5).state is JobState.DONE
    _check(database)
    assert sorted(functions.EVALUATED) == sorted(_scores(database))
    assert _scratch_tables(database) == []


@pytest.mark.parametrize("rows", [5, 7, 100])
@pytest.mark.parametrize("fills", [0, 1])
def test_what_was_computed_before_the_view_was_compacted_is_not_computed_again(
    views_system, database, monkeypatch, fills, rows
):
    """A part of it was installed, or nothing; rows with values and without come into one fragment."""
    functions.EVALUATED.clear()
    real, done = Commits.fill_placeholders, []

    async def some(self, *args, **named):
        if len(done) == fills:
            raise Internal("CUT_SHORT", "no more commits are made")
        done.append(await real(self, *args, **named))
        return done[-1]

    with monkeypatch.context() as broken:
        broken.setattr(Commits, "fill_placeholders", some)
        cut = views_system.refresh(database, "view", max_rows_per_fragment=2)
    assert cut.state is JobState.FAILED
    held = len(rows_of(f"{database}/view.lance")[0])
    assert bool(held) == bool(fills)
    lance.dataset(f"{database}/view.lance").optimize.compact_files(target_rows_per_fragment=rows)

    job = views_system.refresh(database, "view")

    assert job.state is JobState.DONE, job.error
    _check(database)
    assert sorted(functions.EVALUATED) == sorted(_scores(database))
    assert cut.refresh_result.rows_added == held
    assert held + job.refresh_result.rows_added == len(_scores(database))
    assert _scratch_tables(database) == []


def test_a_refresh_drops_scratch_tables_that_nobody_goes_on_with(views_system, database, monkeypatch):
    views_system.refresh(database, "view")
    source = lance.dataset(f"{database}/source.lance")
    source.update({"x": "x + 1"}, where="id < 20")
    with monkeypatch.context() as broken:
        _cut(broken, views_system, "apply_view_delta")
        assert views_system.refresh(database, "view").state is JobState.FAILED
    assert len(_scratch_tables(database)) == 1
    source.update({"x": "x + 1"}, where="id >= 20")
    assert views_system.refresh(database, "view").state is JobState.DONE
    _check(database)
    assert _scratch_tables(database) == []
