"""Rows are stored again as they were computed, or not at all: a file that changed since is no source of checkpoints."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

from leman_core.model import keys
from leman_core.model.plan import MigratedRows
from leman_core.model.row_positions import RowRange
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import InMemoryCheckpointStore
from leman_core.storage.column_files import ColumnFileWriter
from leman_executor.jobs.checkpoint_maintenance import migrate_checkpoints

ROWS = 1000
NAME = keys.column_file_name("a" * 32, "1", partial=False)
PREFIX = keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="u").prefix("", [(0, "in.lance")])
RECORD_KEY, KEY = keys.record_key(PREFIX, 0), keys.range_key(PREFIX, 0, RowRange(0, ROWS))
VALUES = pa.array(range(1_000_000, 1_000_000 + ROWS), pa.int64())


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": pa.array(range(ROWS))}), uri)
    return uri


@pytest.fixture
def store(uri: str) -> InMemoryCheckpointStore:
    """A finished file of the column, and the record that names it."""
    writer = ColumnFileWriter(uri, pa.field("c", pa.int64()), (2, 2))
    writer.open(NAME)
    writer.write(VALUES)
    staged = writer.close(None, frozenset(), NAME)
    record = FragmentRecord(
        file=staged.file,
        src_data_files=("in.lance",),
        output_field_ids=(1,),
        column_id="c" * 32,
        fingerprint="a" * 32,
        size_bytes=staged.size_bytes,
        digest=staged.digest,
        physical_rows=ROWS,
        rows_computed=ROWS,
        rows_failed=0,
        replaces="",
    )
    made = InMemoryCheckpointStore()
    made[RECORD_KEY] = record.to_batch()
    return made


def migrated(store: InMemoryCheckpointStore, uri: str, kind: pa.DataType | None = None) -> int:
    """How many checkpoints were stored of what the plan says lies in the file."""
    rows = MigratedRows(
        fragment_id=0,
        key=KEY,
        covered=RowRange(0, ROWS),
        source=RECORD_KEY,
        from_fragment=0,
        from_rows=RowRange(0, ROWS),
        at=0,
    )
    output = SimpleNamespace(name="c", field=SimpleNamespace(arrow=pa.field("c", kind or pa.int64())))
    plan = SimpleNamespace(header=SimpleNamespace(uri=uri, output=output), migrated=(rows,))
    return migrate_checkpoints(store, plan, threading.Event())


def test_rows_of_a_sound_file_are_stored_with_their_values(store, uri):
    assert migrated(store, uri) == 1
    assert store[KEY].column(0).equals(VALUES)


@pytest.mark.parametrize("bit", range(8))
def test_rows_of_a_file_whose_bytes_changed_are_not_stored(store, uri, bit):
    """Lance would read another value without a word, and the checkpoint would vouch for it."""
    path = Path(uri, "data", NAME)
    content = bytearray(path.read_bytes())
    content[100] ^= 1 << bit
    path.write_bytes(content)
    assert migrated(store, uri) == 0
    assert KEY not in store


def test_rows_of_a_file_of_another_size_are_not_stored(store, uri):
    record = FragmentRecord.from_batch(store[RECORD_KEY])
    assert record is not None
    store[RECORD_KEY] = replace(record, size_bytes=record.size_bytes + 1).to_batch()
    assert migrated(store, uri) == 0


def test_rows_of_another_type_are_not_stored(store, uri):
    assert migrated(store, uri, pa.float64()) == 0
    assert KEY not in store
