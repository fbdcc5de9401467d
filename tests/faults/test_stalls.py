"""A job of which something does not move says what, where and for how long; one frozen worker does not hold it open."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pyarrow as pa
import pytest

import leman
from leman import JobEvent, JobState
from tests.faults.lake import DEADLINE, CallLog, Lake, alive, armed_lake, check_settled, wait_for
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

ROWS, TASK = 400, 40
CHECKS, CHECK_SECONDS = 4, 0.5
CANCEL_SECONDS = 5.0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One of its own, in which a stall is noticed after seconds."""
    stalls = {
        "LEMAN_WRITER__STALL_IDLE_CHECKS": str(CHECKS),
        "LEMAN_WRITER__STALL_CHECK_SECONDS": str(CHECK_SECONDS),
    }
    with armed_lake(tmp_path_factory.mktemp("stalls"), **stalls) as running:
        yield running


def until(future: leman.JobFuture, kind: str, words: str) -> tuple[leman.Job, JobEvent]:
    """The first event of a kind with these words, and the job as it stood then."""
    for job, events in future.watch(timeout=DEADLINE):
        for event in events:
            if event.kind == kind and words in event.message:
                return job, event
    raise AssertionError(f"no event {kind} with {words}")


def freeze(pid: int) -> Callable[[], None]:
    """Stops a process; returns what lets it go on, if it still exists."""
    process = psutil.Process(pid)
    process.suspend()

    def go_on() -> None:
        if alive(process):
            process.resume()

    return go_on


def logged(lake: Lake, words: str) -> list[dict[str, object]]:
    """Lines of the executor's log."""
    lines = lake.home.log("executor").read_text().splitlines()
    return [json.loads(line) for line in lines if words in line and line.startswith("{")]


def begin(
    db: leman.Database, call_log: CallLog, name: str, **parameters: object
) -> tuple[leman.Table, leman.JobFuture]:
    table = db.create_table(name, numbers(ROWS))
    table.add_columns({"y": call_log.double()})
    return table, table.backfill_async("y", task_size=TASK, **parameters)


@pytest.mark.long
def test_a_call_that_does_not_come_back_is_reported(lake, db, tmp_path):
    """The function has no timeout, and may well be at work: nothing is taken from it."""
    gate = tmp_path / "gate"

    @leman.udf(data_type=pa.int64(), name="waits", version="1")
    def waits(x: int) -> int:
        import threading

        while x == 25 and not gate.exists():
            threading.Event().wait(0.01)
        return 2 * x

    table = db.create_table("call", numbers(60), max_rows_per_file=20)
    table.add_columns({"y": waits})
    future = table.backfill_async("y", checkpoint_size=5)
    job, event = until(future, "stall", "since the function was called with")
    gate_was_shut = not gate.exists()
    (stall,) = job.stalls
    assert stall.message == event.message == str(stall)
    assert stall.worker.startswith("worker ")
    assert f"{stall.worker} has not moved for {CHECKS * CHECK_SECONDS:g} s" in stall.message
    assert stall.fragment_id == 1
    assert stall.rows[0] <= 25 - 20 < stall.rows[1]
    assert not stall.silent
    assert "timeout" in stall.message
    again, _ = until(future, "stall", f"has not moved for {2 * CHECKS * CHECK_SECONDS:g} s")
    assert [s.worker for s in again.stalls] == [stall.worker]
    assert db.job(job.job_id).stalls, "GetJob tells too"
    (line,) = wait_for(lambda: logged(lake, event.message))  # another process writes it to the file
    assert (line["level"], line["job_id"]) == ("warning", job.job_id)
    gate.touch()
    assert gate_was_shut
    ended = db.job(future.result(timeout=60))
    assert (ended.state, ended.stalls) == (JobState.DONE, ())
    assert ended.progress.rows_evaluated == 60
    assert values(table, "y") == {x: 2 * x for x in range(60)}


def test_work_of_a_frozen_worker_is_taken_over(lake, db, call_log):
    """It is the only one: another one stands in for it, and is the only one then."""
    table, future = begin(db, call_log, "frozen", concurrency=1)
    call_log.wait(ROWS // 4)
    victim = psutil.Process(call_log.worker())
    go_on = freeze(victim.pid)
    try:
        _, event = until(future, "stall", "handed out again")
        assert "of fragment 0" in event.message
        job = db.job(future.result(timeout=60))
    finally:
        go_on()
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert not job.stalls
    assert len(call_log.workers()) == 2
    assert call_log.again() <= TASK
    wait_for(lambda: not alive(victim))
    check_settled(db, table, ROWS)


def test_a_silent_worker_may_come_back(lake, db, call_log):
    """Its unit has been handed out again by then; the first complete result counts, once."""
    table, future = begin(db, call_log, "back", concurrency=2)
    call_log.wait(ROWS // 4)
    go_on = freeze(call_log.worker())
    try:
        job, _ = until(future, "stall", "handed out again")
        assert [s.silent for s in job.stalls] == [True]
    finally:
        go_on()
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    assert call_log.again() <= TASK
    check_settled(db, table, ROWS)


def test_cancel_ends_a_job_with_a_frozen_worker(lake, db, call_log):
    _, future = begin(db, call_log, "cancelled", concurrency=2)
    call_log.wait(ROWS // 4)
    victim = psutil.Process(call_log.worker())
    go_on = freeze(victim.pid)
    try:
        asked = time.monotonic()
        future.cancel()
        with pytest.raises(leman.JobCancelled):
            future.result(timeout=60)
        assert time.monotonic() - asked <= CANCEL_SECONDS
        wait_for(lambda: not alive(victim))
    finally:
        go_on()


def test_a_function_that_silences_its_worker_is_not_handed_out_for_ever(lake, db, tmp_path):
    """Native code that keeps the interpreter to itself: no heartbeat gets out. A second worker tries, and then it is
    only reported."""

    @leman.udf(data_type=pa.int64(), name="native", version="1")
    def native(x: int) -> int:
        import ctypes
        import os

        (tmp_path / f"worker-{os.getpid()}").touch()
        return int(ctypes.PyDLL(None).pause())

    table = db.create_table("native", numbers(10))
    table.add_columns({"y": native})
    future = table.backfill_async("y", concurrency=1)
    workers: set[str] = set()
    handed_out_again = 0
    for job, events in future.watch(timeout=DEADLINE):
        handed_out_again += sum("handed out again" in event.message for event in events)
        workers |= {s.worker for s in job.stalls if s.silent and s.idle_seconds >= 2 * CHECKS * CHECK_SECONDS}
        if len(workers) == 2:
            break
    assert handed_out_again == 1
    assert len(list(tmp_path.glob("worker-*"))) == 2
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)


@pytest.mark.long
def test_a_commit_without_an_answer_is_reported(lake, db, call_log):
    table, future = begin(db, call_log, "unanswered")
    coordinator = lake.pid("commit_coordinator")
    os.kill(coordinator, signal.SIGSTOP)
    try:
        job, event = until(future, "stall", "the commit of 1 fragments has no response yet")
        assert [s.worker for s in job.stalls] == [""]
        assert f"for {CHECKS * CHECK_SECONDS:g} s now" in event.message
    finally:
        os.kill(coordinator, signal.SIGCONT)
    assert db.job(future.result(timeout=60)).state is JobState.DONE
    check_settled(db, table, ROWS)
