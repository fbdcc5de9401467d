"""Another function for a column: stale, kept, and computed once more."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from tests.integration.call_log import CallLog, numbers, values


def column_id(table: leman.Table, name: str) -> bytes:
    return table.schema.field(name).metadata[b"leman::column_id"]


def test_altered_is_stale_and_computed_once(db, call_log, tmp_path):
    new = CallLog(tmp_path, "new")
    table = db.create_table("t", numbers(60), max_rows_per_file=20)
    table.add_columns({"y": call_log.double(version="1")})
    table.backfill("y", progress=False)
    before = column_id(table, "y")
    assert table.alter_columns({"y": new.double(version="2")}) == table.version
    assert column_id(table, "y") == before
    assert values(table, "y") == {x: 2 * x for x in range(60)}, "values stay until they are computed again"
    plan = table.plan_backfill("y")
    assert [(r.reason, r.fragments) for r in plan.reasons] == [("UDF_CHANGED", 3)]
    table.backfill("y", progress=False)
    table.backfill("y", progress=False)
    assert sorted(new.seen()) == list(range(60))
    assert len(call_log.seen()) == 60


def test_back_to_the_function_before_nothing_is_computed(db, call_log, tmp_path):
    table = db.create_table("t", numbers(60), max_rows_per_file=20)
    first, second = call_log.double(version="1"), CallLog(tmp_path, "new").double(version="2")
    table.add_columns({"y": first})
    table.backfill("y", progress=False)
    table.alter_columns({"y": second})
    table.alter_columns({"y": first})
    version = table.version
    job = db.job(table.backfill("y", progress=False))
    assert (job.progress.rows_evaluated, table.version) == (0, version)
    # the same function again changes nothing
    assert table.alter_columns({"y": first}) == version


def test_and_back_after_a_backfill(db, call_log, tmp_path):
    table = db.create_table("t", numbers(40), max_rows_per_file=20)
    table.add_columns({"y": "x * 2"})
    table.backfill("y", progress=False)
    table.alter_columns({"y": "x * 3"})
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: 3 * x for x in range(40)}
    table.alter_columns({"y": "x * 2"})
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: 2 * x for x in range(40)}
    table.alter_columns({"y": call_log.double()})
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(40))


def test_the_mapping_of_inputs_stays_or_is_given(db, call_log):
    @leman.udf(data_type=pa.int64(), name="plus", version="1")
    def plus(x: int) -> int:
        return x + 1

    data = numbers(10).append_column("z", pa.array(range(100, 110), pa.int64()))
    table = db.create_table("t", data)
    table.add_columns({"y": (call_log.double(), ["z"])})
    table.alter_columns({"y": plus})
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: x + 101 for x in range(10)}
    table.alter_columns({"y": (plus, ["x"])})
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: x + 1 for x in range(10)}
    (computed,) = table.describe().computed_columns
    assert (computed.udf_name, computed.input_columns) == ("plus", ("x",))


def test_refused_as_a_whole(db, call_log):
    @leman.udf(data_type=pa.string(), version="1")
    def name(x: int) -> str:
        return str(x)

    table = db.create_table("t", numbers(3))
    table.add_columns({"y": call_log.double(), "w": "x + 1"})
    version = table.version
    with pytest.raises(leman.errors.TypeMismatch, match="add a new column"):
        table.alter_columns({"w": "x + 2", "y": name})
    with pytest.raises(leman.errors.TypeMismatch, match="add a new column"):
        table.alter_columns({"y": "upper(cast(x as string))"})
    with pytest.raises(leman.errors.ColumnNotDefined, match="not defined in this table"):
        table.alter_columns({"x": "x + 2"})
    with pytest.raises(leman.errors.ColumnNotDefined, match="not defined in this table"):
        table.alter_columns({"nope": "x + 2"})
    with pytest.raises(leman.errors.FailedPrecondition, match="cannot be computed from itself"):
        table.alter_columns({"y": "y + 1"})
    with pytest.raises(leman.errors.InputColumnMissing):
        table.alter_columns({"y": (call_log.double(), ["nope"])})
    assert table.version == version
