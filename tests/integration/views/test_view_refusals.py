"""Each reason for which a refresh refuses, and what docs/views.md says is to be done about it."""

from __future__ import annotations

import datetime
import re
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman._format.view_definitions import QUERY
from tests.integration.call_log import numbers, values
from tests.integration.views.test_drop_view import dropped_while_refreshed

DOCS = Path(__file__).resolve().parents[3] / "docs" / "views.md"


@leman.udf(data_type=pa.int64(), version="1")
def twice(x: int) -> int:
    return 2 * x


def _successor(x: int) -> int:
    return x + 1


@pytest.fixture
def table(db) -> leman.Table:
    return db.create_table("t", numbers(10))


@pytest.fixture
def view(db, table) -> leman.View:
    """Filled; it reads the column x only."""
    view = db.create_materialized_view("v", table.search(None).select(["x"]).add_column("y", twice))
    view.refresh(progress=False)
    return view


def refused(view: leman.View, **asked: object) -> leman.LemanError:
    """The error of a refresh, whose plan gives the same."""
    with pytest.raises(leman.LemanError) as caught:
        view.refresh(progress=False, **asked)
    with pytest.raises(leman.LemanError) as planned:
        view.plan_refresh(**asked)
    assert planned.value.reason == caught.value.reason
    return caught.value


def is_right(view: leman.View, table: leman.Table) -> None:
    """It can be refreshed again, and holds what it is to hold."""
    view.refresh(progress=False)
    assert values(view, "y") == {x: 2 * x for x in table.to_arrow(["x"])["x"].to_pylist()}


def test_a_source_without_stable_row_ids(db):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = db.create_table("t", numbers(10), enable_stable_row_ids=False)
        view = db.create_materialized_view("v", table.search(None).add_column("y", twice))
    view.refresh(progress=False)
    table.add({"x": [50]})

    error = refused(view)

    assert error.reason == "STABLE_ROW_IDS_REQUIRED"
    (version,) = map(int, re.findall(r"src_version=(\d+)", str(error)))
    assert view.refresh(src_version=version, progress=False).mode == "no_op"


def test_history_that_is_lost(table, view):
    table.add({"x": [50]})
    table.to_lance().cleanup_old_versions(older_than=datetime.timedelta(0))
    for record in Path(view.uri, "_refresh").iterdir():  # what the view keeps itself would do
        record.unlink()

    assert refused(view, policy="incremental").reason == "FULL_REFRESH_NEEDED"

    assert view.plan_refresh().mode == "full"
    is_right(view, table)


def test_a_column_that_was_renamed(table, view):
    before = table.version
    table.to_lance().alter_columns({"path": "x", "name": "z"})

    error = refused(view)

    assert error.reason == "SOURCE_COLUMN_MISSING"
    assert re.search(r"\bz\b", str(error)), "the name that it has now"
    assert view.refresh(src_version=before, progress=False).mode == "no_op"
    table.to_lance().alter_columns({"path": "z", "name": "x"})
    is_right(view, table)


def test_a_column_that_was_dropped(db):
    table = db.create_table("t", pa.table({"x": range(10), "a": range(10)}))
    view = db.create_materialized_view("v", table.search(None).select(["x", "a"]).add_column("y", twice))
    view.refresh(progress=False)
    table.to_lance().drop_columns(["a"])

    assert refused(view).reason == "SOURCE_COLUMN_MISSING"

    table.to_lance().add_columns({"a": "x + 1"})
    is_right(view, table)
    assert values(view, "a") == {x: x + 1 for x in range(10)}


def test_a_column_of_another_type(table, view):
    table.to_lance().alter_columns({"path": "x", "data_type": pa.int32()})

    assert refused(view).reason == "TYPE_MISMATCH"

    table.to_lance().alter_columns({"path": "x", "data_type": pa.int64()})
    is_right(view, table)


def test_sql_that_has_no_value_for_a_row(db, table):
    query = table.search(None).select({"x": "x", "y": "x * 2", "share": "100 / (x - 50)"})
    view = db.create_materialized_view("v", query)
    is_right(view, table)
    table.add({"x": [60, 50, 70]})

    with pytest.raises(leman.LemanError, match="SQL has no value for the row with id 11 ") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "EXPRESSION_FAILED"
    assert "Divide by zero" in str(caught.value)

    table.to_lance().update({"x": "51"}, where="x = 50")
    is_right(view, table)


def test_a_filter_that_has_no_value_for_a_row(db, table):
    query = table.search(None).where("100 / (x - 50) != 0")
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    table.add({"x": [50]})

    with pytest.raises(leman.LemanError, match="row with id 10 ") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "EXPRESSION_FAILED"

    with pytest.raises(leman.errors.FailedPrecondition, match="row with id 10 ") as caught:
        db.create_materialized_view("another", query)
    assert caught.value.reason == "EXPRESSION_FAILED"


