"""What callers do while services are restarted: each program checks each value, and no call of it may fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import leman
from leman import JobState
from leman.errors import FailedPrecondition
from tests.faults.lake import CallLog, wait_for
from tests.integration.call_log import numbers, values

ROWS = 200
#: A job may wait for a lease's end and for a Spark that starts, beside everything else on the machine.
SPARK_SECONDS = 240.0
#: A caller's pause: the processors are for services that start, too.
_PAUSE_SECONDS = 0.5


class Program:
    """One caller, in a thread of its own: round after round until it is stopped, or a call fails."""

    def __init__(self, database: leman.Database, turn: Callable[[leman.Database, int], None]) -> None:
        self.name = turn.__name__
        #: Seconds of each round that is through.
        self.lasted: list[float] = []
        self.failure: BaseException | None = None
        self._database, self._turn = database, turn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                self._turn(self._database, self.rounds)
                self.lasted.append(time.monotonic() - began)
                self._over.wait(_PAUSE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - told by anyone who looks at the program
            self.failure = error

    @property
    def rounds(self) -> int:
        """How many rounds it has been through."""
        return len(self.lasted)

    @property
    def longest(self) -> float:
        """Seconds of the longest round."""
        return max(self.lasted, default=0.0)

    def check(self) -> None:
        """Raise what a call failed with."""
        if self.failure is not None:
            raise AssertionError(f"{self.name}, round {self.rounds}") from self.failure

    def end(self, seconds: float) -> None:
        """Have it end after this round."""
        self._over.set()
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self.name} hangs in round {self.rounds}"
        self.check()


def goes_on(programs: list[Program], seconds: float, rounds: int = 2) -> None:
    """Wait until each program has ended so many rounds from now on; the second one was begun after now."""
    before = [program.rounds for program in programs]

    def through() -> bool:
        for program in programs:
            program.check()
        return all(program.rounds >= there + rounds for program, there in zip(programs, before, strict=True))

    wait_for(through, seconds=seconds)


def sql_backfills(db: leman.Database, number: int) -> None:
    """A table, a column of it that SQL computes, all of its values, and again where nothing is to be done."""
    table = db.create_table(f"b{number}", numbers(ROWS), max_rows_per_file=ROWS // 4)
    table.add_columns({"y": "x * 2"})
    for _ in range(2):
        job = db.job(table.backfill("y", progress=False))
        assert job.state is JobState.DONE
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}


def refreshes(db: leman.Database, number: int) -> None:
    """Rows come to a source, and its view has them after the next refresh."""
    if not number:
        source = db.create_table("s", numbers(ROWS))
        source.search(None).select({"x": "x", "y": "x * 3"}).create_materialized_view(conn=db, view_name="v")
    else:
        db.open_table("s").add(numbers(5, start=ROWS + 5 * (number - 1)))
    view = db.open_view("v")
    view.refresh(progress=False)
    rows = view.to_arrow()
    assert dict(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True)) == {
        x: 3 * x for x in range(ROWS + 5 * number)
    }
    assert rows.num_rows == ROWS + 5 * number


class Writer:
    """Rows come, change and go through the services; what should be there is kept beside."""

    def __init__(self) -> None:
        self._there: dict[int, int] = {}

    def writes(self, db: leman.Database, number: int) -> None:
        """One change of each kind, and a look at all rows."""
        if not number:
            db.create_table("w", {"k": [-1], "v": [0]})
            self._there = {-1: 0}
        table, k = db.open_table("w"), 4 * number
        table.add({"k": [k, k + 1, k + 2], "v": [1, 1, 1]})
        merge = table.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        merge.execute({"k": [k + 1, k + 3], "v": [2, 2]})
        table.update(f"k = {k + 2}", values_sql={"v": "v + 10"})
        table.delete(f"k = {k}")
        self._there |= {k + 1: 2, k + 3: 2, k + 2: 11}
        rows = table.to_arrow()
        found = sorted(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))
        assert found == sorted(self._there.items()), "a change was lost, or made twice"


class Functions:
    """Jobs of a Python function.

    Attributes:
        led: how many were led as they should be.
        ended_before: how many had ended before their caller got through to anyone who had them, by a link that was cut.
    """

    def __init__(self, folder: Path, connect: Callable[[], leman.Database]) -> None:
        self._folder, self._connect = folder, connect
        self.led = self.ended_before = 0

    def backfills(self, db: leman.Database, number: int) -> None:
        """A job that is waited for."""
        table = self._table(db, f"g{number}")
        assert db.job(table.backfill("y", task_size=10, progress=False)).state is JobState.DONE
        assert values(table, "y") == {x: 2 * x for x in range(ROWS)}

    def led_jobs(self, db: leman.Database, number: int) -> None:
        """A job that is paused, resumed and waited for, and another one that is cancelled: led while they run, by
        callers who come again, to whichever executor."""
        for what in ("done", "cancelled"):
            table = self._table(db, f"f{number}_{what}")
            job_id = table.backfill_async("y", task_size=10).job_id
            with self._connect() as other:
                self._lead(other, table, other.job_future(job_id), what)

    def _table(self, db: leman.Database, name: str) -> leman.Table:
        table = db.create_table(name, numbers(ROWS), max_rows_per_file=ROWS // 4)
        table.add_columns({"y": CallLog(self._folder, name).double(seconds=0.02)})
        return table

    def _lead(self, db: leman.Database, table: leman.Table, future: leman.JobFuture, what: str) -> None:
        for job, _ in future.watch(timeout=SPARK_SECONDS):
            if job.progress.rows_checkpointed:
                break
        expected = JobState.DONE
        try:
            future.update(priority=1)
            if what == "cancelled":
                future.cancel()
                expected = JobState.CANCELLED
            else:
                future.pause()
                future.resume()
            self.led += 1
        except FailedPrecondition as error:
            if error.reason != "JOB_ENDED":
                raise
            self.ended_before += 1
        states = [job.state for job, _ in future.watch(timeout=SPARK_SECONDS)]
        assert states[-1] is expected
        if expected is JobState.DONE:
            assert values(table, "y") == {x: 2 * x for x in range(ROWS)}

    def check_led(self) -> None:
        """Check that few ended too early."""
        assert self.ended_before * 4 <= self.led, f"{self.ended_before} of {self.led + self.ended_before} had ended"
