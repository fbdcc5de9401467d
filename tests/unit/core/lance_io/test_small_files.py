"""A small file of an object store is read whole in one request, and one that is longer than it should be is noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from lance.file import LanceFileReader

from leman_core.model.plan import StagedFile
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import DataLoss, FailedPrecondition, NotFound
from leman_core.storage import column_files, whole_files
from leman_core.storage.column_files import ColumnFileWriter, data_path, digest_of
from leman_core.storage.lance_files import Deletions
from leman_core.storage.object_stores import lance_options
from leman_core.storage.whole_files import small_file, whole_if_small
from tests.unit.core.lance_io.small_store import known_store

CONTENT = b"0123456789"
FOLDER = "s3://lake/t.lance/data"


@pytest.fixture
def store():
    """A store that this process knows, with one file."""
    with known_store(atomic=True) as running:
        running.objects["t.lance/data/f.lance"] = CONTENT
        yield running


def test_it_takes_one_request(store):
    before = store.requests
    assert small_file(FOLDER, "f.lance", len(CONTENT)) == CONTENT
    assert digest_of("s3://lake/t.lance", "f.lance", len(CONTENT)) == (10, xxhash.xxh3_128_hexdigest(CONTENT))
    assert store.requests == before + 2


def test_a_file_of_another_length_is_not_taken_for_the_one_that_was_staged(store):
    for size in (4, 9, 11):
        assert len(small_file(FOLDER, "f.lance", size) or b"") != size


def test_large_and_local_files_are_left_to_others(store, tmp_path, monkeypatch):
    (tmp_path / "f.lance").write_bytes(CONTENT)
    assert small_file(str(tmp_path), "f.lance", len(CONTENT)) is None
    monkeypatch.setattr(whole_files, "_MOST_BYTES", 9)
    before = store.requests
    assert small_file(FOLDER, "f.lance", len(CONTENT)) is None
    assert store.requests == before


def test_a_file_that_is_not_there_is_missing_as_on_a_disk(store):
    with pytest.raises(NotFound) as missing:
        digest_of("s3://lake/t.lance", "none.lance", 10)
    assert missing.value.reason == "FILE_MISSING"


def test_a_staged_file_is_written_and_checked_with_two_requests(store):
    before = store.requests
    staged = staged_file()
    content = column_files.read_verified("s3://lake/t.lance", staged)
    assert content.schema.names == ["y"]
    assert store.requests == before + 2

    for rows in (4, 6):
        with pytest.raises(FailedPrecondition, match=f"has 5 rows, and {rows} were announced"):
            column_files.read_verified("s3://lake/t.lance", replace(staged, physical_rows=rows))

    store.objects["t.lance/data/y.lance"] += b"x"
    with pytest.raises(DataLoss, match="changed after it was written"):
        column_files.read_verified("s3://lake/t.lance", staged)


@pytest.mark.parametrize("held_bytes", [1 << 20, 30, 0])
def test_what_a_staged_file_holds_does_not_depend_on_how_it_is_put(store, monkeypatch, held_bytes):
    monkeypatch.setattr(column_files, "_HELD_BYTES", held_bytes)
    staged = staged_file()
    assert (staged.file, staged.physical_rows, staged.rows_failed) == ("y.lance", 5, 1)
    files = sorted(key for key in store.objects if not key.endswith("/"))
    assert files == ["t.lance/data/f.lance", "t.lance/data/y.lance"]
    assert digest_of("s3://lake/t.lance", "y.lance") == (staged.size_bytes, staged.digest)
    place = data_path("s3://lake/t.lance", "y.lance")
    values = LanceFileReader(place, storage_options=lance_options(place)).read_all().to_table()
    assert values.column("y").to_pylist() == [1, 2, 3, 4, None]
    content = column_files.read_verified("s3://lake/t.lance", staged)
    assert content.deletions is not None
    assert content.deletions.mask.tolist() == [False, True, False, False, False]
    summary = column_files.read_state_summary("s3://lake/t.lance", "y.lance")
    assert summary is not None
    assert summary.failed == 1


def staged_file() -> StagedFile:
    """Write five rows, of which the last one failed, under another name than the file is to have."""
    writer = ColumnFileWriter("s3://lake/t.lance", pa.field("y", pa.int64()))
    writer.open("unfinished.lance")
    writer.write(pa.array([1, 2, 3]))
    writer.write(pa.array([0, 4, None, 9]).slice(1, 2))
    states = np.array([RowState.COMPUTED] * 4 + [RowState.FAILED], np.uint8)
    deletions = Deletions("deleted", np.array([False, True, False, False, False]))
    return writer.close(states, frozenset(), "y.lance", deletions)


def test_a_file_of_unknown_size_is_read_whole_where_it_is_small(store, tmp_path):
    (tmp_path / "f.lance").write_bytes(CONTENT)
    assert whole_if_small(FOLDER, "f.lance", 10) == CONTENT
    assert whole_if_small(FOLDER, "f.lance", 9) is None
    assert whole_if_small(str(tmp_path), "f.lance", 10) is None
    assert whole_if_small(tmp_path.as_uri(), "f.lance", 10) is None
    with pytest.raises(FileNotFoundError):
        whole_if_small(FOLDER, "none.lance", 10)
    store.objects["t.lance/data/empty.lance"] = b""
    assert whole_if_small(FOLDER, "empty.lance", 10) in (None, b"")


def written(uri: str) -> ColumnFileWriter:
    writer = ColumnFileWriter(uri, pa.field("y", pa.int64()))
    writer.open("a.lance")
    writer.write(pa.array(range(100), pa.int64()))
    return writer


def test_what_is_done_beside_the_put_knows_all_of_the_file(store, tmp_path):
    told: list[StagedFile] = []
    writer = written("s3://lake/t.lance")
    assert writer.is_put_at_once
    staged = writer.close(None, frozenset(), "a.lance", beside=told.append)
    assert staged.etag, "the store said what it calls these bytes"
    assert told == [replace(staged, etag="")], "which no one knows before they are there"
    content = store.objects["t.lance/data/a.lance"]
    assert (staged.size_bytes, staged.digest) == (len(content), xxhash.xxh3_128_hexdigest(content))
    assert not written(str(tmp_path / "t.lance")).is_put_at_once


def test_a_put_that_fails_fails_whatever_was_done_beside_it(store):
    told: list[StagedFile] = []
    writer = written("s3://lake/t.lance")
    store.refusal = (403, "AccessDenied", "Access Denied.")
    with pytest.raises(FailedPrecondition):
        writer.close(None, frozenset(), "a.lance", beside=told.append)
    assert len(told) == 1

    def fail(_: StagedFile) -> None:
        raise NotFound("FILE_MISSING", "what was to be stored beside it")

    store.refusal = None
    with pytest.raises(NotFound):
        written("s3://lake/t.lance").close(None, frozenset(), "a.lance", beside=fail)
