"""What a worker holds at once is bounded by rows and bytes, whatever the size of the fragment."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfKind
from leman_core.model.row_positions import RowRange
from leman_core.storage.checkpoint_records import Piece
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.scan import CHUNK_ROWS
from leman_executor.worker.fragment_writer import FragmentWriter
from tests.unit.executor.executor_helpers import Lab

MEGABYTE = 1 << 20
ROW_BYTES = 100_000
#: Bytes of Arrow's memory that were in use when `wide` was called.
held: list[int] = []


def wide(x: pa.Array) -> pa.Array:
    """Found by its name when it is unpickled, as this module can be imported: so it is this one."""
    held.append(pa.total_allocated_bytes())
    return pa.array([bytes([v % 256]) * ROW_BYTES for v in x.to_pylist()], pa.large_binary())


def same(x: pa.Array) -> pa.Array:
    return x


@pytest.mark.parametrize("finish", [True, False])
def test_wide_results_are_not_checkpointed_on_the_way(tmp_path, finish):
    """The results of a fragment are many times what may be held; its inputs are one small chunk."""
    rows, most = 600, 2 * MEGABYTE
    lab = Lab(tmp_path, rows=rows, per_fragment=rows, output=pa.large_binary())
    context = lab.context(lab.udf(wide, UdfKind.ARRAY, batch_size=5), checkpoint_max_bytes=most)
    held.clear()
    before = pa.total_allocated_bytes()
    outcome = lab.run(context, lab.work(context, 0, [(0, rows)], finish=finish))
    assert outcome.failure is None
    assert outcome.results[0].rows_evaluated == rows
    assert len(held) == rows / 5
    assert max(held) - before < 5 * most < rows * ROW_BYTES / 5
    if finish:
        lab.install(outcome)
        found = lab.values()
        assert all(found[x] == bytes([x % 256]) * ROW_BYTES for x in (0, 1, 299, rows - 1))


def test_batches_that_are_written_are_bounded(tmp_path, monkeypatch):
    rows = 3 * CHUNK_ROWS + 1000
    lab = Lab(tmp_path, rows=rows, per_fragment=rows)
    written: list[int] = []
    write = ColumnFileWriter.write

    def counted(self: ColumnFileWriter, values: pa.Array) -> None:
        written.append(len(values))
        write(self, values)

    monkeypatch.setattr(ColumnFileWriter, "write", counted)
    context = lab.context(lab.udf(same, UdfKind.ARRAY))
    outcome = lab.run(context, lab.work(context, 0, [(0, rows)]))
    assert outcome.results[0].staged is not None
    assert sum(written) == rows
    assert max(written) <= CHUNK_ROWS


def test_assembling_a_fragment_reads_its_checkpoints_one_after_the_other(tmp_path, monkeypatch):
    """Rows that several units computed, many times what may be held: the unit that writes the file holds a few."""
    rows, most = 600, 2 * MEGABYTE
    lab = Lab(tmp_path, rows=rows, per_fragment=rows, output=pa.large_binary())
    context = lab.context(lab.udf(wide, UdfKind.ARRAY, batch_size=5), checkpoint_max_bytes=most)
    first = lab.run(context, lab.work(context, 0, [(0, rows - 5)], finish=False)).results[0]
    assert len(first.checkpoints) > 20
    emit, emitted = FragmentWriter.emit, []

    def counted(self: FragmentWriter, covered: RowRange, pieces: Sequence[Piece]) -> None:
        emitted.append(sum(piece.values.nbytes for piece in pieces))
        emit(self, covered, pieces)

    monkeypatch.setattr(FragmentWriter, "emit", counted)
    outcome = lab.run(context, lab.work(context, 0, [(rows - 5, rows)], checkpoints=first.checkpoints), unit="u2")
    assert max(emitted) < 5 * most < sum(emitted) / 5
    lab.install(outcome)
    assert lab.values()[300] == bytes([300 % 256]) * ROW_BYTES
