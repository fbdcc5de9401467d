"""Which rows were in hand when workers died. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.domain.ranges import RowRange, merge
from core.domain.work import WorkUnit

Place = tuple[int, RowRange]


class Losses:
    """Of one round. Counts by rows, not by fragments: the rest of a fragment may well succeed between two deaths."""

    def __init__(self) -> None:
        self._lost: dict[int, list[RowRange]] = {}
        self._settled: set[int] = set()

    def settled(self, fragment_id: int) -> None:
        """The fragment's file is complete: it was not to blame."""
        self._settled.add(fragment_id)
        self._lost.pop(fragment_id, None)

    def note(self, unit: WorkUnit) -> None:
        """A worker died over a unit."""
        for fragment_id, rows in in_hand(unit):
            if fragment_id not in self._settled:
                self._lost.setdefault(fragment_id, []).append(rows)

    def at_least(self, times: int) -> list[Place]:
        """Rows that so many workers, or more, died over."""
        return [
            (fragment_id, rows)
            for fragment_id, ranges in sorted(self._lost.items())
            for rows in merge(rows for depth, rows in _depths(ranges) if depth >= times)
        ]


def in_hand(unit: WorkUnit) -> list[Place]:
    """The rows of a unit: all of a fragment that is only to be assembled."""
    return [(w.fragment_id, rows) for w in unit.works for rows in w.ranges or (RowRange(0, w.physical_rows),)]


def _depths(ranges: list[RowRange]) -> Iterator[tuple[int, RowRange]]:
    """How many of the ranges hold each stretch of rows."""
    steps = sorted([(r.start, 1) for r in ranges] + [(r.end, -1) for r in ranges])
    depth = begin = 0
    for at, step in steps:
        if at > begin and depth:
            yield depth, RowRange(begin, at)
        begin = at
        depth += step
