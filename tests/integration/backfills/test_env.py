"""Environment variables that callers give functions: each job has its own, and what was computed before stays."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

import leman
from leman import errors

NAME = "TEST_KEY_OF_A_JOB"


@leman.udf(data_type=pa.string(), version="1")
def keyed(x: int) -> str | None:
    return os.environ.get("TEST_KEY_OF_A_JOB")


@leman.udf(data_type=pa.string(), version="1")
def after(a: str | None) -> str:
    return f"{a} then {os.environ.get('TEST_KEY_OF_A_JOB')}"


@pytest.fixture
def table(db) -> leman.Table:
    made = db.create_table("t", pa.table({"x": [0]}))
    made.add_columns({"a": keyed})
    return made


def column(table: leman.Table, name: str = "a") -> list[str | None]:
    return table.to_arrow(["x", name]).sort_by("x")[name].to_pylist()


def test_each_job_has_its_own_and_leaves_what_others_computed(db, table):
    """The jobs run the same version of a function one after the other: no process that is warm serves another job."""
    for x, key in enumerate(("one", "two", None, "one"), start=1):
        job_id = table.backfill("a", env=None if key is None else {NAME: key}, progress=False)
        assert db.job(job_id).env_names == ((NAME,) if key else ())
        table.add(pa.table({"x": [x]}))
    assert column(table) == ["one", "two", None, "one", None]
    assert table.plan_backfill("a").rows_to_compute == 1, "other values make nothing stale"
    tried = table.preview("a", where="x = 4", env={NAME: "tried"})
    assert [row.output for row in tried.rows] == ["tried"]


def test_what_a_job_computes_beside_its_column_has_them_too(db, table):
    table.add_columns({"b": (after, ["a"]), "n": "x + 1"})
    future = table.backfill_async("b", env={NAME: "one"}, on_stale_input="first")
    future.result(timeout=60)
    assert column(table, "b") == ["one then one"]
    with pytest.raises(errors.FailedPrecondition) as caught:
        table.backfill("n", env={NAME: "one"}, progress=False)
    assert caught.value.reason == "ENV_NOT_USABLE"
    table.add(pa.table({"x": [1]}))
    table.backfill(env={NAME: "two"}, progress=False)  # what cannot have them is computed without
    assert (column(table, "b"), column(table, "n")) == (["one then one", "two then two"], [1, 2])


def test_a_refresh_gives_them_to_the_functions_of_a_view(db):
    source = db.create_table("s", pa.table({"x": [0, 1]}))
    view = db.create_materialized_view("v", source.search(None).select(["x"]).add_column("k", keyed))
    view.refresh(env={NAME: "one"}, progress=False)
    assert column(view, "k") == ["one", "one"]
