"""A compaction that no job saw before its traces were cleaned away, with a running executor."""

from __future__ import annotations

import datetime as dt
import threading
import time

import lance
import pyarrow as pa
import pytest

import leman
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from tests.conftest import start_system, stop_system


@pytest.fixture
def watched(tmp_path):
    running = start_system(tmp_path / "lake", LEMAN_EXECUTOR__COMPACTION_WATCH_SECONDS="0.1")
    yield running
    stop_system(running)


def until_recorded(uri: str) -> None:
    store, pause = LanceCheckpointStore(checkpoint_root(uri)), threading.Event()
    deadline = time.monotonic() + 60
    while not store.list_keys("traced-"):
        assert time.monotonic() < deadline, "no one looked at the table"
        pause.wait(0.02)


@pytest.mark.spark
@pytest.mark.long
def test_an_executor_records_a_compaction_between_jobs(watched):
    uri = str(watched.database / "t.lance")
    data = pa.table({"title": [f"title {i}" for i in range(40)]})
    lance.write_dataset(data, uri, max_rows_per_file=10, enable_stable_row_ids=True)
    with watched.connect(watched.database) as database:
        table = database.open_table("t")
        table.add_columns({"up": "upper(title)"})
        table.backfill("up", progress=False)
        lance.dataset(uri).optimize.compact_files()
        until_recorded(uri)
        lance.write_dataset(data.slice(0, 5), uri, mode="append")
        lance.dataset(uri).cleanup_old_versions(older_than=dt.timedelta(0))
        assert len(lance.dataset(uri).versions()) == 1
        job = database.job(table.backfill("up", progress=False))
    assert isinstance(job, leman.Job)
    assert job.progress.rows_evaluated == 5
