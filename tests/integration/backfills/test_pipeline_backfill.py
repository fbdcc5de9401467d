"""The pipeline of one backfill, through SDK, planner, executor, Spark, Redis and coordinator."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip
from tests.integration.call_log import CallLog, numbers, values


def spark_jobs(db: leman.Database, job_id: str) -> int:
    return db.job(job_id).progress.spark_jobs


def test_a_backfill_fills_the_column_and_a_second_one_does_nothing(db, call_log):
    table = db.create_table("t", numbers(1000), max_rows_per_file=100)
    table.add_columns({"y": call_log.double()})
    assert set(values(table, "y").values()) == {None}
    assert all(len(f.data_files()) == 1 for f in table.to_lance().get_fragments()), "no data file was written"

    job = db.job(table.backfill("y"))
    assert job.state is JobState.DONE
    assert job.progress.rows_committed == job.progress.rows_evaluated == 1000
    assert values(table, "y") == {x: 2 * x for x in range(1000)}
    assert sorted(call_log.seen()) == list(range(1000))

    version = table.version
    again = db.job(table.backfill("y"))
    assert again.state is JobState.DONE
    assert again.progress.spark_jobs == 0
    assert again.progress.rows_evaluated == 0
    assert "nothing to do" in again.plan_summary
    assert table.version == version
    assert len(call_log.seen()) == 1000


def test_appended_rows_alone_are_computed(db, call_log):
    table = db.create_table("t", numbers(300), max_rows_per_file=100)
    table.add_columns({"y": call_log.double()})
    table.backfill("y")
    call_log.clear()
    table.add(numbers(50, start=300))
    job = db.job(table.backfill("y"))
    assert sorted(call_log.seen()) == list(range(300, 350))
    assert job.progress.rows_reused == 300
    assert values(table, "y") == {x: 2 * x for x in range(350)}


def test_filter_leaves_the_others_and_their_values_alone(db, call_log):
    table = db.create_table("t", numbers(100), max_rows_per_file=30)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", where="x % 10 = 0")
    tens = list(range(0, 100, 10))
    assert sorted(call_log.seen()) == tens
    assert values(table, "y") == {x: 2 * x if x in tens else None for x in range(100)}
    again = db.job(table.backfill("y", where="x % 10 = 0"))
    assert again.progress.spark_jobs == 0
    table.backfill("y")
    assert sorted(call_log.seen()) == list(range(100)), "rows of the filter were not computed again"
    assert values(table, "y") == {x: 2 * x for x in range(100)}


def test_new_code_makes_the_column_stale(db, call_log):
    table = db.create_table("t", numbers(60), max_rows_per_file=20)
    table.add_columns({"y": call_log.double(version="1")})
    table.backfill("y")
    plan = table.plan_backfill("y", udf=call_log.double(version="2"))
    assert "udf_changed" in str(plan).lower()
    table.backfill("y", udf=call_log.double(version="2"))
    assert sorted(call_log.seen()) == sorted([*range(60)] * 2)


@leman.udf(data_type=pa.int64())
def plus_one(x: pa.Array) -> pa.Array:
    return pc.add(x, 1)


@leman.udf(data_type=pa.int64(), input_columns=["x", "z"])
def total(batch: pa.RecordBatch) -> pa.Array:
    return pc.add(batch["x"], batch["z"])


@leman.udf(data_type=pa.list_(pa.float32(), 4))
class Embed:
    def __init__(self, scale: float = 2.0):
        self.scale = scale

    def __call__(self, x: int) -> list[float]:
        return [x * self.scale] * 4


def test_every_kind_of_function(db):
    data = numbers(500).append_column("z", pa.array(np.arange(500) * 10))
    table = db.create_table("t", data, max_rows_per_file=200)
    table.add_columns({"a": plus_one, "s": total, "e": Embed(scale=3.0), "m": (plus_one, ["z"])})
    for column in ("a", "s", "e", "m"):
        table.backfill(column)
    rows = table.to_arrow().to_pylist()
    assert [r["a"] for r in rows] == [x + 1 for x in range(500)]
    assert [r["s"] for r in rows] == [11 * x for x in range(500)]
    assert [r["e"] for r in rows] == [[3.0 * x] * 4 for x in range(500)]
    assert [r["m"] for r in rows] == [10 * x + 1 for x in range(500)]


def test_two_jobs_on_one_column_share_the_work(db, call_log):
    table = db.create_table("t", numbers(400), max_rows_per_file=25)
    table.add_columns({"y": call_log.double(seconds=0.005)})
    futures = [table.backfill_async("y") for _ in range(2)]
    jobs = [db.job(f.result(timeout=120)) for f in futures]
    assert [j.state for j in jobs] == [JobState.DONE, JobState.DONE]
    assert sorted(call_log.seen()) == list(range(400))
    assert values(table, "y") == {x: 2 * x for x in range(400)}


def test_two_jobs_on_one_large_fragment_share_the_work(db, call_log):
    table = db.create_table("t", numbers(400))
    table.add_columns({"y": call_log.double(seconds=0.005)})
    futures = [table.backfill_async("y", task_size=40) for _ in range(2)]
    for future in futures:
        future.result(timeout=120)
    assert sorted(call_log.seen()) == list(range(400))
    assert values(table, "y") == {x: 2 * x for x in range(400)}


def test_two_columns_at_once(db, call_log, tmp_path):
    other = CallLog(tmp_path, "other")
    table = db.create_table("t", numbers(200), max_rows_per_file=20)
    table.add_columns({"y": call_log.double(), "w": other.double()})
    for future in [table.backfill_async("y"), table.backfill_async("w")]:
        future.result(timeout=120)
    assert values(table, "y") == values(table, "w") == {x: 2 * x for x in range(200)}
    assert len(call_log.seen()) == len(other.seen()) == 200


def test_a_dear_fragment_is_split_over_all_workers(db, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    folder = str(pids)

    @leman.udf(data_type=pa.int64(), name="slow", version="1")
    def slow(x: int) -> int:
        import os
        import time

        Path(folder, str(os.getpid())).touch()
        time.sleep(0.01)
        return x

    table = db.create_table("t", numbers(600))
    table.add_columns({"y": slow})
    job = db.job(table.backfill("y", concurrency=3))
    assert values(table, "y") == {x: x for x in range(600)}
    assert len(list(pids.iterdir())) == 3
    assert job.progress.rows_evaluated == 600


def test_results_are_visible_before_the_end(db, tmp_path):
    gate = tmp_path / "gate"
    path = str(gate)

    @leman.udf(data_type=pa.int64(), name="gated", version="1")
    def gated(x: int) -> int:
        import threading

        while x == 99 and not Path(path).exists():
            threading.Event().wait(0.01)
        return x

    table = db.create_table("t", numbers(100), max_rows_per_file=10)
    table.add_columns({"y": gated})
    future = table.backfill_async("y", commit_granularity=2, concurrency=2)
    states = set()
    for job, _ in future.watch(timeout=60):
        states.add(job.state)
        if job.progress.rows_committed >= 40 and not gate.exists():
            assert sum(v is not None for v in values(table, "y").values()) >= 40
            assert job.state is JobState.RUNNING
            gate.touch()
    assert gate.exists(), "nothing was visible before the end"
    assert values(table, "y") == {x: x for x in range(100)}
    assert JobState.DONE in states


def test_rows_that_fail_are_skipped_reported_and_stay_failed(db):
    @leman.udf(data_type=pa.int64(), name="picky", version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
    def picky(x: int) -> int | None:
        if x % 7 == 3:
            raise ValueError(f"no {x}")
        return None if x == 5 else x

    table = db.create_table("t", numbers(50), max_rows_per_file=20)
    table.add_columns({"y": picky})
    job_id = table.backfill("y")
    job = db.job(job_id)
    bad = [x for x in range(50) if x % 7 == 3]
    assert job.state is JobState.DONE_WITH_ERRORS
    assert job.progress.rows_failed == len(bad)
    errors = table.get_errors(job_id=job_id, column_name="y")
    assert [(e.error_type, e.error_message) for e in errors] == [("ValueError", f"no {x}") for x in bad]
    assert table.get_failed_row_addresses(job_id=job_id, column_name="y") == [(x // 20) << 32 | x % 20 for x in bad]
    assert values(table, "y") == {x: None if x in bad or x == 5 else x for x in range(50)}
    again = db.job(table.backfill("y"))
    assert again.state is JobState.DONE_WITH_ERRORS
    assert again.progress.rows_evaluated == 0


def test_cancel_stops_the_work_and_keeps_what_is_done(db, call_log):
    table = db.create_table("t", numbers(2000))
    table.add_columns({"y": call_log.double(seconds=0.01)})
    future = table.backfill_async("y", checkpoint_size=10)
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_checkpointed >= 50:
            future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=10)
    calm = threading.Event()
    seen = call_log.seen()
    assert len(seen) < 2000
    calm.wait(0.5)
    assert call_log.seen() == seen, "the function was still called after the cancel"
    before = len(seen)
    done = db.job(table.backfill("y", checkpoint_size=500, concurrency=16))
    assert values(table, "y") == {x: 2 * x for x in range(2000)}
    again = sum(n > 1 for n in np.bincount(call_log.seen()))
    assert again <= 10 * 16, "at most one checkpoint a worker is computed again"
    assert done.progress.rows_evaluated <= 2000 - before + again


def test_deleted_rows_and_fragments(db, call_log):
    table = db.create_table("t", numbers(90), max_rows_per_file=30)
    table.to_lance().delete("x % 3 = 0 OR x BETWEEN 30 AND 59")
    table.add_columns({"y": call_log.double()})
    table.backfill("y")
    live = [x for x in range(90) if x % 3 and not 30 <= x < 60]
    assert sorted(call_log.seen()) == live
    assert values(table, "y") == {x: 2 * x for x in live}


def test_job_history_is_a_lance_table_in_the_database(db, call_log, tmp_path):
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": call_log.double()})
    job_id = table.backfill("y")
    stored = lance.dataset(str(tmp_path / "a lake, né 1" / "_leman" / "jobs.lance")).to_table().to_pylist()
    assert [r["state"] for r in stored if r["job_id"] == job_id] == ["RUNNING", "DONE"]
    assert [j.job_id for j in db.jobs()] == [job_id]
