"""Rows are stored again as they were computed, or not at all: a file that changed since is no source of checkpoints."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.model import keys
from leman_core.model.plan import MigratedRows
from leman_core.model.row_positions import RowRange
from leman_core.storage.checkpoint_records import FragmentRecord, from_checkpoint
from leman_core.storage.column_files import ColumnFileReader, ColumnFileWriter
from leman_executor.jobs.checkpoint_maintenance import migrate_checkpoints
from tests.memory_checkpoints import InMemoryCheckpointStore

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


#: All rows of the file, for the fragment that it was written for.
WHOLE = MigratedRows(
    fragment_id=0,
    key=KEY,
    covered=RowRange(0, ROWS),
    source=RECORD_KEY,
    from_fragment=0,
    from_rows=RowRange(0, ROWS),
    at=0,
)


def migrated(
    store: InMemoryCheckpointStore, uri: str, kind: pa.DataType | None = None, rows: MigratedRows = WHOLE
) -> int:
    """How many checkpoints were stored of what the plan says lies in the file."""
    output = SimpleNamespace(name="c", field=SimpleNamespace(arrow=pa.field("c", kind or pa.int64())))
    plan = SimpleNamespace(header=SimpleNamespace(uri=uri, output=output), migrated=(rows,))
    return migrate_checkpoints(store, plan, threading.Event())


def test_rows_of_a_sound_file_are_stored_with_their_values(store, uri):
    assert migrated(store, uri) == 1
    assert store[KEY].column(0).equals(VALUES)


@pytest.fixture
def moved(uri: str) -> tuple[MigratedRows, dict[int, int]]:
    """Rows 100 to 899 of a compacted fragment, of which the next one has no more than 500, and their values by offset.

    In the new fragment lie 30 rows of another one before them; the new inputs of two rows are other ones.
    """
    lance.dataset(uri).delete("x >= 300 AND x < 350 OR x % 10 = 7")
    live = [x for x in range(100, 900) if not (300 <= x < 350 or x % 10 == 7)]
    covered = RowRange(40, 540)
    left_out = np.zeros(covered.rows, np.bool_)
    left_out[[0, 77]] = True
    rows = MigratedRows(
        fragment_id=3,
        key=keys.range_key(PREFIX, 3, covered),
        covered=covered,
        source=RECORD_KEY,
        from_fragment=0,
        from_rows=RowRange(100, 900),
        at=30,
        before=2,
        left_out=np.packbits(left_out).tobytes(),
    )
    places = {30 + at: VALUES[x].as_py() for at, x in enumerate(live) if 40 <= 30 + at < 540}
    return rows, {at: value for at, value in places.items() if at not in (40, 117)}


def stored_rows(store: InMemoryCheckpointStore) -> tuple[list[RowRange], dict[int, int]]:
    """The ranges that checkpoints cover, in order, and the values by offset; none is there twice."""
    found = sorted((key.range, name) for name in store.list_keys("") if (key := keys.parse_range_key(name)) is not None)
    pieces = [from_checkpoint(store[name]) for _, name in found]
    pairs = [p for piece in pieces for p in zip(piece.offsets.tolist(), piece.values.to_pylist(), strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return [covered for covered, _ in found], dict(pairs)


def test_rows_that_compaction_moved_have_their_values_at_their_new_offsets(store, uri, moved):
    rows, values = moved
    assert migrated(store, uri, rows=rows) == 1
    assert stored_rows(store) == ([rows.covered], values)


def test_rows_whose_values_no_array_can_hold_are_stored_in_several_checkpoints(store, uri, moved, monkeypatch):
    rows, values = moved
    read = ColumnFileReader.values

    def few(reader: ColumnFileReader, covered: RowRange) -> pa.Array:
        if covered.rows > 20:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return read(reader, covered)

    monkeypatch.setattr(ColumnFileReader, "values", few)
    assert migrated(store, uri, rows=rows) > 20
    covered, found = stored_rows(store)
    assert found == values
    assert (covered[0].start, covered[-1].end) == rows.covered
    assert all(one.end == other.start for one, other in itertools.pairwise(covered))


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
