"""One behaviour, two stores."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from leman_core.functions.arrow_values import batch_digest
from leman_core.storage import checkpoint_store
from leman_core.storage.checkpoint_store import LanceCheckpointStore
from tests.memory_checkpoints import InMemoryCheckpointStore

KEYS = [
    "udf-f_ver-1_col-c_where-0_uri-0_srcfiles-0_frag-0_range-0-10",
    "udf-we ird/..\\name_ver-1_col-ä\"'%_frag-1_range-0-10",
    "x" * 400,
    "..",
    "-starts-with-a-dash",
    "key-" + "0" * 64,
]


@pytest.fixture(params=["memory", "lance", "lance, large", "uri"])
def store(request, tmp_path, monkeypatch):
    if request.param == "memory":
        return InMemoryCheckpointStore()
    if request.param == "lance, large":
        monkeypatch.setattr(checkpoint_store, "_SMALL_BYTES", -1)
    folder = str(tmp_path / "a folder" / "_checkpoints")
    return LanceCheckpointStore(f"file://{quote(folder)}" if request.param == "uri" else folder)


def batch(n: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(range(n), pa.int64()), "_rowaddr": pa.array(range(n), pa.uint64())})


@pytest.mark.parametrize("key", KEYS)
def test_a_value_comes_back_under_its_key(store, key):
    assert key not in store
    store[key] = batch(3)
    assert key in store
    assert store[key] == batch(3)
    assert store.list_keys() == [key]


def test_keys_are_listed_by_prefix_and_sorted(store):
    for key in ["b-2", "a-1", "b-1", "b/3", "b" * 300]:
        store[key] = batch(1)
    assert store.list_keys("b") == sorted(["b-2", "b-1", "b/3", "b" * 300])
    assert store.list_keys("zzz") == []
    assert len(store.list_keys()) == 5


def test_a_key_set_again_takes_the_new_value(store):
    store["k"] = batch(1)
    store["k"] = batch(2)
    assert store["k"] == batch(2)
    assert store.list_keys() == ["k"]


def test_absent_keys(store):
    with pytest.raises(KeyError):
        store["nothing"]
    del store["nothing"]
    store["k"] = batch(1)
    del store["k"]
    assert "k" not in store
    assert store.list_keys() == []


def test_keys_that_differ_in_little_are_different_keys(store):
    """Hashed names, case, and endings that a file system or a store might confuse."""
    pairs = ["k", "K", "k.lance", "k.lance.lance", "k ", " k", "k/", "k\\", "k\n", "é", "e\u0301", "x" * 200, "x" * 201]
    for n, key in enumerate(pairs):
        store[key] = batch(n)
    assert {key: store[key].num_rows for key in pairs} == {key: n for n, key in enumerate(pairs)}
    assert store.list_keys() == sorted(pairs)
    for key in pairs[::2]:
        del store[key]
    assert store.list_keys() == sorted(pairs[1::2])


def test_a_listing_takes_the_prefix_literally(store):
    for key in ["a*c", "abc", "a.c", "a[bc", "a?c"]:
        store[key] = batch(1)
    assert store.list_keys("a*") == ["a*c"]
    assert store.list_keys("a[") == ["a[bc"]
    assert store.list_keys("") == store.list_keys() == sorted(["a*c", "abc", "a.c", "a[bc", "a?c"])


def test_a_deleted_key_can_be_set_again(store):
    store["k"] = batch(1)
    del store["k"]
    with pytest.raises(KeyError):
        store["k"]
    store["k"] = batch(4)
    assert store["k"] == batch(4)


def test_another_handle_sees_the_same(tmp_path):
    first, second = (LanceCheckpointStore(str(tmp_path / "_checkpoints")) for _ in range(2))
    assert "k" not in second
    first["k"] = batch(2)
    assert "k" in second
    assert second["k"] == batch(2)
    second["k"] = batch(3)
    assert first["k"] == batch(3)
    del first["k"]
    assert "k" not in second
    assert second.list_keys() == []


def test_a_file_under_the_name_of_another_key_is_not_taken_for_it(tmp_path):
    store = LanceCheckpointStore(str(tmp_path / "_checkpoints"))
    store["a"] = batch(2)
    (tmp_path / "_checkpoints" / "a.lance").rename(tmp_path / "_checkpoints" / "b.lance")
    with pytest.raises(KeyError):
        store["b"]
    assert "b" not in store


def test_every_file_of_the_folder_is_listed_with_its_key(tmp_path):
    folder = tmp_path / "_checkpoints"
    store = LanceCheckpointStore(str(folder))
    assert store.files() == []
    store["plain"] = batch(1)
    store["h/ashed"] = batch(2)
    for name in ("fragment_data_file:1.lance", "k.1.damaged", ".tmpX", "key-unreadable.lance"):
        (folder / name).write_bytes(b"123")
    found = {f.name: f for f in store.files()}
    assert {f.key for f in found.values()} == {"plain", "h/ashed", "fragment_data_file:1", ""}
    assert [found[n].key for n in ("k.1.damaged", ".tmpX", "key-unreadable.lance")] == ["", "", ""]
    assert all(f.folder == "_checkpoints" and f.size_bytes == (folder / f.name).stat().st_size for f in found.values())
    hashed = next(f.name for f in found.values() if f.key == "h/ashed")
    assert store.read_file(hashed) == batch(2)
    with pytest.raises(KeyError):
        store.read_file("fragment_data_file:1.lance")


def test_an_empty_batch_keeps_its_schema(store):
    store["k"] = batch(0)
    assert store["k"].num_rows == 0
    assert store["k"].schema == batch(0).schema


def every_type() -> pa.RecordBatch:
    floats = pa.array(np.arange(8.0, dtype="f4"))
    return pa.record_batch(
        {
            "list": pa.array([[1.0, None], None, [], [3.0]], pa.list_(pa.float32())),
            "string": pa.array(["a", None, "", "é"]),
            "large": pa.array(["a", None, "", "é"], pa.large_string()),
            "dictionary": pa.array(["x", "y", None, "x"]).dictionary_encode(),
            "fixed": pa.FixedSizeListArray.from_arrays(floats, 2),
            "struct": pa.array([{"a": 1, "b": "q"}, None, {"a": None, "b": ""}, {"a": 2, "b": None}]),
            "bool": pa.array([True, None, False, True]),
            "timestamp": pa.array([1, 2, None, 3], pa.timestamp("us", "UTC")),
            "decimal": pa.array([1, 2, None, 3], pa.decimal128(10, 2)),
            "int8": pa.array([None, 1, 2, 3], pa.int8()),
            "half": pa.array([None, 1, 2, 3], pa.float16()),
            "binary": pa.array([b"", b"1", None, b"22"], pa.large_binary()),
            "fixed_binary": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
            "date": pa.array([0, 1, None, 3], pa.date32()),
            "map": pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64())),
        }
    )


def test_every_type_survives(store):
    store["k"] = every_type()
    assert store["k"].equals(every_type())
    store["slice"] = every_type().slice(1, 2)
    assert store["slice"].equals(every_type().slice(1, 2))


def test_the_digest_sees_values_and_nothing_else():
    whole = every_type()
    assert batch_digest(whole.slice(1, 2)) == batch_digest(whole.take(pa.array([1, 2])))
    seen = {batch_digest(whole)}
    for index, name in enumerate(whole.schema.names):
        other = whole.set_column(index, name, whole.column(index).take(pa.array([0, 1, 2, 2])))
        seen.add(batch_digest(other))
        without = whole.set_column(index, name, whole.column(index).take(pa.array([None, 1, 2, 3])))
        if whole.column(index)[0].is_valid:
            seen.add(batch_digest(without))
    valid_first = sum(whole.column(i)[0].is_valid for i in range(whole.num_columns))
    assert len(seen) == 1 + whole.num_columns + valid_first


def test_damage_is_noticed_and_set_aside(tmp_path):
    store = LanceCheckpointStore(str(tmp_path / "_checkpoints"))
    values = np.random.default_rng(1).random(2000)
    noticed = 0
    for at in range(0, 16000, 800):
        store["k"] = pa.record_batch({"v": pa.array(values)})
        (path,) = (tmp_path / "_checkpoints").glob("*.lance")
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(data)
        try:
            same = store["k"].column(0).to_numpy()
        except KeyError:
            noticed += 1
            assert "k" not in store
        else:
            np.testing.assert_array_equal(same, values)
    assert noticed >= 18
    assert len(list((tmp_path / "_checkpoints").glob("*.damaged"))) == noticed


@pytest.mark.parametrize("size", [0, 10, 0.5])
def test_a_truncated_file_reads_as_absent(tmp_path, size):
    store = LanceCheckpointStore(str(tmp_path / "_checkpoints"))
    store["k"] = batch(1000)
    (path,) = (tmp_path / "_checkpoints").glob("*.lance")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * size) if isinstance(size, float) else size])
    with pytest.raises(KeyError):
        store["k"]
    store["k"] = batch(2)
    assert store["k"] == batch(2)
