"""The decision on a poison row, which ends its workers: the function's error policy says what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from leman_core.model.errors import FailedPrecondition
from leman_core.model.ranges import RowRange
from leman_core.model.udf import ErrorAction, UdfDefinition
from leman_core.model.work import RowFailure
from leman_executor.scheduling.crash_tracker import Crash, CrashTracker, FragmentRows

#: What error rules may call a death, and a call that took too long.
WORKER_LOST_NAMES = frozenset({"WorkerLost", "Exception", "BaseException"})
TIMEOUT_NAMES = frozenset({"UdfTimeout", "TimeoutError", "Exception", "BaseException"})
_MAY = "the function may use too much memory, end its process, or crash in native code"


@dataclass(frozen=True, slots=True)
class PoisonDecision:
    """What is to be done after a crash: at most one of `error`, `quarantined` and `pause` is set."""

    error: FailedPrecondition | None = None
    """The job fails with it."""
    quarantined: RowFailure | None = None
    """The row is recorded as failed, and not tried again."""
    pause: float = 0.0
    """Seconds after which the row is tried again."""
    row: RowFailure | None = None
    """The row to blame for `error`, if one is."""


def decide(crash: Crash, crashes: CrashTracker, udf: UdfDefinition) -> PoisonDecision:
    """Decide after a crash: blame a row where one is proven, give up where the crash limit is reached, else go on."""
    if crashes.proven(crash):
        return _blame(crash, crashes.times(crash), udf)
    deaths, places = crashes.over_crash_limit()
    if not places:
        return PoisonDecision()
    message = f"A worker process died {deaths} times while it computed {describe(places)}: {_MAY}. {_KEPT}"
    return PoisonDecision(FailedPrecondition("WORKER_LOST", message))


_KEPT = "Finished work is kept."


def _blame(crash: Crash, times: int, udf: UdfDefinition) -> PoisonDecision:
    fragment_id, offset = crash.row or (-1, -1)
    if crash.overran_seconds:
        kind, names, reason = "UdfTimeout", TIMEOUT_NAMES, "UDF_TIMEOUT"
        message = f"a call took longer than the timeout of {crash.overran_seconds:g} s"
        sentence = f"UDF '{udf.name}' failed on {describe(crash.held)}: {message}. {_KEPT}"
    else:
        kind, names, reason = "WorkerLost", WORKER_LOST_NAMES, "WORKER_LOST"
        message = f"the worker process died {times} times over this row: {_MAY}"
        sentence = f"A worker process died {times} times while it computed {describe(crash.held)}: {_MAY}. {_KEPT}"
    row = RowFailure(
        fragment_id=fragment_id, offset=offset, error_type=kind, message=message, traceback="", attempt=times
    )
    rule = udf.error_policy.rule_for(names, message, times)
    if rule is None or rule.action is ErrorAction.FAIL:
        return PoisonDecision(FailedPrecondition(reason, sentence), row=row)
    if rule.action is ErrorAction.SKIP:
        return PoisonDecision(quarantined=row)
    return PoisonDecision(pause=rule.pause(times))


def describe(places: list[FragmentRows] | tuple[FragmentRows, ...]) -> str:
    """Return ranges in words for a person; at most three of them are named."""
    texts = [f"{_rows(r)} of fragment {fragment_id}" for fragment_id, r in places]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more ranges" if len(texts) > 3 else "")


def _rows(rows: RowRange) -> str:
    return f"row {rows.start}" if rows.rows == 1 else f"rows {rows.start} to {rows.end - 1}"
