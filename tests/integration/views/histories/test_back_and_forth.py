"""Views that go back to source versions and functions that they were right for: what was computed then is not computed
again."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

from leman._format import view_definitions
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewFunction
from leman_core.model import view_metadata
from leman_core.model.job import JobState
from leman_core.model.view import RefreshPolicy, RefreshSpec
from leman_core.storage import scratch_table as view_scratch
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.refresh import refresh_run, refresh_steps, scratch_backfills
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.views.histories import functions
from tests.integration.views.histories.oracle import expect
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.test_crashes import KilledWorld, KillingSystem
from tests.integration.views.histories.world import World

SHUFFLED = next(shape for shape in SHAPES if shape.name == "shuffled")
WINDOW = dataclasses.replace(SHUFFLED, name="window", limit=15, offset=3)
FIRST = 1


@pytest.fixture
def world(views_system, quick_folder):
    made = World(views_system, quick_folder / "db", [SHUFFLED])
    made.refresh_and_check()
    return made


def go(world, version=0, **parameters):
    """Refreshes all views to a version of the source; the ids of the rows that the function was called for."""
    called = []
    for shape in world.shapes:
        functions.EVALUATED.clear()
        job = world.system.refresh(world.database, shape.name, src_version=version, **parameters)
        assert job.state is JobState.DONE, job.error
        world._check_rows(shape, expect(shape, None, world.source.versions[version or world.source.version]), [])
        assert job.refresh_result.rows_evaluated == len(functions.EVALUATED)
        called += functions.EVALUATED
    world.filled.clear()
    return sorted(called)


def change(world):
    for operation in ("update_read", "append", "delete", "rewrite_read"):
        world.change(operation, 1)
    return world.source.version


def alter(world, version):
    parameters = ("id", "x", "y")
    entrypoint = f"{functions.__name__}:score"
    UdfRegistry(world.database).put(
        UdfDefinition("score", version, UdfKind.SCALAR, parameters, pa.int64(), entrypoint=entrypoint)
    )
    wanted = [ViewFunction("score", "score", version, parameters)]
    made = ViewCatalog(LanceTables()).alteration(world.database, SHUFFLED.name, wanted, "")
    lance.dataset(world.uri(SHUFFLED)).update_schema_metadata(made.metadata)


@pytest.mark.parametrize("shapes", [[SHUFFLED], [WINDOW]], ids=["filtered", "window"])
def test_between_two_versions(views_system, quick_folder, shapes):
    world = World(views_system, quick_folder / "db", shapes)
    world.refresh_and_check()
    world.filled.clear()
    second = change(world)
    assert go(world)
    for version in (FIRST, second, FIRST, second):
        assert go(world, version) == []


def test_only_rows_that_changed_since_are_computed(world):
    """The nearest version that was seen counts, not the one that the view is at."""
    change(world)
    go(world)
    seen = world.source.state
    go(world, FIRST)
    world.change("update_read", 3)
    changed = expect(SHUFFLED, seen, world.source.state).evaluated
    assert changed
    assert go(world) == [world._id(world.source.state, i) for i in changed]


def test_columns_that_the_function_does_not_read_cost_no_call(world):
    """A column of the source is rewritten, as by a backfill: the view filters by it and shows it."""
    before = set(SHUFFLED.ids(world.source.state))
    world.source._rewrite("k", 46)
    came = set(SHUFFLED.ids(world.source.state)) - before
    assert came
    changed = expect(SHUFFLED, world.filled["shuffled"], world.source.state)
    assert changed.recomputed
    assert go(world) == sorted(world._id(world.source.state, i) for i in came)
    world.source._rewrite("y", 1)
    world.source._rewrite("k", 46)
    rewritten = [i for i, row in world.source.state.rows.items() if "y" in row.columns]
    assert go(world) == sorted(
        world._id(world.source.state, i) for i in SHUFFLED.ids(world.source.state) if i in rewritten
    )


@pytest.mark.parametrize("care", ["compact", "compact_and_clean"])
def test_with_a_source_that_is_cared_for_in_between(world, care):
    """What the versions were that the view had seen, it has recorded."""
    change(world)
    go(world)
    go(world, FIRST)
    world.change(care, 1)
    assert (FIRST in world.source.versions) == (care == "compact")
    assert go(world) == []


def test_to_an_earlier_function_and_back(world):
    rows = len(expect(SHUFFLED, None, world.source.state).rows)
    alter(world, "2")
    assert len(go(world)) == rows
    for version in ("1", "2", "1"):
        alter(world, version)
        assert go(world) == []


def test_to_an_earlier_function_after_the_source_changed(world):
    before = world.source.state
    alter(world, "2")
    go(world)
    change(world)
    go(world)
    alter(world, "1")
    changed = expect(SHUFFLED, before, world.source.state).evaluated
    assert go(world) == [world._id(world.source.state, i) for i in changed]


def test_a_function_of_other_columns_has_other_values(world):
    """Its name and version are those of the values that the view had."""
    world.change("append", 1)
    go(world)
    definition = view_metadata.read(lance.dataset(world.uri(SHUFFLED)).schema)
    (state,) = definition.earlier
    other = dataclasses.replace(state, computed={"score": "score@1(id, y, x)"})
    forged = view_definitions.updates(dataclasses.replace(definition, earlier=(other,)))
    lance.dataset(world.uri(SHUFFLED)).update_schema_metadata(forged)
    plan = ViewReader(LanceTables()).plan(RefreshSpec(world.database, SHUFFLED.name, src_version=FIRST))
    assert (plan.earlier, plan.definition.earlier) == ((), (other,))


def test_a_full_refresh_with_another_function_computes_each_row_once(world):
    world.change("delete", 1)
    alter(world, "2")
    rows = len(expect(SHUFFLED, None, world.source.state).rows)
    assert len(go(world, policy=RefreshPolicy.FULL)) == rows


def test_a_full_refresh_computes_everything_and_forgets(world):
    change(world)
    go(world)
    go(world, FIRST)
    rows = len(expect(SHUFFLED, None, world.source.state).rows)
    assert len(go(world, policy=RefreshPolicy.FULL)) == rows
    assert go(world, FIRST)  # values that were not trusted any more


def test_a_source_that_is_only_written_to_costs_no_look_back_beyond_the_view_as_it_is(world):
    for operation in ("append", "update_read", "delete", "upsert", "compact", "update_filtered", "append"):
        world.change(operation, 5)
        plan = ViewReader(LanceTables()).plan(RefreshSpec(world.database, SHUFFLED.name))
        assert {earlier.view_version for earlier in plan.earlier} <= {plan.version}, operation
        go(world)
    definition = view_metadata.read(lance.dataset(world.uri(SHUFFLED)).schema)
    assert len(definition.earlier) == 6  # of what compaction left alone nothing is remembered


def test_a_view_whose_own_history_was_cleaned_computes(world):
    change(world)
    assert go(world)
    lance.dataset(world.uri(SHUFFLED)).cleanup_old_versions(timedelta(0))
    assert go(world, FIRST)
    assert go(world, world.source.version) == []


def test_states_are_remembered_up_to_a_number(world, monkeypatch):
    monkeypatch.setattr(view_definitions, "MOST_EARLIER", 2)
    for _ in range(3):
        world.change("append", 1)
        go(world)
    definition = view_metadata.read(lance.dataset(world.uri(SHUFFLED)).schema)
    assert [state.source_version for state in definition.earlier] == [3, 2]


@pytest.mark.parametrize(
    "point",
    [
        "executor.scratch_written",
        "executor.earlier_stored",
        "executor.scratch_filled",
        "executor.view_files_written",
        "executor.delta_answered",
    ],
)
def test_killed_on_the_way(views_system, quick_folder, monkeypatch, point):
    killing = KillingSystem(views_system)
    for module in (refresh_run, refresh_steps, scratch_backfills, view_scratch):
        monkeypatch.setattr(module, "crash_point", killing.crash_point)
    world = KilledWorld(killing, quick_folder / "db", [SHUFFLED])
    world.refresh_and_check()
    change(world)
    go(world)
    killing.point = point
    functions.EVALUATED.clear()
    job = killing.refresh(world.database, SHUFFLED.name, src_version=FIRST)
    assert (job.state, killing.deaths, functions.EVALUATED) == (JobState.DONE, 1, [])
    world._check_rows(SHUFFLED, expect(SHUFFLED, None, world.source.versions[FIRST]), [])
