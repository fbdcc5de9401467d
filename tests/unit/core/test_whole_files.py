"""Small files appear whole or not at all, and a full disk leaves nothing of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.lance_io import table_files
from leman_core.model import keys
from leman_core.model.garbage import DAY
from leman_core.model.plan import StagedFile
from leman_core.model.service_errors import DataLoss, FailedPrecondition
from leman_core.storage import column_files, view_side_files, whole_files
from leman_core.storage.checkpoint_store import LanceCheckpointStore
from leman_core.storage.udf_registry import UdfRegistry, note_failure
from leman_local.service_file import write_private
from tests.disks import small_disk

BIG = 40_000
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:" + "f" * 9_000)


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def write_note(uri: str) -> None:
    table_files.write_note(
        uri,
        [
            StagedFile(
                file=f"{n}.lance", size_bytes=n, digest="d" * 32, physical_rows=1, rows_computed=1, rows_failed=0
            )
            for n in range(BIG // 40)
        ],
    )


def write_checkpoint(uri: str) -> None:
    LanceCheckpointStore(f"{uri}/_checkpoints")["k"] = pa.record_batch({"v": np.random.default_rng(1).random(BIG)})


def write_bundle(uri: str) -> None:
    data = b"x" * BIG
    incoming = UdfRegistry(uri).bundles.begin(hashlib.sha256(data).hexdigest(), BIG)
    try:
        for at in range(0, BIG, BIG // 4):
            incoming.write(data[at : at + BIG // 4])
        incoming.finish()
    except BaseException:
        incoming.discard()
        raise


WRITERS = {
    "bundle in pieces": write_bundle,
    "definition": lambda uri: UdfRegistry(uri).put(UDF),
    "note": write_note,
    "checkpoint": write_checkpoint,
    "why a bundle failed": lambda uri: note_failure(f"{uri}/_leman/udfs/{'0' * 64}.bundle", "x" * BIG),
    "failed rows": lambda uri: view_side_files.write_failed_rows(
        uri, view_side_files.NONE_FAILED.plus("job", {"c": np.arange(BIG)})
    ),
    "evictions": lambda uri: view_side_files.write_evictions(uri, np.arange(BIG)),
    "service file": lambda uri: write_private(Path(uri, "service.json"), "x" * BIG),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_nothing(tmp_path, write):
    with small_disk(tmp_path / "disk") as disk:
        uri = str(disk.root / "t.lance")
        for folder in ("_checkpoints", "_committed", "_refresh", "_leman/udfs"):
            Path(uri, folder).mkdir(parents=True)
        disk.fill()
        before = files(disk.root)
        with pytest.raises((OSError, FailedPrecondition), match="No space left"):
            write(uri)
        assert files(disk.root) == before
        disk.free()
        write(uri)
        assert len(files(Path(uri))) == 1


def test_what_a_killed_writer_left_of_a_definition_goes_after_a_day(tmp_path):
    registry = UdfRegistry(str(tmp_path))
    registry.put(UDF)
    folder = tmp_path / "_leman" / "udfs"
    old, new = folder / f".tmp{'0' * 32}", folder / f".tmp{'1' * 32}"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (then := time.time() - 2 * DAY, then))
    registry.put(UdfDefinition("g", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:g"))
    assert {path.name for path in folder.iterdir()} == {"f@1.json", "g@1.json", new.name}


def test_of_two_that_create_a_file_one_is_told_that_it_was_late(tmp_path):
    path = str(tmp_path / "folder" / "file")
    assert whole_files.create_whole_file(path, b"first")
    assert not whole_files.create_whole_file(path, b"second")
    assert Path(path).read_bytes() == b"first"
    assert [found.name for found in (tmp_path / "folder").iterdir()] == ["file"]


def test_the_copy_of_a_renamed_columns_file_has_a_name_that_garbage_collection_knows(tmp_path):
    """Anyone who is killed while it is there leaves it."""
    (tmp_path / "data").mkdir()
    staged = StagedFile(
        file=keys.column_file_name("f" * 32, "0a", partial=True),
        size_bytes=1,
        digest="d" * 32,
        physical_rows=1,
        rows_computed=1,
        rows_failed=0,
    )
    with column_files.empty_copy(str(tmp_path), staged, pa.field("c", pa.int64()), (2, 2)) as name:
        assert files(tmp_path) == {tmp_path / "data" / name}
        assert keys.parse_column_file_name(name) == keys.ColumnFileName("f" * 32, partial=True)
    assert not files(tmp_path)


def test_a_checkpoint_file_is_damaged_where_its_name_or_its_bytes_are_not_those_of_its_key(tmp_path):
    store = LanceCheckpointStore(str(tmp_path))
    store["a"] = pa.record_batch({"v": [1, 2]})
    (made,) = tmp_path.rglob("a.lance")
    assert store.check_file("a.lance").num_rows == 2
    shutil.copy(made, made.with_name("b.lance"))
    content = made.read_bytes()
    made.write_bytes(content[: len(content) // 2])
    for name in ("a.lance", "b.lance", "key-0.lance"):
        with pytest.raises(DataLoss) as caught:
            store.check_file(name)
        assert caught.value.reason == "CHECKPOINT_DAMAGED"
