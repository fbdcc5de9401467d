"""What is measured of plans, and what their traces tell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal, TypeAlias

from leman_core.telemetry import measures, tracing

#: table: reading the table, its functions and its filter. files: what names of files and the history of compactions
#: say. stored: row states, checkpoints and records; of a view its earlier values. decide: what is left to do. inputs:
#: whether inputs are current, and which rows elsewhere are of use. send: making the messages of the plan.
Phase: TypeAlias = Literal["table", "files", "stored", "decide", "inputs", "send"]


@contextlib.contextmanager
def phase(kind: Literal["backfill", "refresh"], name: Phase) -> Iterator[None]:
    """Measure a phase of a plan, and record it where the plan's call is traced."""
    begun = time.perf_counter()
    try:
        with tracing.span(name):
            yield
    finally:
        told = {measures.JOB_KIND: kind, measures.PHASE: name}
        measures.PLAN_DURATION.record(time.perf_counter() - begun, told)
