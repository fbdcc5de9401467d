"""Another function for a column: stale, kept, and computed again."""

from __future__ import annotations

import pyarrow as pa
import pytest

import leman
from leman.errors import ColumnChanged
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
    told = []
    table.alter_columns({"y": "x * 3"}, report=told.append)
    assert [change.rows_lost for change in told] == [40]
    assert "keep" not in told[0].summary, "values of an expression cost little"
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


def asking(call_log: CallLog, bad: int | None) -> leman.UDF:
    """A function that is paid for each call, and fails on one row where `bad` names it."""
    path = str(call_log.path)

    @leman.udf(data_type=pa.int64(), name="ask", version="broken" if bad is not None else "mended")
    def ask(x: int) -> int:
        import os

        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{x}\n".encode())
        os.close(handle)
        if x == bad:
            raise KeyError("label")
        return x

    return ask


def failed_at_50(db: leman.Database, call_log: CallLog) -> leman.Table:
    """60 rows; a job that failed on one of them, after 50 were paid."""
    table = db.create_table("t", numbers(60), max_rows_per_file=30)
    table.add_columns({"y": asking(call_log, 50)})
    with pytest.raises(leman.JobFailed):
        table.backfill("y", concurrency=1, task_size=60, progress=False)
    assert call_log.seen() == list(range(51))
    return table


def test_a_mended_function_keeps_what_was_paid_before_the_job_failed(db, call_log):
    """The rows are in checkpoints and in a finished file; no version of the table may have them."""
    table = failed_at_50(db, call_log)
    states = table.row_states("y")
    stored = states.checkpointed + states.ready
    assert (states.computed + stored, states.not_computed - stored, states.checkpointed) == (50, 10, 20)
    mended = asking(call_log, None)
    with pytest.raises(ColumnChanged, match=r"50 finished rows would be computed again.*'keep' keeps them"):
        table.add_columns({"y": mended})
    table.add_columns({"y": mended}, on_change="keep", report=False)
    plan = table.plan_backfill("y")
    assert (plan.rows_to_compute, [(k.udf_version, k.rows) for k in plan.kept]) == (10, [("broken", 50)])
    call_log.clear()
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(50, 60)), "the row that failed, and those after it"
    assert values(table, "y") == {x: x for x in range(60)}
    states = table.row_states("y")
    assert (states.computed, [(k.udf_version, k.rows) for k in states.kept]) == (60, [("broken", 50)])
    assert table.plan_backfill("y").rows_to_compute == 0


def test_it_keeps_them_over_a_compaction_too(db, call_log):
    table = failed_at_50(db, call_log)
    table.to_lance().optimize.compact_files()
    call_log.clear()
    table.alter_columns({"y": asking(call_log, None)}, keep_values=True)
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(50, 60))
    assert values(table, "y") == {x: x for x in range(60)}


def test_without_keep_what_was_paid_is_computed_again(db, call_log):
    table = failed_at_50(db, call_log)
    told = []
    table.add_columns({"y": asking(call_log, None)}, on_change="update", report=told.append)
    assert [(change.rows_stale + change.rows_stored, change.rows_not_computed) for change in told] == [(50, 10)]
    call_log.clear()
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(60))


def test_an_alteration_names_what_was_paid_and_the_way_to_keep_it(db, call_log, capfd):
    """Rows in checkpoints and in files that are not committed count; the advice is followed."""
    table = failed_at_50(db, call_log)
    capfd.readouterr()
    mended = asking(call_log, None)
    table.alter_columns({"y": mended})
    said = capfd.readouterr().err
    assert "y changed: 50 finished rows will be computed again, 10 not computed yet" in said
    assert "to keep them, give y ask@broken(x) again, then ask@fixed with keep_values" in said
    table.alter_columns({"y": ("ask@broken", ["x"])})
    table.alter_columns({"y": mended}, keep_values=True)
    assert capfd.readouterr().err == ""
    call_log.clear()
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(50, 60))
