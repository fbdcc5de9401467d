"""Refreshes while something else happens to the view or its source: the right rows, each once, or one clear error."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from tests.integration.call_log import numbers

pytestmark = pytest.mark.spark

DEADLINE = 60.0


class Gate:
    """A function that writes down what it sees, and does not return before the gate is open."""

    def __init__(self, folder: Path) -> None:
        self._seen = folder / "seen.txt"
        self._open = folder / "open"

    def seen(self) -> list[int]:
        return [int(line) for line in self._seen.read_text().split()] if self._seen.exists() else []

    def open(self) -> None:
        self._open.touch()

    def close(self) -> None:
        self._open.unlink()

    def wait(self, calls: int) -> None:
        """Until the function was called so often."""
        deadline, pause = time.monotonic() + DEADLINE, threading.Event()
        while len(self.seen()) < calls:
            assert time.monotonic() < deadline, "the function was not called"
            pause.wait(0.005)

    def double(self) -> leman.UDF:
        seen, gate = str(self._seen), str(self._open)

        def double(x: int) -> int:
            handle = os.open(seen, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{x}\n".encode())
            os.close(handle)
            while not os.path.exists(gate):  # noqa: PTH110 - pickled: the fewer modules the better
                time.sleep(0.005)
            return 2 * x

        return leman.udf(data_type=pa.int64(), version="1")(double)


@pytest.fixture
def gate(tmp_path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.open()  # a worker that waits for it would wait for ever


@pytest.fixture
def table(db) -> leman.Table:
    return db.create_table("t", numbers(80), max_rows_per_file=20)


@pytest.fixture
def view(db, table, gate) -> leman.View:
    """Filled, and with twenty rows to be added."""
    query = table.search(None).where("x % 5 <> 0").select(["x"]).add_column("y", gate.double()).shuffle(seed=3)
    made = db.create_materialized_view("v", query, max_rows_per_fragment=10)
    gate.open()
    made.refresh(progress=False)
    gate.close()
    table.add(numbers(25, start=1000))
    return made


def check(view: leman.View, table: leman.Table) -> None:
    """It is its query at the version that it says, and without a duplicate."""
    raw = view.to_lance().to_table()
    assert all(raw[IS_SET].to_pylist())
    ids = raw[SOURCE_ROW_ID].to_pylist()
    assert len(set(ids)) == len(ids)
    source = table.to_lance().checkout_version(view.describe().source_version)
    wanted = sorted(x for x in source.to_table(columns=["x"])["x"].to_pylist() if x % 5)
    rows = view.to_arrow()
    assert sorted(rows["x"].to_pylist()) == wanted
    assert rows["y"].to_pylist() == [2 * x for x in rows["x"].to_pylist()]


def scratch_tables(view: leman.View) -> list[str]:
    return [path.name for path in Path(view.uri).parent.glob("__leman_scratch_*")]


def append(table: leman.Table, _view: leman.View) -> None:
    table.add(numbers(10, start=2000))


def rows_change(table: leman.Table, _view: leman.View) -> None:
    table.to_lance().delete("x IN (1, 1001)")
    table.to_lance().update({"x": "x + 5000"}, where="x IN (2, 1002)")


def compact(table: leman.Table, _view: leman.View) -> None:
    table.to_lance().optimize.compact_files()


def clean(table: leman.Table, view: leman.View) -> None:
    """The versions that the view and its refresh rest on go, with their files."""
    compact(table, view)
    table.to_lance().cleanup_old_versions(timedelta(0), retain_versions=1)


def compact_view(_table: leman.Table, view: leman.View) -> None:
    view.to_lance().optimize.compact_files(target_rows_per_fragment=1000)


@pytest.mark.parametrize("what", [append, rows_change, compact, clean, compact_view])
def test_while_it_computes(db, table, view, gate, what: Callable[[leman.Table, leman.View], None]):
    before = len(gate.seen())
    future = view.refresh_async()
    gate.wait(before + 1)
    what(table, view)
    gate.open()
    job = db.job(future.result(60))
    assert job.state is leman.JobState.DONE
    check(view, table)
    if what is clean:  # it had to start again, for another version
        assert (job.refresh_result.mode, job.refresh_result.reason) == ("incremental", "source_changed")
        assert len(gate.seen()) <= before + 40, "nothing was computed but what came"
    else:
        assert job.refresh_result.rows_evaluated == 20
        assert max(Counter(gate.seen()).values()) == 1, "nothing was computed twice"
    view.refresh(progress=False)
    assert view.describe().source_version == table.version
    check(view, table)
    assert view.refresh(progress=False).mode == "no_op"
    assert scratch_tables(view) == []


@pytest.mark.parametrize("what", [append, rows_change, clean, compact_view])
def test_while_it_is_filled_for_the_first_time(db, table, gate, what: Callable[[leman.Table, leman.View], None]):
    query = table.search(None).where("x % 5 <> 0").select(["x"]).add_column("y", gate.double())
    view = db.create_materialized_view("v", query, max_rows_per_fragment=10)
    future = view.refresh_async()
    gate.wait(1)
    what(table, view)
    gate.open()
    assert db.job(future.result(60)).state is leman.JobState.DONE
    check(view, table)
    if what is not clean:  # then it is made again, for other rows
        assert max(Counter(gate.seen()).values()) == 1
    view.refresh(progress=False)
    assert view.describe().source_version == table.version
    check(view, table)
    assert scratch_tables(view) == []


def test_of_a_refresh_that_was_given_up_nothing_stays(db, table, view, gate):
    """Another one that is the same work continues with what it left; another one that is not removes it."""
    before = len(gate.seen())
    future = view.refresh_async()
    gate.wait(before + 1)
    future.cancel()
    gate.open()
    with pytest.raises(leman.errors.JobCancelled):
        future.result(60)
    assert len(scratch_tables(view)) == 1
    append(table, view)
    view.refresh(progress=False)
    check(view, table)
    assert scratch_tables(view) == []


def test_to_two_versions(db, table, view, gate):
    """Each is committed, one after the other."""
    first_version = table.version
    before = len(gate.seen())
    futures = [view.refresh_async(src_version=first_version)]
    gate.wait(before + 1)
    table.add(numbers(10, start=2000))
    futures.append(view.refresh_async(src_version=table.version))
    gate.open()
    for future in futures:
        future.result(60)
    assert view.describe().source_version in {first_version, table.version}
    check(view, table)
    view.refresh(progress=False)
    check(view, table)


def test_to_a_version_that_is_cleaned_away_while_it_computes(db, table, view, gate):
    """No one else may choose another one."""
    wanted, before = table.version, view.version
    table.add(numbers(10, start=2000))
    future = view.refresh_async(src_version=wanted)
    gate.wait(len(gate.seen()) + 1)
    clean(table, view)
    gate.open()
    with pytest.raises(leman.errors.JobFailed, match=f"no version {wanted}") as caught:
        future.result(60)
    assert caught.value.reason == "VERSION_NOT_FOUND"
    assert view.version == before
    view.refresh(progress=False)
    check(view, table)
    assert scratch_tables(view) == []


def test_two_of_them_share_what_they_compute(db, table, view, gate):
    before = len(gate.seen())
    first = view.refresh_async()
    gate.wait(before + 1)
    second = view.refresh_async()
    assert any(event.kind == "collected" for _, events in second.watch(DEADLINE) for event in events), "not shared"
    gate.open()
    jobs = [db.job(future.result(60)) for future in (first, second)]
    assert sum(job.refresh_result.rows_added for job in jobs) == 20
    assert max(Counter(gate.seen()).values()) == 1
    check(view, table)


def test_an_incremental_and_a_full_one(db, table, view, gate):
    """Whichever is second sees the first one's rows."""
    before = len(gate.seen())
    futures = [view.refresh_async()]
    gate.wait(before + 1)
    futures.append(view.refresh_async(policy="full"))
    gate.open()
    for future in futures:
        future.result(60)
    check(view, table)
    assert max(Counter(gate.seen()).values()) <= 2


