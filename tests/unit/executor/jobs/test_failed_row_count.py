"""Counts of failed rows while a job runs: each row once, never fewer than before, at the end those of the files."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from leman._format.stored_functions import CheckpointBounds, ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman_core.model.job import Progress
from leman_core.model.plan import OutputField, Plan, PlanHeader
from leman_core.model.table import TableField
from leman_core.model.work import FragmentResult, ProgressReport, UnitOutcome
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.refresh.refresh_journal import RefreshMetrics
from leman_executor.worker import unit_runtime as meter_module
from tests.unit.executor.executor_helpers import Lab

UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), (pa.int64(),), entrypoint="m:f")
OUTPUT = OutputField(TableField(pa.field("y", pa.int64()), (1,)), "c")


def planned(rows: int = 100, failed_before: int = 0, metrics: JobMetrics | None = None) -> JobMetrics:
    metrics = metrics or JobMetrics()
    header = PlanHeader(
        uri="/t", read_version=1, incarnation="", output=OUTPUT, input_columns=("x",), udf=UDF, bundle_uri="", where=""
    )
    header = replace(header, rows_total=100, rows_to_compute=rows, rows_failed_before=failed_before)
    metrics.planned(Plan(header, ()), 0.0)
    return metrics


def outcome(unit: str, **failed: int) -> UnitOutcome:
    return UnitOutcome(unit, tuple(FragmentResult(int(f[1:]), rows_failed=n) for f, n in failed.items()))


class Live:
    """Metrics that get what a real unit reports, and whose counts are checked each time."""

    def __init__(self, lab: Lab) -> None:
        self.metrics = planned()
        self.seen = [0]
        lab.send = self.send  # type: ignore[method-assign]

    def send(self, report: ProgressReport) -> None:
        self.metrics.report(report)
        if report.result is not None and report.result.staged is not None:
            self.scratch(report.result)
        self.look()

    def scratch(self, result: FragmentResult) -> None:
        assert result.staged is not None
        self.metrics.staged(result.fragment_id, 20, result.staged.rows_failed, result.failed_before or 0)

    def look(self) -> None:
        self.seen.append(self.metrics.progress().rows_failed)


@pytest.mark.parametrize("at_most", [3, 100])
@pytest.mark.parametrize("dies_after", [None, 2, 9])
def test_a_failed_row_counts_once_and_never_less_while_a_job_runs(tmp_path, monkeypatch, at_most, dies_after):
    """Each row is reported; the worker may die in between, and another one continues with what is stored."""
    monkeypatch.setattr(meter_module, "_REPORT_SECONDS", 0)

    def odd(x: int) -> int:
        if x % 4 == 1:
            raise ValueError(x)
        return x

    lab = Lab(tmp_path)
    live = Live(lab)
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    context = lab.context(lab.udf(odd, error_policy=skip), checkpoint=CheckpointBounds(1, at_most))
    works = [lab.work(context, i, [(0, 20)]) for i in (0, 1)]
    if dies_after is not None:
        dead = lab.send
        told: list[ProgressReport] = []

        def send(report: ProgressReport) -> None:
            if len(told) < dies_after:
                dead(report)
            told.append(report)

        lab.send = send  # type: ignore[method-assign]
        lab.run(context, *works)
        live.metrics.lost("u1")
        live.look()
        lab.send = live.send  # type: ignore[method-assign]
    done = lab.run(context, *works, unit="u2", look_first=True)
    live.metrics.outcome(done)
    live.look()
    for result in done.results:
        live.scratch(result)
    live.look()
    assert live.seen == sorted(live.seen)
    assert live.seen[-1] == 10
    assert live.metrics.rows_failed_before == 0


def test_computed_rows_are_those_that_got_a_value(tmp_path):
    def odd(x: int) -> int:
        if x % 4 == 1:
            raise ValueError(x)
        return x

    lab = Lab(tmp_path)
    live = Live(lab)
    context = lab.context(lab.udf(odd, error_policy=ErrorPolicy((ErrorRule(ErrorAction.SKIP),))))
    live.metrics.outcome(lab.run(context, lab.work(context, 0, [(0, 20)])))
    progress = live.metrics.progress()
    assert (progress.rows_evaluated, progress.rows_computed, progress.rows_failed) == (20, 15, 5)


def test_rows_of_a_unit_that_another_worker_stands_in_for_count_once():
    metrics = planned()
    metrics.report(ProgressReport(unit_id="slow", rows_evaluated=4, rows_safe=4, rows_failed=2, fragment_id=0))
    metrics.lost("slow")
    assert metrics.rows_failed == 2
    metrics.report(
        ProgressReport(unit_id="slow", rows_evaluated=6, rows_safe=6, rows_failed=3, fragment_id=0)
    )  # comes late
    metrics.outcome(outcome("quick", f0=1))
    metrics.outcome(outcome("slow", f0=3))  # came back after all
    assert metrics.rows_failed == 3


def test_rows_that_had_failed_before_are_not_those_of_the_job():
    metrics = planned(failed_before=7)
    metrics.outcome(outcome("u", f0=2))
    metrics.staged(0, 20, 6, failed_before=4)
    assert (metrics.rows_failed, metrics.rows_failed_before, metrics.budget_failed) == (2, 7, 2)


def test_a_job_that_is_taken_over_goes_on_counting():
    """Its first plan found 3 failed rows; 5 more failed and were committed before its executor died."""
    metrics = JobMetrics()
    metrics.go_on(Progress(rows_total=100, rows_planned=97, rows_failed_before=3))
    planned(rows=40, failed_before=8, metrics=metrics)
    assert (metrics.rows_failed, metrics.rows_failed_before) == (5, 3)
    metrics.outcome(outcome("u", f0=2))
    assert (metrics.budget_failed, metrics.budget_rows) == (7, 97)
    now = metrics.progress()
    assert (now.rows_planned, now.rows_checkpointed) == (97, 57)


def test_a_refresh_that_is_taken_over_goes_on_counting():
    """The scratch table holds 8 failed rows, of which 2 were there when the refresh began."""
    metrics = RefreshMetrics()
    metrics.inherit({"first/c": 4, "scratch table/c": 2})
    part = planned(rows=40, failed_before=8)
    part.own_failures(2)
    metrics.expect(100, 1)
    metrics.begin(part, "scratch table/c")
    part.outcome(outcome("u", f0=1))
    assert (metrics.progress().rows_failed, part.budget_failed, part.budget_rows) == (13, 7, 100)


def test_what_failed_in_a_scratch_that_was_given_up_is_not_counted():
    metrics = RefreshMetrics()
    for scratch, rows in (("one", 3), ("one", 3), ("two", 1)):
        metrics.expect(100, 1)
        part = planned(failed_before=rows)
        part.own_failures(0)
        metrics.begin(part, f"{scratch}/c")
        assert metrics.rows_failed == rows
    metrics.rows_committed = 100
    metrics.expect(10, 1)
    part = planned()
    metrics.begin(part, "three/c")
    part.outcome(outcome("u", f0=5))
    assert metrics.rows_failed == 6


def test_failures_that_an_unfinished_job_left_stored_were_recorded_elsewhere():
    metrics = planned()
    metrics.outcome(outcome("u1", f0=2))
    metrics.staged(0, 20, 2)
    assert not metrics.failed_elsewhere
    metrics.outcome(outcome("u2", f1=1))
    metrics.staged(1, 20, 4)
    assert (metrics.failed_elsewhere, metrics.rows_failed, metrics.rows_failed_before) == (True, 6, 0)
