"""The spans of the units of one plan: from the moment a worker is given one until it is done with it, or dies."""

from __future__ import annotations

from dataclasses import replace

from leman_core.model.work import UnitOutcome, WorkUnit
from leman_core.telemetry import tracing
from leman_core.telemetry.tracing import Attributes, Span


class UnitSpans:
    """The spans of units that workers have; None: their job is not traced, and nothing is done."""

    def __init__(self, job: Span | None) -> None:
        self._job = job if job is not None and job.traceparent else None
        self._open: dict[str, Span] = {}

    def begin(self, unit: WorkUnit, worker: str) -> WorkUnit:
        """Take in that a worker is given a unit; return it as the worker gets it, which then tells what it did."""
        if self._job is None:
            return unit
        attributes: Attributes = {
            "leman.unit.id": unit.unit_id,
            "leman.worker": worker,
            "leman.fragments": len(unit.works),
        }
        span = tracing.started("unit", self._job, attributes)
        if span is None:
            return unit
        self._open[unit.unit_id] = span
        return replace(unit, traceparent=span.traceparent)

    def end(self, outcome: UnitOutcome) -> None:
        """Take in what a worker did."""
        span = self._open.pop(outcome.unit_id, None)
        if span is None:
            return
        for done in outcome.spans:
            about = {"leman.seconds": done.seconds, "leman.times": done.times}
            tracing.recorded(done.name, span, done.begin, done.end, about)
        span.note({"leman.rows": sum(result.rows_evaluated for result in outcome.results)})
        span.end(outcome.failure.reason if outcome.failure is not None else "")

    def lost(self, unit_id: str) -> None:
        """Take in that a unit's worker died, or is silent."""
        span = self._open.pop(unit_id, None)
        if span is not None:
            span.end("WorkerLost")
