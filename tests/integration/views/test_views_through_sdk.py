"""Views through SDK, gRPC, Spark and Redis: what a caller writes, and what it costs."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

import leman
from tests.integration.call_log import CallLog, numbers


def pairs(view: leman.View, *columns: str) -> list[tuple[object, ...]]:
    found = view.to_arrow(list(columns)).to_pydict()
    return sorted(zip(*(found[name] for name in columns), strict=True))


def test_a_view_from_its_query_to_its_changes(db, call_log):
    table = db.create_table("t", numbers(60), max_rows_per_file=20)
    query = table.search(None).where("x >= 10").select(["x"]).add_column("y", call_log.double(version="1"))
    view = query.shuffle(seed=42).create_materialized_view(conn=db, view_name="v")
    assert call_log.seen() == []
    assert (view.count_rows(), view.describe().rows_unset) == (0, 50)
    assert view.to_arrow().num_rows == 0

    first = view.refresh(progress=False)
    assert (first.mode, first.reason, first.rows_added) == ("full", "first_fill", 50)
    assert pairs(view, "x", "y") == [(x, 2 * x) for x in range(10, 60)]
    order = view.to_arrow()["x"].to_pylist()
    assert order != sorted(order)
    assert view.schema.names == ["x", "y"]

    nothing = view.refresh(progress=False)
    assert (nothing.mode, nothing.reason) == ("no_op", "up_to_date")

    table.add({"x": [100, 5]})
    added = view.refresh(progress=False)
    assert (added.mode, added.rows_added, added.rows_reused, added.rows_evaluated) == ("incremental", 1, 50, 1)
    assert view.to_arrow()["x"].to_pylist() == [*order, 100]

    table.to_lance().delete("x = 20 OR x = 3")
    table.to_lance().optimize.compact_files()
    evicted = view.refresh(progress=False, policy="incremental")
    assert (evicted.rows_evicted, evicted.rows_evaluated) == (1, 0)
    assert sorted(call_log.seen()) == [*range(10, 60), 100]


def test_back_to_an_older_version(db, call_log):
    table = db.create_table("t", numbers(20))
    version = table.version
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double()))
    table.add({"x": [50]})
    view.refresh(progress=False)
    assert view.count_rows() == 21
    result = view.refresh(src_version=version, progress=False)
    assert (result.mode, result.rows_evicted, result.source_version) == ("incremental", 1, version)
    assert view.describe().source_version == version
    assert view.count_rows() == 20


def test_max_rows_per_fragment_is_exact(db):
    table = db.create_table("t", numbers(15))
    view = db.create_materialized_view("v", table.search(None).select({"z": "x + 1"}))
    view.refresh(max_rows_per_fragment=7, progress=False)
    assert [f.count_rows() for f in view.to_lance().get_fragments() if f.count_rows()] == [7, 7, 1]
    table.add({"x": list(range(100, 105))})
    view.refresh(max_rows_per_fragment=2, progress=False)
    assert [f.count_rows() for f in view.to_lance().get_fragments() if f.count_rows()] == [7, 7, 1, 2, 2, 1]


def test_another_function_is_computed_for_its_column_only(db, call_log, tmp_path):
    other, new = CallLog(tmp_path, "other"), CallLog(tmp_path, "new")
    table = db.create_table("t", numbers(30))
    query = table.search(None).add_column("y", call_log.double(version="1")).add_column("z", other.double(version="o"))
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    view.alter_columns({"y": new.double(version="2")})
    assert view.plan_refresh().stale == ("y",) == view.describe().stale_columns
    (listed,) = db.views()
    assert (listed.name, listed.source_table, listed.row_count, listed.rows_unset) == ("v", "t", 30, 0)
    assert listed.stale_columns == ("y",)
    result = view.refresh(progress=False)
    assert result.mode == "incremental"
    assert db.views()[0].stale_columns == ()
    assert sorted(new.seen()) == list(range(30))
    assert len(other.seen()) == 30
    assert view.refresh(progress=False).mode == "no_op"
    assert pairs(view, "x", "y", "z") == [(x, 2 * x, 2 * x) for x in range(30)]


def test_what_was_computed_before_is_not_computed_again(db, call_log, tmp_path):
    new = CallLog(tmp_path, "new")
    table = db.create_table("t", numbers(30))
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double(version="1")))
    view.refresh(progress=False)
    first = table.version
    table.to_lance().update({"x": "x + 100"}, where="x < 3")
    view.refresh(progress=False)
    assert sorted(call_log.seen()) == [*range(30), 100, 101, 102]
    call_log.clear()
    for version, rows in ((first, [*range(30)]), (table.version, [*range(3, 30), 100, 101, 102])):
        result = view.refresh(src_version=version, progress=False)
        assert (result.rows_recomputed, result.rows_evaluated) == (3, 0)
        assert pairs(view, "x", "y") == [(x, 2 * x) for x in rows]
    view.alter_columns({"y": new.double(version="2")})
    view.refresh(progress=False)
    view.alter_columns({"y": call_log.double(version="1")})
    assert "reuse their values from version" in view.plan_refresh().message
    assert view.refresh(progress=False).rows_evaluated == 0
    assert (call_log.seen(), len(new.seen())) == ([], 30)
    assert pairs(view, "x", "y") == [(x, 2 * x) for x in (*range(3, 30), 100, 101, 102)]


def test_rows_that_are_updated_and_merged_are_new_in_a_view_and_others_stay(db, call_log):
    table = db.create_table("t", pa.table({"id": range(20), "x": range(20)}), max_rows_per_file=10)
    query = table.search(None).where("x < 100").select(["id", "x"]).add_column("y", call_log.double())
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    call_log.clear()

    table.update("id < 3", values_sql={"x": "x + 50"})
    table.update("id = 4", {"x": 400})
    updated = view.refresh(progress=False, policy="incremental")
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"id": [4, 5, 77], "x": [60, 61, 62]})
    )
    rows = {**{n: n for n in range(20)}, **{n: n + 50 for n in range(3)}, 4: 60, 5: 61, 77: 62}
    merged = view.refresh(progress=False, policy="incremental")

    assert (updated.rows_evicted, updated.rows_evaluated, merged.rows_evaluated) == (1, 3, 3)
    assert pairs(view, "id", "x", "y") == [(n, x, 2 * x) for n, x in sorted(rows.items())]
    assert sorted(call_log.seen()) == [50, 51, 52, 60, 61, 62]

    remaining = pa.table({"id": [1, 77]})
    table.merge_insert("id").when_not_matched_by_source_delete("id > 10").execute(remaining)
    assert view.refresh(progress=False, policy="incremental").rows_evaluated == 0
    assert pairs(view, "id") == [(n,) for n in (*range(11), 77)]


def test_views_on_views_in_two_databases(db, system, tmp_path, call_log):
    table = db.create_table("t", numbers(20))
    low = db.create_materialized_view("low", table.search(None).add_column("y", call_log.double()))
    with system.connect(tmp_path / "other") as elsewhere:
        with pytest.warns(UserWarning, match="20 rows of the source view 'low' have no values"):
            top = low.search(None).where("y >= 10").select(["y"]).create_materialized_view(elsewhere, "top")
        assert [v.name for v in top.sources()] == ["low"]
        top.refresh(cascade=True, progress=False)
        assert pairs(top, "y") == [(2 * x,) for x in range(5, 20)]
        table.add({"x": [40]})
        assert top.refresh(progress=False).mode == "no_op", "low was not refreshed"
        result = top.refresh(cascade=True, progress=False)
        assert (result.mode, result.rows_added) == ("incremental", 1)
    assert sorted(call_log.seen()) == [*range(20), 40]


def test_without_stable_row_ids_it_stays_at_its_version(db, call_log):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = db.create_table("t", numbers(10), enable_stable_row_ids=False)
    version = table.version
    with pytest.warns(UserWarning, match="stable row IDs"):
        view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double()))
    view.refresh(progress=False)
    table.add({"x": [50]})
    with pytest.raises(leman.errors.FailedPrecondition, match="Cannot refresh materialized view to version") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "STABLE_ROW_IDS_REQUIRED"
    assert view.refresh(src_version=version, progress=False).mode == "no_op"
    assert view.count_rows() == 10


def test_rows_of_a_view_can_be_a_table(db):
    view = db.create_materialized_view("v", db.create_table("t", numbers(5)).search(None))
    view.refresh(progress=False)

    copy = db.create_table("copy", view.to_arrow())
    lance.write_dataset(view.to_arrow(), f"{db.uri}/other.lance")

    assert [type(db.open_table(name)) for name in ("copy", "other")] == [leman.Table, leman.Table]
    copy.add({"x": [5]})
    again = db.create_materialized_view("again", copy.search(None))
    assert again.refresh(progress=False).rows_added == 6


def test_external_writes_are_refused_until_a_full_refresh(db):
    table = db.create_table("t", numbers(10))
    view = db.create_materialized_view("v", table.search(None).select(["x"]))
    view.refresh(progress=False)
    view.to_lance().delete("x = 3")
    with pytest.raises(leman.errors.FailedPrecondition, match="POLICY_FULL") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "EXTERNAL_WRITES"
    view.refresh(policy="full", progress=False)
    assert pairs(view, "x") == [(x,) for x in range(10)]
    assert view.refresh(progress=False).mode == "no_op"


def test_limit_and_sql_only(db):
    table = db.create_table("t", numbers(20))
    view = db.create_materialized_view("v", table.search(None).where("x % 2 = 0").select(["x"]).limit(3).offset(1))
    view.refresh(progress=False)
    assert pairs(view, "x") == [(2,), (4,), (6,)]
    table.to_lance().delete("x = 4")
    job = db.job(view.refresh_async().result(60))
    assert job.progress.spark_jobs == 0
    assert job.refresh_result.rows_added == 1
    assert pairs(view, "x") == [(2,), (6,), (8,)]


def test_a_view_is_made_once(db):
    table = db.create_table("t", numbers(5))
    db.create_materialized_view("v", table.search(None))
    with pytest.raises(leman.errors.TableExists):
        db.create_materialized_view("v", table.search(None))
    assert db.table_names() == ["t", "v"]
    assert isinstance(db.open_table("v"), leman.View)
    assert db.open_view("v").schema == pa.schema(list(table.schema))


def test_indexes_of_a_view_leave_out_what_a_refresh_adds_until_they_are_brought_up_to_date(db):
    table = db.create_table("src", numbers(100), max_rows_per_file=50)
    view = table.search(None).create_materialized_view(db, "indexed")
    view.refresh(progress=False)
    view.to_lance().create_scalar_index("x", "BTREE")
    table.add(numbers(50, 100))
    view.refresh(progress=False)
    [stale] = db.jobs()[0].stale_indices
    assert (stale.columns, stale.rows_left_out) == (("x",), 50)
    assert not any(index.is_stale for index in view.optimize_indices(["x"]))
    table.add(numbers(50, 150))
    view.refresh(optimize_indices=True, progress=False)
    assert db.jobs()[0].stale_indices == ()
    assert not any(index.is_stale for index in view.optimize_indices())
    assert view.refresh(progress=False).mode == "no_op"


def test_a_program_that_makes_a_view_is_run_again_and_by_several_at_once(db):
    table = db.create_table("t", numbers(5))

    @leman.udf(data_type=pa.int64(), version="1")
    def twice(x: int) -> int:
        return 2 * x

    def make(where: str = "x > 1", limit: int | None = None) -> leman.View:
        query = table.search(None).where(where).select(["x"]).add_column("y", twice)
        return db.create_materialized_view("v", query if limit is None else query.limit(limit), exist_ok=True)

    with ThreadPoolExecutor(4) as threads:
        views = list(threads.map(lambda _: make(), range(4)))
    assert {view.uri for view in views} == {db.open_view("v").uri}
    views[0].refresh(progress=False)
    assert pairs(make(), "x", "y") == [(2, 4), (3, 6), (4, 8)], "it is opened as it is"
    with pytest.raises(leman.errors.TableExists, match="its filter is x > 1, not x > 2; its limit is none, not 3"):
        make("x > 2", 3)
    with pytest.raises(leman.errors.TableExists, match="'t' is a table"):
        db.create_materialized_view("t", table.search(None), exist_ok=True)
    table.search(None).where("x > 1").select(["x"]).add_column("y", twice).create_materialized_view(
        db, "v", exist_ok=True
    )
