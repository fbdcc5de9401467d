"""Row states are read from a file's last bytes, as Lance would give them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from leman_core.model.row_states import RowState
from leman_core.model.service_errors import DataLoss
from leman_core.storage import column_files, lance_files

FILE = "a.lance"


@pytest.fixture
def uri(tmp_path):
    (tmp_path / "data").mkdir()
    return str(tmp_path)


def write(uri, rows, states):
    writer = column_files.ColumnFileWriter(uri, pa.field("y", pa.int64()))
    writer.open(FILE)
    writer.write(pa.array(np.arange(rows)))
    writer.close(states, frozenset({"f" * 32}), FILE)
    return column_files.data_path(uri, FILE)


@pytest.mark.parametrize("rows", [3, 1_000_000])
def test_states_are_those_that_lance_reads(uri, rows):
    states = np.random.default_rng(7).integers(0, 3, rows).astype(np.uint8)
    path = write(uri, rows, states)
    reader = LanceFileReader(path)
    number = int(reader.metadata().schema.metadata[b"leman.states"])
    assert lance_files.read_buffer(pafs.LocalFileSystem(), path, "leman.states") == bytes(
        reader.read_global_buffer(number)
    )
    assert (column_files.read_states(uri, FILE) == states).all()
    summary = column_files.read_state_summary(uri, FILE)
    assert summary.failed == int((states == RowState.FAILED).sum())


def test_states_that_changed_since_are_damaged_for_whoever_decodes_them_later(uri):
    path = write(uri, 1000, np.random.default_rng(7).integers(0, 3, 1000).astype(np.uint8))
    buffer = column_files.read_states_buffer(uri, FILE)
    content = Path(path).read_bytes()
    changed = buffer[:-9] + bytes([buffer[-9] ^ 4]) + buffer[-8:]
    assert content.count(buffer) == 1
    Path(path).write_bytes(content.replace(buffer, changed))
    with pytest.raises(DataLoss, match="digest"):
        column_files.read_states_buffer(uri, FILE)


def test_a_file_without_states_has_none(uri):
    path = write(uri, 5, None)
    assert lance_files.read_buffer(pafs.LocalFileSystem(), path, "leman.states") is None
    assert column_files.read_states_buffer(uri, FILE) is None


def test_other_metadata_is_no_hindrance(tmp_path):
    path = str(tmp_path / FILE)
    writer = LanceFileWriter(path, pa.schema([("y", pa.int64())]))
    writer.write_batch(pa.record_batch({"y": [1]}))
    writer.add_schema_metadata("more", "x" * 100_000)
    writer.add_schema_metadata("states", str(writer.add_global_buffer(b"abc")))
    writer.close()
    assert lance_files.read_buffer(pafs.LocalFileSystem(), path, "states") == b"abc"


@pytest.mark.parametrize("content", [b"", b"LANC", b"x" * 100])
def test_what_is_no_lance_file_is_said_to_be_none(uri, tmp_path, content):
    (tmp_path / "data" / FILE).write_bytes(content)
    with pytest.raises(ValueError, match=FILE):
        lance_files.read_buffer(pafs.LocalFileSystem(), column_files.data_path(uri, FILE), "states")
    with pytest.raises(DataLoss):
        column_files.read_states_buffer(uri, FILE)
