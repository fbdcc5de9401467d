"""What is measured of commits, and what their traces tell."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from leman_coordinator.requests import CommitRequest, CommitResult, Status
from leman_core.model.errors import INTERNAL_BUG, LemanError
from leman_core.telemetry import measures, tracing


@contextlib.contextmanager
def measured(request: CommitRequest) -> Iterator[Callable[[CommitResult], CommitResult]]:
    """Measure how long a request takes, and what becomes of its fragments: give the result to the block's value."""
    begun, reason = time.perf_counter(), INTERNAL_BUG
    try:
        yield _fragments
        reason = ""
    except LemanError as error:
        reason = error.reason
        raise
    except asyncio.CancelledError:
        reason = "CANCELLED"
        raise
    finally:
        told = {measures.OPERATION: type(request).__name__.removesuffix("Request")}
        told |= {measures.ERROR_TYPE: reason} if reason else {}
        measures.COMMIT_DURATION.record(time.perf_counter() - begun, told)


@contextlib.contextmanager
def spans_of_turn(taken_at: Callable[[], int]) -> Iterator[None]:
    """Record, where this task is traced, how long a request waits for its turn, and how long that takes.

    Args:
        taken_at: Returns when the turn came, in nanoseconds since the epoch; 0: it did not come.
    """
    begun = time.time_ns()
    try:
        yield
    finally:
        asked, now = tracing.current(), time.time_ns()
        taken = taken_at() or now
        tracing.recorded("queue", asked, begun, taken, {})
        tracing.recorded("install", asked, taken, now, {})


def _fragments(result: CommitResult) -> CommitResult:
    for outcome in result.outcomes:
        told = {measures.OUTCOME: outcome.status.value}
        told |= {measures.ERROR_TYPE: outcome.reason} if outcome.status is Status.REJECTED else {}
        measures.COMMIT_FRAGMENTS.add(1, told)
    return result
