"""The crash tracker: which rows were in flight when workers died. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from leman_core.model.plan import CheckpointRef
from leman_core.model.ranges import RowRange, merge, subtract
from leman_core.model.work import FragmentResult, InFlightRows, WorkUnit

FragmentRows = tuple[int, RowRange]

#: Deaths over one row, tried by itself, that prove it to be poison; they come after the death that made it suspect.
_PROOF = 2
#: The crash limit for deaths over the same rows of which nobody knows the one to blame: the worker died before the
#: function was called, or after.
_UNEXPLAINED = 3
#: The crash limit for deaths that lost the same rows while the function had others: nothing gets stored.
_IN_VAIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The death of a worker while it had a unit."""

    unit: WorkUnit
    #: The rows that the function was called with, as far as they are not stored; empty where that is not known.
    held: tuple[FragmentRows, ...] = ()
    #: What the worker stored before, by fragment.
    stored: dict[int, tuple[CheckpointRef, ...]] = field(default_factory=dict)
    #: The worker ended itself, as a call took longer than so many seconds; 0: it did not.
    overran_seconds: float = 0.0

    @property
    def row(self) -> tuple[int, int] | None:
        """The fragment and offset of the suspect, where it can only have been one row; else None."""
        if len(self.held) == 1 and self.held[0][1].rows == 1:
            return self.held[0][0], self.held[0][1].start
        return None


@dataclass(slots=True)
class _Heard:
    """What a worker said about its unit."""

    #: -1 while the function is not being called.
    fragment_id: int = -1
    rows: tuple[RowRange, ...] = ()
    stored: dict[int, list[CheckpointRef]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    overran_seconds: float = 0.0

    @property
    def stored_refs(self) -> dict[int, tuple[CheckpointRef, ...]]:
        """The checkpoints that are stored so far, by fragment."""
        return {fragment_id: tuple(refs) for fragment_id, refs in self.stored.items()}


class _Count:
    """The count of how often rows were lost.

    It counts rows, not fragments: the rest of a fragment may well succeed in between.
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
            for rows in merge(rows for depth, rows in _depths(ranges) if depth >= times)
        ]


class CrashTracker:
    """The crashes over the units of one plan.

    Example: a worker dies while its function has rows 0 to 999 of fragment 7. These rows are suspects, and go out by
    themselves in slices of four. The next death names a slice, whose rows are then tried one by one: two deaths over
    the same row, while it is the only one tried, prove that it is to blame (`proven`). Deaths that name nothing end
    the job at a limit (`over_crash_limit`).
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
        """Note what a worker says it is doing."""
        known = self._heard.setdefault(unit_id, _Heard())
        if in_flight.stored is not None:
            known.stored.setdefault(in_flight.fragment_id, []).append(in_flight.stored)
        else:
            known.fragment_id, known.rows = in_flight.fragment_id, in_flight.rows
            known.overran_seconds = in_flight.overran_seconds

    def held_by(self, unit: WorkUnit) -> list[FragmentRows]:
        """Return the rows of a unit that the function was called with last, unless they are known to be done."""
        known = self._heard.get(unit.unit_id, _Heard())
        return [(known.fragment_id, rows) for rows in known.rows if known.fragment_id >= 0]

    def stored_by(self, unit: WorkUnit) -> dict[int, tuple[CheckpointRef, ...]]:
        """Return the checkpoints that a unit has stored so far, by fragment."""
        return self._heard.get(unit.unit_id, _Heard()).stored_refs

    @property
    def stored_now(self) -> Iterator[tuple[int, list[CheckpointRef]]]:
        """Yield what units that are out have stored so far, each with its fragment."""
        for known in self._heard.values():
            yield from known.stored.items()

    def passed(self, unit_id: str, result: FragmentResult) -> None:
        """Note that a worker is done with one fragment of its unit."""
        known = self._heard.setdefault(unit_id, _Heard())
        known.fragment_id = -1
        known.done.add(result.fragment_id)

    def ended(self, unit_id: str) -> None:
        """Note that a unit came back."""
        self._heard.pop(unit_id, None)

    def settled(self, fragment_id: int) -> None:
        """Clear a fragment of all suspicion, as its file is complete."""
        self._settled.add(fragment_id)
        for count in (self._held, self._alone, self._overran, self._unexplained, self._in_vain):
            count.forget(fragment_id)

    def lost(self, unit: WorkUnit) -> Crash:
        """Count a worker's death over a unit, and return what is known of it."""
        known = self._heard.pop(unit.unit_id, _Heard())
        unsafe = [
            (fragment_id, part)
            for fragment_id, rows in rows_in_flight(unit)
            if fragment_id not in known.done and fragment_id not in self._settled
            for part in subtract([rows], [ref.range for ref in known.stored.get(fragment_id, ())])
        ]
        here = [part for fragment_id, part in unsafe if fragment_id == known.fragment_id]
        held = [(known.fragment_id, r) for hold in known.rows for part in here if (r := hold.intersect(part))]
        self._count(known, unsafe, held)
        crash = Crash(
            unit=unit,
            held=tuple(held),
            stored=known.stored_refs,
            overran_seconds=known.overran_seconds if held else 0.0,
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
        """Return how often the one row of a crash was in flight when a worker died, or how often it overran."""
        if crash.row is None:
            return 0
        return (self._overran if crash.overran_seconds else self._held).times(*crash.row)

    def proven(self, crash: Crash) -> bool:
        """Tell whether the one row of a crash is to blame.

        A call that overran is its row's fault. A dead worker may have been killed by someone else: it takes two deaths
        while the row was the only one tried.
        """
        if crash.row is None:
            return False
        return crash.overran_seconds > 0 or self._alone.times(*crash.row) >= _PROOF

    def over_crash_limit(self) -> tuple[int, list[FragmentRows]]:
        """Return how many workers died over which rows, where that reaches the crash limit; (0, []): nowhere."""
        for count, times in ((self._unexplained, _UNEXPLAINED), (self._in_vain, _IN_VAIN)):
            places = count.at_least(times)
            if places:
                return times, places
        return 0, []


def rows_in_flight(unit: WorkUnit) -> list[FragmentRows]:
    """Return the rows of a unit; all rows of a fragment that is only to be assembled."""
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(0, w.task.physical_rows),)]


def _depths(ranges: list[RowRange]) -> Iterator[tuple[int, RowRange]]:
    """Yield how many of the ranges hold each stretch of rows."""
    steps = sorted([(r.start, 1) for r in ranges] + [(r.end, -1) for r in ranges])
    depth = begin = 0
    for at, step in steps:
        if at > begin and depth:
            yield depth, RowRange(begin, at)
        begin = at
        depth += step
