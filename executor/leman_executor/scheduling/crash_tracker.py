"""Find the rows that crash workers or servers, and reassign the units of dead and silent workers. Pure.

This module tracks the rows that were in flight when workers died. By the function's error policy, it decides what
happens to a row that causes crashes. It also tracks the units of silent workers, and detects remote servers whose
connections break for every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leman._format.stored_functions import ErrorAction, UdfDefinition
from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowAddress, RowRange, merge_ranges, subtract_ranges
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.model.work import (
    FragmentResult,
    InFlightRows,
    ProgressReport,
    RowError,
    ServerAnswers,
    Timings,
    UnitOutcome,
    WorkUnit,
)

FragmentRows = tuple[int, RowRange]

#: A row is suspect once a worker died with this row and other rows in flight. This is the number of further deaths,
#: with the row alone, that prove it to be the cause.
_PROOF = 2
#: The crash limit for deaths with the same rows in flight and an unknown cause, which may lie outside the function.
_UNEXPLAINED = 3
#: The crash limit for deaths that repeatedly lost the same rows while the function had other rows. In such a loop,
#: nothing is stored.
_IN_VAIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The death of a worker while it had a unit."""

    unit: WorkUnit
    #: The rows that the function was called with and whose results are not stored. Empty if unknown.
    held: tuple[FragmentRows, ...] = ()
    #: The checkpoints that the worker stored before it died, by fragment.
    stored: dict[int, tuple[CheckpointRef, ...]] = field(default_factory=dict)
    #: If the worker ended itself because a call exceeded the time limit, the limit in seconds; else 0.
    overran_seconds: float = 0.0
    #: Whether the worker died while it loaded the function.
    loading: bool = False

    @property
    def row(self) -> tuple[int, int] | None:
        """Return the fragment and offset of the suspect if it is a single row, else None."""
        if len(self.held) == 1 and self.held[0][1].rows == 1:
            return self.held[0][0], self.held[0][1].start
        return None


