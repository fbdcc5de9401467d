"""Filters that read large values: few of these are held at a time, and the rows are those that a scan finds."""

from __future__ import annotations

import datetime as dt

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io import row_commits, row_reading
from leman_coordinator.lance_io.row_reading import open_rows
from leman_core.model.service_errors import FailedPrecondition
from leman_core.storage import scan
from leman_core.storage.scan import FragmentReader

WIDTH, ROWS = 200, 40
FEW = 5


@pytest.fixture
def table(tmp_path):
    """Two fragments of texts, some of them NULL, without some rows."""
    texts = [None if row % 7 == 3 else f"{row:03}" + "x" * (row * 31 % WIDTH) for row in range(ROWS)]
    data = pa.table({"id": range(ROWS), "s": texts, "st": [{"t": text, "n": 1} for text in texts]})
    dataset = lance.write_dataset(data, f"{tmp_path}/t.lance", max_rows_per_file=ROWS // 2)
    dataset.delete("id < 2 OR id = 11 OR id = 25")
    return lance.dataset(dataset.uri)


@pytest.fixture
def scanned(monkeypatch):
    """Every value counts as large; collects how many rows each scan is limited to, where it evaluates anything."""
    monkeypatch.setattr(scan, "CHUNK_BYTES", FEW * WIDTH)
    limits, scanner = [], lance.LanceDataset.scanner

    def noted(dataset, *args, **options):
        if options.get("filter") or isinstance(options.get("columns"), dict):
            limits.append(options.get("limit"))
        return scanner(dataset, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    return limits


FILTERS = [
    "length(s) > 100",
    "s IS NULL",
    "s > '020' AND id < 33",
    "st.t LIKE '01%'",
    "s = 'nothing'",
    "NOT (length(s) > 100)",
]


@pytest.mark.parametrize("where", FILTERS)
def test_a_filter_that_reads_large_values_finds_the_rows_of_a_scan(table, where, scanned):
    expected = table.to_table(filter=where, columns=["id"])["id"].to_pylist()
    scanned.clear()
    found = FragmentReader(table.uri, 0).rows_matching([0, 1], where)
    assert [20 * fragment + offset for fragment, offsets in found.items() for offset in offsets.tolist()] == expected
    deleted = row_commits.matching_rows(table, where)
    assert [20 * f + offset for f, parts in deleted.offsets.items() for offset in np.concatenate(parts)] == expected
    assert scanned
    assert None not in scanned


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("bounds", [{}, {"limit": 4}, {"offset": 3, "limit": 9}, {"offset": 100}])
def test_a_read_with_such_a_filter_gives_the_rows_of_a_scan(table, where, bounds, scanned, monkeypatch):
    monkeypatch.setattr(row_reading, "_WINDOW_BYTES", 4 * WIDTH)
    monkeypatch.setattr(row_reading, "_HELD_BYTES", 2 * WIDTH)
    expected = table.to_table(filter=where)
    last = bounds.get("offset", 0) + bounds.get("limit", ROWS)
    scanned.clear()
    rows = open_rows(ReadRequest(table.uri, where=where, batch_bytes=1 << 20, **bounds), dt.datetime.now(dt.UTC))
    found = pa.Table.from_batches(rows.batches, rows.schema)
    assert found.to_pylist() == expected.to_pylist()[bounds.get("offset", 0) : last]


def test_a_filter_that_cannot_be_evaluated_is_refused_as_by_a_scan(table, scanned):
    with pytest.raises(FailedPrecondition, match="cannot be evaluated for every row"):
        FragmentReader(table.uri, 0).rows_matching([0], "cast(s AS int) > 3")


@pytest.mark.parametrize("where", ["id > 30", "id IN (1, 2)"])
def test_a_filter_that_reads_only_numbers_is_a_scan(table, where, scanned):
    FragmentReader(table.uri, 0).rows_matching([0, 1], where)
    row_commits.matching_rows(table, where)
    assert scanned == [None, None]
