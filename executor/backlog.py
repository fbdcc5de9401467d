"""What of a plan is still to be handed out, and in which pieces. Pure: no I/O, no clock.

Cheap work goes out once, as few coarse units, one for each lane, with a time budget. What a unit cannot finish within
its budget comes back, and by then the cost of a row is known: the rest goes out in pieces that shrink towards the end,
so that all lanes end together (guided self-scheduling). A fragment that several units computed is assembled from its
checkpoints by one more unit when its last range is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.domain.plan import CheckpointRef, FragmentTask
from core.domain.ranges import RowRange, merge, total
from core.domain.work import FragmentResult, FragmentWork, UnitOutcome, WorkUnit

_FIRST_BUDGET_SECONDS = 1.0
_LEAST_SECONDS = 0.5
_MOST_SECONDS = 30.0
_OVERRUN = 3.0
_MOST_FRAGMENTS = 512  # in one unit: its description has to travel


@dataclass(slots=True)
class _Fragment:
    task: FragmentTask
    missing: list[RowRange]
    checkpoints: list[CheckpointRef]
    out: int = 0
    over: bool = False
    lost: bool = False
    busy: list[RowRange] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return total(self.missing)

    @property
    def to_assemble(self) -> bool:
        return not (self.over or self.out or self.missing or self.busy)


class Backlog:
    """The work of one plan. `seconds_per_row` is the measured cost of a row on one lane; None: not known yet."""

    def __init__(
        self,
        tasks: Iterable[FragmentTask],
        lanes: int,
        *,
        seconds_per_row: float | None = None,
        task_size: int = 0,
        first_unit: int = 0,
    ) -> None:
        self._fragments = {
            t.fragment_id: _Fragment(t, list(t.missing), list(t.checkpoints)) for t in tasks if t.staged is None
        }
        self._open = dict(self._fragments)
        self._lanes = lanes
        self._cost = seconds_per_row
        self._task_size = task_size
        self._units = first_unit
        self._seconds = 0.0
        self._evaluated = 0
        self.outstanding = 0

    @property
    def empty(self) -> bool:
        """Nothing is out, and nothing is to be handed out."""
        return not self.outstanding and not self._open

    @property
    def rows_left(self) -> int:
        """Rows that no unit has been given yet."""
        return sum(f.rows for f in self._open.values())

    @property
    def busy_fragments(self) -> int:
        """Fragments with ranges that another job is computing."""
        return sum(1 for f in self._fragments.values() if f.busy)

    @property
    def units_made(self) -> int:
        """How many units there have been; the next one's number."""
        return self._units

    def first_units(self) -> list[WorkUnit]:
        """Whole fragments dealt to the lanes, the largest first; empty where the pieces' size is known or given."""
        if self._task_size or (self._cost is not None and self._expensive(self._cost)):
            return []
        hands: list[list[_Fragment]] = [[] for _ in range(self._lanes)]
        weights = [0] * self._lanes
        largest = sorted(self._open.values(), key=lambda f: (-f.rows, f.task.fragment_id))
        for fragment in largest[: self._lanes * _MOST_FRAGMENTS]:
            lane = weights.index(min(weights))
            hands[lane].append(fragment)
            weights[lane] += fragment.rows + 1
        return [self._unit([self._whole(f) for f in hand], _FIRST_BUDGET_SECONDS) for hand in hands if hand]

    def _expensive(self, cost: float) -> bool:
        return self.rows_left * cost / self._lanes > _FIRST_BUDGET_SECONDS

    def take(self) -> WorkUnit | None:
        """The next unit, or None where nothing can be handed out now."""
        ready = [f for f in self._open.values() if f.to_assemble]
        if ready:
            return self._unit(
                [self._whole(f) for f in ready[: min(max(1, len(ready) // self._lanes), _MOST_FRAGMENTS)]], 0.0
            )
        rows = self._rows_to_take()
        works: list[FragmentWork] = []
        for fragment in sorted(
            (f for f in self._open.values() if f.missing), key=lambda f: (-f.rows, f.task.fragment_id)
        ):
            works.append(self._part(fragment, rows))
            rows -= total(works[-1].ranges)
            if rows <= 0 or self._task_size or len(works) >= _MOST_FRAGMENTS:
                break
        return self._unit(works, self._budget()) if works else None

    def _target_seconds(self, cost: float) -> float:
        guided = self.rows_left * cost / (2 * self._lanes)
        return min(max(guided, _LEAST_SECONDS), _MOST_SECONDS)

    def _rows_to_take(self) -> int:
        if self._task_size:
            return self._task_size
        if self._cost is None or self._cost <= 0:
            return max(1, self.rows_left // self._lanes)
        return max(1, int(self._target_seconds(self._cost) / self._cost))

    def _budget(self) -> float:
        if self._task_size:
            return 0.0
        return _OVERRUN * self._target_seconds(self._cost) if self._cost else _FIRST_BUDGET_SECONDS

    def note(self, outcome: UnitOutcome) -> None:
        """What a unit did: ranges that come back, checkpoints, files; the cost of a row."""
        self.outstanding -= 1
        for result in outcome.results:
            self._note_result(result)
        times = outcome.timings
        self._seconds += times.udf + times.read + times.checkpoint + times.write
        self._evaluated += sum(r.rows_evaluated for r in outcome.results)
        if self._evaluated:
            self._cost = self._seconds / self._evaluated

    def _note_result(self, result: FragmentResult) -> None:
        fragment = self._fragments[result.fragment_id]
        fragment.out -= 1
        fragment.checkpoints.extend(result.checkpoints)
        fragment.missing = merge([*fragment.missing, *result.left])
        fragment.busy.extend(result.busy)
        if result.staged is not None:
            fragment.over = True
        if fragment.over or (fragment.busy and not fragment.missing and not fragment.out):
            self._open.pop(result.fragment_id, None)

    def give_back(self, unit: WorkUnit) -> None:
        """A unit was lost with its worker: all of it is to be done again."""
        self.outstanding -= 1
        for work in unit.works:
            fragment = self._fragments[work.fragment_id]
            fragment.out -= 1
            fragment.missing = merge([*fragment.missing, *work.ranges])
            fragment.lost = True

    def _whole(self, fragment: _Fragment) -> FragmentWork:
        ranges, fragment.missing = fragment.missing, []
        return self._work(fragment, ranges)

    def _part(self, fragment: _Fragment, rows: int) -> FragmentWork:
        """The first `rows` missing rows, or all where that would leave but a crumb."""
        if fragment.rows <= rows * (1 if self._task_size else 1.25):
            return self._whole(fragment)
        taken: list[RowRange] = []
        left = list(fragment.missing)
        while rows > 0:
            head = left.pop(0)
            if head.rows > rows:
                left.insert(0, RowRange(head.start + rows, head.end))
                head = RowRange(head.start, head.start + rows)
            taken.append(head)
            rows -= head.rows
        fragment.missing = left
        return self._work(fragment, taken)

    def _work(self, fragment: _Fragment, ranges: Sequence[RowRange]) -> FragmentWork:
        task = fragment.task
        finish = not fragment.missing and not fragment.out and not fragment.busy
        fragment.out += 1
        return FragmentWork(
            task.fragment_id,
            task.physical_rows,
            task.deleted_rows,
            task.fingerprint,
            task.checkpoint_prefix,
            task.input_files,
            task.current_file,
            task.extend_current,
            tuple(ranges),
            tuple(fragment.checkpoints),
            finish,
            task.row_states,
        )

    def _unit(self, works: Sequence[FragmentWork], budget_seconds: float) -> WorkUnit:
        self._units += 1
        self.outstanding += 1
        lost = any(self._fragments[w.fragment_id].lost for w in works)
        return WorkUnit(f"u{self._units}", tuple(works), budget_seconds, look_first=lost)
