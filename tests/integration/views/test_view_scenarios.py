"""What people do with views, step by step, through SDK, gRPC, Spark and Redis. docs/testing.md has the list."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import leman
from leman.progress import row_states
from tests.integration.call_log import numbers, values


@leman.udf(data_type=pa.int64(), version="1")
def twice(x: int) -> int:
    return 2 * x


@leman.udf(data_type=pa.int64(), version="1")
def thrice(x: int) -> int:
    return 3 * x


def rows_of_fragments(view: leman.View) -> list[int]:
    return [f.count_rows() for f in view.to_lance().get_fragments() if f.count_rows()]


def column(view: leman.View, name: str) -> list[object]:
    return view.to_arrow([name])[name].to_pylist()


def files_of(view: leman.View) -> list[set[str]]:
    return [{file.path for file in f.data_files()} for f in view.to_lance().get_fragments()]


def people(db: leman.Database, **options: object) -> leman.Table:
    """Two fragments: Alice and Bob, Carol and Dave."""
    rows = pa.table({"name": ["Alice", "Bob", "Carol", "Dave"], "age": [15, 25, 30, 12]})
    return db.create_table("people", rows, max_rows_per_file=2, **options)


# The complete example, and how rows map


def test_a_hundred_new_rows_of_which_fifty_match_cost_fifty_calls(db, call_log):
    table = db.create_table("t", numbers(300, start=1), max_rows_per_file=100)
    query = table.search(None).where("x > 150").add_column("y", call_log.double())
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    assert rows_of_fragments(view) == [150]
    first = files_of(view)
    call_log.clear()

    table.add(numbers(100, start=101), max_rows_per_file=50)
    plan = view.plan_refresh()
    result = view.refresh(progress=False)

    assert plan.changes == {"appeared": 2}
    assert (result.mode, result.rows_added, result.rows_reused, result.rows_evaluated) == ("incremental", 50, 150, 50)
    assert sorted(call_log.seen()) == list(range(151, 201))
    assert rows_of_fragments(view) == [150, 50]
    assert files_of(view)[:1] == first, "the fragment of the first refresh was not written again"


def test_a_shuffled_view_points_at_rows_of_all_fragments(db):
    table = db.create_table("t", numbers(300), max_rows_per_file=100)
    query = table.search(None).where("x > 150").select(["x"]).shuffle(seed=42)
    view = db.create_materialized_view("v", query, max_rows_per_fragment=75)
    waiting = view.to_lance().to_table(["__source_row_id", "__is_set", "x"]).to_pydict()
    assert (set(waiting["__is_set"]), set(waiting["x"])) == ({False}, {None})
    view.refresh(progress=False)

    ids = table.to_lance().to_table(["x"], with_row_id=True).to_pydict()
    by_id = dict(zip(ids["_rowid"], ids["x"], strict=True))
    found = view.to_lance().to_table(["__source_row_id", "__is_set", "x"]).to_pydict()
    assert set(found["__is_set"]) == {True}
    assert found["__source_row_id"] == waiting["__source_row_id"]
    assert found["x"] == [by_id[i] for i in found["__source_row_id"]]
    assert sorted(found["x"]) == list(range(151, 300))
    assert rows_of_fragments(view) == [75, 74]
    for fragment in view.to_lance().get_fragments():
        assert {x // 100 for x in fragment.to_table(["x"])["x"].to_pylist()} == {1, 2}


# The tests that are named


def test_refresh_after_refresh_computes_only_what_came(db, call_log):
    table = db.create_table("t", numbers(20))
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double()))
    view.refresh(progress=False)
    for cycle in range(1, 4):
        kept = files_of(view)
        call_log.clear()
        table.add(numbers(5, start=100 * cycle))
        result = view.refresh(progress=False)
        assert (result.rows_added, result.rows_reused) == (5, 20 + 5 * (cycle - 1))
        assert sorted(call_log.seen()) == list(range(100 * cycle, 100 * cycle + 5))
        assert files_of(view)[: len(kept)] == kept
        assert view.refresh(progress=False).mode == "no_op"
    assert values(view, "y") == {x: 2 * x for x in column(table, "x")}


def test_a_change_goes_up_a_chain_of_views(db, call_log):
    table = db.create_table("t", numbers(20))
    low = db.create_materialized_view("low", table.search(None).where("x >= 5").add_column("y", twice))
    low.refresh(progress=False)
    middle = db.create_materialized_view("middle", low.search(None).where("y < 30").select(["y"]))
    middle.refresh(progress=False)
    top = db.create_materialized_view("top", middle.search(None).add_column("z", (call_log.double(), ["y"])))
    top.refresh(progress=False)
    assert sorted(column(top, "z")) == [4 * x for x in range(5, 15)]
    call_log.clear()

    table.add({"x": [7, 3, 50]})
    table.to_lance().delete("x = 9")
    done = [view.refresh(progress=False) for view in (low, middle, top)]

    assert [(r.mode, r.rows_added, r.rows_evicted) for r in done] == [
        ("incremental", 2, 1),
        ("incremental", 1, 1),
        ("incremental", 1, 1),
    ]
    assert call_log.seen() == [14]
    assert sorted(column(top, "z")) == sorted([*(4 * x for x in range(5, 15) if x != 9), 28])


def test_each_refresh_has_its_own_size_of_fragments(db):
    table = db.create_table("t", numbers(10))
    view = db.create_materialized_view("v", table.search(None).select(["x"]))
    view.refresh(progress=False, max_rows_per_fragment=5)
    table.add(numbers(15, start=100))
    view.refresh(progress=False, max_rows_per_fragment=7)
    assert rows_of_fragments(view) == [5, 5, 7, 7, 1]
    table.add(numbers(3, start=200))
    view.refresh(progress=False)
    assert rows_of_fragments(view) == [5, 5, 7, 7, 1, 3]


def test_a_column_of_the_source_that_is_backfilled_comes_into_the_view(db, call_log):
    table = db.create_table("t", numbers(20), max_rows_per_file=10)
    table.add_columns({"y": twice})
    query = table.search(None).select(["x", "y"]).add_column("z", (call_log.double(), ["x"]))
    view = db.create_materialized_view("v", query)
    with pytest.warns(UserWarning, match="y: 20 rows are stale or not computed yet"):
        view.refresh(progress=False, on_stale_input="warn")
    assert set(column(view, "y")) == {None}

    table.backfill("y", progress=False)
    result = view.refresh(progress=False, policy="incremental")

    assert (result.rows_recomputed, result.rows_added, result.rows_evicted) == (20, 0, 0)
    assert values(view, "y") == values(view, "z") == {x: 2 * x for x in range(20)}


def test_another_function_for_a_column_of_the_source_is_noticed(db, call_log):
    table = db.create_table("t", numbers(20), max_rows_per_file=10)
    table.add_columns({"y": twice})
    table.backfill("y", progress=False)
    query = table.search(None).select(["x"]).add_column("z", (call_log.double(), ["y"]))
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    assert values(view, "z") == {x: 4 * x for x in range(20)}
    call_log.clear()

    table.alter_columns({"y": thrice})
    with pytest.raises(leman.errors.InputColumnStale):
        view.refresh(progress=False)
    with pytest.warns(UserWarning, match="stale"):
        assert view.refresh(progress=False, on_stale_input="warn").rows_evaluated == 0, "no value has changed yet"
    table.backfill("y", progress=False)
    result = view.refresh(progress=False)

    assert (result.mode, result.rows_recomputed, result.rows_evaluated) == ("incremental", 20, 19)
    assert sorted(call_log.seen()) == [3 * x for x in range(1, 20)], "of x = 0 both functions make the same"
    assert values(view, "z") == {x: 6 * x for x in range(20)}


def test_a_backfill_that_the_view_does_not_read_costs_nothing(db, call_log):
    table = db.create_table("t", numbers(20), max_rows_per_file=10)
    view = db.create_materialized_view("v", table.search(None).select(["x"]).add_column("z", call_log.double()))
    view.refresh(progress=False)
    kept = files_of(view)
    call_log.clear()

    table.add_columns({"extra": twice})
    table.backfill("extra", progress=False)
    result = view.refresh(progress=False)

    assert (result.rows_recomputed, result.rows_reused, result.source_rows_read) == (0, 20, 0)
    assert call_log.seen() == []
    assert files_of(view) == kept
    assert view.describe().source_version == table.version


@pytest.mark.parametrize("functions", [0, 1, 2])
def test_progress_of_a_refresh_ends_with_all_rows(db, functions):
    table = db.create_table("t", numbers(30), max_rows_per_file=10)
    query = table.search(None).select(["x"])
    for name in "yz"[:functions]:
        query = query.add_column(name, twice)
    view = db.create_materialized_view("v", query)
    for rows in (30, 5):
        shares = []
        view.refresh(progress=lambda p, seen=shares: seen.append((p.rows_planned, row_states(p), p.rows_evaluated)))
        planned, states, evaluated = shares[-1]
        assert planned == sum(states.values()) == states["committed"] == rows
        assert evaluated == rows * functions
        table.add(numbers(5, start=100))


# The scenarios


def test_a_region_is_shared_with_a_team(db):
    regions = ["EMEA", "APAC", "EMEA", "AMER"]
    table = db.create_table("customers", pa.table({"name": list("abcd"), "region": regions}))
    view = table.search(None).where("region == 'EMEA'").create_materialized_view(conn=db, view_name="emea_data")
    view.refresh(progress=False)
    assert sorted(column(view, "name")) == ["a", "c"]

    table.add({"name": ["e", "f"], "region": ["EMEA", "APAC"]})
    table.to_lance().update({"region": "'EMEA'"}, "name = 'b'")
    table.to_lance().update({"region": "'AMER'"}, "name = 'c'")
    result = view.refresh(progress=False, policy="incremental")

    assert (result.rows_added, result.rows_evicted, result.rows_reused) == (2, 1, 1)
    assert sorted(column(view, "name")) == ["a", "b", "e"]
    assert set(column(view, "region")) == {"EMEA"}


def test_embeddings_for_training_are_computed_once(db, tmp_path):
    calls = tmp_path / "calls.txt"
    path = str(calls)

    @leman.udf(data_type=pa.list_(pa.float32(), 2), version="1")
    class Embedding:
        def __call__(self, x: pa.Array) -> pa.Array:
            with open(path, "a") as seen:  # noqa: PTH123 - one write at the end of a line
                seen.write("".join(f"{value}\n" for value in x.to_pylist()))
            return pa.array([[v, v + 0.5] for v in x.to_pylist()], pa.list_(pa.float32(), 2))

    table = db.create_table("t", numbers(40))
    query = table.search(None).add_column("embedding", Embedding).shuffle(seed=7)
    view = db.create_materialized_view("training", query)
    assert not calls.exists(), "nothing is computed when a view is made"
    view.refresh(progress=False)
    order = column(view, "x")
    table.add(numbers(4, start=40))
    view.refresh(progress=False)

    assert sorted(map(int, calls.read_text().split())) == list(range(44))
    assert column(view, "x")[:40] == order != sorted(order)
    assert values(view, "embedding") == {x: [x, x + 0.5] for x in range(44)}


# Compaction, and tables without stable row ids


def test_a_view_survives_compaction_of_its_source(db, call_log):
    table = people(db)
    view = db.create_materialized_view("adults", table.search(None).where("age >= 18"))
    view.refresh(progress=False)
    ids = view.to_lance().to_table(["__source_row_id"])["__source_row_id"].to_pylist()

    table.to_lance().optimize.compact_files()
    assert table.describe().fragment_count == 1
    assert "nothing that the view reads changed" in str(view.plan_refresh())
    result = view.refresh(progress=False)

    assert (result.rows_reused, result.source_rows_read, result.fragments_rewritten) == (2, 0, 0)
    assert view.to_lance().to_table(["__source_row_id"])["__source_row_id"].to_pylist() == ids
    assert column(view, "name") == ["Bob", "Carol"]


def test_without_stable_row_ids_a_compaction_ends_refreshes_but_not_reading(db):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = people(db, enable_stable_row_ids=False)
    with pytest.warns(UserWarning, match="does not have stable row IDs"):
        view = db.create_materialized_view("adults", table.search(None).where("age >= 18"))
    assert view.describe().row_reference == "address"
    view.refresh(progress=False)
    ids = view.to_lance().to_table(["__source_row_id"])["__source_row_id"].to_pylist()
    assert ids == [1, 1 << 32], "fragment and offset"

    table.to_lance().optimize.compact_files()

    with pytest.raises(leman.errors.FailedPrecondition, match=r"Cannot refresh materialized view to version \d+"):
        view.refresh(progress=False)
    assert column(view, "name") == ["Bob", "Carol"]


# Versions, and what the parts of a query do


def test_a_timeline_of_source_versions(db):
    table = db.create_table("t", numbers(100))
    view = db.create_materialized_view("v", table.search(None))
    table.add(numbers(10, start=100))
    second = table.version
    view.refresh(progress=False)
    assert (view.count_rows(), view.describe().source_version) == (110, second)
    table.add(numbers(10, start=110))
    assert view.refresh(src_version=second, progress=False).mode == "no_op"
    assert view.refresh(progress=False).rows_added == 10
    back = view.refresh(src_version=second, progress=False)
    assert (back.rows_evicted, back.source_version) == (10, second)
    assert sorted(column(view, "x")) == list(range(110))


def test_a_limit_is_one_fragment_and_a_page_is_exact(db):
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    first = db.create_materialized_view("first", table.search(None).limit(100))
    page = db.create_materialized_view("page", table.search(None).offset(50).limit(100))
    for view in (first, page):
        view.refresh(progress=False)
    assert rows_of_fragments(first) == [100]
    assert column(first, "x") == list(range(100))
    assert column(page, "x") == list(range(50, 150))


def test_a_view_has_the_columns_that_were_selected(db):
    table = people(db)
    view = db.create_materialized_view("names", table.search(None).select({"who": "upper(name)"}))
    view.refresh(progress=False)
    assert view.schema.names == ["who"]
    assert view.to_lance().schema.names == ["__source_row_id", "__is_set", "who"]
    assert column(view, "who") == ["ALICE", "BOB", "CAROL", "DAVE"]


def test_blobs_of_all_fragments_can_be_taken(db):
    field = pa.field("data", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table([range(6), [f"blob {i}".encode() for i in range(6)]], pa.schema([("x", pa.int64()), field]))
    table = db.create_table("t", rows, max_rows_per_file=2)
    view = db.create_materialized_view("v", table.search(None).where("x > 0").add_column("y", twice))
    view.refresh(progress=False, max_rows_per_fragment=2)
    table.add(pa.table([[6], [b"blob 6"]], rows.schema))
    view.refresh(progress=False)

    dataset = view.to_lance()
    assert len(rows_of_fragments(view)) > 2
    order = dataset.to_table(["x"])["x"].to_pylist()
    taken = dataset.take_blobs("data", indices=list(range(len(order))))
    assert [blob.readall() for blob in taken] == [f"blob {x}".encode() for x in order]


def test_checkpoints_that_were_cleared_are_not_missed(db, call_log):
    table = db.create_table("t", numbers(20))
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double()))
    view.refresh(progress=False)
    call_log.clear()
    view.collect_checkpoints(older_than="0")

    table.add({"x": [50]})
    result = view.refresh(progress=False)

    assert (result.rows_added, result.rows_reused) == (1, 20)
    assert call_log.seen() == [50]
    assert values(view, "y") == {x: 2 * x for x in [*range(20), 50]}
