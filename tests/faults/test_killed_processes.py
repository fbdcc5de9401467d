"""kill -9 of each process in the middle of a backfill, of a table of many fragments and of a table of one."""

from __future__ import annotations

import os
import signal

import psutil
import pyarrow as pa
import pytest

import leman
from leman import JobState
from leman_core.model.keys import job_key
from leman_executor.coordination.env_values import env_values_key
from tests.faults.lake import ROWS_AT_RISK, WORKERS, CallLog, Lake, check_settled, checkpointed, wait_for, watch_until
from tests.integration.call_log import numbers, values

pytestmark = [pytest.mark.faults, pytest.mark.spark]

KEY = "TEST_KEY_OF_A_JOB"
ROWS = 1200
LAYOUTS = {"many": 40, "one": 1 << 20}
#: Units of 1.5 s, many checkpoint intervals: nothing but checkpoints makes the rows of a unit safe.
TASK_SIZES = {"many": None, "one": 300}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def begin(
    db: leman.Database, call_log: CallLog, name: str, layout: str, *, rows: int = ROWS, task_size: int | None = None
) -> tuple[leman.Table, leman.JobFuture]:
    table = db.create_table(name, numbers(rows), max_rows_per_file=LAYOUTS[layout])
    table.add_columns({"y": call_log.double()})
    return table, table.backfill_async("y", task_size=task_size or TASK_SIZES[layout])


def key_of_job() -> leman.UDF:
    """A function that fails where the variable is not there."""

    def keyed(x: int) -> str:
        import os
        import time

        time.sleep(0.005)
        return f"{os.environ['TEST_KEY_OF_A_JOB']} {x}"

    return leman.udf(data_type=pa.string(), version="1")(keyed)


