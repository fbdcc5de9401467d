"""Several columns in one job: read together, committed together, and none lost by what befalls another one."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import JobState, errors
from leman.v1 import jobs_pb2, planner_pb2
from tests.faults.lake import wait_for
from tests.integration.call_log import CallLog, numbers, values

ROWS = 60
COLUMNS = [f"c{i}" for i in range(6)]
SKIP = leman.ErrorHandlingConfig(on_error=[leman.Skip("SqlError")])


@pytest.fixture
def table(db) -> leman.Table:
    """Three fragments with six columns of SQL, of which nothing is computed."""
    made = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    made.add_columns({name: f"x + {i}" for i, name in enumerate(COLUMNS)})
    return made


def is_right(table: leman.Table, names: list[str] = COLUMNS) -> bool:
    return all(values(table, name) == {x: x + int(name[1:]) for x in range(ROWS)} for name in names)


def test_columns_are_one_job_and_one_version(db, table):
    before = table.describe().version
    (job_id,) = table.backfill(COLUMNS, progress=False)
    job = db.job(job_id)
    assert (job.state, job.column, job.columns, job.table_version) == (JobState.DONE, "", tuple(COLUMNS), before + 1)
    assert (job.progress.commits, job.progress.rows_computed, job.progress.rows_committed) == (1, 6 * ROWS, 6 * ROWS)
    assert is_right(table)
    assert all(not table.plan_backfill(name).rows_to_compute for name in COLUMNS)
    (again,) = table.backfill(progress=False)
    assert db.job(again).state is JobState.DONE
    assert table.describe().version == before + 1
    assert [found.job_id for found in db.jobs("t")] == [again, job_id]


def test_columns_that_read_others_come_after_them(db, table):
    table.add_columns({"sum": "c0 + c1", "twice": "sum * 2"})
    before = table.describe().version
    (job_id,) = table.backfill(["twice", "c1", "sum", "c0"], progress=False)
    assert (db.job(job_id).state, table.describe().version) == (JobState.DONE, before + 3)
    assert values(table, "twice") == {x: 2 * (2 * x + 1) for x in range(ROWS)}
    assert not table.plan_backfill("twice").rows_to_compute


def test_what_a_job_of_one_column_finished_is_reused_and_the_other_way_round(db, table):
    table.backfill("c0", progress=False)
    table.add(numbers(20, start=ROWS))
    (job_id,) = table.backfill(["c0", "c1"], progress=False)
    assert db.job(job_id).progress.rows_computed == 20 + ROWS + 20
    assert not table.plan_backfill("c1").rows_to_compute
    assert db.job(table.backfill("c1", progress=False)).progress.rows_computed == 0


def test_a_column_that_fails_does_not_lose_the_others(db, table):
    table.add_columns({"bad": "100 / x", "worse": "bad + 1"})
    with pytest.raises(errors.JobFailed, match=r"(?is)Column bad: .*divide by zero.*Also failed: worse") as caught:
        table.backfill([*COLUMNS, "bad", "worse"], progress=False)
    assert (caught.value.reason, caught.value.facts["column"]) == ("UDF_FAILED", "bad")
    assert is_right(table)
    table.alter_columns({"bad": leman.sql("100 / x", error_handling=SKIP)})
    (job_id,) = table.backfill(progress=False)
    job = db.job(job_id)
    assert (job.state, job.progress.rows_failed) == (JobState.DONE_WITH_ERRORS, 1)
    assert job.progress.rows_evaluated == 20 + ROWS, "of `bad`, the fragment with the row; all of `worse`"
    assert [(e.column, e.offset) for e in table.get_errors(job_id=job_id)] == [("bad", 0)]
    again, alone = table.backfill(progress=False)[0], table.backfill("bad", progress=False)
    assert [(found.progress.rows_failed_before, found.failed_in) for found in map(db.job, (again, alone))] == [
        (1, (job_id,)),
        (1, (job_id,)),
    ]
    assert table.get_failed_row_addresses(job_id=job_id, column_name="bad") == [0]
    retried = db.job(db.retry_job(job_id, progress=False))
    assert (retried.state, retried.columns[-1], retried.progress.rows_evaluated) == (
        JobState.DONE_WITH_ERRORS,
        "worse",
        1,
    )


def test_a_bound_of_failed_rows_holds_for_a_column_among_others(table):
    """It is known only with the last rows of a fragment, when the others are written already."""
    bounded = leman.ErrorHandlingConfig(on_error=[leman.Skip("SqlError")], max_errors=2)
    table.add_columns({"bad": leman.sql("100 / (x % 10)", error_handling=bounded)})
    with pytest.raises(errors.JobFailed, match="Column bad: ") as caught:
        table.backfill(progress=False)
    assert caught.value.reason == "TOO_MANY_ERRORS"
    assert is_right(table)


def test_what_is_committed_how_often_holds_for_all_columns(db, table):
    before = table.describe().version
    (job_id,) = table.backfill(["c0", "c1"], commit_granularity=1, concurrency=1, progress=False)
    assert db.job(job_id).progress.rows_committed == 2 * ROWS
    assert table.describe().version >= before + 3, "one for each fragment at the least"
    assert is_right(table, ["c0", "c1"])


def test_a_job_tells_that_its_table_lost_what_a_job_had_committed(db, table):
    lost = table.backfill("c0", progress=False)
    version = table.version
    min(Path(table.uri, "_versions").iterdir()).unlink()
    future = table.backfill_async(["c1", "c2"])
    future.result(60)
    (told,) = [event.message for event in future.events() if event.kind == "error"]
    assert f"at version {version - 1}, but job {lost} committed version {version}" in told


def test_filters_and_older_versions_hold_for_all_columns(table):
    version = table.describe().version
    table.update("x = 59", {"x": 1000})
    table.backfill(["c0", "c1"], where="x >= 40", read_version=version, progress=False)
    assert {x: y for x, y in values(table, "c0").items() if y is not None} == {
        **{x: x for x in range(40, 59)},
        1000: 59,
    }
    table.backfill(["c0", "c1"], progress=False)
    assert values(table, "c1") == {x: x + 1 for x in [*range(59), 1000]}


def test_what_is_deleted_and_compacted_while_it_runs_is_computed(db, table):
    """The plan that the job began with is not that of the table any more."""
    table.delete("x % 7 = 3")
    future = table.backfill_async(COLUMNS)
    table.delete("x % 7 = 4")
    table.to_lance().optimize.compact_files()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    table.backfill(progress=False)
    for i, name in enumerate(COLUMNS):
        assert values(table, name) == {x: x + i for x in range(ROWS) if x % 7 not in (3, 4)}


def test_on_the_wire_several_columns_exclude_what_is_about_one(db, table):
    def create(columns, **more):
        spec = planner_pb2.BackfillSpec(table=table.ref(), columns=columns, **more)
        db._services.jobs.CreateJob(jobs_pb2.CreateJobRequest(backfill=spec))

    with pytest.raises(errors.InvalidArgument, match="neither column"):
        create(["c0", "c1"], column="c2")
    with pytest.raises(errors.InvalidArgument, match="failed_only"):
        create(["c0", "c1"], failed_only=True)
    with pytest.raises(errors.InvalidArgument, match="more than once"):
        create(["c0", "c0"])


@pytest.mark.spark
def test_functions_with_other_versions_and_variables_are_one_job(db, call_log, tmp_path):
    """Python's come one after the other; SQL has no variables."""
    table = db.create_table("mixed", numbers(ROWS), max_rows_per_file=20)
    other = CallLog(tmp_path, "other")

    @leman.udf
    def env(x: int) -> str:
        return os.environ["LETTER"] * x

    table.add_columns({"y": call_log.double(), "z": (other.double(version="7"), ["y"]), "e": env, "s": "x + 1"})
    (job_id,) = table.backfill(env={"LETTER": "a"}, progress=False)
    job = db.job(job_id)
    assert (job.state, job.env_names, set(job.columns)) == (JobState.DONE, ("LETTER",), {"y", "z", "e", "s"})
    assert values(table, "z") == {x: 4 * x for x in range(ROWS)}
    assert values(table, "e")[3] == "aaa"
    assert (sorted(call_log.seen()), sorted(other.seen())) == (list(range(ROWS)), list(range(0, 2 * ROWS, 2)))


