"""Bytes of checkpoints are compared with their digest before Lance sees them; what cannot be read is not damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from leman_core.model.service_errors import DataLoss, FailedPrecondition, Unavailable
from leman_core.storage import checkpoint_store, lance_files
from leman_core.storage.checkpoint_store import LanceCheckpointStore
from tests.disks import without_descriptors, without_rights

#: A local path and a uri go different ways: objects are read in one piece. So do small and large batches on a disk.
SPELLINGS = {"{}": None, "{}/": -1, "file://{}": None}


class Watched(checkpoint_store.LanceFileReader):
    """Lance's reader, and all that it was given."""

    given: list[bytes]

    def __init__(self, path: str) -> None:
        type(self).given.append(Path(path).read_bytes())
        super().__init__(path)


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(Watched, "given", [], raising=False)
    monkeypatch.setattr(checkpoint_store, "LanceFileReader", Watched)
    return Watched.given


@pytest.fixture(params=SPELLINGS)
def store(request, tmp_path, monkeypatch):
    if SPELLINGS[request.param] is not None:
        monkeypatch.setattr(checkpoint_store, "_SMALL_BYTES", SPELLINGS[request.param])
    return LanceCheckpointStore(request.param.format(tmp_path / "_checkpoints"))


def values() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "v": pa.array(np.random.default_rng(1).random(20)),
            "words": pa.array(["a", None, "more than a word"] * 6 + ["", "z"]),
            "lists": pa.array([[1, 2], None, [], [3]] * 5),
            "_rowaddr": pa.array(range(20), pa.uint64()),
        }
    )


def only(folder: Path) -> Path:
    (path,) = folder.glob("_checkpoints/*.lance")
    return path


def test_lance_is_given_no_byte_that_it_did_not_write(store, tmp_path, given):
    """Every seventh bit of the file, each by itself."""
    store["k"] = values()
    whole = only(tmp_path).read_bytes()
    assert store["k"].equals(values())
    assert given == [whole]
    for bit in range(0, len(whole) * 8, 7):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path = tmp_path / "_checkpoints" / "k.lance"
        path.write_bytes(changed)
        with pytest.raises(DataLoss, match="digest"):
            store.check_file("k.lance")
        with pytest.raises(KeyError):
            store["k"]
        assert not path.exists(), "it was set aside"
    assert given == [whole]


@pytest.mark.parametrize("size", [0, 1, 40, 0.5, -1])
def test_nor_one_that_was_cut_off(store, tmp_path, given, size):
    store["k"] = values()
    path = only(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * size) if isinstance(size, float) else size])
    with pytest.raises(DataLoss):
        store.check_file("k.lance")
    assert given == []


def test_a_file_of_an_earlier_release_is_none(store, tmp_path, given, monkeypatch):
    """It carries no digest of its bytes."""
    with monkeypatch.context() as patch:
        patch.setattr(lance_files, "make_room", lambda writer: None)
        patch.setattr(lance_files, "seal_file", lambda content: (len(content), b""))
        store["k"] = values()
    with pytest.raises(DataLoss, match="no digest is found"):
        store.check_file("k.lance")
    assert given == []


def test_where_no_file_can_be_in_memory_a_temporary_one_is_used(tmp_path, monkeypatch, given):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(lance_files, "_IN_MEMORY", False)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    store = LanceCheckpointStore(f"file://{tmp_path}/_checkpoints")
    store["k"] = values()
    assert store["k"].equals(values())
    assert given == [only(tmp_path).read_bytes()]
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("small", [-1, 1 << 20])
def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch, small):
    monkeypatch.setattr(checkpoint_store, "_SMALL_BYTES", small)
    store = LanceCheckpointStore(str(tmp_path / "_checkpoints"))
    store["k"] = values()

    def full(_content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lance_files, "seal_file", full)
    with pytest.raises(FailedPrecondition, match="No space"):
        store["other"] = values()
    assert [path.name for path in (tmp_path / "_checkpoints").iterdir()] == ["k.lance"]


def test_without_descriptors_nothing_is_said_of_a_checkpoint(store):
    store["k"] = values()
    with without_descriptors(), pytest.raises(Unavailable) as caught:
        store["k"]
    assert (caught.value.reason, caught.value.facts["uri"]) == ("STORE_UNAVAILABLE", f"{store._root}/k")
    assert store["k"].equals(values())


@pytest.mark.parametrize("key", ["k", "a key with a hashed name"])
def test_without_the_right_to_read_nothing_is_said_of_a_checkpoint(store, tmp_path, key):
    store[key] = values()
    tmp_path.chmod(0o700)
    for ask in (lambda: store[key], lambda: key in store, store.list_keys, store.files):
        with without_rights(), pytest.raises(FailedPrecondition) as caught:
            ask()
        assert caught.value.reason == "STORAGE_DENIED"
    assert store[key].equals(values())


def test_values_that_lance_gives_back_otherwise_are_no_checkpoint(store, tmp_path, monkeypatch):
    """The file's bytes are whole: it is Lance that returns other values than it was given."""
    store["k"] = values()
    read = Watched.read_all

    def otherwise(reader, **options):
        table = read(reader, **options).to_table()
        changed = table.set_column(0, "v", pa.array([0.0, *table["v"].to_pylist()[1:]]))
        return type("Read", (), {"to_table": lambda _: changed})()

    monkeypatch.setattr(checkpoint_store, "LanceFileReader", Watched)
    monkeypatch.setattr(Watched, "given", [], raising=False)
    monkeypatch.setattr(Watched, "read_all", otherwise)
    with pytest.raises(DataLoss, match="its content is not the one that was stored"):
        store.check_file("k.lance")
    with pytest.raises(KeyError):
        store["k"]
    assert not (tmp_path / "_checkpoints" / "k.lance").exists(), "it was set aside"


def test_a_file_whose_name_is_not_that_of_its_key_is_damaged(tmp_path):
    store = LanceCheckpointStore(str(tmp_path / "_checkpoints"))
    store["k"] = values()
    only(tmp_path).rename(tmp_path / "_checkpoints" / "k with spaces.lance")
    with pytest.raises(DataLoss, match="its name is not the one that its key has"):
        store.check_file("k with spaces.lance")
    store["k with spaces"] = values()
    with pytest.raises(KeyError):
        store.read_file("k with spaces.lance")
