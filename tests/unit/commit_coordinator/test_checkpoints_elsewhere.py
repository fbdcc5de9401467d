"""Checkpoints in a place of their own: they are collected, and go with their table, as those next to it do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman.v1.commit_pb2 import VerifyDatabaseRequest
from leman_coordinator.commit_service import CommitServicer
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_coordinator.lance_io import table_removal
from leman_coordinator.verification.table_verification import TableCheck
from leman_coordinator.verification.verification_report import FindingCounts, ResumePoint
from leman_core.model.garbage import Use
from leman_core.model.service_errors import Unavailable
from leman_core.storage import object_stores, scratch_table
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root, in_own_folder, remove_leftovers
from leman_core.storage.lance_tables import incarnation_at
from leman_core.storage.object_stores import lance_options
from tests.unit.core.lance_io.small_store import SmallStore, known_store

DATABASE = "s3://lake/teams/db"
SCRATCH = "__leman_scratch_t_0123456789abcdef"
KEY = f"udf-f_ver-1_col-gone_where-{'0' * 32}_uri-{'1' * 32}_srcfiles-{'2' * 32}_frag-0_range-0-2"


@pytest.fixture
def store() -> Iterator[SmallStore]:
    """Checkpoints of the tables below `teams` lie in `apart`, which options of their own cover."""
    with known_store() as running:
        whole = object_stores.options_of("s3://lake")
        assert whole is not None
        teams = replace(whole, root="s3://lake/teams", checkpoint_uri="s3://lake/apart/ck")
        object_stores.set_store_source(
            object_stores.GivenStores([teams, replace(whole, root="s3://lake/apart", access_key_id="of-apart")])
        )
        yield running


def checkpointed(name: str) -> str:
    """The uri of a table-to-be that has a checkpoint."""
    uri = f"{DATABASE}/{name}.lance"
    LanceCheckpointStore(checkpoint_root(uri))[KEY] = pa.record_batch({"v": [1, 2]})
    return uri


def made(name: str) -> str:
    """The uri of a table that has a checkpoint."""
    uri = checkpointed(name)
    lance.write_dataset(pa.table({"x": [1]}), uri, storage_options=lance_options(uri))
    return uri


def objects(store: SmallStore, below: str) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(below))


def test_they_lie_there_and_nowhere_else(store):
    made("t")
    assert objects(store, "apart/") == [f"apart/ck/db/t.lance/_checkpoints/{KEY}.lance"]
    assert "_checkpoints" not in " ".join(objects(store, "teams/"))
    assert not in_own_folder(f"{DATABASE}/t.lance"), "keys of another table of this name may are next to them"
    assert in_own_folder("s3://lake/others/t.lance/")


def test_they_are_collected(store):
    uri = made("t")
    collector = GarbageCollector(uri, 0.0)
    _, decisions = collector.look()
    assert [(d.use, d.file.folder) for d in decisions] == [(Use.NO_COLUMN, "_checkpoints")]
    assert [file.key for file in collector.sweep(decisions)] == [KEY]
    assert LanceCheckpointStore(checkpoint_root(uri)).list_keys() == []


def test_a_damaged_one_is_found_by_its_uri(store):
    uri = made("t")
    name = f"apart/ck/db/t.lance/_checkpoints/{KEY}.lance"
    store.objects[name] = store.objects[name][:-1] + b"?"
    ((_, looked),) = TableCheck(DATABASE, "t").checkpoints("", "")
    assert [found.path for found in looked.findings] == [f"{checkpoint_root(uri)}/{KEY}.lance"]


@pytest.mark.parametrize(
    "drop", [table_removal.remove_table, lambda _: table_removal.drop_view(DATABASE, "t")], ids=["table", "view"]
)
def test_they_go_with_their_table(store, drop):
    uri, other = made("t"), made("t2")
    drop(uri)
    assert objects(store, "teams/db/t.lance") == []
    assert objects(store, "apart/ck/db/t.lance") == [], "neither checkpoints nor the mark of a folder"
    assert LanceCheckpointStore(checkpoint_root(other)).list_keys() == [KEY]


def test_a_table_whose_checkpoints_cannot_be_removed_can_be_removed_later(store, monkeypatch):
    uri = made("t")

    def away(_: str) -> None:
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(table_removal, "remove_checkpoints_elsewhere", away)
        with pytest.raises(Unavailable, match="no answer"):
            table_removal.remove_table(uri)
    assert incarnation_at(uri) == "", "it is still there"
    table_removal.remove_table(uri)
    assert objects(store, "apart/ck/db/") == ["apart/ck/db/"], "the mark that the database's is a folder"


def test_a_table_in_a_store_is_gone_without_its_versions_whatever_becomes_of_the_rest(store, monkeypatch):
    """It could not be dropped again: there is none."""
    uri, delete_folder, tries = made("t"), table_removal.delete_folder, []

    def away(system, path: str) -> None:
        if not path.endswith("_versions"):
            tries.append(path)
            raise OSError("no answer")
        delete_folder(system, path)

    monkeypatch.setattr(table_removal, "delete_folder", away)
    monkeypatch.setattr(table_removal, "_PAUSES", (0.0, 0.0))
    table_removal.remove_table(uri)
    assert incarnation_at(uri) is None
    assert len(tries) == 3


def test_those_of_a_view_s_scratch_tables_go_too(store):
    made("t")
    checkpointed(SCRATCH)  # its table is gone already
    table_removal.drop_view(DATABASE, "t")
    assert objects(store, "apart/ck/db/") == ["apart/ck/db/"]


def test_a_scratch_table_goes_with_its_checkpoints(store):
    uri = f"{DATABASE}/{SCRATCH}.lance"
    scratch_table.create(uri, "digest", [np.array([1, 2])], pa.schema([pa.field("d", pa.int64())]))
    checkpointed(SCRATCH)
    assert scratch_table.scratch_tables(DATABASE, re.compile(SCRATCH)) == [uri]
    scratch_table.drop(uri)
    assert scratch_table.scratch_tables(DATABASE, re.compile(SCRATCH)) == []
    assert objects(store, f"apart/ck/db/{SCRATCH}") == []


def test_a_job_whose_table_was_dropped_under_it_leaves_none(store):
    there, gone = made("t"), checkpointed("t2")
    remove_leftovers(there)
    remove_leftovers(gone)
    assert objects(store, "apart/ck/db/t2.lance") == []
    assert LanceCheckpointStore(checkpoint_root(there)).list_keys() == [KEY]


def test_a_verification_ends_at_a_token_where_the_coordinator_stops():
    async def reports(_: object):
        yield SimpleNamespace(counts=FindingCounts(), place=ResumePoint("t", 2, "a"))

    stopping = asyncio.Event()
    stopping.set()
    service = SimpleNamespace(_verifiers=SimpleNamespace(each=reports), _roots=None, _draining=stopping)
    answers = []

    async def verified() -> None:
        async for answer in CommitServicer.VerifyDatabase(service, VerifyDatabaseRequest(database="/lake"), None):
            answers.append(answer)

    with pytest.raises(Unavailable, match="continue from the last token") as refused:
        asyncio.run(verified())
    assert refused.value.reason == "DRAINING"
    assert answers[-1].resume_token
