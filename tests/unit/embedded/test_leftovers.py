"""What a killed process left half-written in the service's own folder goes, and nothing else."""

from __future__ import annotations

import os
import time

import pytest

from leman_core.model.garbage import DAY
from leman_local.local_databases import sweep_leftovers

UNFINISHED = (
    "jobs.lance/data/.tmpX1aB2c",
    "jobs.lance/_versions/18446744073709551600.manifest#1",
    "errors.lance/data/0123.lance#2",
    "udfs/.0123456789abcdef0123456789abcdef.tmp",
    ".service.json.4711",
)
NEEDED = (
    "jobs.lance/data/0123.lance",
    "jobs.lance/_versions/18446744073709551600.manifest",
    "udfs/f@1.json",
    "redis/.tmpX1",
    "logs/executor.log.1",
    "service.json",
)


@pytest.fixture
def folder(tmp_path):
    for name in (*UNFINISHED, *NEEDED):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_only_what_is_unfinished_and_of_yesterday_goes(folder):
    assert sweep_leftovers(folder) == [], "it may be being written"
    then = time.time() - DAY - 60
    for name in (*UNFINISHED, *NEEDED):
        os.utime(folder / name, (then, then))
    assert set(sweep_leftovers(folder)) == {folder / name for name in UNFINISHED}
    assert all((folder / name).exists() for name in NEEDED)
    assert sweep_leftovers(folder) == []


def test_no_folder_no_leftovers(tmp_path):
    assert sweep_leftovers(tmp_path / "nowhere") == []
