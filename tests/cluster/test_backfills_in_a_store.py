"""Jobs on a Spark cluster of two hosts whose tables lie in an object store: both read and write it, and one dies."""

from __future__ import annotations

import pytest

from benchmarks.delaying_proxy import DelayingProxy
from leman import JobState
from tests.cluster.cluster import WORKERS
from tests.cluster.work import END_SECONDS, ROWS, ROWS_AT_RISK_OF_A_HOST, CallLog, check_values, meet
from tests.faults.lake import checkpointed, watch_until
from tests.object_store.store_server import BUCKET

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def db(cluster, store):
    """A database in the store, for hosts that both have their Python environment."""
    meet(cluster, "in_a_store")
    with cluster.connect("lake", root=f"s3://{BUCKET}") as database:
        yield database


def files_in(store: DelayingProxy, table: str) -> list[str]:
    """What was put below a table."""
    return [path for (method, path) in store.requests if method == "PUT" and f"/{table}.lance/" in path]


def test_both_hosts_compute_a_table_in_a_store(cluster, db, store):
    log = CallLog(cluster, "in_a_store_backfill")
    table = log.table(db)
    job = db.job(table.backfill("y", task_size=2000, progress=False))
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE, ROWS)
    check_values(table)
    assert log.rows().total() == ROWS, "no row was computed twice"
    assert set(log.rows()) == set(WORKERS)
    assert len([path for path in files_in(store, log.name) if "/_checkpoints/" in path]) > len(WORKERS)
    assert not (cluster.data / "lake" / f"{log.name}.lance").exists()


def test_a_refresh_in_a_store_survives_a_host(cluster, db, store):
    log = CallLog(cluster, "in_a_store_refresh")
    source = log.table(db)
    view = db.create_materialized_view("view", source.search().select(["x"]).add_column("y", log.double()))
    future = view.refresh_async()
    watch_until(future, checkpointed(ROWS // 4))
    try:
        cluster.hosts["two"].kill()
        job = db.job(future.result(timeout=END_SECONDS))
    finally:
        cluster.start_worker("two")
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    check_values(view)
    done = log.rows()
    assert done["two"] > 0, "the host that died had done nothing"
    assert done.total() <= ROWS + ROWS_AT_RISK_OF_A_HOST, done
    assert view.refresh(progress=False).rows_added == 0
    assert db.verify().sound
    assert files_in(store, "view")
