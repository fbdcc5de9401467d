"""Reading the source of a view."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format import view_definitions
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewDefinition, ViewFormat, ViewQuery
from leman_core.model.service_errors import Aborted, NotFound
from leman_core.storage import source_rows
from leman_core.storage import view_data_files as view_files
from leman_core.storage.source_rows import SourceRows, plain_columns

BLOB = {"lance-encoding:blob": "true"}


def rows(count):
    old, new = pa.field("old", pa.large_binary(), metadata=BLOB), lance.blob_field("new")
    schema = pa.schema([("id", pa.int64()), ("a b", pa.string()), old, new])
    blobs = [b"o%d" % i if i % 3 else None for i in range(count)]
    columns = [np.arange(count), [f"s{i}" for i in range(count)], pa.array(blobs, pa.large_binary())]
    return pa.table([*columns, lance.blob_array([b"n%d" % i if i % 4 else None for i in range(count)])], schema=schema)


def make(folder, *, stable=True):
    uri = f"{folder}/t.lance"
    lance.write_dataset(rows(40), uri, max_rows_per_file=10, enable_stable_row_ids=stable)
    lance.dataset(uri).delete("id IN (3, 17)")
    return SourceRows(uri, 2)


@pytest.fixture(params=[True, False], ids=["stable", "addresses"])
def source(tmp_path, request):
    return make(tmp_path, stable=request.param)


def ids_of(source, keys):
    """Row ids of rows with these `id`s, in their order."""
    table = lance.dataset(source.uri, version=source.version).scanner(columns=["id"], with_row_id=True).to_table()
    known = dict(zip(table["id"].to_pylist(), table["_rowid"].to_pylist(), strict=True))
    return np.array([known[key] for key in keys], np.int64)


def test_matching_ids_are_those_of_live_rows_for_which_the_filter_is_true(source):
    found = np.concatenate(list(source.matching_ids("id < 20")))
    assert sorted(found.tolist()) == sorted(ids_of(source, [i for i in range(20) if i not in {3, 17}]).tolist())
    assert sum(map(len, source.matching_ids(""))) == 38
    assert sum(map(len, source.matching_ids("id > 0", [1, 99]))) == 9
    assert list(source.matching_ids("", [])) == []


def test_values_come_in_the_order_of_the_ids_and_as_often(source):
    keys = [25, 1, 39, 25, 0]
    columns = {"double": "id * 2", "name": "`a b`", "text": "upper(`a b`)"}
    found = source.take(ids_of(source, keys), columns)
    assert found.to_pydict() == {
        "double": [k * 2 for k in keys],
        "name": [f"s{k}" for k in keys],
        "text": [f"S{k}" for k in keys],
    }


def test_blobs_of_both_kinds_come_as_bytes(source):
    keys = [4, 9, 8, 1]
    found = source.take(ids_of(source, keys), {**plain_columns(["new", "id"]), "renamed": "old"})
    assert found.schema.names == ["new", "id", "renamed"]
    assert found["new"].to_pylist() == [b"n%d" % k if k % 4 else None for k in keys]
    assert found["renamed"].to_pylist() == [b"o%d" % k if k % 3 else None for k in keys]
    assert found["id"].to_pylist() == keys


@pytest.mark.parametrize("stable", [True, False], ids=["stable", "addresses"])
@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_blobs_inside_of_other_columns_come_as_bytes(tmp_path, file_format, stable):
    blob, number = pa.field("b", pa.large_binary(), metadata=BLOB), pa.field("i", pa.int64())
    values = [b"a", None, b"", b"x" * 200_000, b"e", b"f"]
    boxes = pa.StructArray.from_arrays([pa.array(values, blob.type), pa.array(range(6))], fields=[blob, number])
    uri = f"{tmp_path}/t.lance"
    options = {"data_storage_version": file_format, "enable_stable_row_ids": stable, "max_rows_per_file": 2}
    lance.write_dataset(pa.table({"id": range(6), "box": boxes}), uri, **options).delete("id = 4")
    source, keys = SourceRows(uri, 2), [3, 0, 5, 0]
    found = source.take(ids_of(source, keys), plain_columns(["box", "id", "box.b", "box.i"]))
    assert found["box"].to_pylist() == [{"b": values[k], "i": k} for k in keys]
    assert found["box.b"].to_pylist() == [values[k] for k in keys]
    assert found["box.i"].to_pylist() == found["id"].to_pylist() == keys
    assert source.take(np.empty(0, np.int64), plain_columns(["box"])).num_rows == 0
    assert source.matching_rows("", [0], plain_columns(["box"]), 1 << 20) is None
    gone = ids_of(SourceRows(uri, 1), [4])
    with pytest.raises(Aborted) as caught:
        source.take(gone, plain_columns(["box"]))
    assert caught.value.reason == "SOURCE_ROW_GONE"


def test_nothing_is_taken_for_no_ids(source):
    found = source.take(np.empty(0, np.int64), {"x": "id + 1", "b": "old"})
    assert (found.num_rows, found.schema.names) == (0, ["x", "b"])
    assert found.schema.field("x").type == pa.int64()


def test_a_row_that_is_gone_is_an_error_and_not_a_shorter_answer(tmp_path):
    source = make(tmp_path)
    for columns in ({"x": "id"}, {"b": "old"}):
        with pytest.raises(Aborted) as caught:
            source.take(np.array([1, 3], np.int64), columns)
        assert caught.value.reason == "SOURCE_ROW_GONE"


def test_the_filter_of_single_rows_is_that_of_the_scan(source):
    keys = [0, 5, 8, 39]
    asked = ids_of(source, keys)
    assert source.matching("id BETWEEN 5 AND 8 OR `a b` = 's39'", asked).tolist() == asked[1:].tolist()
    assert source.matching("nullif(id, 5) > 5", asked).tolist() == asked[2:].tolist()


def test_facts_of_rows(tmp_path):
    source = make(tmp_path)
    lance.dataset(source.uri).update({"id": "id + 100"}, where="id = 12")
    later = SourceRows(source.uri, 3)
    facts = later.rows_of([1, 4, 77]).by_id()
    assert facts.ids.tolist() == [10, 11, 12, 13, 14, 15, 16, 18, 19]
    assert facts.fragment_ids.tolist() == [1, 1, 4, 1, 1, 1, 1, 1, 1]
    assert facts.offsets.tolist() == [0, 1, 0, 3, 4, 5, 6, 8, 9]
    assert facts.updated.tolist() == [1, 1, 3, 1, 1, 1, 1, 1, 1]
    assert len(later.rows_of([77])) == 0


def test_rows_of_a_view_without_values_are_not_there(tmp_path):
    definition = ViewDefinition(
        query=ViewQuery("d", "t", ()),
        source_uri="d/t.lance",
        base_version=1,
        base_incarnation="",
        format=ViewFormat.STABLE_ROW_IDS,
    )
    data = pa.table({SOURCE_ROW_ID: range(4), IS_SET: [True, False, None, True], "x": range(4)})
    uri = f"{tmp_path}/v.lance"
    lance.write_dataset(data.cast(view_definitions.write(data.schema, definition)), uri, enable_stable_row_ids=True)
    source = SourceRows(uri, 1)
    assert source.is_view
    assert np.concatenate(list(source.matching_ids(""))).tolist() == [0, 3]
    assert np.concatenate(list(source.matching_ids("x > 0"))).tolist() == [3]
    assert source.matching("", np.arange(4)).tolist() == [0, 3]


def test_a_version_that_is_gone_is_named(tmp_path):
    with pytest.raises(NotFound) as caught:
        SourceRows(make(tmp_path).uri, 9)
    assert caught.value.reason == "SOURCE_VERSION_NOT_FOUND"


def test_wide_rows_and_blobs_pass_into_a_view_and_out_of_it(tmp_path):
    """The file format of the view is one in which its blobs can be staged."""
    source = make(tmp_path)
    kept = [pa.field(SOURCE_ROW_ID, pa.int64()), pa.field(IS_SET, pa.bool_())]
    schema = pa.schema(kept + [view_files.stored_field(source.dataset.schema.field(n)) for n in ("old", "new")])
    uri = f"{tmp_path}/v.lance"
    lance.write_dataset(
        schema.empty_table(), uri, enable_stable_row_ids=True, data_storage_version=view_files.storage_version(schema)
    )
    taken = source.take(np.arange(4, 9), plain_columns(["old", "new"]))
    batch = pa.record_batch([pa.array(range(4, 9)), pa.array([True] * 5), *taken.columns], names=schema.names)
    staged = view_files.stage_append(uri, schema, [batch])
    made = lance.FragmentMetadata(0, [lance.fragment.DataFile.create(lance.dataset(uri), staged.file)], 5)
    lance.LanceDataset.commit(uri, lance.LanceOperation.Append([made]), read_version=1)
    lance.dataset(uri).delete(f"{SOURCE_ROW_ID} = 5")
    (found,) = view_files.current_values(uri, 3, 0, ["new", "old"])
    assert found["new"].to_pylist()[2:] == [b"n6", b"n7", None]
    assert found["old"].to_pylist()[2:] == [None, b"o7", b"o8"]
    assert view_files.source_row_ids(uri, 3, 0)[0].tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("history", ["none", "deleted", "updated", "compacted"])
def test_many_rows_come_alike_whether_they_are_scanned_or_taken(tmp_path, monkeypatch, step, stable, history):
    monkeypatch.setattr(source_rows, "_LEAST_SCAN", 4)
    uri = f"{tmp_path}/t.lance"
    data = pa.table({"id": range(100), "s": [f"s{i}" for i in range(100)]})
    lance.write_dataset(data, uri, max_rows_per_file=40, enable_stable_row_ids=stable)
    if history != "none":
        lance.dataset(uri).delete("id IN (50, 51)")
    if history in {"updated", "compacted"}:
        lance.dataset(uri).update({"s": "'new'"}, where="id IN (10, 45)")
    if history == "compacted":
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=60)
    source = SourceRows(uri, lance.dataset(uri).version)
    rows = lance.dataset(uri).scanner(columns=["id", "s"], with_row_id=True).to_table().sort_by("_rowid").to_pylist()
    for start, length in ((0, 30), (25, 40), (60, 38), (0, 98)):
        some = rows[start : start + length : step]
        found = source.take(np.array([row["_rowid"] for row in some], np.int64), {"double": "id * 2", "s": "s"})
        assert found.to_pydict() == {"double": [row["id"] * 2 for row in some], "s": [row["s"] for row in some]}


@pytest.mark.parametrize("stable", [True, False])
def test_rows_of_several_fragments_that_lie_together_are_scanned(tmp_path, monkeypatch, stable):
    uri = f"{tmp_path}/t.lance"
    lance.write_dataset(pa.table({"id": range(20_000)}), uri, max_rows_per_file=6_000, enable_stable_row_ids=stable)
    source, taken = SourceRows(uri, 1), []
    take_rows = lance.LanceDataset._take_rows

    def counted(self, ids, **options):
        taken.append(len(ids))
        return take_rows(self, ids, **options)

    monkeypatch.setattr(lance.LanceDataset, "_take_rows", counted)
    every = np.concatenate(list(source.all_ids()))[1:19_001:2]
    found = source.take(every, {"x": "id"})
    assert found.column("x").to_pylist() == list(range(1, 19_001, 2))
    assert taken == [2], "the first and the last, to find out where they lie"
