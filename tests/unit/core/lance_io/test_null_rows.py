"""Which rows of a column are NULL, without holding its values."""

from __future__ import annotations

import random
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

from core.lance_io.scan import FragmentReader, has_wide_rows

_MEASURED = """
import resource, sys
from core.lance_io.scan import FragmentReader

reader = FragmentReader(sys.argv[1], 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = reader.null_rows("s")
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
print(found[0].tolist(), grown)
"""


def is_null(row):
    return row % 7 == 3


def text(row, width):
    """Half of it compresses well, half of it badly."""
    return str(row % 10) * (width // 2) + random.Random(row).randbytes(width // 4).hex()


def write(folder, rows, width, **options):
    """One value a batch, so that each is a page of its own where it is large."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    values = (None if is_null(row) else text(row, width) for row in range(rows))
    batches = (
        pa.record_batch([[row], pa.array([value], pa.string())], schema=schema) for row, value in enumerate(values)
    )
    return lance.write_dataset(
        pa.RecordBatchReader.from_batches(schema, batches), folder, enable_stable_row_ids=True, **options
    )


@pytest.mark.parametrize("width", [3, 100_000])
def test_null_rows_are_found_by_their_physical_offsets_and_deleted_ones_left_out(tmp_path, width):
    dataset = write(f"{tmp_path}/t.lance", 40, width, max_rows_per_file=20)
    dataset.delete("id < 5 OR id = 17 OR id = 30")
    assert {has_wide_rows(fragment) for fragment in dataset.get_fragments()} == {width > 3}
    found = FragmentReader(dataset.uri, dataset.version).null_rows("s")
    expected = {0: [10], 1: [4, 11, 18]}
    assert {fragment: offsets.tolist() for fragment, offsets in found.items()} == expected


def test_narrow_and_wide_fragments_of_one_table_are_both_looked_at(tmp_path):
    write(f"{tmp_path}/t.lance", 20, 3)
    dataset = write(f"{tmp_path}/t.lance", 20, 100_000, mode="append")
    found = FragmentReader(dataset.uri, dataset.version).null_rows("s")
    assert {fragment: offsets.tolist() for fragment, offsets in found.items()} == {0: [3, 10, 17], 1: [3, 10, 17]}


def test_a_column_of_large_values_is_not_held_to_find_its_null_rows(tmp_path):
    rows, width = 40, 8_000_000
    dataset = write(f"{tmp_path}/t.lance", rows, width, data_storage_version="2.2")
    done = subprocess.run([sys.executable, "-c", _MEASURED, dataset.uri], capture_output=True, text=True, check=True)
    found, _, grown = done.stdout.strip().rpartition(" ")
    assert found == str([row for row in range(rows) if is_null(row)])
    assert int(grown) < rows * width / 2