def test_many_first_fills_and_refreshes_at_once(db, table, gate):
    gate.open()
    query = table.search(None).where("x % 5 <> 0").select(["x"]).add_column("y", gate.double())
    view = db.create_materialized_view("v", query, max_rows_per_fragment=4)
    for round_ in range(3):
        futures = [view.refresh_async() for _ in range(4)]
        for future in futures:
            future.result(60)
        check(view, table)
        table.add(numbers(15, start=1000 * (round_ + 1)))
        rows_change(table, view)
    view.refresh(progress=False)
    check(view, table)
    assert scratch_tables(view) == []


@pytest.mark.long
def test_many_while_the_source_is_written_and_cleaned(db, table, gate):
    """Each is right, or says that it is to be run again."""
    gate.open()
    query = table.search(None).where("x % 5 <> 0").select(["x"]).add_column("y", gate.double())
    view = db.create_materialized_view("v", query, max_rows_per_fragment=4)
    over, failures = threading.Event(), []

    def write() -> None:
        for start in range(1000, 100_000, 100):
            if over.is_set():
                return
            append_and_clean(table, view, start)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            try:
                view.refresh(progress=False)
            except leman.errors.JobFailed as error:
                failures.append(error)
            ids = view.to_lance().to_table()[SOURCE_ROW_ID].to_pylist()
            assert len(set(ids)) == len(ids)
    finally:
        over.set()
        writer.join()
    assert {error.reason for error in failures} <= {"VIEW_CHANGED"}
    assert all("run it again" in str(error) for error in failures)
    view.refresh(progress=False)
    check(view, table)
    assert scratch_tables(view) == []


def append_and_clean(table: leman.Table, view: leman.View, start: int) -> None:
    table.add(numbers(10, start=start))
    clean(table, view)
