"""What a backfill computes after the data changed: exactly what is stale, and nothing else."""

import datetime as dt
import threading

import lance
import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, Skip
from leman.progress import JobState
from leman_core.storage.column_files import ColumnFileWriter
from tests.integration.call_log import CallLog, values
from tests.integration.planner.planner_lake import install

ROWS = 40


def data(rows, start=0):
    """`x` is the input, `id` names the row, `note` is of no concern to the function."""
    numbers = range(start, start + rows)
    return pa.table(
        {
            "x": pa.array(numbers, pa.int64()),
            "id": pa.array(numbers, pa.int64()),
            "note": pa.array([f"n{i}" for i in numbers]),
        }
    )


@pytest.fixture
def table(db, call_log):
    """Four fragments of ten rows; `y` = 2x is filled."""
    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    table.backfill("y")
    call_log.clear()
    return table


def recomputed(table, call_log, column="y", **options):
    """Runs a backfill; what the function saw. Afterwards every value is right, and there is nothing left to do."""
    call_log.clear()
    table.backfill(column, **options)
    seen = sorted(call_log.seen())
    now = table.to_lance().to_table()
    assert now[column].to_pylist() == [2 * x for x in now["x"].to_pylist()]
    version = table.to_lance().version
    call_log.clear()
    table.backfill(column, **options)
    assert (call_log.seen(), table.to_lance().version) == ([], version)
    return seen


def compact(table, **options):
    table.to_lance().optimize.compact_files(**options)


def rewrite_in_place(table, column, fragment_id, change):
    """As a backfill of an input column does: a new file for one column of one fragment."""
    dataset = table.to_lance()
    old = dataset.get_fragment(fragment_id).to_table(columns=[column]).column(column).to_pylist()
    writer = ColumnFileWriter(dataset.uri, dataset.schema.field(column))
    name = f"rewritten{dataset.version}.lance"
    writer.open(name)
    writer.write(pa.array([change(v) for v in old], dataset.schema.field(column).type))
    writer.close(None, frozenset(), name)
    install(dataset.uri, fragment_id, name)


def test_appended(table, call_log):
    table.add(data(7, start=ROWS))
    assert recomputed(table, call_log) == list(range(40, 47))


def test_deleted(table, call_log):
    table.to_lance().delete("id % 3 = 0 OR id < 10")
    assert recomputed(table, call_log) == []


def test_updated(table, call_log):
    table.to_lance().update({"x": "x + 1000"}, where="id IN (3, 25)")
    assert recomputed(table, call_log) == [1003, 1025]


def test_updated_in_an_unrelated_column(table, call_log):
    """The rows move to another fragment, their inputs are what they were."""
    table.to_lance().update({"note": "'changed'"}, where="id IN (3, 25)")
    assert recomputed(table, call_log) == []


def test_upserted(table, call_log):
    new = data(4, start=38).set_column(0, "x", pa.array([138, 139, 140, 141], pa.int64()))
    merge = table.to_lance().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(new.append_column("y", pa.nulls(4, pa.int64())))
    assert recomputed(table, call_log) == [138, 139, 140, 141]


def test_merged(table, call_log):
    """Only rows that are new are inserted; what matches stays as it is."""
    new = data(4, start=38).append_column("y", pa.nulls(4, pa.int64()))
    table.to_lance().merge_insert("id").when_not_matched_insert_all().execute(new)
    assert recomputed(table, call_log) == [40, 41]


