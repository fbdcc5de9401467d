"""Rows of a merge that are set aside on this machine go with it, or with the next merge."""

from __future__ import annotations

import subprocess
import sys

import lance
import pyarrow as pa

from leman_coordinator.commits.commit_requests import MergeRules
from leman_coordinator.lance_io.row_rewrites import StagedMerge

RULES = MergeRules(
    on=("id",),
    update_matched=True,
    update_where="",
    insert_not_matched=True,
    delete_not_matched_by_source=False,
    delete_where="",
)
IS_KILLED = """
import os, sys
from pathlib import Path
from leman_core.process.temp_folders import OwnFolder
(OwnFolder.make_in(Path(sys.argv[1]), "leman-merge-").path / "rows.arrow").write_text("rows")
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_coordinator_set_aside_goes_with_the_next_merge(tmp_path, monkeypatch):
    uri, here = str(tmp_path / "t.lance"), tmp_path / "tmp"
    here.mkdir()
    lance.write_dataset(pa.table({"id": [1]}), uri)
    subprocess.run([sys.executable, "-c", IS_KILLED, str(here)], check=False, timeout=120)
    (left,) = here.glob("leman-merge-*")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(here))
    first = StagedMerge(uri, RULES, 1 << 20)
    second = StagedMerge(uri, RULES, 1 << 20)
    assert not left.exists()
    assert len(list(here.glob("leman-merge-*"))) == 2, "a merge at work keeps its rows"
    first.discard()
    second.discard()
    assert not list(here.glob("leman-merge-*"))
