"""Columns that read computed columns: computed in order, and never from values that are not there without a word."""

from __future__ import annotations

import pytest

import leman
from leman import JobState, errors
from tests.faults.lake import wait_for
from tests.integration.call_log import numbers, values

ROWS = 60


@pytest.fixture
def table(db) -> leman.Table:
    """`b` = a + 1, `a` = x * 2: added together, nothing computed, by SQL, which needs no Spark."""
    made = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    made.add_columns({"b": "a + 1", "a": "x * 2"})
    return made


def right(table: leman.Table, times: int = 2) -> bool:
    return values(table, "b") == {x: times * x + 1 for x in range(ROWS)}


def test_a_column_is_not_computed_from_what_is_not_there(table):
    with pytest.raises(errors.InputColumnStale, match="Backfill a first") as caught:
        table.backfill("b", progress=False)
    assert caught.value.facts["inputs"] == "a"
    assert [(s.column, s.rows) for s in table.plan_backfill("b").stale_inputs] == [("a", ROWS)]
    table.backfill("a", progress=False)
    table.backfill("b", progress=False)
    assert right(table)


def test_all_columns_are_computed_in_order(db, table):
    (job_id,) = table.backfill(progress=False)
    assert db.job(job_id).columns == ("a", "b")
    assert right(table)
    table.alter_columns({"a": "x * 3"})
    with pytest.raises(errors.InputColumnStale):
        table.backfill("b", progress=False)
    (job_id,) = table.backfill(["b", "a"], progress=False)
    assert db.job(job_id).progress.rows_computed == 2 * ROWS
    assert right(table, 3)


def test_a_job_may_compute_its_inputs_first(db, table):
    table.add_columns({"c": "b * 10"})
    future = table.backfill_async("c", on_stale_input="first")
    future.result(timeout=60)
    job = future.job()
    assert (job.state, job.progress.rows_computed, job.progress.rows_committed) == (JobState.DONE, ROWS, ROWS)
    assert job.progress.input_rows_evaluated == 2 * ROWS
    assert values(table, "c") == {x: (2 * x + 1) * 10 for x in range(ROWS)}
    assert right(table)
    told = [event.message for _, events in future.watch() for event in events]
    assert any(message.startswith("a: ") for message in told)
    assert all(not table.plan_backfill(name).rows_to_compute for name in "abc")


def test_a_job_that_has_nothing_to_do_but_its_inputs_computes_these(db, table):
    table.backfill(progress=False)
    table.alter_columns({"a": "x * 4"})
    assert "nothing to do" not in table.plan_backfill("b").summary
    job = db.job(table.backfill("b", on_stale_input="first", progress=False))
    assert (job.state, job.progress.rows_planned, job.progress.fragments_planned) == (JobState.DONE, ROWS, 3)
    assert right(table, 4)


def test_going_on_with_what_is_there_is_told_and_mended_later(db, table):
    with pytest.warns(UserWarning, match="a: 60 rows are stale or not computed yet"):
        job_id = table.backfill("b", on_stale_input="warn", progress=False)
    assert "it depends on a" in db.job(job_id).plan_summary
    assert set(values(table, "b").values()) == {None}
    table.backfill(progress=False)
    assert right(table)


def test_a_view_is_not_filled_from_what_is_not_there(db, table):
    view = table.search(None).where("b > 99").select(["x"]).create_materialized_view(conn=db, view_name="v")
    with pytest.raises(errors.InputColumnStale, match="Backfill a and then b first") as caught:
        view.refresh(progress=False)
    assert caught.value.facts["inputs"] == "a, b"
    assert "rejected until these are computed" in str(view.plan_refresh())
    with pytest.raises(errors.InvalidArgument, match="'error', 'warn' or 'first'"):
        view.refresh(on_stale_input="last")
    with pytest.raises(errors.InputColumnStale, match="Leave src_version out"):
        view.refresh(src_version=table.describe().version, on_stale_input="first", progress=False)
    with pytest.warns(UserWarning, match="v reads values that are not current: a: 60 rows .*; b: 60 rows"):
        assert view.refresh(progress=False, on_stale_input="warn").rows_added == 0
    with pytest.raises(errors.InputColumnStale):
        view.refresh(progress=False)


def test_a_refresh_may_compute_the_columns_that_it_reads_first(db, table):
    view = (
        table.search(None).where("b > 99").select({"twice": "b * 2"}).create_materialized_view(conn=db, view_name="v")
    )
    future = view.refresh_async(on_stale_input="first")
    future.result(timeout=60)
    assert right(table)
    assert sorted(view.to_arrow()["twice"].to_pylist()) == [2 * (2 * x + 1) for x in range(50, ROWS)]
    result = future.job().refresh_result
    assert (result.rows_added, result.source_version) == (10, table.describe().version)
    told = [event.message for _, events in future.watch() for event in events]
    assert any(message.startswith("a: ") for message in told)
    table.alter_columns({"a": "x * 3"})
    view.refresh(on_stale_input="first", progress=False)
    assert right(table, 3)
    assert sorted(view.to_arrow()["twice"].to_pylist()) == [2 * (3 * x + 1) for x in range(33, ROWS)]
    jobs_before = len(db.jobs())
    assert view.refresh(on_stale_input="first", progress=False).mode == "no_op"
    assert len(db.jobs()) == jobs_before + 1


def test_a_refresh_fails_by_what_fails_in_a_column_that_it_computes_first(db, table):
    table.add_columns({"bad": "100 / x"})
    view = table.search(None).select(["bad"]).create_materialized_view(conn=db, view_name="v")
    with pytest.raises(errors.JobFailed, match=r"(?i)divide by zero") as caught:
        view.refresh(on_stale_input="first", progress=False)
    assert caught.value.reason == "UDF_FAILED"


def test_what_fails_in_an_input_fails_the_job(table):
    table.add_columns({"bad": "100 / x", "c": "bad + 1"})
    with pytest.raises(errors.JobFailed, match=r"(?i)divide by zero") as caught:
        table.backfill("c", on_stale_input="first", progress=False)
    assert caught.value.reason == "UDF_FAILED"


def test_words_and_columns_that_are_none_are_refused(table):
    with pytest.raises(errors.InvalidArgument, match="'error', 'warn' or 'first'"):
        table.backfill("b", on_stale_input="last")
    with pytest.raises(errors.ColumnNotDefined, match=r"(b, a|a, b)"):
        table.backfill(["a", "x"])
    with pytest.raises(errors.InvalidArgument, match="one column"):
        table.backfill(["a"], udf="f@1")
    with pytest.raises(errors.FailedPrecondition, match="cycle") as caught:
        table.alter_columns({"a": "b - 1"})
    assert caught.value.reason == "COLUMN_CYCLE"


@pytest.mark.spark
def test_a_job_that_is_cancelled_among_its_inputs_leaves_them_to_the_next(db, call_log):
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"y": call_log.double(seconds=0.05)})
    table.add_columns({"z": "y + 1"})
    future = table.backfill_async("z", on_stale_input="first", concurrency=1)
    wait_for(lambda: len(call_log.seen()) >= 3)
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    before = len(call_log.seen())
    assert before < ROWS
    table.backfill("z", on_stale_input="first", progress=False)
    assert values(table, "z") == {x: 2 * x + 1 for x in range(ROWS)}
    assert len(call_log.seen()) <= ROWS + 1, "only the row at hand is called again"