@dataclass(slots=True)
class _Heard:
    """The last report of a worker about its unit."""

    #: The fragment of the rows in flight; -1 while the function is not being called.
    fragment_id: int = -1
    rows: tuple[RowRange, ...] = ()
    stored: dict[int, list[CheckpointRef]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    overran_seconds: float = 0.0
    loading: bool = False

    @property
    def stored_refs(self) -> dict[int, tuple[CheckpointRef, ...]]:
        """The checkpoints stored so far, by fragment."""
        return {fragment_id: tuple(refs) for fragment_id, refs in self.stored.items()}


class _Count:
    """Count how often each row was lost.

    Rows are counted instead of fragments, because other rows of a fragment may succeed between two losses.
    """

    def __init__(self) -> None:
        self._lost: dict[int, list[RowRange]] = {}

    def add(self, places: Iterable[FragmentRows]) -> None:
        for fragment_id, rows in places:
            self._lost.setdefault(fragment_id, []).append(rows)

    def forget(self, fragment_id: int) -> None:
        self._lost.pop(fragment_id, None)

    def times(self, fragment_id: int, offset: int) -> int:
        return sum(1 for r in self._lost.get(fragment_id, []) if r.start <= offset < r.end)

    def at_least(self, times: int) -> list[FragmentRows]:
        return [
            (fragment_id, rows)
            for fragment_id, ranges in sorted(self._lost.items())
            for rows in merge_ranges(rows for depth, rows in _depths(ranges) if depth >= times)
        ]


class CrashTracker:
    """The crashes during the units of one plan.

    Example: a worker dies while its function has rows 0 to 999 of fragment 7. These rows become suspects. They are
    tried apart from other rows, in slices of four. The next death identifies a slice, whose rows are then tried one by
    one. If a worker dies twice while it tries the same row alone, that row is the cause (`proven`). Deaths that cannot
    be attributed to a row end the job at a limit (`over_crash_limit`).
    """

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}
        self._held = _Count()
        self._alone = _Count()
        self._overran = _Count()
        self._unexplained = _Count()
        self._in_vain = _Count()
        self._settled: set[int] = set()

    def heard(self, unit_id: str, in_flight: InFlightRows) -> None:
        """Record a worker's report on its rows."""
        known = self._heard.setdefault(unit_id, _Heard())
        if in_flight.stored is not None:
            known.stored.setdefault(in_flight.fragment_id, []).append(in_flight.stored)
        else:
            known.fragment_id, known.rows = in_flight.fragment_id, in_flight.rows
            known.overran_seconds, known.loading = in_flight.overran_seconds, in_flight.loading

    def held_by(self, unit: WorkUnit) -> list[FragmentRows]:
        """Return the rows of the last function call of a unit. Leave out rows that are known to be finished."""
        known = self._heard.get(unit.unit_id, _Heard())
        return [(known.fragment_id, rows) for rows in known.rows if known.fragment_id >= 0]

    def stored_by(self, unit: WorkUnit) -> dict[int, tuple[CheckpointRef, ...]]:
        """Return the checkpoints that a unit has stored so far, by fragment."""
        return self._heard.get(unit.unit_id, _Heard()).stored_refs

    @property
    def stored_now(self) -> Iterator[tuple[int, list[CheckpointRef]]]:
        """Yield the checkpoints stored so far by units in flight, each with its fragment."""
        for known in self._heard.values():
            yield from known.stored.items()

    def passed(self, unit_id: str, result: FragmentResult) -> None:
        """Record that a worker has finished one fragment of its unit."""
        known = self._heard.setdefault(unit_id, _Heard())
        known.fragment_id = -1
        known.done.add(result.fragment_id)

    def ended(self, unit_id: str) -> None:
        """Record that a unit was returned."""
        self._heard.pop(unit_id, None)

    def settled(self, fragment_id: int) -> None:
        """Remove all suspicion from a fragment whose file is complete."""
        self._settled.add(fragment_id)
        for count in (self._held, self._alone, self._overran, self._unexplained, self._in_vain):
            count.forget(fragment_id)

    def lost(self, unit: WorkUnit) -> Crash:
        """Count the death of the worker that had a unit. Return the crash."""
        known = self._heard.pop(unit.unit_id, _Heard())
        unsafe = [
            (fragment_id, part)
            for fragment_id, rows in rows_in_flight(unit)
            if fragment_id not in known.done and fragment_id not in self._settled
            for part in subtract_ranges([rows], [ref.range for ref in known.stored.get(fragment_id, ())])
        ]
        here = [part for fragment_id, part in unsafe if fragment_id == known.fragment_id]
        held = [(known.fragment_id, r) for hold in known.rows for part in here if (r := hold.intersect(part))]
        self._count(known, unsafe, held)
        crash = Crash(
            unit=unit,
            held=tuple(held),
            stored=known.stored_refs,
            overran_seconds=known.overran_seconds if held else 0.0,
            loading=known.loading,
        )
        if unit.slice_rows and crash.row is not None and not crash.overran_seconds:
            self._alone.add(held)
        return crash

    def _count(self, known: _Heard, unsafe: list[FragmentRows], held: list[FragmentRows]) -> None:
        if not held:
            self._unexplained.add(unsafe)
            return
        (self._overran if known.overran_seconds else self._held).add(held)
        reached = max(rows.end for _, rows in held)
        tried = RowRange(0, reached)
        self._in_vain.add((f, r) for f, rows in unsafe if f == known.fragment_id and (r := rows.intersect(tried)))

    def times(self, crash: Crash) -> int:
        """Return how often the single row of a crash killed a worker or exceeded the time limit."""
        if crash.row is None:
            return 0
        return (self._overran if crash.overran_seconds else self._held).times(*crash.row)

    def proven(self, crash: Crash) -> bool:
        """Return whether the single row of a crash is its cause.

        One call that exceeds the time limit is proof. A death may have another cause, so it takes two deaths while the
        row is tried alone.
        """
        if crash.row is None:
            return False
        return crash.overran_seconds > 0 or self._alone.times(*crash.row) >= _PROOF

    def over_crash_limit(self) -> tuple[int, list[FragmentRows]]:
        """Return the number of deaths if it has reached the crash limit, and the rows in flight; else (0, [])."""
        for count, times in ((self._unexplained, _UNEXPLAINED), (self._in_vain, _IN_VAIN)):
            places = count.at_least(times)
            if places:
                return times, places
        return 0, []


def rows_in_flight(unit: WorkUnit) -> list[FragmentRows]:
    """Return the rows of a unit that are to be computed.

    If a fragment only has to be assembled, return all its rows.
    """
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(0, w.task.physical_rows),)]


def _depths(ranges: list[RowRange]) -> Iterator[tuple[int, RowRange]]:
    """Yield consecutive ranges, each with the number of input ranges that contain it."""
    steps = sorted([(r.start, 1) for r in ranges] + [(r.end, -1) for r in ranges])
    depth = begin = 0
    for at, step in steps:
        if at > begin and depth:
            yield depth, RowRange(begin, at)
        begin = at
        depth += step


