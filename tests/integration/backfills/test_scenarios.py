"""Five scenarios of backfills, as a user meets them."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import JobState
from tests.faults.lake import wait_for
from tests.integration.call_log import numbers, values

pytestmark = pytest.mark.spark

WIDTH = 8


def embedder(folder: Path) -> leman.UDF:
    """A model that is loaded once in each worker; it writes down by whom each image was seen. From image 30 on it waits
    for `gate`, so that a worker can be killed while others hold theirs."""
    gate, log = folder / "gate", folder / "log"

    @leman.udf(data_type=pa.list_(pa.float32(), WIDTH), name="embedder", version=folder.name, batch_size=5)
    class Embedder:
        def __init__(self) -> None:
            (folder / f"model-{os.getpid()}").touch()

        def __call__(self, image: bytes) -> list[float]:
            import threading

            number = int.from_bytes(image, "big")
            while number >= 30 and not gate.exists():
                threading.Event().wait(0.005)
            with log.open("a") as lines:
                lines.write(f"{number} {os.getpid()}\n")
            return [float(number)] * WIDTH

    return Embedder()


def test_scenario_1_adding_embeddings_to_an_image_table(db, tmp_path):
    """Four workers, checkpoints of a few rows, commits of a few fragments on the way; the death of a worker costs
    one checkpoint."""
    rows = 80
    images = pa.array([n.to_bytes(4, "big") for n in range(rows)], pa.binary())
    table = db.create_table("images", pa.table({"image": images}), max_rows_per_file=10)
    table.add_columns({"embedding": embedder(tmp_path)})
    future = table.backfill_async("embedding", concurrency=4, checkpoint_size=5, commit_granularity=2, task_size=10)
    seen = []
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_committed >= 20 and not seen:
            done = [v for v in table.to_arrow(columns=["embedding"])["embedding"].to_pylist() if v is not None]
            assert len(done) >= 20, "a partial commit is visible"
            assert not job.state.terminal
            wait_for(lambda: len(list(tmp_path.glob("model-*"))) == 4)
            seen = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
            assert len(seen) < rows
            os.kill(int(seen[-1][1]), signal.SIGKILL)
            (tmp_path / "gate").touch()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    embeddings = table.to_arrow(columns=["embedding"])["embedding"].to_pylist()
    assert embeddings == [[float(n)] * WIDTH for n in range(rows)]
    calls = Counter(line.split()[0] for line in (tmp_path / "log").read_text().splitlines())
    assert sum(calls.values()) - rows <= 5, "what the dead worker had not stored"
    assert db.job(future.job_id).progress.commits == 4
    assert len(list(tmp_path.glob("model-*"))) <= 5, "four workers, and at most one in the place of the dead one"


def test_scenario_2_adding_new_rows_to_an_already_backfilled_table(db, call_log):
    """The same call again computes the new fragments; the others are not touched."""
    table = db.create_table("t", numbers(100), max_rows_per_file=20)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", progress=False)
    call_log.clear()
    before = {f.fragment_id: f.metadata.files for f in table.to_lance().get_fragments()}
    table.add(numbers(30, start=100), max_rows_per_file=20)
    plan = table.plan_backfill("y")
    assert {r.reason: r.fragments for r in plan.reasons} == {"REUSED": 5, "MISSING": 2}
    job = db.job(table.backfill("y", progress=False))
    assert sorted(call_log.seen()) == list(range(100, 130))
    assert (job.progress.rows_reused, job.progress.fragments_committed) == (100, 2)
    after = {f.fragment_id: f.metadata.files for f in table.to_lance().get_fragments()}
    assert {i: after[i] for i in before} == before
    assert values(table, "y") == {x: 2 * x for x in range(130)}


def test_scenario_3_selective_backfill_with_where_clause(db, call_log):
    """Rows that came with a value of their own keep it, and the function is not called for them."""
    table = db.create_table("t", numbers(40), max_rows_per_file=20)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", progress=False)
    call_log.clear()
    given = pa.array([-x if x % 3 == 0 else None for x in range(40, 70)], pa.int64())
    table.add(numbers(30, start=40).append_column("y", given))
    job = db.job(table.backfill("y", where="y IS NULL", progress=False))
    own = {x for x in range(40, 70) if x % 3 == 0}
    assert sorted(call_log.seen()) == sorted({*range(40, 70)} - own)
    assert job.progress.rows_skipped >= len(own)
    assert values(table, "y") == {x: -x if x in own else 2 * x for x in range(70)}
    call_log.clear()
    table.backfill("y", where="y IS NULL", progress=False)
    assert call_log.seen() == []


def test_scenario_4_resuming_a_failed_backfill(db, tmp_path):
    """It is simply run again: committed fragments are skipped, no row that returned is computed again."""
    fixed, log = tmp_path / "fixed", tmp_path / "log"

    @leman.udf(data_type=pa.int64(), name="fragile", version="1", batch_size=5)
    def fragile(x: int) -> int:
        if x == 57 and not fixed.exists():
            raise ConnectionError("no answer from the model server")
        with log.open("a") as lines:
            lines.write(f"{x}\n")
        return 2 * x

    table = db.create_table("t", numbers(100), max_rows_per_file=20)
    table.add_columns({"y": fragile})
    with pytest.raises(leman.JobFailed, match="no answer from the model server"):
        table.backfill("y", checkpoint_size=5, task_size=20, task_shuffle_diversity=1, concurrency=1, progress=False)
    assert {x for x, y in values(table, "y").items() if y is not None} == set(range(40)), "what was done is committed"
    before = [int(x) for x in log.read_text().split()]
    assert sorted(before) == list(range(57))
    fixed.touch()
    plan = table.plan_backfill("y")
    assert {r.reason: r.fragments for r in plan.reasons} == {"REUSED": 2, "PARTIAL": 1, "MISSING": 2}
    future = table.backfill_async("y")
    assert "Fragments: 1 continues from checkpoints" in " ".join(e.message for e in future.events())
    future.result(timeout=60)
    again = [int(x) for x in log.read_text().split()][len(before) :]
    assert sorted(again) == list(range(57, 100)), "the row that failed, and what came after"
    assert values(table, "y") == {x: 2 * x for x in range(100)}


def test_scenario_5_processing_only_recent_data(db, call_log):
    """By a date, by one relative to now, then a wider one: each row is computed once, older ones never."""
    now = dt.datetime.now(dt.UTC)
    ages = pa.array([now - dt.timedelta(days=10 * x) for x in range(20)], pa.timestamp("us", "UTC"))
    table = db.create_table("t", numbers(20).append_column("created_at", ages), max_rows_per_file=7)
    table.add_columns({"y": call_log.double()})
    fixed = (now - dt.timedelta(days=25)).strftime("%Y-%m-%d %H:%M:%S")
    table.backfill("y", where=f"created_at > timestamp '{fixed}'", progress=False)
    assert sorted(call_log.seen()) == [0, 1, 2]
    recent = db.job(table.backfill("y", where="created_at > now() - interval '45 days'", progress=False))
    assert "now()" not in recent.where, "pinned once"
    assert sorted(call_log.seen()) == [0, 1, 2, 3, 4]
    table.backfill("y", where="created_at > now() - interval '95 days'", progress=False)
    assert sorted(call_log.seen()) == list(range(10))
    assert values(table, "y") == {x: 2 * x if x < 10 else None for x in range(20)}
