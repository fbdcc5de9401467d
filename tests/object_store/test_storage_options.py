"""Options of a store reach every process that opens files, and functions do not have them in their environment."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import leman
from tests.conftest import start_system, stop_system
from tests.faults.lake import wait_for
from tests.object_store.options import KEY_VARIABLE, options_file
from tests.object_store.store_server import BUCKET, KEY_ID, SECRET, serving

RENEWED = "another-secret-of-leman"


@pytest.fixture
def lake(tmp_path, store_program):
    """Yields (database in a store, what restarts the store with another secret), for services that run."""
    with contextlib.ExitStack() as running:
        first = running.enter_context(contextlib.ExitStack())
        server = first.enter_context(serving(store_program, tmp_path / "store"))
        system = start_system(tmp_path / "system", **options_file(tmp_path, server.port))
        running.callback(stop_system, system)
        service = system.service
        db = leman.connect(
            f"s3://{BUCKET}/teams/search", endpoint=service["executor"], token=service["token"], direct=False
        )
        running.enter_context(db)

        def restart_store(secret: str) -> None:
            first.close()
            running.enter_context(serving(store_program, tmp_path / "store", server.port, secret))

        yield db, restart_store


def is_readable(db: leman.Database, table: leman.Table) -> bool:
    """Return whether the store takes what each of the services knows; False where it refuses that."""
    try:
        return bool(table.describe()) and bool(table.to_arrow(columns=["x"])) and bool(db.jobs())
    except leman.errors.FailedPrecondition as refused:
        if refused.reason != "STORAGE_DENIED":
            raise
        return False


@pytest.mark.long
def test_what_a_store_is_told_is_given_once_and_renewed(tmp_path, lake):
    db, restart_store = lake
    table = db.create_table("t", pa.table({"x": pa.array(range(400), pa.int64())}), max_rows_per_file=100)

    @leman.udf(data_type=pa.string())
    def seen(x: int) -> str:
        import os
        import pathlib

        file = pathlib.Path("/proc/self/environ")  # which root alone may read
        shown = file.read_bytes().decode(errors="replace") if os.access(file, os.R_OK) else ""
        return f"{x} {dict(os.environ)} {shown}"

    table.add_columns({"seen": seen})
    table.backfill("seen", progress=False)
    told = " ".join(table.to_arrow(columns=["seen"]).column("seen").to_pylist())
    assert f"'{KEY_VARIABLE}'" not in told
    for secret in (KEY_ID, SECRET, "storage.toml"):
        assert secret not in told

    # short-lived credentials: the file is rewritten, and nothing is restarted
    (tmp_path / "lake.secret").write_text(RENEWED)
    restart_store(RENEWED)
    wait_for(lambda: is_readable(db, table))  # the services look at the file every second

    @leman.udf(data_type=pa.int64())
    def plus(x: int) -> int:
        return x + 1

    table.add_columns({"y": plus})
    table.backfill("y", progress=False)
    table.add(pa.table({"x": pa.array([1000], pa.int64())}))
    table.backfill("y", progress=False)
    rows = table.to_arrow(columns=["x", "y"]).to_pydict()
    assert rows["y"] == [x + 1 for x in rows["x"]]
    assert len(rows["x"]) == 401
    assert {job.state for job in db.jobs()} == {leman.JobState.DONE}


@pytest.mark.long
def test_a_job_goes_on_where_its_credentials_end_and_others_are_there(tmp_path, lake):
    """A worker that was given the old ones with its rows has something to store when they have ended."""
    db, restart_store = lake
    table = db.create_table("t", pa.table({"x": pa.array(range(40), pa.int64())}), max_rows_per_file=10)
    folder = str(tmp_path)

    @leman.udf(data_type=pa.int64())
    def waiting(x: int) -> int:
        import pathlib
        import time

        pathlib.Path(folder, "begun").touch()
        end = time.monotonic() + 120
        while not pathlib.Path(folder, "renewed").exists() and time.monotonic() < end:
            time.sleep(0.01)
        return x + 1

    table.add_columns({"y": waiting})
    future = table.backfill_async("y", concurrency=2)
    wait_for((tmp_path / "begun").exists)
    (tmp_path / "lake.secret").write_text(RENEWED)
    restart_store(RENEWED)
    (tmp_path / "renewed").touch()
    future.result(timeout=120)
    assert future.job().state is leman.JobState.DONE
    rows = table.to_arrow(columns=["x", "y"]).to_pydict()
    assert rows["y"] == [x + 1 for x in rows["x"]]
