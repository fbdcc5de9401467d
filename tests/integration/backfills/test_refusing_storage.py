"""A disk that is full or read-only: who asks is notified at once, and the same job continues where it was."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman import JobState, errors
from tests.disks import small_disk
from tests.integration.call_log import numbers, values

ROWS = 1000


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def db(system, disk):
    path = disk.root / "lake"
    path.mkdir()
    with system.connect(path) as database:
        yield database


@pytest.fixture
def table(db):
    """Job history and everything else is there: a first column is filled."""
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=100)
    table.add_columns({"once": "x + 1", "twice": "x * 2"})
    table.backfill("once", progress=False)
    return table


def refused(action, *args, **kwargs):
    with pytest.raises((errors.FailedPrecondition, errors.JobFailed)) as caught:
        action(*args, **kwargs)
    return caught.value.reason


def test_a_full_disk(db, table, disk):
    disk.fill()
    assert refused(table.backfill, "twice", progress=False) == "STORAGE_FULL"
    assert refused(table.add_columns, {"more": "x + 2"}) == "STORAGE_FULL"
    assert refused(db.create_table, "other", numbers(ROWS)) == "STORAGE_FULL"
    assert refused(table.add, numbers(100000, ROWS)) == "STORAGE_FULL"
    disk.free()
    job = db.job(table.backfill("twice", progress=False))
    assert (job.state, values(table, "twice")) == (JobState.DONE, {x: 2 * x for x in range(ROWS)})


def test_a_disk_that_is_read_only(db, table, disk):
    view = table.search(None).select(["x", "once"]).create_materialized_view(db, "v")
    with disk.read_only():
        assert refused(table.backfill, "twice", progress=False) == "STORAGE_READ_ONLY"
        assert refused(table.add_columns, {"more": "x + 2"}) == "STORAGE_READ_ONLY"
        assert refused(view.refresh, progress=False) == "STORAGE_READ_ONLY"
        assert refused(db.drop_view, "v") == "STORAGE_READ_ONLY"
    table.backfill("twice", progress=False)
    view.refresh(progress=False)
    assert view.count_rows() == ROWS


@pytest.mark.parametrize("folder", ["_versions", "data", "_checkpoints"])
def test_a_table_of_which_a_folder_is_read_only(db, table, disk, folder):
    """The job is accepted, as its history can be written, and ends."""
    path = disk.root / "lake/t.lance" / folder
    path.mkdir(exist_ok=True)
    with disk.read_only(path):
        assert refused(table.backfill, "twice", progress=False) == "STORAGE_READ_ONLY"
        [job] = [job for job in db.jobs() if job.column == "twice"]
        assert (job.state, job.error.reason) == (JobState.FAILED, "STORAGE_READ_ONLY")
        assert folder in job.error.message
    table.backfill("twice", progress=False)
    assert values(table, "twice") == {x: 2 * x for x in range(ROWS)}


def test_a_damaged_manifest_is_named_at_once(db, table, disk):
    manifest = min((disk.root / "lake/t.lance/_versions").glob("*.manifest"))
    content = manifest.read_bytes()
    manifest.write_bytes(content[: len(content) // 2])
    with pytest.raises(errors.DataLoss) as caught:
        table.backfill("twice", progress=False)
    assert (caught.value.reason, caught.value.facts["path"]) == ("TABLE_DAMAGED", str(manifest))
    manifest.write_bytes(content)
    table.backfill("twice", progress=False)


def test_the_first_file_format(db, disk):
    import lance

    lance.write_dataset(pa.table({"x": [1]}), str(disk.root / "lake/old.lance"), data_storage_version="0.1")
    table = db.open_table("old")
    assert refused(table.add_columns, {"y": "x + 1"}) == "FILE_FORMAT_NOT_SUPPORTED"
    assert refused(table.search(None).create_materialized_view, db, "v") == "FILE_FORMAT_NOT_SUPPORTED"
