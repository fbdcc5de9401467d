"""Which rows of a column are NULL, without holding its values."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

from leman_core.model import keys, row_states
from leman_core.storage import column_files
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.scan import FragmentReader, has_wide_rows

_MEASURED = """
import json, resource, sys
from leman_core.model import keys, row_states
from leman_core.storage import column_files
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.scan import FragmentReader

def bytes_read():
    return int(next(line for line in open("/proc/self/io") if line.startswith("rchar")).split()[1])

reader = FragmentReader(sys.argv[1], 0)
read, before = bytes_read(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = reader.null_rows("s")
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
print(json.dumps([found[0].tolist(), bytes_read() - read, grown]))
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


def measured(uri):
    """The NULL rows of the first fragment, and what finding them read and took of memory, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _MEASURED, uri], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_column_of_large_values_is_not_held_to_find_its_null_rows(tmp_path):
    rows, width = 40, 8_000_000
    dataset = write(f"{tmp_path}/t.lance", rows, width, data_storage_version="2.2")
    found, _, grown = measured(dataset.uri)
    assert found == [row for row in range(rows) if is_null(row)]
    assert grown < rows * width / 2


def fill(uri, fragment_id, values, file_format=(2, 2)):
    """The fragment's column file, as a job writes and commits it."""
    dataset = lance.dataset(uri)
    writer = ColumnFileWriter(uri, dataset.schema.field("s"), file_format)
    name = keys.column_file_name(f"{fragment_id:032x}", "ab12cd34ef56", partial=False)
    writer.open(name)
    for value in values:
        writer.write(pa.array([value], dataset.schema.field("s").type))
    writer.close(None, frozenset(), name)
    group = lance.LanceOperation.DataReplacementGroup(fragment_id, lance.fragment.DataFile.create(dataset, name))
    operation = lance.LanceOperation.DataReplacement([group])
    return lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def table_with_column(folder, rows, kind=None, **options):
    dataset = lance.write_dataset(pa.table({"id": range(rows)}), folder, enable_stable_row_ids=True, **options)
    dataset.add_columns(pa.field("s", kind or pa.string()))
    return dataset.uri


def test_no_value_is_read_of_a_column_file_to_find_its_null_rows(tmp_path):
    rows, width = 6, 4_000_000
    uri = table_with_column(f"{tmp_path}/t.lance", rows)
    fill(uri, 0, [None if is_null(row) else text(row, width) for row in range(rows)])
    found, read, grown = measured(uri)
    assert found == [row for row in range(rows) if is_null(row)]
    assert read < width / 10
    assert grown < 2 * width


def test_null_rows_of_column_files_of_earlier_releases_and_of_rows_that_moved_are_found_too(tmp_path, monkeypatch):
    uri = table_with_column(f"{tmp_path}/t.lance", 20, max_rows_per_file=5)
    values = [None if row % 4 == 1 else text(row, 8) for row in range(20)]
    for fragment in (0, 1, 3):
        with monkeypatch.context() as earlier:
            if fragment == 1:
                earlier.setattr(column_files, "tells_nulls", lambda kind: False)
            dataset = fill(uri, fragment, values[5 * fragment :][:5])
    dataset.delete("id = 3 OR id = 4 OR id = 17")
    reader = FragmentReader(uri, 0)
    said = [
        column_files.read_nulls(uri, f.metadata.files[-1].path) is not None and len(f.metadata.files) > 1
        for f in dataset.get_fragments()
    ]
    assert said == [True, False, False, True]
    found = {fragment: offsets.tolist() for fragment, offsets in reader.null_rows("s").items()}
    assert found == {0: [1], 1: [0, 4], 2: [0, 1, 2, 3, 4]}
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=100)
    expected = [None if row // 5 == 2 else values[row] for row in range(20) if row not in (3, 4, 17)]
    (found,) = FragmentReader(uri, 0).null_rows("s").values()
    assert found.tolist() == [at for at, value in enumerate(expected) if value is None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int32()), [[], None, [None], [1]]),
        (pa.struct([("a", pa.int32())]), [{"a": None}, None, {"a": 1}, None]),
        (pa.large_binary(), [b"", None, b"x", None]),
        (pa.list_(pa.float32(), 2), [[1, 2], None, None, [3, 4]]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a", None]),
        (pa.decimal128(9, 2), [None, 1, None, None]),
    ],
)
def test_a_column_file_says_what_lance_reads_of_each_type(tmp_path, kind, values):
    uri = table_with_column(f"{tmp_path}/t.lance", len(values), kind, data_storage_version="2.2")
    fill(uri, 0, values)
    read = lance.dataset(uri).to_table(filter="s IS NULL", columns=["id"])["id"].to_pylist()
    assert read == [at for at, value in enumerate(values) if value is None]
    assert FragmentReader(uri, 0).null_rows("s")[0].tolist() == read


def test_a_damaged_list_of_null_rows_is_passed_over(tmp_path, monkeypatch):
    uri = table_with_column(f"{tmp_path}/t.lance", 4)
    encode = row_states.encode_nulls
    monkeypatch.setattr(row_states, "encode_nulls", lambda nulls: encode(~nulls)[:-1])
    fill(uri, 0, ["a", None, "b", None])
    assert FragmentReader(uri, 0).null_rows("s")[0].tolist() == [1, 3]
