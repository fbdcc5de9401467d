"""One behaviour, two stores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from core.checkpoints import InMemoryCheckpointStore, LanceCheckpointStore
from core.checkpoints.digest import batch_digest

KEYS = [
    "udf-f_ver-1_col-c_where-0_uri-0_srcfiles-0_frag-0_range-0-10",
    "udf-we ird/..\\name_ver-1_col-ä\"'%_frag-1_range-0-10",
    "x" * 400,
    "..",
    "-starts-with-a-dash",
    "key-" + "0" * 64,
]


@pytest.fixture(params=["memory", "lance"])
def store(request, tmp_path):
    if request.param == "memory":
        return InMemoryCheckpointStore()
    return LanceCheckpointStore(str(tmp_path / "a folder" / "_checkpoints"))


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
