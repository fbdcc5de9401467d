"""Jobs on a Spark cluster of two hosts, and what it costs when a host, a link, Spark's master or a service goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import leman
from leman import JobState
from tests.cluster.cluster import CORES, MASTER, WORKERS, Cluster
from tests.cluster.work import (
    END_SECONDS,
    ROWS,
    ROWS_AT_RISK,
    ROWS_AT_RISK_OF_A_HOST,
    CallLog,
    check_values,
    meet,
)
from tests.faults.lake import checkpointed, watch_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def db(cluster):
    """A database on the share, for hosts that both have their Python environment."""
    meet(cluster, "first")
    with cluster.connect("lake") as database:
        yield database


def test_both_hosts_do_half_of_the_work(cluster, db):
    log = CallLog(cluster, "halves")
    table = log.table(db)
    job = db.job(table.backfill("y", task_size=2000, progress=False))
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE, ROWS)
    check_values(table)
    done = log.rows()
    assert done.total() == ROWS, "no row was computed twice"
    assert min(done["one"], done["two"]) >= 0.45 * ROWS, done


def check_survives(cluster: Cluster, db: leman.Database, name: str, fault: Callable[[], None]) -> leman.Job:
    """Run a backfill in the midst of which something happens; return the job, which has to end well."""
    table = CallLog(cluster, name).table(db)
    future = table.backfill_async("y")
    watch_until(future, checkpointed(ROWS // 4))
    fault()
    job = db.job(future.result(timeout=END_SECONDS))
    assert job.state is JobState.DONE
    check_values(table)
    assert db.verify().sound
    again = db.job(table.backfill("y", progress=False))
    assert (again.state, again.progress.rows_evaluated) == (JobState.DONE, 0), "nothing was left to do"
    return job


@pytest.mark.faults
@pytest.mark.parametrize("name", ["planner", "commit-coordinator"])
def test_a_service_that_dies_and_is_back_costs_no_row(cluster, db, name):
    def fault() -> None:
        cluster.hosts[name].kill()
        cluster.start_service(name)

    job = check_survives(cluster, db, f"without_{name.replace('-', '_')}", fault)
    assert (job.attempt, job.progress.rows_evaluated) == (1, ROWS)


@pytest.mark.faults
def test_a_master_that_dies_and_is_back_costs_no_row(cluster, db):
    """It knows its applications again: recovery is a setting of Spark's."""

    def fault() -> None:
        cluster.hosts[MASTER].kill()
        cluster.start_master()

    job = check_survives(cluster, db, "without_master", fault)
    assert (job.attempt, job.progress.rows_evaluated) == (1, ROWS)


@pytest.mark.faults
def test_a_refresh_whose_coordinator_dies_has_each_row_once(cluster, db):
    log = CallLog(cluster, "viewed")
    source = log.table(db)
    view = db.create_materialized_view("view", source.search().select(["x"]).add_column("y", log.double()))
    future = view.refresh_async()
    watch_until(future, checkpointed(ROWS // 4))
    cluster.hosts["commit-coordinator"].kill()
    cluster.start_service("commit-coordinator")
    assert db.job(future.result(timeout=END_SECONDS)).state is JobState.DONE
    check_values(view)
    assert log.rows().total() == ROWS
    assert view.refresh(progress=False).rows_added == 0


@pytest.mark.faults
def test_a_host_whose_link_is_cut_costs_its_workers_one_checkpoint_interval_each(cluster, db):
    """No one is notified that it is gone: it is silent."""
    try:
        job = check_survives(cluster, db, "link_cut", cluster.hosts["one"].cut)
    finally:
        cluster.hosts["one"].mend()
    assert job.attempt == 1
    assert CallLog(cluster, "link_cut").rows()["two"] > ROWS // 2


@pytest.mark.faults
def test_a_host_that_dies_costs_its_workers_one_checkpoint_interval_each(cluster, db):
    try:
        job = check_survives(cluster, db, "host_dies", cluster.hosts["two"].kill)
    finally:
        cluster.start_worker("two")
    assert job.attempt == 1
    done = CallLog(cluster, "host_dies").rows()
    assert done["two"] > 0, "the host that died had done nothing"
    assert done.total() <= ROWS + ROWS_AT_RISK_OF_A_HOST, done


@pytest.mark.faults
def test_an_executor_service_that_dies_costs_all_workers_one_checkpoint_interval_each(cluster, db):
    """With Spark's driver: what runs on the workers ends, and starts again with the executor that takes the job
    over."""

    def fault() -> None:
        cluster.hosts["executor"].kill()
        cluster.start_service("executor", **cluster.unpacked())
        cluster.wait_serving("executor")  # clients wait a minute for one

    job = check_survives(cluster, db, "without_executor", fault)
    assert job.attempt == 2
    done = CallLog(cluster, "without_executor").rows()
    assert done.total() <= ROWS + CORES * len(WORKERS) * ROWS_AT_RISK, done
