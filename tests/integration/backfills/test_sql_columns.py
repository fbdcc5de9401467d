"""Columns that a SQL expression computes: through all services, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from leman import JobState
from tests.integration.call_log import numbers, values


def texts(rows: int, start: int = 0) -> pa.Table:
    """x = 0, 1, 2, …; Title = t0, t1, …"""
    return numbers(rows, start).append_column("Title", pa.array([f"t{i}" for i in range(start, start + rows)]))


def fill(db: leman.Database, table: leman.Table, column: str, **parameters: object) -> leman.Job:
    job = db.job(table.backfill(column, progress=False, **parameters))
    assert job.state is JobState.DONE
    assert job.progress.spark_jobs == 0
    return job


def test_an_expression_is_computed_without_spark_and_once(db):
    table = db.create_table("t", texts(1000), max_rows_per_file=100)
    table.add_columns({"up": "upper(Title)", "twice": "x * 2"})
    assert set(values(table, "up").values()) == {None}
    assert all(len(f.data_files()) == 1 for f in table.to_lance().get_fragments()), "no data file was written"
    assert table.schema.field("up").type == pa.string()
    assert table.schema.field("twice").type == pa.int64()

    job = fill(db, table, "up")
    fill(db, table, "twice")
    assert job.progress.rows_committed == job.progress.rows_evaluated == 1000
    assert values(table, "up") == {x: f"T{x}" for x in range(1000)}
    assert values(table, "twice") == {x: 2 * x for x in range(1000)}

    version = table.version
    again = fill(db, table, "up")
    assert (again.progress.rows_evaluated, table.version) == (0, version)


def test_appended_rows_alone_are_computed(db):
    table = db.create_table("t", texts(300), max_rows_per_file=100)
    table.add_columns({"up": "upper(Title)"})
    fill(db, table, "up")
    table.add(texts(50, start=300))
    job = fill(db, table, "up")
    assert (job.progress.rows_evaluated, job.progress.rows_reused) == (50, 300)
    assert values(table, "up") == {x: f"T{x}" for x in range(350)}


def test_filter_leaves_the_others_and_their_values_alone(db):
    table = db.create_table("t", numbers(100), max_rows_per_file=30)
    table.add_columns({"y": "100 / x"})  # of rows that the filter leaves out nothing is computed
    job = fill(db, table, "y", where="x % 10 = 0 and x > 0")
    assert job.progress.rows_evaluated == 9
    assert values(table, "y") == {x: 100 // x if x % 10 == 0 and x else None for x in range(100)}
    job = fill(db, table, "y", where="x > 0")
    assert job.progress.rows_evaluated == 90, "rows of the other filter were not computed again"
    assert values(table, "y") == {x: 100 // x if x else None for x in range(100)}


def test_case_and_times_as_text(db):
    data = numbers(60).append_column(
        "at", pa.array([i * 86_400 for i in range(60)], pa.timestamp("s", "Europe/Zurich"))
    )
    table = db.create_table("t", data, max_rows_per_file=20)
    table.add_columns({"y": "case when x % 2 = 0 then 100 / x when at < '1970-01-11' then -1 end"})
    job = fill(db, table, "y", where="at > '1970-01-02T01:00+01:00' and case when x > 5 then x < 50 else true end")
    assert job.progress.rows_evaluated == 48
    expected = {x: 100 // x if x % 2 == 0 else -1 if x < 10 else None for x in range(2, 50)}
    assert values(table, "y") == {x: expected.get(x) for x in range(60)}


def test_deleted_rows_are_not_evaluated(db):
    table = db.create_table("t", numbers(50), max_rows_per_file=20)
    table.to_lance().delete("x = 0 or x = 33")
    table.add_columns({"y": "100 / x"})
    fill(db, table, "y")
    assert values(table, "y") == {x: 100 // x for x in range(50) if x not in {0, 33}}


def test_a_row_without_a_value_ends_the_job_and_is_named(db):
    data = numbers(90_000).set_column(0, "x", pa.array([*range(1, 80_001), 0, *range(80_002, 90_001)], pa.int64()))
    table = db.create_table("t", data)
    table.add_columns({"y": "100 / x"})
    with pytest.raises(leman.JobFailed, match=r"row 80000 of fragment 0.*Divide by zero"):
        table.backfill("y", progress=False)


def test_the_error_policy_skips_rows_records_them_and_a_retry_finds_them(db):
    data = pa.table({"x": range(60), "s": [str(x) if x % 20 else "abc" for x in range(60)]})
    table = db.create_table("t", data, max_rows_per_file=25)
    skip = leman.ErrorHandlingConfig(on_error=[leman.Skip("SqlError")])
    table.add_columns({"n": leman.sql("cast(s as bigint)", error_handling=skip)})
    job = db.job(table.backfill("n", progress=False))
    assert job.state is JobState.DONE_WITH_ERRORS
    assert values(table, "n") == {x: x if x % 20 else None for x in range(60)}
    errors = table.get_errors(job_id=job.job_id)
    assert {e.error_type for e in errors} == {"SqlError"}
    assert all("Cannot cast string 'abc'" in e.error_message for e in errors)
    assert len(table.rows_in_state("n", "failed")) == 3

    again = db.job(table.backfill("n", progress=False))
    assert again.progress.rows_evaluated == 0, "failed rows are settled"
    table.add_columns({"same": "cast(s as bigint)"})
    assert db.job(table.backfill("same", progress=False)).progress.rows_failed == 3, "the policy stays registered"
    fixed = db.job(db.retry_job(job.job_id, progress=False))
    assert (fixed.progress.rows_evaluated, fixed.progress.rows_failed) == (3, 3)


def test_a_renamed_input_follows(db):
    data = texts(40).rename_columns(["x", "title"])
    table = db.create_table("t", data, max_rows_per_file=20)
    table.add_columns({"up": "upper(title) || '.title'"})
    table.to_lance().alter_columns({"path": "title", "name": "head line"})
    fill(db, table, "up")
    assert values(table, "up") == {x: f"T{x}.title" for x in range(40)}


def test_a_large_fragment_in_many_units(db):
    table = db.create_table("t", numbers(200_000))
    table.add_columns({"y": "x * 3"})
    job = fill(db, table, "y", task_size=30_000, checkpoint_size=10_000, concurrency=3)
    assert job.progress.rows_evaluated == 200_000
    assert table.to_lance().count_rows("y <> x * 3 or y is null") == 0


@pytest.mark.parametrize(
    ("expression", "error", "said"),
    [
        ("nope + 1", leman.errors.InputColumnMissing, "Column 'nope' not found in table schema"),
        ("x +", leman.errors.InvalidArgument, "Expected: an expression"),
        ("x limit 1", leman.errors.InvalidArgument, "Expected"),
        ("x; drop table t", leman.errors.InvalidArgument, "unexpected ';'"),
        ("x + random()", leman.errors.InvalidArgument, "random returns another value at each call"),
        ("now()", leman.errors.InvalidArgument, "^Invalid SQL expression: now returns another value at each call"),
        ("x + _rowaddr", leman.errors.InvalidArgument, "_rowaddr changes without the row"),
        ("1 + 1", leman.errors.InvalidArgument, "reads no column"),
        ("sum(x)", leman.errors.InvalidArgument, "function 'sum'"),
        ("repeat(Title, 1000000000)", leman.errors.InvalidArgument, "function 'repeat'"),
        ("upper(x)", leman.errors.InvalidArgument, "requires String"),
        (" ", leman.errors.InvalidArgument, "empty"),
    ],
)
def test_what_cannot_be_computed_is_refused_at_once(db, expression, error, said):
    table = db.create_table("t", texts(3))
    version = table.version
    with pytest.raises(error, match=said.replace("(", r"\(")):
        table.add_columns({"fine": "x + 1", "c": expression})
    assert table.version == version
    assert not [f for f in db.udfs() if f.name == "sql"]


def test_the_registry_tells_the_expression(db):
    table = db.create_table("t", texts(3))
    table.add_columns({"a": "upper(Title)", "b": " upper( Title\n)"})
    (found,) = db.udfs()
    assert (found.name, found.kind, found.input_columns) == ("sql", "sql", ("Title",))
    assert found.sql_expression == "upper(Title)"


def test_cancelled_in_the_middle_and_resumed(db):
    rows = 4 * 65_536  # Lance's batches; one takes most of a second
    table = db.create_table("t", numbers(rows))
    dear = [f"length({'md5(' * 24}cast(x + {i} as string){')' * 24})" for i in range(4)]
    table.add_columns({"y": " + ".join(dear)})
    future = table.backfill_async("y", checkpoint_size=1000, concurrency=1)
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_checkpointed:
            future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=10)
    kept = future.progress().rows_checkpointed
    job = fill(db, table, "y")
    assert 0 < kept < rows
    assert job.progress.rows_evaluated == rows - kept
    assert table.to_lance().count_rows("y is null") == 0
