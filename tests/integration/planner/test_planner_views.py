"""Plans of refreshes over real Lance tables, with any history of source and view."""

import datetime as dt
import shutil

import lance
import pyarrow as pa
import pytest

from leman._format.view_definitions import ViewFormat
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound
from leman_core.model.view import RefreshPolicy
from leman_core.model.view_metadata import read
from leman_core.storage import compaction_history
from leman_core.storage.lance_tables import INCARNATION_KEY
from leman_planner.catalog.table_catalog import Catalog
from tests.integration.planner.planner_lake import install, rows
from tests.integration.views.view_lake import ROWS, ViewLake, append, column, filled, write


@pytest.fixture
def lake(tmp_path):
    """A source of three fragments and a view `v` of id and double(x) that is right for its version 1."""
    made = ViewLake(tmp_path)
    made.create()
    made.fill()
    return made


def kinds(plan):
    return [(change.fragment_id, change.kind.name) for change in plan.changes]


def outcome(plan):
    return plan.mode.name, plan.reason.name


def rewrite(lake, name, fragment_id):
    """Rewrites a column of one fragment in place."""
    dataset = lake.source()
    values = dataset.get_fragment(fragment_id).to_table(columns=[name])
    install(lake.uri, fragment_id, write(lake.uri, values, ""))


# changes of the source


def test_nothing_to_do(lake):
    plan = lake.plan()
    assert outcome(plan) == ("NO_OP", "UP_TO_DATE")
    assert (plan.version, plan.target_version, plan.rows) == (lake.open().version, 1, 30)


def test_append(lake):
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    assert kinds(lake.plan()) == [(3, "APPEARED")]


def test_delete(lake):
    lake.source().delete("id = 3 OR id = 4")
    assert kinds(lake.plan()) == [(0, "DELETIONS")]
    lake.record(2)
    lake.source().delete("id = 5")
    assert kinds(lake.plan()) == [(0, "DELETIONS")]


def test_delete_of_a_whole_fragment(lake):
    lake.source().delete("id >= 10 AND id < 20")
    assert kinds(lake.plan()) == [(1, "GONE")]


def test_update(lake):
    lake.source().update({"x": "x + 1"}, where="id = 12")
    assert kinds(lake.plan()) == [(1, "DELETIONS"), (3, "APPEARED")]


def compact(lake, rows=1000):
    lake.source().optimize.compact_files(target_rows_per_fragment=rows)


ALL_MOVED = [(0, "GONE"), (1, "GONE"), (2, "GONE"), (3, "APPEARED")]


def test_compaction(lake):
    compact(lake)
    plan = lake.plan()
    assert kinds(plan) == []
    assert outcome(plan) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert "nothing that the view reads changed" in plan.message
    lake.record(plan.target_version)
    assert kinds(lake.plan(src_version=1)) == []


def test_compaction_that_drops_rows_which_were_deleted_before(lake):
    lake.source().delete("id = 3 OR id = 14")
    lake.record(2)
    compact(lake)
    assert lake.source().get_fragments()[0].physical_rows == 28
    assert kinds(lake.plan()) == []


def test_compaction_that_drops_rows_which_were_deleted_since(lake):
    lake.source().delete("id = 3")
    compact(lake)
    assert kinds(lake.plan()) == ALL_MOVED


def test_update_and_compaction(lake):
    lake.source().update({"x": "x + 1"}, where="id = 12")
    compact(lake)
    assert kinds(lake.plan()) == [*ALL_MOVED[:3], (4, "APPEARED")]


def test_compaction_and_what_came_afterwards(lake):
    compact(lake)
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    assert kinds(lake.plan()) == [(4, "APPEARED")]
    lake.source().delete("id = 12")
    assert kinds(lake.plan()) == [*ALL_MOVED, (4, "APPEARED")]


def test_compaction_of_some_fragments(lake):
    lance.write_dataset(rows(30, 30), lake.uri, mode="append", max_rows_per_file=ROWS)
    lake.record(2)
    lake.source().update({"x": "x + 1"}, where="id = 52")
    compact(lake, 2 * ROWS)
    made = {f.fragment_id: f.physical_rows for f in lake.source().get_fragments()}
    updated = lake.source().to_table(columns=["_rowaddr"], filter="id = 52")["_rowaddr"][0].as_py() >> 32
    listed = kinds(lake.plan())
    assert len(made) > 2
    assert {i for i, _ in listed if i in made} == {updated}
    assert {i for i, _ in listed if i not in made} == {4, 5}


