"""Garbage collection through SDK and services: what jobs need stays, what they are done with goes."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import leman
from leman import JobState
from tests.integration.call_log import numbers, values

DAY = 86400.0


def files(table: leman.Table) -> set[str]:
    return {f"{f}/{p.name}" for f in ("_checkpoints", "data") for p in Path(table.uri, f).glob("*")}


def referenced(table: leman.Table) -> set[str]:
    latest = table.to_lance()
    versions = [latest.checkout_version(v["version"]) for v in latest.versions()]
    return {f"data/{f.path}" for d in versions for g in d.get_fragments() for f in g.metadata.files}


def age(table: leman.Table, days: float) -> None:
    then = time.time() - days * DAY
    for name in files(table):
        os.utime(Path(table.uri, name), (then, then))


def cancel_when(table: leman.Table, reached: Callable[[leman.Progress], bool], **parameters: Any) -> None:
    future = table.backfill_async("y", **parameters)
    for job, _ in future.watch(timeout=60):
        if reached(job.progress):
            future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=10)


def test_after_a_backfill_all_checkpoints_go_and_nothing_is_lost(db, call_log):
    table = db.create_table("t", numbers(400), max_rows_per_file=200)
    table.add_columns({"y": call_log.double(seconds=0.001)})
    table.backfill("y", task_size=50, checkpoint_size=10)
    found = table.checkpoints()
    assert {f.use for f in found} == {"SETTLED"}
    assert {f.kind for f in found} >= {"checkpoint", "record"}
    assert all((f.column, f.fate) == ("y", "YOUNG") for f in found)
    before, version = files(table), table.version
    assert table.collect_checkpoints().files_removed == 0, "nothing is seven days old"

    dry = table.collect_checkpoints(older_than="0", dry_run=True)
    assert dry.files_removed == len(found)
    assert not any(f.removed for f in dry.files)
    assert files(table) == before, "a dry run deletes nothing"
    done = table.collect_checkpoints(older_than="0")
    assert (done.files_removed, done.bytes_removed, done.files_kept) == (dry.files_removed, dry.bytes_removed, 0)
    assert {f.path for f in done.files if f.removed} == {f.path for f in found}
    assert files(table) == referenced(table)
    assert table.collect_checkpoints(older_than="0").files_removed == 0

    again = db.job(table.backfill("y"))
    assert (again.progress.rows_evaluated, again.progress.spark_jobs) == (0, 0)
    assert table.version == version
    assert values(table, "y") == {x: 2 * x for x in range(400)}
    assert sorted(call_log.seen()) == list(range(400))


def test_checkpoints_of_a_job_that_did_not_finish_stay_and_are_used(db, call_log):
    table = db.create_table("t", numbers(500))
    table.add_columns({"y": call_log.double(seconds=0.01)})
    cancel_when(table, lambda p: p.rows_checkpointed >= 100, checkpoint_size=10)
    safe = table.checkpoints()
    assert {(f.use, f.fate) for f in safe} == {("OPEN", "KEPT")}
    rows = sum(f.end - f.start for f in safe if f.kind == "checkpoint")
    assert rows >= 100
    age(table, 100)
    assert table.collect_checkpoints().files_removed == 0
    assert table.collect_checkpoints(older_than="0").files_removed == 0
    call_log.clear()
    table.backfill("y", concurrency=16)
    assert len(call_log.seen()) == 500 - rows
    assert values(table, "y") == {x: 2 * x for x in range(500)}


def test_a_dropped_column_leaves_its_checkpoints_for_a_while(db, call_log):
    table = db.create_table("t", numbers(100))
    table.add_columns({"y": call_log.double(seconds=0.001)})
    table.backfill("y", task_size=20, checkpoint_size=10)
    table.to_lance().drop_columns(["y"])
    assert table.collect_checkpoints().files_removed == 0
    table.add_columns({"y": call_log.double(seconds=0.001)})
    kept = table.collect_checkpoints(older_than="0")
    assert {f.kind for f in kept.files} <= {"record"}, "the new column can be filled from them"
    table.backfill("y")
    assert sorted(call_log.seen()) == list(range(100)), "not computed again"
    assert values(table, "y") == {x: 2 * x for x in range(100)}

    table.to_lance().drop_columns(["y"])
    assert {f.use for f in table.checkpoints()} == {"NO_COLUMN", "SETTLED"}
    assert table.collect_checkpoints(older_than="0").files_kept == 0
    assert not list(Path(table.uri, "_checkpoints").iterdir())
    assert files(table) == referenced(table)


def test_while_a_job_runs_nothing_of_its_goes(db, tmp_path):
    gate, path = tmp_path / "gate", str(tmp_path / "gate")

    @leman.udf(data_type=pa.int64(), name="gated_gc", version="1")
    def gated(x: int) -> int:
        import threading
        from pathlib import Path

        while x == 299 and not Path(path).exists():
            threading.Event().wait(0.01)
        return x

    table = db.create_table("t", numbers(300), max_rows_per_file=50)
    table.add_columns({"y": gated})
    future = table.backfill_async("y", checkpoint_size=10, commit_granularity=1)
    for job, _ in future.watch(timeout=60):
        if job.progress.fragments_committed >= 3 and not gate.exists():
            before = files(table)
            during = table.collect_checkpoints(older_than="0")
            assert during.files_removed == 0
            assert files(table) >= {name for name in before if "/.tmp" not in name}, "Lance renames what it has written"
            assert {f.fate for f in table.checkpoints()} <= {"KEPT", "JOB"}
            gate.touch()
    assert gate.exists()
    job = db.job(future.result(timeout=60))
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE, 300)
    assert values(table, "y") == {x: x for x in range(300)}
    assert table.collect_checkpoints(older_than="0").files_kept == 0
    assert files(table) == referenced(table)


def test_commits_and_collections_at_once_lose_nothing(db, call_log):
    table = db.create_table("t", numbers(300), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    over, collections = threading.Event(), []

    def collect() -> None:
        while not over.is_set():
            collections.append(table.collect_checkpoints(older_than="0"))

    collecting = threading.Thread(target=collect)
    collecting.start()
    try:
        for _ in range(3):
            table.backfill("y", commit_granularity=2)
            table.to_lance().drop_columns(["y"])
            table.add_columns({"y": call_log.double()})
        table.backfill("y", commit_granularity=2)
    finally:
        over.set()
        collecting.join()
    assert len(collections) > 3
    assert values(table, "y") == {x: 2 * x for x in range(300)}
    table.collect_checkpoints(older_than="0")
    assert files(table) == referenced(table)


def test_errors(db):
    with pytest.raises(leman.errors.InvalidArgument, match="older_than"):
        db.create_table("t", numbers(1)).collect_checkpoints(older_than="a while")
    with pytest.raises(leman.errors.InvalidArgument, match="limit"):
        db.open_table("t").collect_checkpoints(limit=0)
    table = db.open_table("t")
    shutil.rmtree(table.uri)
    with pytest.raises(leman.errors.TableNotFound):
        table.collect_checkpoints()
