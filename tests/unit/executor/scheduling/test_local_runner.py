"""Units of SQL columns in threads of the executor: a source of units, a real table."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_core.model.work import FunctionSpec, ProgressReport, UnitOutcome, WorkContext, WorkUnit
from leman_executor.scheduling import local_runner
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.scheduling.local_runner import LocalRunner
from tests.unit.executor.executor_helpers import Lab


class Units:
    """A source of given units. `on_first`: called when the first outcome is in."""

    def __init__(self, units: list[WorkUnit]):
        self.units = units
        self.outcomes: list[UnitOutcome] = []
        self.said: list[ProgressReport | UnitOutcome] = []

    async def next_unit(self, worker: str, *, heartbeats: bool) -> WorkUnit | None:
        assert worker.startswith("thread")
        assert not heartbeats
        return self.units.pop(0) if self.units else None

    def on_report(self, report: ProgressReport) -> None:
        self.said.append(report)

    def on_outcome(self, outcome: UnitOutcome) -> None:
        self.said.append(outcome)
        self.outcomes.append(outcome)

    def on_lost(self, unit: WorkUnit) -> None:
        raise AssertionError(unit)


def sql_context(lab: Lab, expression: str, **changes: object) -> WorkContext:
    ref = FunctionSpec(
        name="sql",
        version="v1",
        kind=UdfKind.SQL,
        input_columns=("x",),
        bundle_uri="",
        bundle_sha256="",
        bundle_python="",
        entrypoint="",
        stateful=False,
        batch_size=0,
        error_policy=ErrorPolicy(),
        sql_expression=expression,
    )
    return lab.context(ref, **changes)


def units_of(lab: Lab, context: WorkContext) -> list[WorkUnit]:
    rows = [f.physical_rows for f in lab.dataset.get_fragments()]
    return [WorkUnit(f"u{i}", (lab.work(context, i, [(0, n)]),)) for i, n in enumerate(rows)]


def test_units_are_computed_and_reports_come_before_outcomes(tmp_path):
    lab = Lab(tmp_path, rows=60, per_fragment=10)
    lab.dataset.delete("x = 3")
    context = sql_context(lab, "x * 2")
    unit_source = Units(units_of(lab, context))
    asyncio.run(LocalRunner().run_workers(unit_source, context, 3))
    assert sorted(o.unit_id for o in unit_source.outcomes) == [f"u{i}" for i in range(6)]
    for outcome in unit_source.outcomes:
        lab.install(outcome)
        at = unit_source.said.index(outcome)
        assert any(isinstance(s, ProgressReport) and s.unit_id == outcome.unit_id for s in unit_source.said[:at])
    assert lab.values() == {x: 2 * x for x in range(60) if x != 3}


def test_another_encoding_of_the_type_is_cast(tmp_path):
    lab = Lab(tmp_path, rows=10, output=pa.large_string())
    context = sql_context(lab, "cast(x as string)")
    unit_source = Units(units_of(lab, context))
    asyncio.run(LocalRunner().run_workers(unit_source, context, 1))
    lab.install(unit_source.outcomes[0])
    assert lab.values() == {x: str(x) for x in range(10)}


def test_the_row_without_a_value_is_named_and_what_came_before_is_kept(tmp_path):
    lab = Lab(tmp_path, rows=200_000, per_fragment=200_000)
    context = sql_context(lab, "1000 / (x - 150000)")
    unit_source = Units(units_of(lab, context))
    asyncio.run(LocalRunner().run_workers(unit_source, context, 1))
    failure = unit_source.outcomes[0].failure
    assert failure.reason == "UDF_FAILED"
    assert (failure.row.fragment_id, failure.row.offset) == (0, 150_000)
    assert "Divide by zero" in failure.message
    assert len(lab.checkpoints.list_keys()) == 1


def test_values_that_do_not_fit_the_column_blame_their_rows(tmp_path):
    lab = Lab(tmp_path, rows=10, output=pa.int8())
    context = sql_context(lab, "x * 1000")
    unit_source = Units(units_of(lab, context))
    asyncio.run(LocalRunner().run_workers(unit_source, context, 1))
    assert unit_source.outcomes[0].failure.reason == "UDF_FAILED"
    assert "row 1 of fragment 0" in unit_source.outcomes[0].failure.message


SKIP = ErrorPolicy((ErrorRule(ErrorAction.SKIP, ("SqlError",)),))


def skipping(lab: Lab, expression: str, policy: ErrorPolicy = SKIP, **changes: object) -> UnitOutcome:
    """The outcome of one unit over the first fragment, installed."""
    context = sql_context(lab, expression, **changes)
    context = replace(context, udf=replace(context.udf, error_policy=policy))
    unit_source = Units(units_of(lab, context)[:1])
    asyncio.run(LocalRunner().run_workers(unit_source, context, 1))
    (outcome,) = unit_source.outcomes
    if outcome.failure is None:
        lab.install(outcome)
    return outcome


@pytest.mark.parametrize("deleted", ["false", "x in (0, 5, 150000)"])
def test_rows_without_a_value_are_skipped_and_all_others_computed(tmp_path, deleted):
    lab = Lab(tmp_path, rows=200_000, per_fragment=200_000)
    lab.dataset.delete(deleted)
    outcome = skipping(lab, "1000 / ((x - 5) * (x - 150000) * (x - 150001) * (x - 199999))")
    gone = {0, 5, 150_000} if "x" in deleted else set()
    bad = {5, 150_000, 150_001, 199_999} - gone
    assert outcome.results[0].rows_failed == len(bad)
    found = lab.values()
    assert set(found) == set(range(200_000)) - gone
    assert {x for x, y in found.items() if y is None} == bad


def test_a_filter_keeps_rows_from_failing(tmp_path):
    lab = Lab(tmp_path, rows=20)
    outcome = skipping(lab, "100 / ((x - 5) * (x - 6))", where="x <> 5 and x < 15")
    assert outcome.results[0].rows_failed == 1
    assert {x for x, y in lab.values().items() if y is None} == {5, 6, *range(15, 20)}


def test_the_rule_decides(tmp_path):
    lab = Lab(tmp_path, rows=20)
    others = ErrorPolicy((ErrorRule(ErrorAction.SKIP, message_pattern="no such"), ErrorRule(ErrorAction.FAIL)))
    again = ErrorPolicy((ErrorRule(ErrorAction.RETRY, max_attempts=9, initial_backoff_seconds=3600.0), *SKIP.rules))
    assert (
        "row 5 of fragment 0 (x = 5): SqlError: Divide by zero" in skipping(lab, "1 / (x - 5)", others).failure.message
    )
    assert skipping(lab, "1 / (x - 5)", again).results[0].rows_failed == 1
    lab = Lab(tmp_path / "other", rows=20)
    assert skipping(lab, "1 / (nope - 5)").failure.reason == "UDF_FAILED", "no row is to blame, none is skipped"


def test_values_that_do_not_fit_the_column_are_skipped(tmp_path):
    lab = Lab(tmp_path, rows=10, output=pa.int8())
    outcome = skipping(lab, "x * 30")
    assert outcome.results[0].rows_failed == 5
    assert list(lab.values().values()) == [0, 30, 60, 90, 120, *[None] * 5]


def test_cancelled_units_give_back_what_is_left(tmp_path):
    lab = Lab(tmp_path, rows=200_000, per_fragment=200_000)
    context = sql_context(lab, "x * 2", checkpoint_seconds=0.0)
    runner = LocalRunner()

    class Cancelling(Units):
        async def next_unit(self, worker: str, *, heartbeats: bool) -> WorkUnit | None:
            unit = await super().next_unit(worker, heartbeats=heartbeats)
            runner.cancel(context.job_id)
            return unit

    unit_source = Cancelling(units_of(lab, context) * 3)
    with pytest.raises(Cancelled):
        asyncio.run(runner.run_workers(unit_source, context, 1))
    (outcome,) = unit_source.outcomes
    assert outcome.results[0].left
    assert outcome.results[0].staged is None
    with pytest.raises(Cancelled):
        asyncio.run(runner.run_workers(unit_source, context, 1))
    runner.forget(context.job_id)
    unit_source = Units(units_of(lab, context))
    asyncio.run(runner.run_workers(unit_source, context, 1))
    assert unit_source.outcomes[0].results[0].staged is not None


def test_units_of_a_job_that_is_paused_come_back_as_far_as_they_are_and_the_rest_is_done_later(tmp_path):
    lab = Lab(tmp_path, rows=200_000, per_fragment=200_000)
    context = sql_context(lab, "x * 2", checkpoint_seconds=0.0)
    runner = LocalRunner()

    class Pausing(Units):
        async def next_unit(self, worker: str, *, heartbeats: bool) -> WorkUnit | None:
            unit = await super().next_unit(worker, heartbeats=heartbeats)
            runner.stop_units(context.job_id)
            return unit

    unit_source = Pausing(units_of(lab, context))
    asyncio.run(runner.run_workers(unit_source, context, 1))  # it ends, and is not cancelled
    (result,) = unit_source.outcomes[0].results
    stored = [ref.range for ref in result.checkpoints]
    assert sum(r.rows for r in (*stored, *result.left)) == 200_000
    work = lab.work(context, 0, [(r.start, r.end) for r in result.left], checkpoints=result.checkpoints)
    rest = Units([WorkUnit("u1", (work,))])
    asyncio.run(runner.run_workers(rest, context, 1))
    (result,) = rest.outcomes[0].results
    assert result.rows_evaluated == 200_000 - sum(r.rows for r in stored)
    lab.install(rest.outcomes[0])
    assert lab.values() == {x: 2 * x for x in range(200_000)}


def test_stop_returns_when_no_thread_is_at_it(tmp_path, monkeypatch):
    lab = Lab(tmp_path)
    context = sql_context(lab, "x * 2")
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def __init__(self, context: WorkContext): ...

        def run(self, unit: WorkUnit, sink: object, stopped: object) -> UnitOutcome:
            begun.set()
            go_on.wait(10)
            ended.set()
            return UnitOutcome(unit.unit_id, ())

    monkeypatch.setattr(local_runner, "WorkerState", Slow)

    async def scenario() -> None:
        runner = LocalRunner()
        work = asyncio.ensure_future(runner.run_workers(Units(units_of(lab, context)), context, 1))
        await asyncio.to_thread(begun.wait, 10)
        work.cancel()
        stopping = asyncio.ensure_future(runner.stop_job(context.job_id))
        await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert ended.is_set()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(scenario())
