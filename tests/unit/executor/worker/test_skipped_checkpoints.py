"""Wide rows that are cheap to compute are not stored on their way to the column file, and nothing is lost by that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import CheckpointBounds, UdfKind
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
from leman_core.model.work import WorkUnit
from leman_core.storage import checkpoint_records
from leman_core.storage.checkpoint_records import Piece
from leman_executor.worker import row_checkpoints
from leman_executor.worker.row_checkpoints import Checkpoints
from leman_executor.worker.unit_runner import UnitRunner
from leman_executor.worker.unit_runtime import SliceSizer, UnitRuntime
from tests.memory_checkpoints import InMemoryCheckpointStore
from tests.unit.executor.executor_helpers import Lab

MEGABYTE = 1 << 20
ROWS = 100
ROW_BYTES = 100_000
#: What `wide` was called with, and what it does about it.
calls: list[int] = []
on_call: list[Callable[[int], None]] = []


def wide(x: pa.Array) -> pa.Array:
    """Found by its name when it is unpickled, as this module can be imported: so it is this one."""
    for v in x.to_pylist():
        for react in on_call:
            react(v)
        calls.append(v)
    return pa.array([bytes([v % 256]) * ROW_BYTES for v in x.to_pylist()], pa.large_binary())


@pytest.fixture
def lab(tmp_path, monkeypatch) -> Lab:
    """10 MB of results, of which 1 MB is held; however slow the machine is, they are cheap."""
    monkeypatch.setattr(row_checkpoints, "_WIDE_BYTES_A_SECOND", 0)
    calls.clear()
    on_call.clear()
    return Lab(tmp_path, rows=ROWS, per_fragment=ROWS, output=pa.large_binary())


def context_of(lab: Lab, **changes: object):
    udf = lab.udf(wide, UdfKind.ARRAY, batch_size=5)
    return lab.context(udf, **{"checkpoint_max_bytes": MEGABYTE, "checkpoint_seconds": 1e9, **changes})


def stored(lab: Lab) -> list[str]:
    return [key for key in lab.checkpoints.list_keys() if "_range-" in key]


def assert_complete(lab: Lab, outcome) -> None:
    lab.install(outcome)
    assert lab.values() == {x: bytes([x]) * ROW_BYTES for x in range(ROWS)}


def test_wide_rows_go_to_the_column_file_alone(lab):
    context = context_of(lab)
    outcome = lab.run(context, lab.work(context, 0, [(0, ROWS)]))
    assert not stored(lab)
    assert lab.reports[-1].rows_safe == ROWS
    assert_complete(lab, outcome)


def test_a_part_of_a_fragment_has_no_column_file_and_is_stored(lab):
    context = context_of(lab)
    outcome = lab.run(context, lab.work(context, 0, [(0, ROWS)], finish=False))
    assert len(stored(lab)) > 5
    assert subtract_ranges([RowRange(0, ROWS)], [c.range for c in outcome.results[0].checkpoints]) == []


@pytest.mark.parametrize(
    "bounds",
    [
        CheckpointBounds(checkpoint_size=15),
        CheckpointBounds(max_checkpoint_size=15),
        CheckpointBounds(min_checkpoint_size=15, max_checkpoint_size=15),
    ],
)
def test_whoever_gives_a_size_gets_checkpoints(lab, bounds):
    context = context_of(lab, checkpoint=bounds, checkpoint_max_bytes=2 * MEGABYTE)
    outcome = lab.run(context, lab.work(context, 0, [(0, ROWS)]))
    ranges = [c.range for c in outcome.results[0].checkpoints]
    assert [r.rows for r in ranges] == [15] * (ROWS // 15)
    assert_complete(lab, outcome)


def test_a_pass_that_skipped_checkpoints_is_not_cut_short(lab):
    clock = count()
    context = context_of(lab)
    outcome = lab.run(context, lab.work(context, 0, [(0, ROWS)]), budget_seconds=8.0, clock=lambda: next(clock))
    assert next(clock) > 8 + ROWS / 5 / 2, "time was up long before the end"
    assert outcome.results[0].left == ()
    assert calls == list(range(ROWS))
    assert_complete(lab, outcome)


def stopped_at(lab: Lab, context, row: int):
    """The outcome of a unit that is asked to stop when the function has had a row."""
    return UnitRunner(
        context,
        WorkUnit("u1", (lab.work(context, 0, [(0, ROWS)]),), 0.0),
        store=lab.checkpoints,
        reservations=lab.reservations,
        sink=lab,
        errors=lab,
        stopped=lambda: row in calls,
    ).run()


def test_a_unit_that_is_stopped_gives_back_what_it_had_not_checkpointed(lab):
    context = context_of(lab)
    (result,) = stopped_at(lab, context, 52).results
    assert result.staged is None
    refs = [c.range for c in result.checkpoints]
    assert refs, "what was held is stored"
    assert refs[0].start > 0, "what was skipped is not"
    assert subtract_ranges([RowRange(0, ROWS)], [*refs, *result.left]) == []
    assert count_offsets(refs) + count_offsets(result.left) == ROWS
    calls.clear()
    finish = lab.run(context, lab.work(context, 0, list(result.left), checkpoints=result.checkpoints), unit="u2")
    assert len(calls) == count_offsets(result.left)
    assert_complete(lab, finish)


def test_a_function_that_fails_loses_what_was_not_checkpointed_and_nothing_else(lab):
    def fail(v: int) -> None:
        if v == 52:
            raise ValueError("no")

    on_call.append(fail)
    context = context_of(lab)
    outcome = lab.run(context, lab.work(context, 0, [(0, ROWS)]))
    assert outcome.failure is not None
    assert outcome.failure.reason == "UDF_FAILED"
    done = set(calls) - {50, 51}
    on_call.clear()
    calls.clear()
    again = lab.run(context, lab.work(context, 0, [(0, ROWS)]), look_first=True, unit="u2")
    assert done & set(calls), "rows that had been skipped"
    assert done - set(calls), "rows that had been stored"
    assert_complete(lab, again)


def test_a_damaged_checkpoint_is_made_good_after_checkpoints_were_skipped(lab):
    context = context_of(lab)
    first = lab.run(context, lab.work(context, 0, [(80, ROWS)], finish=False)).results[0]
    del lab.checkpoints[first.checkpoints[-1].key]
    calls.clear()
    outcome = lab.run(context, lab.work(context, 0, [(0, 80)], checkpoints=first.checkpoints), unit="u2")
    assert set(calls) >= set(range(80))
    assert_complete(lab, outcome)


# how much may be skipped


@dataclass
class FakeMeter:
    """Work is what the test says."""

    worked: float = 0.0
    stored_to: list[int] = field(default_factory=list)
    has_doubtful_rows: bool = False

    def checkpointing(self) -> contextlib.AbstractContextManager[Callable[[], float]]:
        return contextlib.nullcontext(lambda: 0.0)

    def waited(self, _seconds: float, _size: int) -> None:
        pass

    def stored(self, _fragment_id: int, ref, _size: int) -> None:
        self.stored_to.append(ref.range.end)

    def safe(self, rows: int, failed: int) -> None:
        pass


@dataclass
class FakeTools:
    meter: FakeMeter
    store: InMemoryCheckpointStore = field(default_factory=InMemoryCheckpointStore)
    seconds: float = 10.0

    def interval(self) -> float:
        return self.seconds


@pytest.mark.parametrize("seconds_a_row", [0.01, 0.3, 0.7, 2.6, 4.0])
def test_work_at_risk_is_never_more_than_an_interval(lab, seconds_a_row):
    context = context_of(lab)
    runtime = FakeTools(FakeMeter())
    checkpoints = Checkpoints(
        context, lab.work(context, 0, [(0, 1000)]), cast(UnitRuntime, runtime), pa.field("y", pa.large_binary())
    )
    checkpoints.begin(0, written=True)
    values = pa.array([bytes(MEGABYTE)], pa.large_binary())
    for row in range(200):
        runtime.meter.worked += seconds_a_row
        checkpoints.add(Piece(np.array([row]), values), row + 1)
        safe = sum(ref.range.rows for ref in checkpoints.refs)
        assert (row + 1 - safe) * seconds_a_row <= runtime.seconds
    ranges = [ref.range for ref in checkpoints.refs]
    skip_checkpoint = list(takewhile(lambda r: all(r not in range(*c) for c in ranges), range(200)))
    assert checkpoints.has_skipped == bool(skip_checkpoint)
    assert len(skip_checkpoint) * seconds_a_row <= runtime.seconds / 2
    assert (len(skip_checkpoint) + 1) * seconds_a_row > min(runtime.seconds / 2, 199 * seconds_a_row)


def test_dear_rows_are_stored_by_time_and_not_skipped(lab, monkeypatch):
    monkeypatch.setattr(row_checkpoints, "_WIDE_BYTES_A_SECOND", 10 * MEGABYTE)
    context = context_of(lab, checkpoint_max_bytes=100 * MEGABYTE)
    runtime = FakeTools(FakeMeter(), seconds=3.0)
    checkpoints = Checkpoints(
        context, lab.work(context, 0, [(0, 1000)]), cast(UnitRuntime, runtime), pa.field("y", pa.large_binary())
    )
    checkpoints.begin(0, written=True)
    values = pa.array([bytes(4 * MEGABYTE)], pa.large_binary())
    for row in range(18):
        runtime.meter.worked += 0.5
        checkpoints.add(Piece(np.array([row]), values), row + 1)
    assert not checkpoints.has_skipped
    assert runtime.meter.stored_to == [6, 12, 18]


def test_rows_that_no_checkpoint_can_hold_are_stored_in_several(lab, monkeypatch):
    """An array of text or bytes has 2 GiB at most, and a column's kept values may have more."""

    def to_checkpoint(fragment_id: int, column: str, pieces: Sequence[Piece], kind: pa.DataType) -> pa.RecordBatch:
        if sum(len(piece.offsets) for piece in pieces) > 4:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return checkpoint_records.to_checkpoint(fragment_id, column, pieces, kind)

    monkeypatch.setattr(row_checkpoints, "to_checkpoint", to_checkpoint)
    runtime = FakeTools(FakeMeter())
    field = pa.field("y", pa.binary())
    context = context_of(lab, checkpoint_max_bytes=100 * MEGABYTE)
    checkpoints = Checkpoints(context, lab.work(context, 0, [(0, 1000)]), cast(UnitRuntime, runtime), field)
    checkpoints.begin(0, written=False)
    for start in (0, 3, 6):
        values = pa.array([bytes([row]) for row in range(start, start + 3)], pa.binary())
        checkpoints.add(Piece(np.arange(start, start + 3), values), start + 3)
    checkpoints.flush()
    assert [ref.range.start for ref in checkpoints.refs] == [0, *(ref.range.end for ref in checkpoints.refs[:-1])]
    found = [checkpoint_records.from_checkpoint(runtime.store[ref.key]) for ref in checkpoints.refs]
    assert [v for piece in found for v in piece.values.to_pylist()] == [bytes([row]) for row in range(9)]
    assert [at for piece in found for at in piece.offsets.tolist()] == list(range(9))


# slices


def test_slices_stay_small_where_results_are_wide():
    sizer = SliceSizer(scalar=False, most=1 << 16)
    for _ in range(20):
        sizer.note(sizer.rows, 1e-6, sizer.rows * 4096)
    assert sizer.rows * 4096 == 16 * MEGABYTE
    sizer.note(sizer.rows, 1e-6, 64 * MEGABYTE)
    assert sizer.rows == 1024
    narrow = SliceSizer(scalar=False, most=1 << 16)
    for _ in range(20):
        narrow.note(narrow.rows, 1e-6, narrow.rows * 8)
    assert narrow.rows == 1 << 16


def test_a_slice_has_at_least_a_row_and_a_fixed_size_is_kept():
    for sizer, expected in ((SliceSizer(scalar=True, most=100), 1), (SliceSizer(scalar=False, most=100, fixed=7), 7)):
        for _ in range(5):
            sizer.note(sizer.rows, 1e-6, sizer.rows * 100 * MEGABYTE)
        assert sizer.rows == expected