#: The names by which error rules match the death of a worker, and a call that took too long.
WORKER_LOST_NAMES = frozenset({"WorkerLost", "Exception", "BaseException"})
TIMEOUT_NAMES = frozenset({"UdfTimeout", "TimeoutError", "Exception", "BaseException"})
_MAY = "the function may use too much memory, end its process, or crash in native code"


@dataclass(frozen=True, slots=True)
class PoisonDecision:
    """The decision after a crash. At most one of `error`, `quarantined` and `pause` is set."""

    error: FailedPrecondition | None = None
    """The error that fails the job."""
    quarantined: RowError | None = None
    """The row that is recorded as failed and not retried."""
    pause: float = 0.0
    """Seconds until the row is retried."""
    row: RowError | None = None
    """The row to blame for `error`, if any."""


def decide_after_crash(crash: Crash, crashes: CrashTracker, udf: UdfDefinition) -> PoisonDecision:
    """Decide what to do after a crash: blame a proven row, fail at the crash limit, or continue."""
    if crashes.proven(crash):
        return _blame(crash, crashes.times(crash), udf)
    deaths, places = crashes.over_crash_limit()
    if not places:
        return PoisonDecision()
    if crash.loading:
        return PoisonDecision(FailedPrecondition("UDF_NOT_LOADABLE", _dies_loading(udf, deaths)))
    message = f"A worker process died {deaths} times while it computed {describe_rows(places)}: {_MAY}. {_KEPT}"
    return PoisonDecision(FailedPrecondition("WORKER_LOST", message))


_KEPT = "Finished work is kept."


def _dies_loading(udf: UdfDefinition, deaths: int) -> str:
    return (
        f"UDF '{udf.name}' could not be set up on a worker: the worker process ended while it loaded the function, "
        f"{deaths} times. Its modules or its __init__ may use too much memory, end the process, or crash in native "
        f"code: remove the cause, and register it again. {_KEPT}"
    )


def _blame(crash: Crash, times: int, udf: UdfDefinition) -> PoisonDecision:
    fragment_id, offset = crash.row or (-1, -1)
    if crash.overran_seconds:
        kind, names, reason = "UdfTimeout", TIMEOUT_NAMES, "UDF_TIMEOUT"
        message = f"a call took longer than the timeout of {crash.overran_seconds:g} s"
        sentence = f"UDF '{udf.name}' failed on {describe_rows(crash.held)}: {message}. {_KEPT}"
    else:
        kind, names, reason = "WorkerLost", WORKER_LOST_NAMES, "WORKER_LOST"
        message = f"the worker process died {times} times over this row: {_MAY}"
        sentence = f"A worker process died {times} times while it computed {describe_rows(crash.held)}: {_MAY}. {_KEPT}"
    row = RowError(
        row_address=RowAddress(fragment_id, offset).to_int(),
        error_type=kind,
        error_message=message,
        traceback="",
        attempt=times,
    )
    rule = udf.error_policy.rule_for(names, message, times)
    if rule is None or rule.action is ErrorAction.FAIL:
        return PoisonDecision(FailedPrecondition(reason, sentence), row=row)
    if rule.action is ErrorAction.SKIP:
        return PoisonDecision(quarantined=row)
    return PoisonDecision(pause=rule.pause(times))


def describe_rows(places: list[FragmentRows] | tuple[FragmentRows, ...]) -> str:
    """Format ranges for display, at most three of them."""
    texts = [f"{_rows(r)} of fragment {fragment_id}" for fragment_id, r in places]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more ranges" if len(texts) > 3 else "")


def _rows(rows: RowRange) -> str:
    return f"row {rows.start}" if rows.rows == 1 else f"rows {rows.start} to {rows.end - 1}"


class ReassignedUnits:
    """The units of one plan whose workers were silent and were replaced."""

    def __init__(self) -> None:
        self._units: set[str] = set()
        self._workers: set[str] = set()
        self._rows: dict[int, list[RowRange]] = {}

    def add(self, unit: WorkUnit, worker: str) -> None:
        """Add a unit. From now on, its worker gets no other unit, and only the worker's complete files are used."""
        for fragment_id, rows in _places(unit):
            self._rows.setdefault(fragment_id, []).append(rows)
        self._units.add(unit.unit_id)
        self._workers.add(worker)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._units

    def has_worker(self, worker: str) -> bool:
        """Return whether this worker was replaced."""
        return worker in self._workers

    def had_rows_of(self, unit: WorkUnit) -> bool:
        """Return whether this unit was reassigned, or an earlier unit that had some of its rows.

        If so, the function itself may be the reason why workers are silent.
        """
        return any(rows.intersect(r) for f, r in _places(unit) for rows in self._rows.get(f, ()))


