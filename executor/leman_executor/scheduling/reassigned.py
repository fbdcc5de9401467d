"""Units whose work is given to another worker, as their own is silent, or cannot do it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leman_core.model.plan import CheckpointRef
from leman_core.model.ranges import RowRange, subtract
from leman_core.model.work import FragmentResult, Timings, UnitOutcome, WorkUnit
from leman_executor.scheduling.crash_tracker import FragmentRows


class ReassignedUnits:
    """The reassigned units of one plan: their workers are silent, and replaced."""

    def __init__(self) -> None:
        self._units: set[str] = set()
        self._workers: set[str] = set()
        self._rows: dict[int, list[RowRange]] = {}

    def add(self, unit: WorkUnit, worker: str) -> None:
        """Add a unit: from now on only its complete files count, and its worker gets no other unit."""
        for fragment_id, rows in _places(unit):
            self._rows.setdefault(fragment_id, []).append(rows)
        self._units.add(unit.unit_id)
        self._workers.add(worker)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._units

    def has_worker(self, worker: str) -> bool:
        """Tell whether another worker has replaced this one."""
        return worker in self._workers

    def had_rows_of(self, unit: WorkUnit) -> bool:
        """Tell whether this unit, or some of its rows earlier, were reassigned.

        Then it may be the function that keeps its worker silent.
        """
        return any(rows.intersect(r) for f, r in _places(unit) for rows in self._rows.get(f, ()))


def given_back(outcome: UnitOutcome, unit: WorkUnit, stored: Mapping[int, Sequence[CheckpointRef]]) -> UnitOutcome:
    """Return the outcome of a unit that failed as one that did not, and gives back what it has not `stored`."""
    done = {result.fragment_id for result in outcome.results}
    left = []
    for work in unit.works:
        if work.fragment_id not in done:
            refs = tuple(stored.get(work.fragment_id, ()))
            ranges = tuple(subtract(work.ranges, [ref.range for ref in refs]))
            left.append(FragmentResult(work.fragment_id, checkpoints=refs, left=ranges))
    # its time went into waiting, which is no cost of a row
    return replace(outcome, results=(*outcome.results, *left), failure=None, timings=Timings())


def _places(unit: WorkUnit) -> list[FragmentRows]:
    """Return the rows that a unit is to compute; for a fragment that is only to be assembled, a place of its own."""
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(-1, 0),)]