def test_a_backfill_between_compactions(lake):
    compact(lake, 2 * ROWS)
    for fragment in lake.source().get_fragments():
        rewrite(lake, "body", fragment.fragment_id)
    compact(lake)
    assert kinds(lake.plan()) == []
    rewrite(lake, "x", lake.source().get_fragments()[0].fragment_id)
    assert len(kinds(lake.plan())) == 4


def test_a_column_that_was_dropped_and_came_back_with_the_same_id(lake):
    lake.source().add_columns({"more": "x * 2"})
    lake.create(lake.query(column("id"), column("more")), "w")
    lake.fill(name="w")
    before = lake.source().lance_schema.field("more").id()
    lake.source().drop_columns(["more"])
    compact(lake)
    lake.source().add_columns(pa.field("more", pa.int64()))
    assert lake.source().lance_schema.field("more").id() == before
    assert kinds(lake.plan("w")) == ALL_MOVED
    assert kinds(lake.plan()) == []


def test_compaction_that_was_undone(lake):
    compact(lake)
    lake.record(lake.source().version)
    lance.dataset(lake.uri, version=1).restore()
    compact(lake)
    assert [kind for _, kind in kinds(lake.plan())] == ["GONE", "APPEARED"]


def test_compaction_of_which_the_history_is_gone(lake):
    lake.source().tags.create("base", 1)
    compact(lake)
    lake.source().update_config({"later": "yes"})
    assert kinds(lake.plan()) == []
    lake.source().cleanup_old_versions(older_than=dt.timedelta(0), error_if_tagged_old_versions=False)
    assert kinds(lake.plan()) == ALL_MOVED


def test_a_history_that_is_too_long_is_not_read_to_its_end(lake, monkeypatch):
    compact(lake)
    lake.source().update_config({"later": "yes"})
    monkeypatch.setattr(compaction_history, "versions_to_look_at", lambda fragments: 1)
    assert kinds(lake.plan()) == ALL_MOVED


def test_no_row_is_read_to_find_that_compaction_moved_all(lake, monkeypatch):
    compact(lake)
    monkeypatch.setattr(lance.LanceDataset, "scanner", lambda *_, **__: pytest.fail("rows were read"))
    assert kinds(lake.plan()) == []


def test_rewritten_column_that_the_view_reads(lake):
    rewrite(lake, "x", 1)
    assert kinds(lake.plan()) == [(1, "REWRITTEN")]


def test_mv_refresh_ignores_unrelated_column_backfill(lake):
    rewrite(lake, "body", 1)
    lake.source().add_columns({"more": "x * 2"})
    plan = lake.plan()
    assert kinds(plan) == []
    assert outcome(plan) == ("INCREMENTAL", "SOURCE_CHANGED")


def test_nested_column_that_the_view_reads(lake):
    lake.create(lake.query(column("w", "box.w")), "boxes")
    lake.fill(name="boxes")
    rewrite(lake, "box", 2)
    assert kinds(lake.plan("boxes")) == [(2, "REWRITTEN")]


def test_filter_is_read_too(lake):
    lake.create(lake.query(column("id"), where="body != 'text 1'"), "texts")
    lake.fill(name="texts")
    rewrite(lake, "body", 0)
    assert kinds(lake.plan("texts")) == [(0, "REWRITTEN")]
    assert kinds(lake.plan()) == []


def test_forward_and_back(lake):
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    lance.write_dataset(rows(5, 35), lake.uri, mode="append")
    lake.record(3)
    assert kinds(lake.plan(src_version=1)) == [(3, "GONE"), (4, "GONE")]
    assert kinds(lake.plan(src_version=2)) == [(4, "GONE")]
    assert outcome(lake.plan(src_version=3)) == ("NO_OP", "UP_TO_DATE")
    with pytest.raises(NotFound) as caught:
        lake.plan(src_version=99)
    assert caught.value.reason == "VERSION_NOT_FOUND"


