"""Manifests that the planner has read, and that workers are sent."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import LemanError, NotFound
from leman_core.storage import lance_tables
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.object_stores import lance_options
from leman_core.storage.scan import FragmentReader
from tests.unit.core.lance_io.small_store import known_store

URI = "s3://lake/t.lance"


@pytest.fixture
def store():
    with known_store(atomic=True) as running:
        for _ in range(2):
            append(10)
        yield running


def append(rows: int) -> None:
    words = pa.array(["a", "b"] * (rows // 2)).dictionary_encode()
    table = pa.table({"x": pa.array(range(rows), pa.int64()), "word": words})
    lance.write_dataset(table, URI, mode="append", storage_options=lance_options(URI))


def read(reader: FragmentReader, fragment: int) -> list[object]:
    found = reader.read(fragment, RowRange(0, 10), ["x", "word"], deletions=False)
    return [row for chunk in found for row in chunk.rows.to_pylist()]


def test_a_worker_reads_what_the_planner_saw_with_a_request_less(store):
    seen = LanceTables().snapshot(URI)
    append(20)
    before = store.requests
    expected = read(FragmentReader(URI, seen.version), 1)
    asked = store.requests - before
    reader = FragmentReader(URI, seen.version, seen.manifest)
    assert read(reader, 1) == expected
    assert store.requests - before == 2 * asked - 1
    assert [fragment for fragment, _, _ in reader.sizes()] == [0, 1]
    assert np.array_equal([row["x"] for row in expected], range(10))


def test_a_manifest_of_another_version_is_not_gone_by(store):
    seen = LanceTables().snapshot(URI)
    append(20)
    reader = FragmentReader(URI, seen.version + 1, seen.manifest)
    assert [fragment for fragment, _, _ in reader.sizes()] == [0, 1, 2]
    assert len(list(FragmentReader(URI, seen.version, b"no manifest").sizes())) == 2


def test_a_table_that_is_gone_is_said_to_be(store):
    seen = LanceTables().snapshot(URI)
    store.objects.clear()
    with pytest.raises(NotFound) as expected:
        FragmentReader(URI, seen.version)
    with pytest.raises(NotFound) as raised:
        read(FragmentReader(URI, seen.version, seen.manifest), 0)
    assert raised.value.reason == expected.value.reason


def test_a_file_that_is_gone_is_said_as_before(store):
    seen = LanceTables().snapshot(URI)
    for key in [key for key in store.objects if "/data/" in key]:
        del store.objects[key]
    with pytest.raises(LemanError) as expected:
        read(FragmentReader(URI, seen.version), 0)
    with pytest.raises(LemanError) as raised:
        read(FragmentReader(URI, seen.version, seen.manifest), 0)
    assert raised.value.reason == expected.value.reason


def test_one_on_a_disk_is_sent_as_others_may_clean_it_up_and_a_large_one_is_not(store, tmp_path, monkeypatch):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), path)
    assert LanceTables().snapshot(path).manifest
    size = len(LanceTables().snapshot(URI).manifest)
    assert 0 < size < 4096
    monkeypatch.setattr(lance_tables, "_SENT_BYTES", size - 1)
    assert LanceTables().snapshot(URI).manifest == b""
