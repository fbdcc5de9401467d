"""Views of nothing, windows beyond the end, NULL in filters, rows and columns that only look like those before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import lance
import pytest

from leman_core.model.job import JobState
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.view import RefreshMode
from tests.integration.views.histories import functions
from tests.integration.views.histories.harness import rows_of
from tests.integration.views.histories.oracle import Row
from tests.integration.views.histories.shapes import SHAPES, query
from tests.integration.views.histories.source import Source
from tests.integration.views.histories.world import World

SQL, SHUFFLED, LIMITED = SHAPES
STEPS = ("append", "update_filtered", "delete", "compact", "update_read", "upsert", "restore")


def _follow(world: World) -> None:
    world.refresh_and_check()
    for number, operation in enumerate(STEPS):
        world.change(operation, number)
        world.refresh_and_check()


def test_windows_of_no_rows_and_windows_that_rows_come_into(views_system, quick_folder):
    windows = [
        replace(LIMITED, name="none", limit=0, offset=0),
        replace(LIMITED, name="none_further_on", limit=0, offset=5),
        replace(LIMITED, name="beyond", limit=None, offset=45),
        replace(LIMITED, name="far_beyond", limit=20, offset=10_000),
        replace(SHUFFLED, name="of_function", limit=3, offset=30),
    ]
    _follow(World(views_system, quick_folder / "db", windows))


@pytest.mark.parametrize("rows", [0, 20])
def test_a_source_that_is_empty_and_fills_and_is_empty_again(views_system, quick_folder, rows):
    world = World(views_system, quick_folder / "db", rows=rows)
    if rows:
        world.source.delete_all()
    world.refresh_and_check()
    world.change("append", 1)
    world.refresh_and_check()
    world.source.delete_all()
    world.refresh_and_check()
    world.change("compact", 1)
    world.change("append", 2)
    world.refresh_and_check()


def test_a_view_that_is_made_of_an_empty_source(views_system, quick_folder):
    source = Source(f"{quick_folder}/t.lance")
    source.delete_all()
    views_system.register(str(quick_folder))
    views_system.create(str(quick_folder), "v", query(SHUFFLED, str(quick_folder), "t"))
    assert views_system.refresh(str(quick_folder), "v").state is JobState.DONE
    source.append(1)
    job = views_system.refresh(str(quick_folder), "v")
    ids, rows = rows_of(f"{quick_folder}/v.lance")
    assert (job.state, sorted(ids)) == (JobState.DONE, SHUFFLED.ids(source.state))
    assert rows == [SHUFFLED.row(source.state.rows[i].values) for i in ids]


def test_filters_that_no_row_matches(views_system, quick_folder):
    def never(_: Row) -> bool:
        return False

    filtered = [
        replace(shape, name=f"{shape.name}_{number}", where=where, matches=never)
        for shape in SHAPES
        for number, where in enumerate(("id < 0", "x != x", "k = NULL"))
    ]
    _follow(World(views_system, quick_folder / "db", filtered))


def test_the_last_matching_row_goes_and_others_come(views_system, quick_folder):
    ten = replace(SHUFFLED, name="ten", where="x >= 1000", matches=lambda r: (r["x"] or 0) >= 1000)
    world = World(views_system, quick_folder / "db", [ten])
    world.refresh_and_check()
    world.change("update_read", 1)
    world.refresh_and_check()
    assert world.filled["ten"].rows
    world.change("restore", 0)
    world.refresh_and_check()
    world.change("update_read", 2)
    world.refresh_and_check()


def _if_known(of: Callable[[int], bool]) -> Callable[[Row], bool]:
    return lambda row: row["x"] is not None and of(row["x"])


#: Filters of which NULL is neither true nor false, with what they are in Python.
THREE_VALUED: dict[str, Callable[[Row], bool]] = {
    "x > 60": _if_known(lambda x: x > 60),
    "NOT (x > 60)": _if_known(lambda x: x <= 60),
    "x != 15": _if_known(lambda x: x != 15),
    "x > 60 OR k >= 5": lambda r: (r["x"] or 0) > 60 or (r["k"] or 0) >= 5,
    "NOT (x > 60 AND k >= 5)": lambda r: (r["k"] or 0) < 5 or (r["x"] is not None and r["x"] <= 60),
    "x IS NULL OR y = 1": lambda r: r["x"] is None or r["y"] == 1,
    "x NOT IN (15, 18)": _if_known(lambda x: x not in (15, 18)),
}


def test_null_is_no_match_and_becomes_one(views_system, quick_folder):
    shapes = [
        replace(
            SQL, name=f"null_{number}", where=where, matches=matches, function=SHUFFLED.function, given=SHUFFLED.given
        )
        for number, (where, matches) in enumerate(THREE_VALUED.items())
    ]
    world = World(views_system, quick_folder / "db", shapes)
    world.refresh_and_check()
    world.source.forget_read(1)
    world.refresh_and_check()
    world.change("update_read", 2)
    world.change("upsert", 3)
    world.refresh_and_check()
    world.change("compact", 1)
    world.source.forget_read(3)
    world.refresh_and_check()


def test_rows_that_were_deleted_and_inserted_again_are_other_rows(views_system, quick_folder):
    world = World(views_system, quick_folder / "db")
    world.refresh_and_check()
    replaced = world.source.replace(1)
    world.refresh_and_check()  # one function call for each that the view has
    assert any(SHUFFLED.matches(r.values) for r in world.source.state.rows.values() if r.values["id"] in replaced)
    world.change("compact", 0)
    world.source.replace(1)
    world.change("restore", 1)
    world.refresh_and_check()


def test_without_stable_row_ids_only_the_recorded_version_is_refreshed(views_system, quick_folder):
    database, uri = str(quick_folder), f"{quick_folder}/t.lance"
    lance.write_dataset(Source(f"{quick_folder}/other.lance").rows(), uri, max_rows_per_file=12)
    recorded = lance.dataset(uri).version
    views_system.register(database)
    views_system.create(database, "v", query(SHUFFLED, database, "t"), max_rows_per_fragment=9)
    lance.dataset(uri).delete("id = 4")
    with pytest.raises(FailedPrecondition) as caught:
        views_system.refresh(database, "v")
    assert caught.value.reason == "STABLE_ROW_IDS_REQUIRED"
    assert f"src_version={recorded}" in caught.value.message
    job = views_system.refresh(database, "v", src_version=recorded)
    assert job.state is JobState.DONE, job.error
    rows = [row for row in lance.dataset(uri, version=recorded).to_table().to_pylist() if SHUFFLED.matches(row)]
    found = sorted(rows_of(f"{database}/v.lance")[1], key=lambda row: row["id"])
    assert found == [SHUFFLED.row(row) for row in rows]
    lance.dataset(uri).optimize.compact_files()
    again = views_system.refresh(database, "v", src_version=recorded)
    assert again.refresh_result.mode is RefreshMode.NO_OP
    with pytest.raises(FailedPrecondition):
        views_system.refresh(database, "v")


#: A view of each way to read `x`.
READING_X = [
    replace(SQL, name="selected", columns={"x": ("x", lambda r: r["x"])}),
    replace(SQL, name="expression"),
    replace(
        SQL, name="filtered", where="x > 60", matches=_if_known(lambda x: x > 60), columns={"k": SHUFFLED.columns["k"]}
    ),
    replace(SHUFFLED, name="input"),
]


def test_a_column_that_is_renamed_is_missed_by_its_readers_alone(views_system, quick_folder):
    aside = replace(SHUFFLED, name="aside", function=None)
    world = World(views_system, quick_folder / "db", [*READING_X, aside])
    world.refresh_and_check()
    before = world.source.version
    lance.dataset(world.source.uri).alter_columns({"path": "x", "name": "z"})
    for shape in READING_X:
        with pytest.raises(FailedPrecondition) as caught:
            views_system.refresh(world.database, shape.name)
        assert caught.value.reason == "SOURCE_COLUMN_MISSING", shape.name
        assert "z" in caught.value.message
        assert views_system.refresh(world.database, shape.name, src_version=before).state is JobState.DONE
    job = views_system.refresh(world.database, "aside")
    assert (job.state, job.refresh_result.source_rows_read) == (JobState.DONE, 0)
    lance.dataset(world.source.uri).alter_columns({"path": "z", "name": "x"})
    functions.EVALUATED.clear()
    world.refresh_and_check()


def test_columns_that_took_each_others_names(views_system, quick_folder):
    """No data file is another one, and yet every row that is read by those names is."""
    world = World(views_system, quick_folder / "db", READING_X)
    world.refresh_and_check()
    world.source.swap_names("x", "u")
    world.refresh_and_check()
    world.change("append", 1)
    world.change("compact", 1)
    world.refresh_and_check()
    world.source.swap_names("x", "u")
    world.change("delete", 1)
    world.change("compact", 0)
    world.refresh_and_check()