def test_restore(lake):
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    lake.record(2)
    lance.dataset(lake.uri, version=1).restore()
    assert kinds(lake.plan()) == [(3, "GONE")]


def test_overwrite(lake):
    lance.write_dataset(rows(30, 100), lake.uri, mode="overwrite", max_rows_per_file=ROWS)
    plan = lake.plan()
    assert outcome(plan) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert [c.kind.name for c in plan.changes].count("GONE") == 3
    assert [c.kind.name for c in plan.changes].count("APPEARED") == 3


def test_first_use_by_leman_gives_the_source_no_new_identity(lake):
    lake.source().update_config({INCARNATION_KEY: "abc"})
    plan = lake.plan()
    assert outcome(plan) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert plan.target_incarnation == "abc"


def test_history_lost(lake):
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    lake.source().cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert outcome(lake.plan()) == ("FULL", "SOURCE_HISTORY_LOST")
    with pytest.raises(FailedPrecondition, match="cleaned up") as caught:
        lake.plan(policy=RefreshPolicy.INCREMENTAL)
    assert caught.value.reason == "FULL_REFRESH_NEEDED"


@pytest.mark.parametrize("rows_after", [10, 30])
def test_source_dropped_and_made_anew(lake, rows_after):
    shutil.rmtree(lake.uri)
    lance.write_dataset(rows(rows_after, 50), lake.uri, enable_stable_row_ids=True)
    assert outcome(lake.plan()) == ("FULL", "SOURCE_REPLACED")


def test_source_gone(lake):
    shutil.rmtree(lake.uri)
    with pytest.raises(NotFound, match="source 't' is no longer in"):
        lake.plan()


# the source's schema


def test_dropped_column(lake):
    lake.source().drop_columns(["x"])
    with pytest.raises(FailedPrecondition, match="'x'") as caught:
        lake.plan()
    assert caught.value.reason == "SOURCE_COLUMN_MISSING"
    assert outcome(lake.plan(src_version=1)) == ("NO_OP", "UP_TO_DATE")


def test_renamed_column(lake):
    lake.source().alter_columns({"path": "x", "name": "y"})
    with pytest.raises(FailedPrecondition, match="It is now called 'y'"):
        lake.plan()


def test_cast_column(lake):
    lake.source().alter_columns({"path": "x", "data_type": pa.int32()})
    with pytest.raises(FailedPrecondition, match="Type mismatch for column x") as caught:
        lake.plan()
    assert caught.value.reason == "TYPE_MISMATCH"


def test_column_dropped_and_added_again(lake):
    lake.source().drop_columns(["x"])
    lake.source().add_columns({"x": "id * 3"})
    assert kinds(lake.plan()) == [(0, "REWRITTEN"), (1, "REWRITTEN"), (2, "REWRITTEN")]


def test_expression_without_the_recorded_version(lake):
    lake.create(lake.query(column("twice", "x * 2"), where="x >= 0"), "sql")
    lake.fill(name="sql")
    lake.source().drop_columns(["x"])
    lake.source().add_columns({"x": "cast(id AS double)"})
    lake.source().cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    with pytest.raises(FailedPrecondition, match="was int64") as caught:
        lake.plan("sql")
    assert caught.value.reason == "TYPE_MISMATCH"
    lake.source().drop_columns(["x"])
    lake.source().cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    with pytest.raises(FailedPrecondition) as caught:
        lake.plan("sql")
    assert caught.value.reason == "SOURCE_COLUMN_MISSING"