def give_back_outcome(
    outcome: UnitOutcome, unit: WorkUnit, stored: Mapping[int, Sequence[CheckpointRef]]
) -> UnitOutcome:
    """Turn a failed outcome into one that returns the rows that are not in `stored` to the queue."""
    done = {result.fragment_id for result in outcome.results}
    left = []
    for work in unit.works:
        if work.fragment_id not in done:
            refs = tuple(stored.get(work.fragment_id, ()))
            ranges = tuple(subtract_ranges(work.ranges, [ref.range for ref in refs]))
            left.append(FragmentResult(work.fragment_id, checkpoints=refs, left=ranges))
    # Waiting is not a cost of rows, so report no timings.
    return replace(outcome, results=(*outcome.results, *left), failure=None, timings=Timings())


def _places(unit: WorkUnit) -> list[FragmentRows]:
    """Return the rows that a unit is to compute. A fragment that only has to be assembled is listed without ranges."""
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(-1, 0),)]


#: Number of consecutive rows, each tried alone, that are recorded as failed before the job ends. An answered batch
#: restarts the count.
MOST_LOST = 32
#: Number of consecutive connections that break, while a server has only one batch, before the job ends. The job runs
#: for at least `patience_seconds` without an answer.
MOST_BROKEN = 32
_NOTHING = ServerAnswers()
_NEXT = (
    "See in the servers' own logs why they end or close connections. Once that is fixed, run the job again, which "
    "computes these rows. In a fragment that was finished before the job ended, they count as failed (`row_states`): "
    "retry them. Finished work is kept"
)


class ServerBreaks:
    """The connections to servers that broke since any worker of one plan last got an answer.

    A row that crashes servers is isolated by halving, and recorded as failed if the error policy skips it. If every row
    of a table crashed servers, the job would take weeks and leave only failed rows. It therefore ends after a number of
    such rows in succession. If each restart of a server takes seconds, even 32 rows take many minutes. Therefore broken
    connections are counted as well.

    Args:
        function: The function's name and version.
        patience_seconds: Minimum time without an answer after which broken connections end the job.
        clock: Returns seconds, as `time.monotonic` does.
    """

    def __init__(
        self, function: str, patience_seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._function = function
        self._patience = patience_seconds
        self._clock = clock
        self._heard: dict[str, ServerAnswers] = {}
        #: The time of the last answer, for each of the two units that were answered most recently. Two are kept so that
        #: `answer_others` finds one that is not the calling unit.
        self._answered: dict[str, float] = {}
        self._lost = 0
        self._broken = 0
        self._since = 0.0

    def heard(self, report: ProgressReport) -> Unavailable | None:
        """Add the counts that a unit reports. If the job must end, return the error (FUNCTION_UNAVAILABLE)."""
        before, now = self._heard.get(report.unit_id, _NOTHING), report.servers
        if now.answered <= before.answered and now.lost <= before.lost and now.broken <= before.broken:
            return None  # a duplicate, or an older report that arrived late
        self._heard[report.unit_id] = now
        if now.answered > before.answered:
            self._lost = self._broken = 0
            self._note_answered(report.unit_id)
        if not self._broken:
            self._since = self._clock()
        self._lost += max(0, now.lost - before.lost)
        self._broken += max(0, now.broken - before.broken)
        what = self._too_much()
        if not what:
            return None
        return Unavailable(
            "FUNCTION_UNAVAILABLE",
            f"Servers of function {self._function} answer nothing: {what}, and no batch was answered in between. The "
            f"last error: {now.message}. {_NEXT}",
        )

    def _note_answered(self, unit_id: str) -> None:
        self._answered.pop(unit_id, None)
        self._answered[unit_id] = self._clock()
        if len(self._answered) > 2:
            del self._answered[next(iter(self._answered))]

    def _too_much(self) -> str:
        """Return the evidence that the servers are the cause and not a row. Return "" if there is none yet."""
        if self._lost >= MOST_LOST:
            return f"{self._lost} rows in succession, each tried by itself, broke the connections to them"
        seconds = self._clock() - self._since
        if self._broken >= MOST_BROKEN and seconds >= self._patience:
            return (
                f"for {seconds:.0f} s connections to them broke, {self._broken} times in succession, over batches that "
                "were tried by themselves"
            )
        return ""

    def answer_others(self, unit_id: str) -> bool:
        """Return whether servers answered other units while this unit waited for a server."""
        since = self._clock() - self._patience
        return any(at > since and other != unit_id for other, at in self._answered.items())

    def ended(self, unit_id: str) -> None:
        """Remove a unit that was returned or lost."""
        self._heard.pop(unit_id, None)