def test_updated_and_merged_by_the_services(table, call_log):
    """Only rows that were touched are computed, until then they have no value, and resends change nothing."""
    assert table.update("id IN (3, 25)", values_sql={"x": "x + 1000"}) == 2
    assert values(table, "y")[1003] is None
    assert recomputed(table, call_log) == [1003, 1025]
    sent = [{"id": 38, "x": 138}, {"id": 3, "x": 3}, {"id": 40, "x": 40}]
    upsert = table.merge_insert("id").when_matched_update_all("source.x <> target.x").when_not_matched_insert_all()
    assert upsert.execute(sent) == leman.MergeResult(1, 2, 0, table.version)
    assert recomputed(table, call_log) == [3, 40, 138]
    assert upsert.execute(sent).num_updated_rows == 0
    compact(table)
    assert recomputed(table, call_log) == []
    table.update("id = 7", {"note": "mine"})  # `y` does not rest on it: its value stays to be seen
    assert values(table, "y")[7] == 14
    assert recomputed(table, call_log) == []
    assert table.head(2)["id"].to_pylist() == [0, 1]


def test_overwritten(table, call_log):
    schema = table.to_lance().schema
    new = data(5, start=100).append_column("y", pa.array([1] * 5, pa.int64()))
    lance.write_dataset(new.cast(schema), table.to_lance().uri, schema=schema, mode="overwrite")
    assert recomputed(table, call_log) == list(range(100, 105))


def test_restored(table, call_log):
    version = table.to_lance().version
    table.to_lance().update({"x": "x + 1000"}, where="id < 5")
    assert recomputed(table, call_log) == [1000, 1001, 1002, 1003, 1004]
    lance.dataset(table.to_lance().uri, version=version).restore()
    assert recomputed(table, call_log) == []


def test_input_column_rewritten_in_place(table, call_log):
    rewrite_in_place(table, "x", 2, lambda x: x + 500)
    assert recomputed(table, call_log) == list(range(520, 530))


def test_input_column_backfilled_again(db, table, call_log, tmp_path):
    """A computed column is the input of another one."""
    second = CallLog(tmp_path, "second")
    twice = leman.udf(data_type=pa.int64(), name="twice", input_columns=["y"])(second.double().func)
    table.add_columns({"z": twice})
    table.backfill("z")
    second.clear()
    table.to_lance().update({"x": "x + 1000"}, where="id = 7")
    table.backfill("y")
    table.backfill("z")
    assert second.seen() == [2014]
    assert values(table, "z")[1007] == 4028


def test_unrelated_column_rewritten_in_place(table, call_log):
    rewrite_in_place(table, "note", 2, str.upper)
    assert recomputed(table, call_log) == []


def test_column_renamed(table, call_log):
    table.to_lance().alter_columns({"path": "y", "name": "the y"})
    assert recomputed(table, call_log, "the y") == []


def test_input_renamed(table, call_log):
    table.to_lance().alter_columns({"path": "x", "name": "x2"})
    call_log.clear()
    table.backfill("y")
    assert call_log.seen() == []
    table.to_lance().update({"x2": "x2 + 1000"}, where="id = 4")
    table.backfill("y")
    assert call_log.seen() == [1004]


def test_input_cast(table, call_log):
    table.to_lance().alter_columns({"path": "x", "data_type": pa.int32()})
    assert recomputed(table, call_log) == list(range(ROWS))


def test_column_cast(table, call_log):
    """Lance makes another column of it, which no function computes: that is said, and the values stay. Defined again,
    it is filled with what was computed."""
    table.to_lance().alter_columns({"path": "y", "data_type": pa.int32()})
    with pytest.raises(leman.LemanError, match="Column y is not defined in this table: no function computes it"):
        table.backfill("y")
    assert call_log.seen() == []
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    table.to_lance().drop_columns(["y"])
    table.add_columns({"y": call_log.double()})
    assert recomputed(table, call_log) == []


def test_compacted_when_full(db, table, call_log):
    compact(table)
    version = table.to_lance().version
    job = db.job(table.backfill("y"))
    assert (call_log.seen(), table.to_lance().version) == ([], version)
    assert (job.state, job.progress.spark_jobs) == (JobState.DONE, 0)
    assert [(c.reason, c.fragments) for c in job.reasons] == [("REUSED_COMPACTED", 1)]
    # the history goes, what it said was recorded
    table.to_lance().update_config({"a": "b"})
    table.to_lance().cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
    again = db.job(table.backfill("y"))
    assert [(c.reason, c.fragments) for c in again.reasons] == [("REUSED", 1)]
    assert recomputed(table, call_log) == []


