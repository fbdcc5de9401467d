"""Rows that are written again with equal inputs cost no call, no matter who writes them."""

import datetime

import pyarrow as pa
import pytest

ROWS = 30


def data(numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": pa.array(numbers, pa.int64())})


@pytest.fixture
def table(db, call_log):
    table = db.create_table("t", data(range(ROWS)), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", progress=False)
    call_log.clear()
    return table


def called(table, call_log):
    """What a backfill calls the function with; afterwards all values are right."""
    table.backfill("y", progress=False)
    found = table.to_arrow().to_pydict()
    assert found["y"] == [2 * x for x in found["x"]]
    assert table.plan_backfill("y").rows_to_compute == 0
    return sorted(call_log.seen())


def upsert(into, rows):
    into.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


@pytest.mark.parametrize("who", ["Leman", "pylance"])
def test_an_upsert_of_equal_rows_costs_the_calls_of_new_rows(table, call_log, who):
    upsert(table if who == "Leman" else table.to_lance(), data(range(5, ROWS + 2)))
    plan = table.plan_backfill("y")
    assert "may have the same inputs as before: the job compares them" in plan.summary
    assert called(table, call_log) == [ROWS, ROWS + 1]


def test_an_update_that_changes_nothing_costs_no_call(table, call_log):
    table.update("id < 15", values_sql={"x": "x"})
    assert called(table, call_log) == []


def test_a_merge_by_an_indexed_key_costs_the_calls_of_changed_rows(table, call_log):
    table.to_lance().create_scalar_index("id", "BTREE")
    changed = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "x": pa.array([1, 2, 300], pa.int64())})
    table.to_lance().merge_insert("id").when_matched_update_all().execute(changed)
    assert called(table, call_log) == [300]


@pytest.mark.parametrize("compact", [False, True])
def test_an_update_that_changes_nothing_costs_no_call_down_a_chain(db, call_log, compact):
    table = db.create_table("t", data(range(ROWS)), max_rows_per_file=10)
    table.add_columns({"b": "x + 0", "y": (call_log.double(), ["b"]), "z": (call_log.double(), ["y"])})
    table.backfill(progress=False)
    call_log.clear()
    table.update("id % 3 = 0", values_sql={"x": "x"})
    if compact:
        table.to_lance().optimize.compact_files()
    table.backfill("b", progress=False)
    assert "may have the same inputs as before: the job compares them" in table.plan_backfill("y").summary
    table.backfill(progress=False)
    found = table.to_arrow().to_pydict()
    assert found["z"] == [4 * x for x in found["x"]]
    assert call_log.seen() == []


@pytest.mark.parametrize("who", ["Leman", "pylance"])
def test_rows_that_keep_values_of_an_earlier_function_keep_them_where_they_are_written_once_more(table, call_log, who):
    table.add_columns({"y": call_log.double(version="2")}, on_change="keep")
    into = table if who == "Leman" else table.to_lance()
    upsert(into, data(range(5, 15)))
    assert called(table, call_log) == []
    assert [kept.rows for kept in table.row_states("y").kept] == [ROWS]
    upsert(table, pa.table({"id": pa.array([7, 8, 9, ROWS], pa.int64()), "x": pa.array([700, 8, 9, ROWS], pa.int64())}))
    assert called(table, call_log) == [ROWS, 700]
    table.update("id = 8", values_sql={"x": "x"})  # takes a kept row out of a file with values of both functions
    for counted in (ROWS - 2, ROWS - 1):  # the rewritten row counts once a job has compared its inputs
        assert [kept.rows for kept in table.plan_backfill("y").kept] == [counted]
        assert called(table, call_log) == [ROWS, 700]
    assert [kept.rows for kept in table.row_states("y").kept] == [ROWS - 1]


def test_an_edit_taken_back_costs_no_call_for_rows_that_an_update_moved(table, call_log):
    """Rows were moved and compared, moved only, and moved with values of the edited function. One in four stayed."""
    first, told = call_log.double(), []
    table.update("x % 4 = 0", values_sql={"id": "id + 100"})
    assert called(table, call_log) == []
    table.update("x % 4 = 1", values_sql={"id": "id + 100"})
    table.add_columns({"y": "x * 3"}, on_change="update")
    table.backfill("y", progress=False)
    table.update("x % 4 = 2", values_sql={"id": "id + 100"})
    table.add_columns({"y": first}, on_change="update", report=told.append)
    plan, stay = table.plan_backfill("y"), ROWS // 4
    assert (plan.rows_to_compute, plan.rows_reused) == (ROWS - stay, stay)
    counts = f"up to {ROWS - stay} rows to compute; {stay} rows reused, of which {stay} are stored elsewhere"
    assert counts in plan.summary
    assert f"y changed: up to {ROWS - stay} rows stale, computed again by the next backfill" in told[0].summary
    assert f"{stay} rows get back stored values of {first.name}@{first.version}" in told[0].summary
    assert called(table, call_log) == []


def test_an_edit_taken_back_costs_no_call_after_a_compaction_and_a_cleanup(table, call_log):
    table.to_lance().optimize.compact_files()
    assert called(table, call_log) == []
    table.to_lance().cleanup_old_versions(older_than=datetime.timedelta(0))
    table.add_columns({"y": "x * 3"}, on_change="update")
    table.backfill("y", progress=False)
    table.add_columns({"y": call_log.double()}, on_change="update")
    assert called(table, call_log) == []