def test_of_a_spark_worker(lake, db, call_log, layout):
    table, future = begin(db, call_log, f"worker_{layout}", layout)
    watch_until(future, checkpointed(ROWS // 3))
    lake.kill(call_log.worker())
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert len(call_log.workers()) > WORKERS, "another worker took its place"
    assert call_log.again() <= ROWS_AT_RISK
    check_settled(db, table, ROWS)


def test_of_a_spark_worker_under_two_jobs_on_one_column(lake, db, call_log):
    """What the dead worker had reserved is its job's: that one continues with it, and the other need not."""
    table, first = begin(db, call_log, "shared", "many")
    second = table.backfill_async("y")
    call_log.wait(ROWS // 3)
    lake.kill(call_log.worker())
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    jobs = [db.job(future.result(timeout=60)) for future in (first, second)]
    assert [job.state for job in jobs] == [JobState.DONE, JobState.DONE]
    assert call_log.again() <= ROWS_AT_RISK
    check_settled(db, table, ROWS)


def test_of_a_spark_worker_that_is_not_dead_after_all(lake, db, call_log):
    """It hangs past its reservations, the other job takes them over and finishes, and then it goes on: there are two
    results for its rows, and the first one stays."""
    table, first = begin(db, call_log, "hanging", "many", task_size=LAYOUTS["many"])
    futures = {first, table.backfill_async("y", task_size=LAYOUTS["many"])}
    call_log.wait(ROWS // 3)
    victim = call_log.worker()
    os.kill(victim, signal.SIGSTOP)
    try:
        (done,) = wait_for(lambda: {future for future in futures if future.done()})
        (other,) = futures - {done}
        assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
        assert not other.done(), "the hanging worker was not its last one"
    finally:
        os.kill(victim, signal.SIGCONT)
    assert [db.job(future.result(timeout=60)).state for future in futures] == [JobState.DONE] * 2
    assert call_log.again() <= LAYOUTS["many"], "no more than the fragment that it had in hand"
    check_settled(db, table, ROWS)


@pytest.mark.parametrize("level", ["pool", "daemon"])
def test_of_a_fork_server_above_the_worker(lake, db, call_log, level):
    """The pool that the function's process comes from, or Spark's daemon above that."""
    table, future = begin(db, call_log, level, "many")
    watch_until(future, checkpointed(ROWS // 3))
    pool, daemon = psutil.Process(call_log.worker()).parents()[:2]
    lake.kill(pool.pid if level == "pool" else daemon.pid)
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    check_settled(db, table, ROWS)


@pytest.mark.long
def test_of_the_java_machine_below_the_executor(lake, db, call_log):
    """The executor is no use without it: it ends, and its jobs are taken over."""
    table, future = begin(db, call_log, "java", "many")
    watch_until(future, checkpointed(ROWS // 3))
    executor = psutil.Process(lake.pid("executor"))
    (java,) = [p for p in executor.children(recursive=True) if p.name() == "java"]
    lake.kill(java.pid)
    lake.wait_gone(executor.pid)
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 2)
    assert call_log.again() <= WORKERS * ROWS_AT_RISK
    check_settled(db, table, ROWS)


def test_of_the_executor(lake, db, tmp_path):
    """It dies with the answer to a commit of one job in its hand, in the middle of three. The one that takes its place
    continues with all: with the second one only when the lease is free, as it cannot know that its holder is dead, and
    with the third one in the environment that its caller gave it, which no one gives again."""
    call_log = {layout: CallLog(tmp_path, f"executor_{layout}") for layout in LAYOUTS}
    jobs = {layout: begin(db, call_log[layout], f"executor_{layout}", layout, rows=2 * ROWS) for layout in LAYOUTS}
    futures = {layout: future for layout, (_, future) in jobs.items()}
    keyed = db.create_table("executor_env", numbers(2 * ROWS))
    keyed.add_columns({"y": key_of_job()})
    in_env = keyed.backfill_async("y", env={KEY: "a key of this job"})
    for future in (*futures.values(), in_env):
        watch_until(future, checkpointed(ROWS // 4))
    for sealed in lake.env_folder.glob("*.env"):
        sealed.unlink()  # Redis has its values, too
    victim = lake.pid("executor")
    lake.arm("executor.commit_answered")
    lake.wait_gone(victim)
    assert lake.went_off("executor.commit_answered")
    assert all(len(e.seen()) < 2 * ROWS for e in call_log.values()), "nothing was left to do"
    committed = {x: y for x, y in values(jobs["many"][0], "y").items() if y is not None}
    assert committed
    lease = f"leman:job:{job_key(str(db.uri), futures['one'].job_id)}"
    with lake.redis() as redis:
        assert redis.exists(lease)
        redis.set(lease, "someone else")
        assert db.job(futures["many"].result(timeout=60)).attempt == 2
        assert futures["one"].job().attempt == 1
        redis.delete(lease)
    for layout, (table, future) in jobs.items():
        job = db.job(future.result(timeout=60))
        assert (job.state, job.attempt) == (JobState.DONE, 2)
        assert call_log[layout].again() <= WORKERS * ROWS_AT_RISK
        check_settled(db, table, 2 * ROWS)
    assert committed.items() <= values(jobs["many"][0], "y").items()
    job = db.job(in_env.result(timeout=60))
    assert (job.state, job.attempt, job.env_names) == (JobState.DONE, 2, (KEY,))
    assert values(keyed, "y") == {x: f"a key of this job {x}" for x in range(2 * ROWS)}
    with lake.redis() as redis:
        assert not redis.exists(env_values_key(job_key(str(db.uri), in_env.job_id))), (
            "its values are forgotten with its end"
        )
    assert lake.pid("executor") != victim


@pytest.mark.parametrize("victim", ["planner", "commit_coordinator", "redis"])
def test_of_a_process_that_computes_nothing(lake, db, call_log, layout, victim):
    table, future = begin(db, call_log, f"{victim}_{layout}", layout)
    watch_until(future, checkpointed(ROWS // 3))
    pid = lake.pid(victim)
    lake.kill(pid)
    assert len(call_log.seen()) < ROWS, "nothing was left to do"
    job = db.job(future.result(timeout=60))
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert sorted(call_log.seen()) == list(range(ROWS)), "nothing was computed again"
    check_settled(db, table, ROWS)
    lake.wait_back(victim, before=pid)


def test_of_the_planner_just_before_it_is_needed(lake: Lake, db, call_log):
    table = db.create_table("unplanned", numbers(50))
    table.add_columns({"y": call_log.double(seconds=0)})
    pid = lake.pid("planner")
    lake.kill(pid)
    job = db.job(table.backfill("y", progress=False))
    assert job.state is JobState.DONE
    check_settled(db, table, 50)
    lake.wait_back("planner", before=pid)