def test_compacted_when_half_filled(db, call_log):
    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", num_frags=2)
    compact(table)
    assert recomputed(table, call_log) == list(range(20, 40))


def test_compacted_after_a_selective_backfill(db, call_log):
    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    where = "x % 4 = 1"
    table.backfill("y", where=where)
    compact(table)
    call_log.clear()
    table.backfill("y", where=where)
    assert call_log.seen() == []
    table.backfill("y", where="x < 9")
    assert sorted(call_log.seen()) == [0, 2, 3, 4, 6, 7, 8]
    assert values(table, "y") == {x: 2 * x if x % 4 == 1 or x < 9 else None for x in range(ROWS)}
    assert recomputed(table, call_log) == [x for x in range(9, ROWS) if x % 4 != 1]


def test_compacted_twice(table, call_log):
    compact(table)
    table.add(data(5, start=ROWS))
    compact(table)
    assert recomputed(table, call_log) == list(range(40, 45))


def test_compacted_with_deletes(db, call_log):
    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", where="x % 2 = 0")
    table.to_lance().delete("x IN (0, 3, 11, 38)")
    compact(table)
    table.to_lance().delete("x IN (4, 5)")
    assert recomputed(table, call_log) == [x for x in range(ROWS) if x % 2 and x not in (3, 5, 11)]


def test_compacted_after_an_update(table, call_log):
    table.to_lance().update({"x": "x + 1000"}, where="id IN (3, 25)")
    compact(table)
    assert recomputed(table, call_log) == [1003, 1025]


def test_compacted_with_failed_rows(db, call_log):
    @leman.udf(data_type=pa.int64(), name="picky", version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
    def picky(x: int) -> int:
        if x % 10 == 3:
            raise ValueError(f"no {x}")
        return x

    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": picky})
    table.backfill("y")
    compact(table)
    job = db.job(table.backfill("y"))
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE_WITH_ERRORS, 0)
    table.add(data(1, start=50))
    compact(table)
    job = db.job(table.backfill("y"))
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE_WITH_ERRORS, 1)
    assert values(table, "y") == {x: None if x % 10 == 3 else x for x in [*range(ROWS), 50]}


def test_compacted_after_the_column_was_dropped_and_added_again(table, call_log):
    table.to_lance().drop_columns(["y"])
    compact(table)
    table.add_columns({"y": call_log.double()})
    assert recomputed(table, call_log) == []


def test_compacted_while_a_job_runs(db, tmp_path):
    """What was committed before is kept, the rest is migrated to the new fragment: each row is computed once."""
    gate, path = tmp_path / "gate", str(tmp_path / "gate")
    log = CallLog(tmp_path, "log")
    double = log.double().func

    @leman.udf(data_type=pa.int64(), name="gated", version="1")
    def gated(x: int) -> int:
        from pathlib import Path

        while x == 35 and not Path(path).exists():
            threading.Event().wait(0.01)
        return double(x)

    table = db.create_table("t", data(ROWS), max_rows_per_file=10)
    table.add_columns({"y": gated})
    future = table.backfill_async("y", commit_granularity=3, concurrency=2)
    for job, _ in future.watch(timeout=60):
        if job.progress.fragments_committed >= 3 and not gate.exists():
            compact(table)
            gate.touch()
    assert gate.exists()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    assert sorted(log.seen()) == list(range(ROWS))


def test_a_copy_that_lance_made(db, table, call_log):
    """Its column says how it is computed, and the copy is no table that Leman knows: nothing of its values either."""
    lance.write_dataset(lance.dataset(table.uri).to_table(), f"{db.uri}/copy.lance")
    assert recomputed(db.open_table("copy"), call_log) == list(range(ROWS))