@pytest.mark.spark
def test_a_job_is_paused_loses_a_column_and_goes_on(db, call_log, tmp_path):
    table = db.create_table("paused", numbers(ROWS), max_rows_per_file=20)
    other = CallLog(tmp_path, "other")
    table.add_columns({"s": "x + 1", "y": call_log.double(seconds=0.02), "gone": "x + 2", "z": other.double()})
    future = table.backfill_async(["s", "y", "z"], concurrency=2)
    wait_for(lambda: len(call_log.seen()) > ROWS // 8)
    future.pause()
    wait_for(lambda: future.status() is JobState.PAUSED)
    assert values(table, "s") == {x: x + 1 for x in range(ROWS)}, "it was committed before"
    table.drop_columns(["z"])
    future.resume()
    with pytest.raises(errors.JobFailed, match="Column z: ") as caught:
        future.result(timeout=60)
    assert caught.value.reason == "COLUMN_NOT_DEFINED"
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    assert (sorted(call_log.seen()), other.seen()) == (list(range(ROWS)), [])


@pytest.mark.spark
def test_columns_that_are_dropped_and_altered_while_others_are_computed(db, call_log):
    """Those that are left are computed with the functions that they have by then, and together."""
    table = db.create_table("moved", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"y": call_log.double(seconds=0.02)})
    table.add_columns({"a": "y + 1", "b": "y + 2", "gone": "y + 3", "left": "gone + 1"})
    future = table.backfill_async(concurrency=2)
    wait_for(lambda: len(call_log.seen()) > ROWS // 8)
    table.drop_columns(["left", "gone"])
    table.alter_columns({"b": "y + 20"})
    before = table.describe().version
    with pytest.raises(errors.JobFailed, match=r"(?s)Column gone: .*Also failed: left") as caught:
        future.result(timeout=60)
    assert caught.value.reason == "COLUMN_NOT_DEFINED"
    assert [values(table, name)[7] for name in ("y", "a", "b")] == [14, 15, 34]
    assert not any(table.plan_backfill(name).rows_to_compute for name in ("y", "a", "b"))
    assert table.describe().version > before
    assert sorted(call_log.seen()) == list(range(ROWS))


@pytest.mark.spark
def test_a_cancelled_job_keeps_what_it_finished(db, call_log):
    table = db.create_table("cancelled", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"s": "x + 1", "y": call_log.double(seconds=0.05), "z": call_log.double(version="2")})
    future = table.backfill_async(concurrency=1)
    wait_for(lambda: len(call_log.seen()) > 3)
    future.cancel()
    with pytest.raises(errors.JobCancelled):
        future.result(timeout=60)
    assert values(table, "s") == {x: x + 1 for x in range(ROWS)}
    assert len(call_log.seen()) < ROWS


@pytest.mark.parametrize("second", ["b * 2", "function"])
def test_rows_that_others_add_meanwhile_have_their_inputs_computed_too(db, call_log, tmp_path, second):
    table, gate = db.create_table("t", numbers(ROWS), max_rows_per_file=20), tmp_path / "gate"
    opened = str(gate)

    def first(x: int) -> int:
        import time
        from pathlib import Path

        while x == ROWS - 1 and not Path(opened).exists():
            time.sleep(0.01)
        return x + 1

    table.add_columns({"b": leman.udf(first, data_type=pa.int64())})
    table.add_columns({"c": (call_log.double(), ["b"]) if second == "function" else second})
    future = table.backfill_async(["b", "c"], concurrency=1)
    wait_for(lambda: future.job().progress.rows_computed >= 20)
    table.add(numbers(5, start=ROWS))
    gate.touch()
    future.result(timeout=60)
    assert future.job().state is JobState.DONE
    assert values(table, "c") == {x: 2 * (x + 1) for x in range(ROWS + 5)}
    if second == "function":
        assert sorted(call_log.seen()) == list(range(1, ROWS + 6)), "each row once"
