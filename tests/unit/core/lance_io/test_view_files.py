"""Patches, placeholders and the order of many ids, without a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.file import LanceFileReader

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewQuery
from leman_coordinator.lance_io.view_commits import stage_placeholders
from leman_core.model.service_errors import DataLoss, NotFound, Unavailable
from leman_core.storage import view_data_files as view_files
from leman_core.storage import view_side_files
from leman_core.storage.column_files import data_path
from leman_core.storage.view_data_files import view_rows

SCHEMA = pa.schema(
    [
        pa.field(SOURCE_ROW_ID, pa.int64()),
        pa.field(IS_SET, pa.bool_()),
        pa.field("v", pa.list_(pa.float32(), 3)),
        pa.field("s", pa.struct([("a", pa.string())])),
    ],
    metadata={"k": "v"},
)


@given(offsets=st.sets(st.integers(0, 2**32 - 1)), names=st.dictionaries(st.text(min_size=1), st.text(min_size=1)))
def test_patches_come_back(offsets, names):
    found = view_files.decode_patch(view_files.encode_patch(names, np.array(sorted(offsets), np.int64)))
    assert (found[0], found[1].tolist()) == (names, sorted(offsets))


def test_damaged_patches_are_refused():
    buffer = view_files.encode_patch({"x": "a.lance"}, np.array([1, 2], np.int64))
    with pytest.raises(ValueError, match="damaged"):
        view_files.decode_patch(buffer[:-3])
    with pytest.raises(ValueError, match="number of rows"):
        view_files.decode_patch(buffer.replace(b'"rows": 2', b'"rows": 3'))


@pytest.mark.parametrize(
    ("rows", "most", "sizes"),
    [
        (15, 7, [7, 7, 1]),
        (14, 7, [7, 7]),
        (3, 7, [3]),
        (0, 7, []),
        (9, 0, [9]),
        (700_000, 0, [65_536] * 8 + [131_072, 44_640]),
    ],
)
def test_placeholders_lie_in_exact_fragments(tmp_path, rows, most, sizes):
    (tmp_path / "data").mkdir()
    pieces = np.array_split(np.arange(100, 100 + rows), 4)
    staged = stage_placeholders(str(tmp_path), SCHEMA, pieces, most, None)
    assert [file.physical_rows for file in staged] == sizes
    tables = [LanceFileReader(data_path(str(tmp_path), f.file)).read_all().to_table() for f in staged]
    for table in tables:
        assert table.schema.names == SCHEMA.names
        assert table[IS_SET].to_pylist() == [False] * table.num_rows
        assert table["v"].null_count == table["s"].null_count == table.num_rows
    ids = [i for table in tables for i in table[SOURCE_ROW_ID].to_pylist()]
    assert ids == list(range(100, 100 + rows))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("spread", [1, 2**40])
@pytest.mark.parametrize("window", [(0, None), (300, 1000), (5000, 10), (10, None)])
def test_many_ids_are_ordered_through_the_disk_as_in_memory(shuffle, spread, window):
    offset, limit = window
    ids = np.random.default_rng(7).permutation(4000).astype(np.int64) * spread
    query = ViewQuery("d", "t", (), shuffle=shuffle, seed=3, offset=offset, limit=limit)
    found = [
        np.concatenate([np.empty(0, np.int64), *view_rows(np.array_split(ids, 9), query, m)]) for m in (100, 10**6)
    ]
    assert found[0].tolist() == found[1].tolist()
    assert len(found[0]) == max(0, min(4000 - offset, limit if limit is not None else 4000))
    chosen = np.sort(ids)[offset:][:limit]
    assert np.sort(found[0]).tolist() == chosen.tolist()


def test_pieces_are_bounded_however_many_ids_there_are():
    query = ViewQuery("d", "t", (), shuffle=True, seed=3)
    pieces = list(view_rows(np.array_split(np.arange(20_000), 40), query, in_memory=1000))
    assert sum(map(len, pieces)) == 20_000
    assert max(map(len, pieces)) <= 1000


def test_evictions_come_back_and_damage_is_seen(tmp_path):
    addresses = np.array([5, 1 << 32 | 7], np.int64)
    name, digest = view_side_files.write_evictions(str(tmp_path), addresses)
    assert view_side_files.read_evictions(str(tmp_path), name, digest).tolist() == addresses.tolist()
    with pytest.raises(DataLoss, match="changed after they were written") as refused:
        view_side_files.read_evictions(str(tmp_path), name, "0" * 32)
    assert refused.value.reason == "FILE_DAMAGED"
    view_side_files.remove_evictions(str(tmp_path), name)
    with pytest.raises(NotFound, match="are not in the view's _refresh folder") as refused:
        view_side_files.read_evictions(str(tmp_path), name, digest)
    assert refused.value.reason == "FILE_MISSING"


def test_values_that_do_not_fit_are_refused_and_leave_no_file(tmp_path):
    (tmp_path / "data").mkdir()
    writer = view_files.ViewFileWriter(str(tmp_path), pa.schema([("x", pa.int32())]), None)
    with pytest.raises(Unavailable, match="ArrowInvalid"):
        writer.write(pa.record_batch([pa.array(["a"])], names=["x"]))
    del writer
    assert list((tmp_path / "data").glob("*.lance")) == []
