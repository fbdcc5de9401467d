"""What counts against a unit's time, and what does not: late answers of storage, and setting a function up."""

from __future__ import annotations

import faulthandler

import pyarrow as pa
import pytest

from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowRange
from leman_core.model.work import Timings
from leman_executor.worker.call_guards import Call, Watchdog
from leman_executor.worker.unit_runtime import UnitMetrics
from tests.unit.executor.executor_helpers import Lab


class Clock:
    """Time goes on when something takes it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


class Model:
    """Takes half a minute to load, and a tenth of a second for each row."""

    def __init__(self) -> None:
        CLOCK.now += 30.0

    def __call__(self, x: int) -> int:
        CLOCK.now += 0.1
        return x + 1


class SlowStore:
    """Checkpoints behind storage that takes a second to answer; counts what is read."""

    def __init__(self, store) -> None:
        self._store = store
        self.read: list[str] = []

    def __getitem__(self, key: str) -> pa.RecordBatch:
        CLOCK.now += 1.0
        self.read.append(key)
        return self._store[key]

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None:
        CLOCK.now += 1.0
        self._store[key] = value

    def list_keys(self, prefix: str | None = None) -> list[str]:
        return self._store.list_keys(prefix)


@pytest.fixture
def lab(tmp_path) -> Lab:
    CLOCK.now = 0.0
    return Lab(tmp_path, rows=40, per_fragment=40)


def model_of(lab: Lab):
    return lab.udf(Model, stateful=True, batch_size=1, version=f"v{lab.folder.name}")


def test_setting_a_function_up_is_no_part_of_a_units_time(lab):
    context = lab.context(model_of(lab))
    outcome = lab.run(context, lab.work(context, 0, [(0, 40)]), budget_seconds=5.0, clock=CLOCK)
    (result,) = outcome.results
    assert result.staged is not None, "four seconds of calls, after thirty of loading"
    assert outcome.timings.load > 0


def test_the_time_of_calls_ends_a_unit(lab):
    context = lab.context(model_of(lab))
    outcome = lab.run(context, lab.work(context, 0, [(0, 40)]), budget_seconds=1.0, clock=CLOCK)
    (result,) = outcome.results
    assert result.staged is None
    assert 10 <= result.rows_evaluated <= 12
    assert result.left == (RowRange(result.rows_evaluated, 40),)


def test_who_finishes_a_fragment_reads_what_is_stored_once(lab):
    """Storage takes eight seconds to give the checkpoints, and the unit has one."""
    context = lab.context(model_of(lab))
    refs: list[CheckpointRef] = []
    for start in range(0, 32, 4):
        part = lab.run(context, lab.work(context, 0, [(start, start + 4)], finish=False), clock=CLOCK)
        refs += part.results[0].checkpoints
    assert len(refs) == 8
    lab.checkpoints = SlowStore(lab.checkpoints)
    work = lab.work(context, 0, [(32, 40)], checkpoints=tuple(refs))
    outcome = lab.run(context, work, unit="u9", budget_seconds=1.0, clock=CLOCK)
    (result,) = outcome.results
    assert result.staged is not None
    assert sorted(lab.checkpoints.read) == sorted(ref.key for ref in refs)
    lab.install(outcome)
    assert lab.values() == {x: x + 1 for x in range(40)}


def test_many_small_checkpoints_are_kept_while_a_fragment_is_worked_on(lab):
    """Checkpoints of other filters reach over the whole of it, and each chunk of rows asks for them."""
    context = lab.context(lab.udf(abs))
    refs = []
    for start in range(0, 40, 5):
        part = lab.run(context, lab.work(context, 0, [(start, start + 5)], finish=False), clock=CLOCK)
        refs += part.results[0].checkpoints
    lab.checkpoints = SlowStore(lab.checkpoints)
    others = tuple(CheckpointRef(ref.key, RowRange(0, 40), settles=False) for ref in refs)
    work = lab.work(context, 0, [(0, 20), (20, 40)], checkpoints=others)
    outcome = lab.run(context, work, clock=CLOCK)
    assert outcome.results[0].staged is not None
    assert len(lab.checkpoints.read) == len(set(lab.checkpoints.read)) == 8


def test_a_unit_that_calls_nothing_ends_after_a_fragment(tmp_path):
    """Where a filter leaves out every row there is no first call."""
    lab = Lab(tmp_path, rows=40, per_fragment=20)
    CLOCK.now = 0.0
    context = lab.context(lab.udf(abs), where="x < 0")
    lab.checkpoints = SlowStore(lab.checkpoints)
    works = [lab.work(context, i, [(0, 20)]) for i in range(2)]
    ticks = iter(range(1000))
    outcome = lab.run(context, *works, budget_seconds=0.5, clock=lambda: float(next(ticks)))
    first, second = outcome.results
    assert first.staged is not None
    assert second.left == (RowRange(0, 20),)


def test_time_in_which_storage_does_not_answer_is_told_from_time_for_bytes():
    class Nobody:
        def send(self, report) -> None: ...
        def in_flight(self, in_flight) -> None: ...

    meter = UnitMetrics("u1", Nobody())
    meter.waited(0.5, 10_000_000)
    assert meter.timings.fixed == pytest.approx(0.4)
    meter.waited(0.05, 1 << 30)
    assert meter.timings.fixed == pytest.approx(0.4), "a gigabyte takes longer than that"
    assert Timings(udf=1.0, read=0.3, write=0.3, load=30.0, fixed=0.4).by_rows == pytest.approx(1.2)


def test_no_call_is_watched_while_the_function_is_set_up(monkeypatch):
    """A model that holds the interpreter while it loads would be ended for a call that has not begun."""
    armed = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *a, **k: armed.append(a))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", armed.clear)
    with Watchdog(10.0) as watchdog:
        assert armed == []
        with watchdog.watching(Call(0, pa.array([1]).to_numpy())):
            assert armed
    assert armed == []
