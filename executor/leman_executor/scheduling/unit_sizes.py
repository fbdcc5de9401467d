"""The sizes of units, from what earlier ones took. Pure: no I/O, no clock.

A part of a fragment costs its rows, and something that is the same however few these are: storage has to answer
before the first is read and after the last is stored. The two are kept apart. If the wait counted as a cost of rows,
these would seem dear, units would be cut smaller and wait just as long, and rows would seem dearer still. And no unit
is made for less than four times what it costs to begin one.

Example: a row takes 1 ms, beginning a part 0.5 s, and 2 workers have 8,000 rows in 4 fragments left. That is
8 + 4 · 0.5 = 10 s, and half a worker's share 10 / (2 · 2) = 2.5 s, which is more than 4 · 0.5 s: the unit gets what
2,500 rows cost, 500 of which are the wait. With 800 rows left that would be 0.7 s, and 2 s are taken instead.
"""

from __future__ import annotations

from leman_core.model.work import Timings, UnitOutcome

_LEAST_SECONDS = 0.2
_MOST_SECONDS = 30.0
_OVERRUN = 3.0
#: The least of a unit, in terms of what one costs before its first row and after its last.
_LEAST_FIXED = 4.0
_UNKNOWN = Timings()


class UnitSizes:
    """The sizes of one plan's units, for so many workers; `seconds_per_row`: on one worker; None: not known yet."""

    def __init__(self, workers: int, seconds_per_row: float | None) -> None:
        self.workers = workers
        self.seconds_per_row = seconds_per_row
        self._times = Timings()
        self._rows = 0
        self._parts = 0

    def note(self, outcome: UnitOutcome) -> None:
        """Learn from what a unit took; of one that is given back that is not known."""
        if outcome.timings == _UNKNOWN:
            return
        self._times += outcome.timings
        self._rows += sum(r.rows_evaluated for r in outcome.results)
        self._parts += sum(bool(r.rows_evaluated or r.staged is not None) for r in outcome.results)
        if self._rows:
            self.seconds_per_row = self._times.by_rows / self._rows

    @property
    def fixed_seconds(self) -> float:
        """The seconds that a fragment, or a part of one, costs beside its rows."""
        return self._times.fixed / self._parts if self._parts else 0.0

    @property
    def fixed_rows(self) -> int:
        """`fixed_seconds` as a number of rows that cost as much."""
        return int(self.fixed_seconds / self.seconds_per_row) if self.seconds_per_row else 0

    @property
    def mostly_storing(self) -> bool:
        """Tell whether storing rows takes longer than reading and computing them.

        The time in which storage did not answer is left out. Where it is so, it does not pay to have several units
        store parts of a fragment.
        """
        return self._times.storing - self._times.fixed > self._times.udf + self._times.read

    def seconds(self, rows: int, parts: int) -> float:
        """Return the seconds that so many rows in so many fragments cost one worker."""
        return (self.seconds_per_row or 0.0) * rows + self.fixed_seconds * parts

    def target(self, rows_left: int, fragments_left: int) -> float:
        """Return the seconds for the next unit: half a worker's share of what is left, within bounds."""
        guided = self.seconds(rows_left, fragments_left) / (2 * self.workers)
        return min(max(guided, _LEAST_SECONDS, _LEAST_FIXED * self.fixed_seconds), _MOST_SECONDS)

    def rows(self, rows_left: int, fragments_left: int, diversity: int) -> int:
        """Return the rows for the next unit, those that its fragments cost beside their rows included."""
        if not self.seconds_per_row:
            return max(1, rows_left // (self.workers * (diversity or 1)))
        return max(1, int(self.target(rows_left, fragments_left) / self.seconds_per_row))

    def budget(self, rows: int, parts: int, rows_left: int, fragments_left: int) -> float:
        """Return the seconds after which a unit comes back, done or not.

        Call it only where the cost of a row is known.
        """
        return _OVERRUN * max(self.seconds(rows, parts), self.target(rows_left, fragments_left))
