"""Rows of a fragment that is still being computed become visible while its job runs, and cost no call again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import JobState
from tests.faults.lake import wait_for
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark

ROWS = 60
#: The function waits before it continues with this row.
GATE = 40


def gated(call_log: CallLog, gate: Path, failing: int = -1, *, skips: bool = True) -> leman.UDF:
    """x → 2x, but nothing from `GATE` on before the gate is open."""
    log, opened = str(call_log.path), str(gate)

    def slow(x: int) -> int:
        import os
        import time
        from pathlib import Path

        while x >= GATE and not Path(opened).exists():
            time.sleep(0.01)
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{x}\n".encode())
        os.close(handle)
        if x == failing:
            raise ValueError("odd")
        return 2 * x

    return leman.udf(
        data_type=pa.int64(),
        name="slow",
        version="1",
        error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip()] if skips else []),
    )(slow)


def begun(db: leman.Database, call_log: CallLog, gate: Path, rows: int = GATE, failing: int = -1):
    """A table of one fragment, and a job that has committed its first rows and waits at the gate."""
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=ROWS)
    table.add_columns({"y": gated(call_log, gate, failing)})
    future = table.backfill_async("y", concurrency=1, min_checkpoint_size=10, max_checkpoint_size=10, commit_rows=10)
    wait_for(lambda: table.row_states("y").computed + table.row_states("y").failed >= rows)
    return table, future


def test_rows_of_an_unfinished_fragment_are_visible_while_the_job_runs(db, call_log, tmp_path):
    gate = tmp_path / "gate"
    table, future = begun(db, call_log, gate)
    states = table.row_states("y")
    assert (states.computed, states.not_computed, states.checkpointed) == (GATE, ROWS - GATE, 0)
    assert values(table, "y") == {x: 2 * x if x < GATE else None for x in range(ROWS)}
    assert future.job().progress.rows_committed == GATE
    before = table.version
    gate.touch()
    future.result(timeout=60)
    job = future.job()
    assert (job.state, job.progress.rows_committed, job.progress.fragments_committed) == (JobState.DONE, ROWS, 1)
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    assert sorted(call_log.seen()) == list(range(ROWS)), "every row once"
    assert table.version - before <= 2, "few commits"
    assert table.plan_backfill("y").rows_to_compute == 0
    assert db.verify().sound


def test_failed_rows_of_an_unfinished_fragment_are_marked(db, call_log, tmp_path):
    gate = tmp_path / "gate"
    table, future = begun(db, call_log, gate, failing=7)
    assert (table.row_states("y").failed, table.row_states("y").computed) == (1, GATE - 1)
    assert future.pause() in (JobState.PAUSING, JobState.PAUSED)
    gate.touch()
    wait_for(lambda: future.status() is JobState.PAUSED)
    future.resume()
    future.result(timeout=60)
    progress = future.job().progress
    assert (progress.rows_failed, progress.rows_failed_before, progress.rows_committed) == (1, 0, ROWS)
    assert sorted(call_log.seen()) == list(range(ROWS))


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_values_that_no_version_has_can_be_read_while_a_job_runs_and_after_it(db, call_log, tmp_path, end):
    gate, fails = tmp_path / "gate", end == "failed"
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=ROWS)
    table.add_columns({"y": gated(call_log, gate, failing=GATE if fails else 7, skips=not fails)})
    where = "x >= 10" if fails else "x >= 0"  # such a job commits whole fragments
    future = table.backfill_async("y", concurrency=1, min_checkpoint_size=10, max_checkpoint_size=10, where=where)
    computed = {x: 2 * x for x in range(10 if fails else 0, GATE) if fails or x != 7}

    def read(**fields) -> dict[int, int | None]:
        rows = table.to_arrow(["x", "y"], include_checkpointed=True, **fields)
        return dict(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True))

    wait_for(lambda: read(where="y IS NOT NULL") == computed)
    assert read() == {x: computed.get(x) for x in range(ROWS)}
    assert set(values(table, "y").values()) == {None}
    if fails:
        gate.touch()
        with pytest.raises(leman.LemanError):
            future.result(timeout=60)
    else:
        future.cancel()
        gate.touch()
        wait_for(lambda: future.status() is JobState.CANCELLED)
    assert read(where="y IS NOT NULL").items() >= computed.items()


@pytest.mark.parametrize("change", ["compaction", "deletes", "update", "another file"])
def test_what_others_do_between_two_commits_costs_no_call_of_other_rows(db, call_log, tmp_path, change):
    gate = tmp_path / "gate"
    table, future = begun(db, call_log, gate)
    called_again: set[int] = set()
    dataset = table.to_lance()
    if change == "compaction":
        table.add(numbers(10, start=ROWS))
        assert table.to_lance().optimize.compact_files(target_rows_per_fragment=1000).fragments_removed
    elif change == "deletes":
        dataset.delete("x in (3, 50)")
    elif change == "update":
        dataset.update({"x": "x + 1000"}, where="x = 3")
        called_again = {1003}
    else:
        table.to_lance().add_columns({"z": "x + 1"})
    gate.touch()
    future.result(timeout=60)
    table.backfill("y", progress=False)
    found = values(table, "y")
    assert found == {x: 2 * x for x in found}
    seen = call_log.seen()
    assert len(seen) == len(set(seen)), "no row twice"
    assert set(found) | {3, 50} >= set(seen) >= set(found) | called_again


def test_commit_rows_is_refused_where_rows_become_visible_together(db, call_log):
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": call_log.double()})
    with pytest.raises(leman.LemanError, match="commit_rows is 5 and where is given") as caught:
        table.backfill("y", commit_rows=5, where="x < 3")
    assert caught.value.reason == "BAD_REQUEST"
    assert not call_log.seen()
