"""Refreshes of a view that was filled, paused in the middle: nothing of them is seen, and no call is made twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import leman
from leman import JobState
from tests.faults.views import change, matching
from tests.integration.backfills.test_pauses import paused
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark

ROWS = 400
SECONDS = 0.005


def make(db: leman.Database, *functions: leman.UDF) -> tuple[leman.Table, leman.View]:
    """A table and a filled view of it, with a column for each function: y0, y1, …"""
    table = db.create_table("t", numbers(160), max_rows_per_file=40)
    query = table.search(None).where("x % 5 <> 0").select(["x"])
    for number, function in enumerate(functions):
        query = query.add_column(f"y{number}", function)
    view = db.create_materialized_view("v", query.shuffle(seed=7), max_rows_per_fragment=40)
    view.refresh(progress=False)
    return table, view


def check(view: leman.View, xs: Sequence[int], column: str = "y0") -> None:
    assert values(view, column) == {x: 2 * x for x in matching(list(xs))}


def resumed(future: leman.JobFuture) -> leman.RefreshResult:
    """What the refresh did, once it went on and ended."""
    assert future.resume() in (JobState.PENDING, JobState.PLANNING, JobState.RUNNING)
    future.result(timeout=90)
    job = future.job()
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    return job.refresh_result


def test_rows_that_come_and_change(db, call_log):
    table, view = make(db, call_log.double(seconds=SECONDS))
    table.add(numbers(ROWS, start=2000))
    now, new = change(table)
    wanted, new = [*now, *range(2000, 2000 + ROWS)], matching([*new, *range(2000, 2000 + ROWS)])
    call_log.clear()
    future = view.refresh_async(concurrency=2)
    version = view.version
    job = paused(future, lambda: len(call_log.seen()) >= len(new) // 8)
    before = call_log.seen()
    assert len(before) == len(set(before)) < len(new)
    assert job.progress.rows_checkpointed == len(before), "all that was called is stored"
    assert view.version == version
    check(view, range(160))
    other = db.create_table("other", numbers(10))
    other.add_columns({"y": call_log.double()})
    other.backfill("y", progress=False)
    assert len(call_log.seen()) == len(before) + 10, "workers are free for others, and none goes on"
    result = resumed(future)
    assert (result.mode, result.rows_evaluated) == ("incremental", len(new))
    assert result.rows_added + result.rows_recomputed == len(new)
    assert sorted(call_log.seen()) == sorted([*range(10), *new]), "every row once"
    check(view, wanted)
    again = view.refresh(progress=False)
    assert (again.mode, again.rows_evaluated) == ("no_op", 0)


@pytest.mark.parametrize("at", [0, 1], ids=["first", "second"])
@pytest.mark.long
def test_one_of_two_functions(db, tmp_path, at):
    logs = [CallLog(tmp_path, f"log{number}") for number in range(2)]
    table, view = make(db, *(log.double(seconds=SECONDS) for log in logs))
    table.add(numbers(ROWS, start=2000))
    new = matching(range(2000, 2000 + ROWS))
    for log in logs:
        log.clear()
    future = view.refresh_async(concurrency=2)
    paused(future, lambda: len(logs[at].seen()) >= len(new) // 8)
    assert len(logs[at].seen()) < len(new)
    assert bool(logs[1].seen()) is bool(at), "the second begins when the first is through"
    result = resumed(future)
    assert (result.rows_added, result.rows_evaluated) == (len(new), 2 * len(new))
    assert [sorted(log.seen()) for log in logs] == [new, new], "every row once"
    for column in ("y0", "y1"):
        check(view, [*range(160), *range(2000, 2000 + ROWS)], column)


def test_another_function_for_a_column(db, tmp_path):
    """While the source changes: the refresh keeps to the version that it began with."""
    before, after = CallLog(tmp_path, "before"), CallLog(tmp_path, "after")
    table, view = make(db, before.double())
    view.alter_columns({"y0": after.double(seconds=4 * SECONDS)})
    future = view.refresh_async(concurrency=2)
    paused(future, lambda: len(after.seen()) >= 20)
    table.add(numbers(10, start=3000))
    result = resumed(future)
    assert (result.rows_added, result.rows_evaluated) == (0, len(matching(range(160))))
    assert sorted(after.seen()) == matching(range(160)), "every row once"
    check(view, range(160))
    assert view.refresh(progress=False).rows_added == len(matching(range(3000, 3010)))


def test_a_refresh_is_cancelled_while_it_is_paused(db, call_log):
    table, view = make(db, call_log.double(seconds=SECONDS))
    table.add(numbers(ROWS, start=2000))
    call_log.clear()
    future = view.refresh_async(concurrency=2)
    paused(future, lambda: len(call_log.seen()) >= ROWS // 8)
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    check(view, range(160))
    view.refresh(progress=False)
    assert sorted(call_log.seen()) == matching(range(2000, 2000 + ROWS)), "what it had computed is kept"
    check(view, [*range(160), *range(2000, 2000 + ROWS)])
