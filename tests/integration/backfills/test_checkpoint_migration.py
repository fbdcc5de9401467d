"""What was computed and not committed, or committed and replaced, is not computed again: it is migrated."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman.progress import JobState
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from tests.integration.call_log import CallLog, numbers, values

ROWS = 40


def compact(table: leman.Table, **options: int) -> None:
    table.to_lance().optimize.compact_files(**options)


def clean(table: leman.Table) -> None:
    table.to_lance().cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)


class Gate:
    """Holds a function at one row until it is opened."""

    def __init__(self, folder: Path, call_log: CallLog) -> None:
        self.path = folder / "gate"
        self._call_log = call_log

    def double(self, at: int) -> leman.UDF:
        gate, log = str(self.path), str(self._call_log.path)

        def gated(x: int) -> int:
            import os
            import threading
            from pathlib import Path

            while x == at and not Path(gate).exists():
                threading.Event().wait(0.01)
            handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{x}\n".encode())
            os.close(handle)
            return 2 * x

        return leman.udf(data_type=pa.int64(), name="gated", version="1")(gated)

    def open(self) -> None:
        self.path.touch()

    @property
    def opened(self) -> bool:
        return self.path.exists()


def run_and_meanwhile(
    table: leman.Table, gate: Gate, rows: int, change: Callable[[], None], **options: object
) -> leman.JobFuture:
    """Runs a backfill; once a number of rows are safe and the function waits at the gate, the table changes."""
    future = table.backfill_async("y", **options)
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_checkpointed >= rows and not gate.opened:
            change()
            gate.open()
    assert gate.opened
    return future


def check(db: leman.Database, table: leman.Table, call_log: CallLog, expected: dict[int, int | None]) -> None:
    """The values, and that another run has nothing to do."""
    assert values(table, "y") == expected
    call_log.clear()
    job = db.job(table.backfill("y"))
    assert (call_log.seen(), job.progress.spark_jobs) == ([], 0)


def doubles(*gone: int) -> dict[int, int | None]:
    return {x: 2 * x for x in range(ROWS) if x not in gone}


@pytest.mark.parametrize("target", [1 << 20, 16], ids=["one fragment", "several"])
@pytest.mark.parametrize("deleted", [(), (0, 12, 13, 39)], ids=["all rows", "some deleted"])
def test_compacted_in_the_middle_of_a_job(db, tmp_path, call_log, target, deleted):
    """Finished files are refused as their fragments are gone; checkpoints and files are migrated."""
    gate = Gate(tmp_path, call_log)
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": gate.double(at=35)})
    if deleted:
        table.to_lance().delete(f"x IN {deleted}")
    future = run_and_meanwhile(
        table,
        gate,
        30 - len(deleted),
        lambda: compact(table, target_rows_per_fragment=target),
        checkpoint_size=4,
        commit_granularity=100,
        concurrency=2,
    )
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert sorted(call_log.seen()) == sorted(doubles(*deleted)), "each row was computed once"
    check(db, table, call_log, doubles(*deleted))


def test_deleted_and_compacted_in_the_middle_of_a_job(db, tmp_path, call_log):
    def change() -> None:
        table.to_lance().delete("x IN (3, 14, 36)")
        compact(table, materialize_deletions_threshold=0.0)

    gate = Gate(tmp_path, call_log)
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": gate.double(at=35)})
    future = run_and_meanwhile(table, gate, 30, change, commit_granularity=100, concurrency=2)
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert sorted(call_log.seen()) == list(range(ROWS))
    check(db, table, call_log, doubles(3, 14, 36))


def test_updated_and_compacted_in_the_middle_of_a_job(db, tmp_path, call_log):
    """Rows that moved before the compaction are computed; nothing stale is migrated."""

    def change() -> None:
        table.to_lance().update({"x": "x + 1000"}, where="x IN (3, 25)")
        compact(table)

    gate = Gate(tmp_path, call_log)
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": gate.double(at=35)})
    future = run_and_meanwhile(table, gate, 30, change, commit_granularity=100, concurrency=2)
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert sorted(call_log.seen()) == [*range(ROWS), 1003, 1025]
    check(db, table, call_log, {**doubles(3, 25), 1003: 2006, 1025: 2050})


def cancelled_at_38(db: leman.Database, gate: Gate, where: str) -> leman.Table:
    """Two fragments: a finished file of the first, checkpoints of the second up to 37. Nothing is committed."""
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"y": gate.double(at=38)})
    future = table.backfill_async("y", where=where or None, checkpoint_size=3, concurrency=1, task_size=40)
    store = LanceCheckpointStore(checkpoint_root(table.to_lance().uri))
    deadline = time.monotonic() + 60
    while sum("_frag-1_range-" in key for key in store.list_keys()) < (3 if where else 6):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    gate.open()
    return table


def test_renamed_after_a_job_was_cancelled(db, tmp_path, call_log):
    """Keys hold the name that the column had when it was added; a column added under it later is another one."""
    table = cancelled_at_38(db, Gate(tmp_path, call_log), "")
    assert sorted(call_log.seen()) == list(range(38))
    table.to_lance().alter_columns({"path": "y", "name": "renamed"})
    call_log.clear()
    table.backfill("renamed")
    assert sorted(call_log.seen()) == [38, 39]
    assert values(table, "renamed") == doubles()
    other = CallLog(tmp_path, "other")
    table.add_columns({"y": other.double()})
    table.backfill("y")
    assert sorted(other.seen()) == list(range(ROWS))
    table.alter_columns({"renamed": other.double()})
    table.backfill("renamed")
    assert sorted(other.seen()) == list(range(ROWS)), "the same function of the same rows"
    assert values(table, "renamed") == values(table, "y") == doubles()


def test_compacted_after_a_job_was_cancelled(db, tmp_path, call_log):
    """Twice, with rows in between; under the filter that is asked for, and under another one."""
    where = "x % 2 = 0"
    table = cancelled_at_38(db, Gate(tmp_path, call_log), where)
    assert sorted(call_log.seen()) == list(range(0, 38, 2))
    compact(table)
    table.add(numbers(5, start=ROWS))
    compact(table)
    table.backfill("y", where=where)
    assert sorted(call_log.seen()) == list(range(0, 45, 2))
    table.backfill("y")
    assert sorted(call_log.seen()) == list(range(45))
    check(db, table, call_log, {x: 2 * x for x in range(45)})


def test_back_to_the_function_before(db, call_log, tmp_path):
    """Its files were replaced; what they hold is not computed again, under whatever filter, after a compaction too."""
    second = CallLog(tmp_path, "second")
    one, two = call_log.double(version="1"), second.double(version="2")
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": one})
    table.backfill("y")
    table.alter_columns({"y": two})
    table.backfill("y")
    table.alter_columns({"y": one})
    call_log.clear()
    assert db.job(table.backfill("y", where="x < 15")).progress.rows_evaluated == 0
    assert db.job(table.backfill("y")).progress.rows_evaluated == 0
    check(db, table, call_log, doubles())
    compact(table)
    table.alter_columns({"y": two})
    second.clear()
    job = db.job(table.backfill("y"))
    assert (second.seen(), job.progress.rows_planned) == ([], 0)
    check(db, table, second, doubles())
    table.alter_columns({"y": one})
    assert db.job(table.backfill("y")).progress.rows_evaluated == 0
    check(db, table, call_log, doubles())


def test_back_to_a_function_that_computed_some_rows(db, call_log, tmp_path):
    one, two = call_log.double(version="1"), CallLog(tmp_path, "second").double(version="2")
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": one})
    table.backfill("y", where="x % 3 = 0")
    table.alter_columns({"y": two})
    table.backfill("y")
    table.alter_columns({"y": one})
    call_log.clear()
    table.backfill("y")
    assert sorted(call_log.seen()) == [x for x in range(ROWS) if x % 3]
    check(db, table, call_log, doubles())


def test_back_to_the_function_before_after_an_update(db, call_log, tmp_path):
    """A replaced file whose inputs have changed since is none."""
    one, two = call_log.double(version="1"), CallLog(tmp_path, "second").double(version="2")
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": one})
    table.backfill("y")
    table.alter_columns({"y": two})
    table.to_lance().update({"x": "x + 1000"}, where="x = 7")
    table.backfill("y")
    table.alter_columns({"y": one})
    call_log.clear()
    table.backfill("y")
    assert call_log.seen() == [1007]
    check(db, table, call_log, {**doubles(7), 1007: 2014})


def without_checkpoints(table: leman.Table) -> None:
    """A slow machine has left some: only the files are to be found."""
    store = LanceCheckpointStore(checkpoint_root(table.to_lance().uri))
    for key in store.list_keys():
        if "_range-" in key:
            del store[key]


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_replaced_file_that_is_no_good_is_computed_again(db, call_log, tmp_path, harm):
    one, two = call_log.double(version="1"), CallLog(tmp_path, "second").double(version="2")
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=20)
    table.add_columns({"y": one})
    table.backfill("y")
    without_checkpoints(table)
    field = next(f.id() for f in table.to_lance().lance_schema.fields() if f.name() == "y")
    files = [f.path for g in table.to_lance().get_fragments() for f in g.metadata.files if f.fields == [field]]
    table.alter_columns({"y": two})
    table.backfill("y")
    table.alter_columns({"y": one})
    if harm == "gone":
        clean(table)
    else:
        path = Path(table.to_lance().uri, "data", files[0])
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.write_bytes(bytes(data))
    call_log.clear()
    table.backfill("y")
    assert sorted(call_log.seen()) == list(range(ROWS if harm == "gone" else 20))
    check(db, table, call_log, doubles())


def test_a_column_made_anew_gets_files_of_its_own(db, call_log):
    """Nothing is computed, and no file of the old column is installed."""

    def installed() -> set[str]:
        fragments = table.to_lance().get_fragments()
        field = next(f.id() for f in table.to_lance().lance_schema.fields() if f.name() == "y")
        return {f.path for g in fragments for f in g.metadata.files if f.fields == [field]}

    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": call_log.double(version="1")})
    table.backfill("y")
    before = installed()
    table.to_lance().drop_columns(["y"])
    table.add_columns({"y": call_log.double(version="1")})
    call_log.clear()
    assert db.job(table.backfill("y")).progress.rows_evaluated == 0
    assert len(installed()) == len(before) == 4
    assert not installed() & before
    check(db, table, call_log, doubles())


KINDS = {
    "text": (pa.string(), lambda x: f"t{x}" if x % 3 else None),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.string())]), lambda x: {"a": x, "b": str(x)}),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda x: f"d{x % 3}"),
    "blob": (pa.large_binary(), lambda x: b"b" * x),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_every_kind_are_migrated_over_as_they_are(db, tmp_path, kind):
    """Blobs of replaced files are computed again: their bytes lie where only the table finds them."""
    data_type, value = KINDS[kind]
    log = CallLog(tmp_path)
    note = log.double().func

    def made(x: int) -> object:
        note(x)
        return value(x)

    def empty(x: int) -> object:
        return None

    options = {"blob": True} if kind == "blob" else {"data_type": data_type}
    one, two = (leman.udf(name="made", version=str(i), **options)(f) for i, f in enumerate((made, empty)))
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=10)
    table.add_columns({"y": one})
    table.backfill("y")
    without_checkpoints(table)
    before = table.to_lance().to_table(columns=["y"])
    table.alter_columns({"y": two})
    table.backfill("y")
    table.alter_columns({"y": one})
    log.clear()
    table.backfill("y")
    assert sorted(log.seen()) == ([] if kind != "blob" else list(range(ROWS)))
    assert table.to_lance().to_table(columns=["y"]) == before
