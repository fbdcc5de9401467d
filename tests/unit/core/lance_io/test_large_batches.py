"""More text or bytes in one batch than Lance can hold: 2 GiB of a column whose offsets have 32 bits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import LanceScanner

from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io.row_reading import open_rows
from leman_core.functions import arrow_values
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import Unavailable
from leman_core.storage.scan import FragmentReader
from leman_core.storage.source_rows import PastReader, SourceRows
from leman_core.storage.view_data_files import current_values
from leman_executor.refresh import view_writer
from leman_executor.refresh.earlier_values import EarlierColumns, _compared
from leman_executor.worker.row_source import InstalledFile

NARROW, WIDE = 600, 200
ROWS = 2 * NARROW + WIDE
#: What stands for the 2 GiB in the tests without that many; values of 2 kB.
BATCH_BYTES = 100_000
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def text(x: int) -> str:
    return f"{x} " * (400 if NARROW <= x < NARROW + WIDE else 1)


@pytest.fixture
def uri(tmp_path, monkeypatch) -> str:
    """A table whose wide rows no sample finds, read by a Lance of small batches."""
    rows = pa.table({"x": range(ROWS), "text": [text(x) for x in range(ROWS)]})
    table = lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True)
    table.delete(f"x IN (3, {NARROW + 5}, {ROWS - 1})")
    read = LanceScanner.to_batches

    def to_batches(scanner: LanceScanner) -> Iterator[pa.RecordBatch]:
        for batch in read(scanner):
            if batch.num_rows > 1 and batch.nbytes > BATCH_BYTES:
                raise pa.ArrowInvalid("LanceError(Arrow): Offset overflow error: 2160000000, /home/x.rs")
            yield batch

    def refusing(read: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def table(*args: Any, **options: Any) -> pa.Table:
            found = read(*args, **options)
            if found.num_rows > 1 and found.nbytes > BATCH_BYTES:
                raise pa.ArrowInvalid("offset overflow while concatenating arrays")
            return found

        return table

    monkeypatch.setattr(LanceScanner, "to_batches", to_batches)
    monkeypatch.setattr(LanceScanner, "to_table", refusing(LanceScanner.to_table))
    monkeypatch.setattr(lance.LanceDataset, "_take_rows", refusing(lance.LanceDataset._take_rows))
    return str(tmp_path / "t.lance")


LIVE = [x for x in range(ROWS) if x not in (3, NARROW + 5, ROWS - 1)]


@pytest.mark.parametrize(
    ("where", "columns", "found"),
    [
        ("", ["x", "text"], LIVE),
        ("", {"x": "x", "text": "upper(lower(text))"}, LIVE),
        ("x % 2 = 0", ["x", "text"], [x for x in LIVE if x % 2 == 0]),
        ("length(text) > 100", ["x", "text"], [x for x in LIVE if NARROW <= x < NARROW + WIDE]),
    ],
)
def test_inputs_of_functions_are_read_fewer_at_once(uri, where, columns, found):
    reader = FragmentReader(uri, lance.dataset(uri).version)
    at, rows = 0, []
    for chunk in reader.read(0, RowRange(0, ROWS), columns, deletions=True, where=where):
        assert chunk.covered.start == at
        at = chunk.covered.end
        assert chunk.rows["x"].to_pylist() == chunk.offsets.tolist()
        rows += chunk.rows.to_pylist()
    assert at == ROWS
    assert rows == [{"x": x, "text": text(x)} for x in found]


def test_all_rows_of_a_fragment_are_read_fewer_at_once(uri):
    reader = FragmentReader(uri, 1)
    chunks = list(reader.read(0, RowRange(7, ROWS - 7), ["x", "text"], deletions=False))
    assert [offset for chunk in chunks for offset in chunk.offsets.tolist()] == list(range(7, ROWS - 7))
    assert [value for chunk in chunks for value in chunk.rows["text"].to_pylist()] == list(
        map(text, range(7, ROWS - 7))
    )


@pytest.mark.parametrize(("where", "offset"), [("", 0), ("", NARROW + 9), ("x % 2 = 1", 0)])
def test_reads_give_fewer_rows_at_once(uri, where, offset):
    found = [x for x in LIVE if not where or x % 2 == 1][offset:]
    rows = open_rows(ReadRequest(uri, columns=("x", "text"), where=where, offset=offset), NOW)
    assert [row for batch in rows.batches for row in batch.to_pylist()] == [{"x": x, "text": text(x)} for x in found]


def test_values_of_a_view_are_carried_over_fewer_at_once(uri):
    batches = current_values(uri, lance.dataset(uri).version, 0, ["x", "text"])
    found = [row for batch in batches for row in batch.to_pylist()]
    assert len(found) == ROWS
    assert [row for row in found if row["x"] in LIVE] == [{"x": x, "text": text(x)} for x in LIVE]


def test_settled_rows_of_a_file_come_in_pieces(uri):
    states = np.full(ROWS, RowState.COMPUTED, np.uint8)
    states[::7] = RowState.UNTOUCHED
    file = InstalledFile.__new__(InstalledFile)
    file._reader, file._fragment_id, file._column = FragmentReader(uri, 1), 0, pa.field("text", pa.string())
    file._states, file._settled = states, states == RowState.COMPUTED
    pieces = file.settled(RowRange(5, ROWS))
    assert len(pieces) > 1
    found = {at: v for piece in pieces for at, v in zip(piece.offsets.tolist(), piece.values.to_pylist(), strict=True)}
    assert found == {x: text(x) for x in range(5, ROWS) if x % 7}
    assert all(piece.kept and (piece.states == RowState.COMPUTED).all() for piece in pieces)


def test_rows_of_a_source_are_taken_fewer_at_once(uri):
    ids = np.array(LIVE)[::-1]
    columns = EarlierColumns(uri, lance.dataset(uri).version)
    values = columns.values("text", ids, ROWS, 1 << 30)
    assert [value for part in values for value in part.to_pylist()] == [text(x) for x in ids]


def test_inputs_are_compared_fewer_at_once(uri):
    table = lance.dataset(uri)
    table.update({"text": "'other'"}, where=f"x IN (0, {NARROW + 50}, {NARROW + 51})")
    then, now = (SourceRows(uri, version) for version in (table.version - 1, table.version))
    ids = np.array(LIVE[5:] + LIVE[:5])
    parts = _compared(then, now, ["text"], ids, Event())
    found = {x: same for at, part in parts for x, same in zip(ids[at : at + len(part)], part, strict=True)}
    assert {x for x, same in found.items() if not same} == {0, NARROW + 50, NARROW + 51}
    assert len(found) == len(ids)


@pytest.mark.parametrize("where", ["", "x % 2 = 0"])
def test_earlier_values_of_rows_that_moved_are_read_fewer_at_once(uri, where):
    then = lance.dataset(uri).version
    lance.dataset(uri).optimize.compact_files(materialize_deletions_threshold=0.0)
    table = lance.dataset(uri)
    reader, at, found = PastReader(uri, table.version, then), 0, []
    fragment_id = table.get_fragments()[0].fragment_id
    for chunk in reader.read(fragment_id, RowRange(0, len(LIVE)), ["x", "text"], deletions=True, where=where):
        assert chunk.covered.start == at
        at = chunk.covered.end
        assert [LIVE[offset] for offset in chunk.offsets.tolist()] == chunk.rows["x"].to_pylist()
        found += chunk.rows.to_pylist()
    assert at == len(LIVE)
    assert found == [{"x": x, "text": text(x)} for x in LIVE if not where or x % 2 == 0]


def test_recomputed_rows_of_a_view_are_laid_over_the_others_fewer_at_once(monkeypatch):
    """Rows that are replaced and rows that stay fit into one array each, and not into one together."""

    def concatenate(parts: list[pa.Array]) -> pa.Array:
        if sum(part.nbytes for part in parts) > BATCH_BYTES:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return arrow_values.concatenate(parts)

    monkeypatch.setattr(view_writer, "concatenate", concatenate)
    batch = pa.record_batch({"x": range(ROWS), "text": [text(x) for x in range(ROWS)]})
    places = np.array([2, 3, *range(NARROW, NARROW + WIDE, 3), ROWS - 1])
    fresh = pa.table({"x": -places, "text": [f"new {text(x)}" for x in places.tolist()]})
    parts = list(view_writer._merged(batch, places, fresh))
    assert len(parts) > 1
    assert [row for part in parts for row in part.to_pylist()] == [
        {"x": -x, "text": f"new {text(x)}"} if x in places else {"x": x, "text": text(x)} for x in range(ROWS)
    ]


def test_a_single_row_that_cannot_be_held_is_told(uri, monkeypatch):
    def to_batches(scanner: LanceScanner) -> Iterator[pa.RecordBatch]:
        raise pa.ArrowInvalid("Offset overflow error: 2160000000")
        yield

    monkeypatch.setattr(LanceScanner, "to_batches", to_batches)
    with pytest.raises(Unavailable, match="Offset overflow"):
        list(FragmentReader(uri, 1).read(0, RowRange(0, ROWS), ["text"], deletions=False))
    with pytest.raises(Unavailable, match="Offset overflow"):
        list(open_rows(ReadRequest(uri), NOW).batches)


@pytest.mark.long
def test_lance_refuses_more_than_two_gibibytes_at_once_and_gives_them_a_few_at_a_time(tmp_path):
    uri, size, rows = str(tmp_path / "t.lance"), 60_000_000, 37
    batches = (pa.record_batch({"text": [chr(97 + x % 26) * size]}) for x in range(rows))
    reader = pa.RecordBatchReader.from_batches(pa.schema([("text", pa.string())]), batches)
    table = lance.write_dataset(reader, uri, max_bytes_per_file=1 << 40)
    with pytest.raises(pa.ArrowInvalid, match="Offset overflow error"):
        list(table.to_batches())
    at = 0
    for chunk in FragmentReader(uri, 1).read(0, RowRange(0, rows), ["text"], deletions=False):
        for value in chunk.rows["text"]:
            found = value.as_buffer()
            assert (found.size, found[-1:].to_pybytes()) == (size, chr(97 + at % 26).encode())
            at += 1
    assert at == rows
