"""A program that says what there is to be, and is run again as it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from leman import errors
from leman._columns import ColumnChange
from leman.v1 import catalog_pb2, jobs_pb2, udf_pb2
from tests.unit.clients.fake_services import make_job, status

DIFF = "--- words@1\n+++ words@2\n@@ -1 +1 @@\n-return 1\n+return 2"
CHANGED = "words changed: 4,000 rows stale, about 12 minutes"


@leman.udf
def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def docs(db):
    return db.open_table("docs")


def answer(outcome="OUTCOME_UPDATED", diff=DIFF, **more):
    """What AddColumns says of one column."""
    found = catalog_pb2.AddColumnsResponse(version=9)
    item = found.columns.add(
        column="words",
        outcome=catalog_pb2.ColumnOutcome.Outcome.Value(outcome),
        udf=udf_pb2.UdfRef(name="words", version="2"),
        diff=diff,
        summary=CHANGED,
        **more,
    )
    if outcome in ("OUTCOME_UPDATED", "OUTCOME_KEPT"):
        item.udf_before.name, item.udf_before.version = "words", "1"
        item.expected_duration.seconds = 720
    return found


@pytest.mark.parametrize(
    ("given", "sent"), [({}, "ERROR"), ({"on_change": "update"}, "UPDATE"), ({"on_change": "keep"}, "KEEP")]
)
def test_what_becomes_of_changed_columns_is_always_said(fake, docs, given, sent):
    docs.add_columns({"n": words}, **given)
    assert fake.named("AddColumns")[0].on_change == catalog_pb2.OnChange.Value(f"ON_CHANGE_{sent}")
    with pytest.raises(errors.InvalidArgument, match="'error', 'update' or 'keep'"):
        docs.add_columns({"n": words}, on_change="overwrite")


def test_a_change_is_told_on_standard_error_with_its_diff(fake, docs, capsys):
    fake.scripts["AddColumns"] = answer(rows_stale=4000)
    assert docs.add_columns({"words": words}, on_change="update") == 9
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == f"{CHANGED}"
    assert "  +return 2" in said.err.splitlines()


def test_a_function_may_be_told_instead_or_nobody(fake, docs, capsys):
    fake.scripts["AddColumns"] = answer("OUTCOME_KEPT", rows_not_computed=5)
    told: list[ColumnChange] = []
    docs.add_columns({"words": words}, on_change="keep", report=told.append)
    docs.add_columns({"words": words}, on_change="keep", report=False)
    (change,) = told
    assert (change.column, change.outcome, change.udf_before, change.udf) == ("words", "kept", "words@1", "words@2")
    assert (change.rows_stale, change.rows_not_computed, change.expected_seconds) == (0, 5, 720.0)
    assert str(change).splitlines()[0] == CHANGED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("outcome", ["OUTCOME_ADDED", "OUTCOME_UNCHANGED"])
def test_what_is_new_or_as_it_was_is_not_worth_a_line(fake, docs, capsys, outcome):
    fake.scripts["AddColumns"] = answer(outcome)
    docs.add_columns({"words": words})
    assert capsys.readouterr().err == ""


def altering(docs, db, **given):
    """The two calls that give a column another function."""
    docs.alter_columns({"words": words}, **given)
    db.retry_job("job-0", udf=words, progress=False, **given)
    db.job_future("job-0").retry(udf=words, **given)


def test_finished_rows_that_another_function_computes_again_are_told(fake, db, docs, capsys):
    """Whether the column is altered or its job is retried."""
    (column,) = answer(rows_stale=30, rows_stored=20, rows_lost=50, rows_not_computed=10).columns
    column.summary = "words changed: 50 finished rows will be computed again"
    fake.scripts["AlterColumns"] = catalog_pb2.AlterColumnsResponse(version=3, columns=[column])
    fake.scripts["RetryJob"] = jobs_pb2.RetryJobResponse(job=make_job("job-1", "DONE"), column=column)
    told: list[ColumnChange] = []
    altering(docs, db)
    altering(docs, db, report=False)
    altering(docs, db, report=told.append)
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("  ")]
    assert said == [column.summary] * 3
    assert [(change.rows_lost, change.udf_before, change.diff) for change in told] == [(50, "words@1", DIFF)] * 3


def test_where_no_finished_row_is_computed_again_nothing_is_told(fake, db, docs, capsys):
    for known in (answer("OUTCOME_KEPT").columns, answer(rows_stale=30).columns, ()):
        fake.scripts["AlterColumns"] = catalog_pb2.AlterColumnsResponse(version=3, columns=known)
        fake.scripts["RetryJob"] = jobs_pb2.RetryJobResponse(
            job=make_job("job-1", "DONE"), column=next(iter(known), None)
        )
        altering(docs, db)
    assert capsys.readouterr().err == ""


def test_a_long_diff_is_cut_where_it_is_printed(fake, docs, capsys):
    fake.scripts["AddColumns"] = answer(diff="\n".join(f"+{i}" for i in range(100)), rows_stale=1)
    docs.add_columns({"words": words}, on_change="update")
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[-1]) == (42, "  … 60 more lines")


def test_the_refusal_has_a_class_of_its_own(fake, docs):
    fake.scripts["AddColumns"] = status("FAILED_PRECONDITION", "COLUMN_CHANGED", CHANGED)
    with pytest.raises(errors.ColumnChanged, match="4,000 rows stale"):
        docs.add_columns({"words": words})


def test_a_table_that_is_there_is_opened_as_it_is(fake, db):
    made = db.create_table("docs", {"text": ["a"]}, exist_ok=True)
    assert made.name == "docs"
    assert not fake.named("CreateTable")


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        ({"text": ["a"], "more": [1]}, errors.ColumnNotFound, "has no column 'more'"),
        ({"text": [1]}, errors.TypeMismatch, "'text' is string, not int64"),
    ],
)
def test_a_table_with_other_columns_is_not_the_one_that_is_meant(db, data, kind, said):
    with pytest.raises(kind, match=said):
        db.create_table("docs", data, exist_ok=True)


def test_columns_of_which_only_nulls_are_known_fit_any_type(db):
    assert db.create_table("docs", pa.table({"text": pa.nulls(1)}), exist_ok=True).name == "docs"


def test_a_view_is_no_table(fake, db, docs):
    there = docs.describe().schema.with_metadata({b"leman::view::query": b"{}"})
    described = catalog_pb2.DescribeTableResponse(schema=there.serialize().to_pybytes())
    fake.scripts["DescribeTable"] = described
    with pytest.raises(errors.TableExists, match="is a view"):
        db.create_table("docs", {"text": ["a"]}, exist_ok=True)


def test_where_there_is_none_it_is_made_unless_somebody_else_is_faster(fake, db, tmp_path):
    described = []

    def describe(request):
        described.append(request)
        return status("NOT_FOUND", "TABLE_NOT_FOUND", "no table") if len(described) == 1 else found

    found = catalog_pb2.DescribeTableResponse(schema=pa.schema([("x", pa.int64())]).serialize().to_pybytes())
    fake.scripts["DescribeTable"] = describe
    made = db.create_table("fresh", {"x": [1]}, exist_ok=True)
    assert made.to_lance().count_rows() == 1
    described.clear()  # as if it had not been there yet when it was looked for
    again = db.create_table("fresh", {"x": [1, 2]}, exist_ok=True)
    assert again.to_lance().count_rows() == 1
    assert len(described) == 2


def test_overwriting_and_leaving_as_it_is_contradict_each_other(db):
    with pytest.raises(errors.InvalidArgument, match="exist_ok keeps an existing table"):
        db.create_table("docs", {"text": ["a"]}, mode="overwrite", exist_ok=True)
