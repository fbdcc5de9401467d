"""Units whose worker is silent: their work was given to another worker, which replaces it. Pure."""

from __future__ import annotations

from core.domain.ranges import RowRange
from core.domain.work import WorkUnit
from executor.scheduling.crash_tracker import Place


class ReassignedUnits:
    """Those of one plan."""

    def __init__(self) -> None:
        self._units: set[str] = set()
        self._workers: set[str] = set()
        self._rows: dict[int, list[RowRange]] = {}

    def add(self, unit: WorkUnit, worker: str) -> None:
        """From now on only the unit's complete files count, and the worker gets no other unit."""
        for fragment_id, rows in _places(unit):
            self._rows.setdefault(fragment_id, []).append(rows)
        self._units.add(unit.unit_id)
        self._workers.add(worker)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._units

    def has_worker(self, worker: str) -> bool:
        """Whether another worker has replaced this one."""
        return worker in self._workers

    def had_rows_of(self, unit: WorkUnit) -> bool:
        """This unit, or some of its rows earlier: then it may be the function that keeps its worker from speaking."""
        return any(rows.intersect(r) for f, r in _places(unit) for rows in self._rows.get(f, ()))


def _places(unit: WorkUnit) -> list[Place]:
    """The rows that a unit is to compute; of a fragment that is only to be assembled, a place of its own."""
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(-1, 0),)]
