"""kill -9 at each step of a view's creation and of its refreshes: the right rows, once, and no function called again
for what was finished."""

from __future__ import annotations

import pytest

import leman
from leman import JobState
from tests.faults.lake import ROWS_AT_RISK, WORKERS, Lake, alive, wait_for
from tests.faults.views import ROWS, change, check_settled, make, matching
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

#: What may be going on, how often before, and the process that dies.
FILL = [
    ("planner.refresh_planned", 1, "planner"),
    pytest.param("executor.fill_answered", 1, "executor", marks=pytest.mark.long),
    ("coordinator.before_commit", 1, "commit_coordinator"),
    ("coordinator.after_commit", 2, "commit_coordinator"),
]
DELTA = [
    ("planner.refresh_planned", "planner"),
    ("executor.view_files_written", "executor"),
    pytest.param("executor.delta_answered", "executor", marks=pytest.mark.long),
    ("coordinator.before_delta", "commit_coordinator"),
    ("coordinator.after_delta", "commit_coordinator"),
]


def refresh(lake: Lake, db: leman.Database, view: leman.View, victim: str) -> leman.Job:
    """A refresh in which a process dies; the job as it ended."""
    pid = lake.pid(victim)
    future = view.refresh_async()
    lake.wait_gone(pid)
    if victim == "executor":
        with lake.redis() as redis:  # who takes its place need not wait until the dead one's lease expires
            redis.delete(*redis.keys(f"leman:job:{future.job_id}@*"))
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 2 if victim == "executor" else 1)
    lake.wait_back(victim, before=pid)
    return job


def counts(job: leman.Job) -> tuple[int, ...]:
    """What the refresh says that it did, over all executors that had a part in it."""
    result = job.refresh_result
    return result.rows_added, result.rows_recomputed, result.rows_evicted, result.rows_reused, result.rows_evaluated


@pytest.mark.parametrize(("point", "passes", "victim"), FILL)
def test_in_the_first_fill(lake, db, call_log, point, passes, victim):
    _, view = make(db, call_log, f"{point.replace('.', '_')}_{passes}")
    lake.arm(point, passes)
    job = refresh(lake, db, view, victim)
    assert lake.went_off(point)
    assert (job.refresh_result.mode, job.refresh_result.reason) == ("full", "first_fill")
    assert sorted(call_log.seen()) == matching(range(ROWS)), "nothing was computed again"
    assert counts(job) == (len(call_log.seen()), 0, 0, 0, len(call_log.seen()))
    check_settled(lake, db, view, list(range(ROWS)))


@pytest.mark.parametrize(("point", "victim"), DELTA)
def test_in_a_refresh_of_what_changed(lake, db, call_log, point, victim):
    table, view = make(db, call_log, f"changed_{point.replace('.', '_')}")
    view.refresh(progress=False)
    order = view.to_arrow()["x"].to_pylist()
    held, new = change(table)
    before, calls = view.version, len(call_log.seen())
    lake.arm(point)
    job = refresh(lake, db, view, victim)
    assert lake.went_off(point)
    assert (job.refresh_result.mode, job.refresh_result.reason) == ("incremental", "source_changed")
    assert sorted(call_log.seen()) == sorted([*matching(range(ROWS)), *matching(new)]), "nothing was computed again"
    told = int(victim == "executor")  # that takes the job over has the attempt before it refused first
    assert view.version == before + told + 1, "one commit, however often it was asked for"
    kept = [x + 5000 if x in range(10, 20) else x for x in order if x not in range(60, 70)]
    changed = sum(x in new for x in kept)
    added = len(matching(new)) - changed
    wanted = (added, changed, len(order) - len(kept), len(kept) - changed, len(call_log.seen()) - calls)
    assert counts(job) == wanted
    check_settled(lake, db, view, held)
    assert view.to_arrow()["x"].to_pylist()[: len(kept)] == kept


#: A refresh of two seconds or so.
SLOW = 0.05


@pytest.mark.long
def test_while_workers_compute(lake, db, call_log):
    """Everything that computes nothing itself dies, and a worker."""
    _, view = make(db, call_log, "computing", seconds=SLOW)
    future = view.refresh_async()
    call_log.wait(ROWS // 5)
    victims = {name: lake.pid(name) for name in ("planner", "commit_coordinator")}
    for pid in (*victims.values(), call_log.worker()):
        lake.kill(pid)
    assert len(call_log.seen()) < len(matching(range(ROWS))), "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert call_log.again() <= ROWS_AT_RISK
    check_settled(lake, db, view, list(range(ROWS)))
    for name, pid in victims.items():
        lake.wait_back(name, before=pid)


@pytest.mark.long
def test_of_the_executor_while_workers_compute(lake, db, call_log):
    """Calls that were lost with it are not counted, those of which the values were safe are: once."""
    table, view = make(db, call_log, "executor", seconds=SLOW)
    view.refresh(progress=False)
    before = len(call_log.seen())
    table.add(numbers(100, start=1000))
    victim, future = lake.pid("executor"), view.refresh_async()
    call_log.wait(before + 40)
    lake.kill(victim)
    assert len(call_log.seen()) < before + 80, "nothing was left to do"
    with lake.redis() as redis:
        redis.delete(*redis.keys(f"leman:job:{future.job_id}@*"))
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    assert counts(job) == (80, 0, 0, before, 80)
    check_settled(lake, db, view, [*range(ROWS), *range(1000, 1100)])


@pytest.mark.long
def test_of_everything_and_the_refresh_is_asked_for_again(lake, db, call_log):
    """The one that was cut short is taken over at the same time: both are the same work."""
    _, view = make(db, call_log, "ended", seconds=SLOW)
    future = view.refresh_async()
    call_log.wait(ROWS // 5)
    family = lake.family()
    lake.kill(lake.pid("supervisor"))
    wait_for(lambda: not [process for process in family if alive(process)])
    assert len(call_log.seen()) < len(matching(range(ROWS))), "nothing was left to do"
    with lake.connect() as again:
        view = again.open_view(view.name)
        view.refresh(progress=False)
        job = again.job(future.result(timeout=60))
        assert (job.state, job.attempt) == (JobState.DONE, 2)
        assert call_log.again() <= WORKERS * ROWS_AT_RISK
        check_settled(lake, again, view, list(range(ROWS)))
