"""What is held in memory at once is bounded by bytes, whatever the fragment's size."""

import numpy as np
import pyarrow as pa
import pytest

from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowRange
from leman_core.storage.checkpoint_records import Piece, to_checkpoint
from leman_executor.worker import fragment_writer, row_checkpoints
from leman_executor.worker.fragment_writer import Unwritten
from leman_executor.worker.row_checkpoints import KnownRows
from tests.memory_checkpoints import InMemoryCheckpointStore

ROW_BYTES = 1000


def rows(start: int, end: int) -> Piece:
    return Piece(np.arange(start, end), pa.array([bytes([i % 256]) * ROW_BYTES for i in range(start, end)]))


def nothing_left(_covered: RowRange, _pieces: object) -> list[Piece]:
    return []


class Recorder:
    def __init__(self) -> None:
        self.emitted: list[tuple[RowRange, list[int]]] = []

    def emit(self, covered, parts) -> None:
        self.emitted.append((covered, sorted(int(o) for p in parts for o in p.offsets)))


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(fragment_writer, "_EMIT_BYTES", 4 * ROW_BYTES)
    monkeypatch.setattr(row_checkpoints, "_STEP_BYTES", 4 * ROW_BYTES)
    monkeypatch.setattr(row_checkpoints, "_FIRST_ROWS", 2)


def test_evaluated_rows_are_written_before_the_chunk_is_through(small_steps):
    writer = Recorder()
    unwritten = Unwritten(writer, 0, [rows(5, 7), rows(15, 16)], 1 << 30, nothing_left)
    for start, end, covered_to in ((0, 5, 7), (7, 8, 8), (8, 15, 16), (16, 18, 18)):
        unwritten.add(rows(start, end), covered_to)
    assert [covered for covered, _ in writer.emitted] == [(0, 7), (7, 16)]
    unwritten.write(20)
    assert [covered for covered, _ in writer.emitted] == [(0, 7), (7, 16), (16, 20)]
    assert [o for _, offsets in writer.emitted for o in offsets] == list(range(18))


def test_a_smaller_limit_holds_too():
    writer = Recorder()
    unwritten = Unwritten(writer, 0, [], 2 * ROW_BYTES, nothing_left)
    unwritten.add(rows(0, 3), 3)
    assert writer.emitted == [((0, 3), [0, 1, 2])]


def test_without_a_writer_nothing_is_kept():
    unwritten = Unwritten(None, 0, [], 1 << 30, nothing_left)
    unwritten.add(rows(0, 5), 5)
    unwritten.write(5)
    assert not unwritten._pieces


def test_stored_rows_are_copied_a_checkpoint_at_a_time(small_steps):
    store = InMemoryCheckpointStore()
    refs = [CheckpointRef("a", RowRange(3, 9)), CheckpointRef("b", RowRange(8, 12))]
    for ref in refs:
        store[ref.key] = to_checkpoint(0, "y", [rows(*ref.range)], pa.binary())
    known = KnownRows(store, [*refs, CheckpointRef("other", RowRange(0, 20), settles=False)], None)
    assert list(known.steps(RowRange(0, 20))) == [
        (0, 2), (2, 3), (3, 9), (9, 12), *((n, n + 2) for n in range(12, 20, 2)),
    ]  # fmt: skip
    assert list(known.steps(RowRange(4, 6))) == [(4, 6)]


def test_rows_of_the_current_file_are_copied_by_their_width(small_steps):
    known = KnownRows(InMemoryCheckpointStore(), [], lambda covered: [rows(*covered)])
    steps = []
    for step in known.steps(RowRange(0, 12)):
        steps.append(step)
        known.settled(step)
    assert steps[0] == (0, 2)
    assert {s.rows for s in steps[1:-1]} <= {3, 4}
    assert steps[-1].end == 12
    assert [s.start for s in steps[1:]] == [s.end for s in steps[:-1]]