def test_rows_that_somebody_else_wrote(table, view):
    before = view.version
    view.to_lance().delete("x = 3")
    assert refused(view).reason == "EXTERNAL_WRITES"

    view.to_lance(before).restore()
    is_right(view, table)

    view.to_lance().delete("x = 4")
    assert refused(view).reason == "EXTERNAL_WRITES"
    view.refresh(policy="full", progress=False)
    is_right(view, table)


def test_care_for_a_view_is_no_external_write(table, view):
    table.add({"x": [50]})
    view.refresh(progress=False)
    dataset = view.to_lance()
    dataset.optimize.compact_files()
    dataset.create_scalar_index("x", "BTREE")
    dataset.cleanup_old_versions(older_than=datetime.timedelta(0))

    table.add({"x": [60]})
    result = view.refresh(policy="incremental", progress=False)

    assert (result.rows_added, result.rows_reused, result.rows_evaluated) == (1, 11, 1)
    is_right(view, table)


def test_a_version_that_is_not_there(table, view):
    assert refused(view, src_version=99).reason == "VERSION_NOT_FOUND"
    is_right(view, table)


def test_a_function_that_is_not_registered(db, table, view):
    shutil.rmtree(Path(db.uri) / "_leman" / "udfs")
    table.add({"x": [50]})

    assert refused(view).reason == "UDF_NOT_FOUND"

    view.alter_columns({"y": twice})  # registers it
    assert view.refresh(progress=False).rows_evaluated == 1
    is_right(view, table)


def test_a_source_that_is_gone(table, view):
    folder = Path(table.uri)
    folder.rename(folder.with_name("away"))

    assert refused(view).reason == "TABLE_NOT_FOUND"

    folder.with_name("away").rename(folder)
    is_right(view, table)


def test_a_view_that_is_damaged(db, table, view):
    view.to_lance().update_schema_metadata({QUERY: "{"})

    assert refused(view).reason == "VIEW_DAMAGED"

    db.drop_view("v")
    anew = db.create_materialized_view("v", table.search(None).select(["x"]).add_column("y", twice))
    is_right(anew, table)


def test_resources_that_nobody_has(db, table):
    def give(memory):
        return leman.udf(data_type=pa.int64(), version="1", memory=memory)(_successor)

    view = db.create_materialized_view("v", table.search(None).select(["x"]).add_column("y", give(1 << 50)))

    with pytest.raises(leman.errors.ResourcesNotAvailable) as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "RESOURCES_NOT_AVAILABLE"

    view.alter_columns({"y": give(1 << 20)})
    view.refresh(progress=False)
    assert values(view, "y") == {x: x + 1 for x in range(10)}


def test_a_view_that_was_dropped_during_its_refresh_and_made_anew(db, call_log):
    source, future = dropped_while_refreshed(db, call_log)
    other = db.create_materialized_view("v", source.search(None).where("x < 30").select(["x"]))
    with pytest.raises(leman.JobFailed) as caught:
        future.result(60)
    assert caught.value.reason == "TABLE_REPLACED"
    assert other.refresh(progress=False).rows_added == 30


def test_columns_that_are_not_computed(db):
    table = db.create_table("t", numbers(30))
    table.add_columns({"y": "x + 1"})
    view = db.create_materialized_view("v", table.search(None).where("y > 3").select(["x"]))
    with pytest.raises(leman.errors.InputColumnStale) as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "INPUT_COLUMN_STALE"
    assert [stale.column for stale in view.plan_refresh().stale_inputs] == ["y"], "the plan says so, and is none"
    assert view.refresh(progress=False, on_stale_input="first").rows_added == 27


def test_a_refresh_that_computes_inputs_first_says_what_that_changed_in_the_view(db):
    """Before that nothing seemed to be left to do."""
    table = db.create_table("t", numbers(30))
    table.add_columns({"y": "x + 1"})
    view = db.create_materialized_view("v", table.search(None).where("y > 3").select(["x"]))
    view.refresh(progress=False, on_stale_input="first")
    table.add_columns({"y": "x - 1"}, on_change="update")
    with pytest.warns(UserWarning, match="not current"):
        view.refresh(progress=False, on_stale_input="warn")
    done = view.refresh(progress=False, on_stale_input="first")
    assert (done.mode, done.reason, done.rows_evicted) == ("incremental", "source_changed", 2)
    assert "nothing to do" not in str(done)
    assert "already" not in db.job(done.job_id).plan_summary


def test_all_reasons_are_tried_here():
    _, _, section = DOCS.read_text().partition("## When a refresh refuses")
    documented = re.findall(r"^\| `([A-Z_]+)` \|", section.partition("\n## ")[0], re.MULTILINE)

    tried = Path(__file__).read_text()

    assert len(documented) >= 9
    assert [reason for reason in documented if f'.reason == "{reason}"' not in tried] == []