@pytest.mark.parametrize("file_format", ["2.1", "2.2"])
def test_blobs_stay_blobs(tmp_path, file_format):
    lake = ViewLake(tmp_path, 1)
    blob = pa.field("raw", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = pa.array([b"x"], pa.large_binary()) if file_format == "2.1" else lance.blob_array([b"x"])
    table = pa.table([values], schema=pa.schema([blob])) if file_format == "2.1" else pa.table({"raw": values})
    uri = f"{lake.database}/files.lance"
    lance.write_dataset(table, uri, data_storage_version=file_format, enable_stable_row_ids=True)
    made = lake.creation(lake.query(table="files"), "b")
    lance.write_dataset(made.schema.empty_table(), made.uri, data_storage_version="2.1", enable_stable_row_ids=True)
    lance.write_dataset(table, uri, mode="append")
    assert kinds(lake.plan("b")) == [(1, "APPEARED")]


# the view's own table


def test_first_fill_and_what_is_left_of_it(tmp_path):
    lake = ViewLake(tmp_path)
    lake.create()
    plan = lake.plan()
    assert outcome(plan) == ("FULL", "FIRST_FILL")
    assert [f.fragment_id for f in plan.unset] == [0, 1, 2]
    assert lake.reader.view(lake.database, "v").rows_set == 0
    lake.fill(1)
    plan = lake.plan()
    assert outcome(plan) == ("INCREMENTAL", "FIRST_FILL")
    assert [f.fragment_id for f in plan.unset] == [0, 2]
    assert lake.reader.view(lake.database, "v").rows_set == 10


def test_placeholders_of_an_older_version_are_made_again(tmp_path):
    lake = ViewLake(tmp_path)
    lake.create()
    lance.write_dataset(rows(5, 30), lake.uri, mode="append")
    assert lake.plan().create_placeholders_again
    assert not lake.plan(src_version=1).create_placeholders_again
    assert lake.plan(src_version=1, max_rows_per_fragment=7).create_placeholders_again


def test_compacted_view(lake):
    lake.open().optimize.compact_files()
    assert outcome(lake.plan()) == ("NO_OP", "UP_TO_DATE")
    assert lake.reader.view(lake.database, "v").rows_set == 30


def test_view_compacted_in_the_middle_of_its_first_fill(tmp_path):
    lake = ViewLake(tmp_path)
    lake.create()
    lake.fill(0)
    lake.open().optimize.compact_files()
    plan = lake.plan()
    assert outcome(plan) == ("FULL", "FIRST_FILL")
    assert [f.physical_rows for f in plan.unset] == [30]
    assert lake.reader.view(lake.database, "v").rows_set == 10


def append_to_view(lake):
    lance.write_dataset(lake.open().to_table().slice(0, 1), lake.open().uri, mode="append")


def rewrite_view(lake):
    dataset = lake.open()
    schema = pa.schema([f for f in dataset.schema if f.name != "__source_row_id"])
    values = pa.table({f.name: filled(f, ROWS) for f in schema}, schema=schema)
    install(dataset.uri, 0, write(dataset.uri, values, "mine-"))


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda lake: lake.open().delete("id = 3"), "Delete"),
        (lambda lake: lake.open().update({"d": "1"}, where="id = 3"), "Update"),
        (append_to_view, "Append"),
        (rewrite_view, "DataReplacement"),
    ],
)
def test_external_writes_are_refused(lake, change, operation):
    change(lake)
    with pytest.raises(FailedPrecondition, match=operation) as caught:
        lake.plan()
    assert caught.value.reason == "EXTERNAL_WRITES"
    assert outcome(lake.plan(policy=RefreshPolicy.FULL)) == ("FULL", "FORCED")


def test_the_version_to_restore_is_the_last_of_lemans(lake):
    before = lake.open().version
    lake.open().delete("id = 3")
    lake.open().add_columns({"mine": "id + 1"})
    lake.open().optimize.compact_files()
    lake.open().drop_columns(["mine"])
    with pytest.raises(FailedPrecondition, match=f"Restore version {before},"):
        lake.plan()


def test_external_write_under_a_compaction_is_seen(lake):
    lake.open().delete("id = 3")
    lake.open().optimize.compact_files()
    with pytest.raises(FailedPrecondition, match="Delete"):
        lake.plan()


def test_external_write_between_two_parts_of_a_first_fill_is_seen(tmp_path):
    lake = ViewLake(tmp_path)
    lake.create()
    lake.fill(0)
    lake.open().delete("__source_row_id = 3")
    lake.fill(1)
    with pytest.raises(FailedPrecondition, match="Delete"):
        lake.plan()


def test_restored_view_is_as_it_was(lake):
    before = lake.open().version
    lake.open().delete("id = 3")
    lance.dataset(lake.open().uri, version=before).restore()
    assert outcome(lake.plan()) == ("NO_OP", "UP_TO_DATE")


def test_cleaned_history_of_the_view_is_no_external_write(lake):
    lake.open().optimize.compact_files()
    lake.open().cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    assert outcome(lake.plan()) == ("NO_OP", "UP_TO_DATE")


