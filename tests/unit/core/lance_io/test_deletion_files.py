"""Deleted rows and row ids of single fragments, read from their files and the manifest, against a scan by Lance."""

from __future__ import annotations

import struct
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.storage.lance_files import deleted_offsets, roaring_values
from leman_core.storage.manifest import ids_at, inline_row_ids_of

ROWS = 70_000


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": np.arange(2 * ROWS)}), uri, max_rows_per_file=ROWS, enable_stable_row_ids=True)
    return uri


def scanned(fragment):
    return fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True).to_table()["_rowid"].to_numpy()


@pytest.mark.parametrize(
    ("filters", "kind"),
    [
        (["x % 1000 = 7"], "array"),
        (["x % 1000 = 7", "x % 10 = 3"], "bitmap"),
        (["x % 3 = 1", f"x % {ROWS} >= 1000 AND x % {ROWS} < 68000"], "bitmap"),
    ],
    ids=["few", "many", "nearly all"],
)
def test_a_deletion_file_says_what_a_scan_does(uri, filters, kind):
    for filter_ in filters:
        lance.dataset(uri).delete(filter_)
    for fragment in lance.dataset(uri).get_fragments():
        assert fragment.metadata.deletion_file.file_type == kind
        assert deleted_offsets(uri, fragment).tolist() == np.flatnonzero(np.isnan(scanned(fragment))).tolist()


def test_without_a_deletion_file_no_row_is_deleted(uri):
    assert deleted_offsets(uri, lance.dataset(uri).get_fragments()[0]).tolist() == []


@pytest.mark.parametrize("filter_", ["x % 1000 = 7", "x % 3 = 1"], ids=["array", "bitmap"])
@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: b"", lambda c: bytes(len(c)), None])
def test_of_a_damaged_deletion_file_only_lance_can_tell(uri, filter_, damage):
    lance.dataset(uri).delete(filter_)
    for path in Path(uri, "_deletions").iterdir():
        path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    assert deleted_offsets(uri, lance.dataset(uri).get_fragments()[0]) is None


def test_runs_of_a_roaring_bitmap():
    """Lance need not write them, but may: containers of runs, of single values and of bits, by the format's page."""
    bits = np.packbits(np.arange(1 << 16) % 2, bitorder="little").tobytes()
    content = (
        struct.pack("<I", 12347 | 1 << 16)
        + bytes([0b01])
        + struct.pack("<HHHH", 0, 6, 2, 1)
        + struct.pack("<HHHHH", 2, 10, 3, 50, 2)
    )
    content += struct.pack("<HH", 4, 65535)
    low = [10, 11, 12, 13, 50, 51, 52]
    assert roaring_values(content).tolist() == [*low, 2 * 65536 + 4, 2 * 65536 + 65535]
    places = bytes(4 * 4)
    header = struct.pack("<HHHHHHHH", 0, 0, 1, 32767, 3, 65535, 4, 0)
    content = struct.pack("<I", 12347 | 3 << 16) + bytes([0b0100]) + header + places
    content += struct.pack("<H", 9) + bits + struct.pack("<HHH", 1, 0, 65535) + struct.pack("<H", 8)
    wanted = [9, *range(65537, 131072, 2), *range(3 << 16, 4 << 16), (4 << 16) + 8]
    assert roaring_values(content).tolist() == wanted
    with pytest.raises(ValueError, match="not with the number of a roaring bitmap"):
        roaring_values(bytes(8))


def test_ids_of_single_rows_are_those_of_a_scan(uri):
    """Of rows as they were written, of rows that an update moved, and after a compaction that left rows out."""
    lance.dataset(uri).update({"x": "x"}, where="x % 5 = 2")
    for _ in range(2):
        dataset = lance.dataset(uri)
        inline = inline_row_ids_of(dataset)
        for fragment in dataset.get_fragments():
            ids = scanned(fragment)
            live = np.flatnonzero(~np.isnan(ids.astype(np.float64)))[::13]
            assert ids_at(inline[fragment.fragment_id], live).tolist() == ids[live].astype(np.int64).tolist()
        dataset.optimize.compact_files(target_rows_per_fragment=2 * ROWS)
    assert len(lance.dataset(uri).get_fragments()) == 1