def test_column_that_somebody_added_to_the_view(lake):
    lake.open().add_columns({"mine": "id + 1"})
    with pytest.raises(FailedPrecondition, match=r"mine|Merge"):
        lake.plan()


def test_a_view_without_its_own_columns_can_still_be_looked_at(lake):
    lake.open().drop_columns(["__is_set"])
    view = lake.reader.view(lake.database, "v")
    assert (view.row_count, view.rows_set) == (30, 0)
    with pytest.raises(FailedPrecondition) as caught:
        lake.plan()
    assert caught.value.reason == "EXTERNAL_WRITES"


def test_appended_fragments_are_set(lake):
    schema = lake.open().schema
    values = pa.table({f.name: filled(f, 4) for f in schema}, schema=schema)
    append(lake.open().uri, write(lake.open().uri, values, "view-"), 4)
    assert outcome(lake.plan()) == ("NO_OP", "UP_TO_DATE")
    assert lake.reader.view(lake.database, "v").rows_set == 34


def test_function_that_is_not_registered(lake):
    shutil.rmtree(f"{lake.database}/_leman/udfs")
    with pytest.raises(NotFound) as caught:
        lake.plan()
    assert caught.value.reason == "UDF_NOT_FOUND"


def test_a_table_is_no_view(lake):
    with pytest.raises(FailedPrecondition) as caught:
        lake.plan("t")
    assert caught.value.reason == "NOT_A_VIEW"
    with pytest.raises(NotFound):
        lake.plan("nothing")


@pytest.mark.parametrize("field", ["src_version", "max_rows_per_fragment", "concurrency"])
def test_negative_numbers(lake, field):
    with pytest.raises(InvalidArgument, match=field):
        lake.plan(**{field: -1})


# other sources


def test_addresses_stay_at_their_version(tmp_path):
    lake = ViewLake(tmp_path, stable_row_ids=False)
    made = lake.create()
    assert read(made.schema).format is ViewFormat.ADDRESSES
    assert "does not have stable row IDs" in made.warnings[0]
    lake.fill()
    assert outcome(lake.plan()) == ("NO_OP", "UP_TO_DATE")
    lake.source().optimize.compact_files()
    with pytest.raises(FailedPrecondition, match="Cannot refresh materialized view to version 3") as caught:
        lake.plan()
    assert caught.value.reason == "STABLE_ROW_IDS_REQUIRED"
    assert outcome(lake.plan(src_version=1)) == ("NO_OP", "UP_TO_DATE")


def test_a_view_on_a_view_sees_it_being_filled(tmp_path):
    lake = ViewLake(tmp_path)
    lake.create()
    made = lake.create(lake.query(column("d"), table="v", where="d IS NULL"), "top")
    assert "30 rows of the source view 'v' have no values yet" in made.warnings[0]
    assert made.schema.names == ["__source_row_id", "__is_set", "d"]
    lake.fill(name="top")
    lake.fill(1)
    assert kinds(lake.plan("top")) == [(1, "REWRITTEN")]


def test_a_view_on_a_view_ignores_columns_that_it_does_not_read(lake):
    lake.create(lake.query(column("id"), table="v"), "top")
    lake.fill(name="top")
    dataset = lake.open()
    values = pa.table({"d": pa.nulls(ROWS, pa.int64())})
    install(dataset.uri, 1, write(dataset.uri, values, "view-"))
    assert kinds(lake.plan("top")) == []


def test_source_in_another_database(tmp_path):
    lake, other = ViewLake(tmp_path / "here"), ViewLake(tmp_path / "there")
    lake.create(lake.query(column("id"), database=other.database), "far")
    lake.fill(name="far")
    lake.source().delete("id = 1")
    assert outcome(lake.plan("far")) == ("NO_OP", "UP_TO_DATE")
    other.source().delete("id = 1")
    assert kinds(lake.plan("far")) == [(0, "DELETIONS")]


def test_scratch_tables_are_no_tables_of_the_database(lake):
    lance.write_dataset(rows(1), f"{lake.database}/__leman_scratch_x.lance")
    assert Catalog(lake.tables).tables(lake.database) == ["t", "v"]
