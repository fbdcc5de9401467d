"""What of a plan is still to be handed out, and in which pieces. Pure: no I/O, no clock.

Cheap work goes out once, as few coarse units, one for each lane, with a time budget. What a unit cannot finish within
its budget comes back, and by then the cost of a row is known: the rest goes out in pieces that shrink towards the end,
so that all lanes end together (guided self-scheduling). A fragment that several units computed is assembled from its
checkpoints by one more unit when its last range is in: so none is cut where most of the time goes into storing.

Rows that a function was called with when its worker died are suspects. They go out by themselves, one range of them at
a time and in small slices, so that the next death names one row of them; the rest of the unit is innocent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.domain.plan import CheckpointRef, FragmentTask
from core.domain.ranges import RowRange, merge, subtract, total
from core.domain.work import FragmentResult, FragmentWork, RowFailure, UnitOutcome, WorkUnit

_FIRST_BUDGET_SECONDS = 1.0
_LEAST_SECONDS = 0.2
_MOST_SECONDS = 30.0
_OVERRUN = 3.0
_MOST_FRAGMENTS = 512  # in one unit: its description has to travel
_SUSPECT_SLICES = 256  # of a suspect range: one more death finds a slice, the next a row of 65,536


def _first_budget(share: float) -> float:
    """Seconds for a lane that was dealt 1 / `share` of what lanes with work have on average: the others are done
    sooner, and nothing can be handed to them before it has come back."""
    return max(_LEAST_SECONDS, _FIRST_BUDGET_SECONDS * min(1.0, share))


@dataclass(slots=True)
class _Fragment:
    task: FragmentTask
    missing: list[RowRange]
    checkpoints: list[CheckpointRef]
    out: int = 0
    over: bool = False
    lost: bool = False
    busy: list[RowRange] = field(default_factory=list)
    suspects: list[RowRange] = field(default_factory=list)
    condemned: tuple[RowFailure, ...] = ()

    @property
    def rows(self) -> int:
        return total(self.missing)

    @property
    def to_assemble(self) -> bool:
        return not (self.over or self.out or self.missing or self.busy or self.suspects)


class Backlog:
    """The work of one plan. `seconds_per_row` is the measured cost of a row on one lane; None: not known yet.
    `diversity`: units of so many fragments are handed out in turn; 0: always of the one with the most rows left."""

    def __init__(
        self,
        tasks: Iterable[FragmentTask],
        lanes: int,
        *,
        seconds_per_row: float | None = None,
        task_size: int = 0,
        diversity: int = 0,
        first_unit: int = 0,
    ) -> None:
        self._fragments = {
            t.fragment_id: _Fragment(t, list(t.missing), list(t.checkpoints)) for t in tasks if t.staged is None
        }
        self._open = dict(self._fragments)
        self._lanes = lanes
        self._cost = seconds_per_row
        self._task_size = task_size
        self._diversity = diversity
        self._turn: deque[_Fragment] = deque()
        self._units = first_unit
        self._computing = 0.0
        self._storing = 0.0
        self._evaluated = 0
        self._suspect_unit = ""
        self.outstanding = 0

    @property
    def empty(self) -> bool:
        """Nothing is out, and nothing is to be handed out."""
        return not self.outstanding and not self._open

    @property
    def rows_left(self) -> int:
        """Rows that no unit has been given yet."""
        return sum(f.rows + total(f.suspects) for f in self._open.values())

    @property
    def busy_fragments(self) -> int:
        """Fragments with ranges that another job is computing."""
        return sum(1 for f in self._fragments.values() if f.busy)

    @property
    def scopes_out(self) -> list[str]:
        """What units that are out, or were lost, may have reserved."""
        return [f"{f.task.fragment_id}:{f.task.fingerprint}" for f in self._fragments.values() if f.out or f.lost]

    @property
    def units_made(self) -> int:
        """How many units there have been; the next one's number."""
        return self._units

    def first_units(self) -> list[WorkUnit]:
        """Whole fragments dealt to the lanes, the largest first; empty where the pieces' size is known or given."""
        if self._task_size or self._diversity or (self._cost is not None and self._expensive(self._cost)):
            return []
        hands: list[list[_Fragment]] = [[] for _ in range(self._lanes)]
        weights = [0] * self._lanes
        largest = sorted(self._open.values(), key=lambda f: (-f.rows, f.task.fragment_id))
        for fragment in largest[: self._lanes * _MOST_FRAGMENTS]:
            lane = weights.index(min(weights))
            hands[lane].append(fragment)
            weights[lane] += fragment.rows + 1
        share = sum(weights) / max(1, sum(map(bool, hands)))
        return [
            self._unit([self._whole(f) for f in hand], _first_budget(share / weight))
            for hand, weight in zip(hands, weights, strict=True)
            if hand
        ]

    def _expensive(self, cost: float) -> bool:
        return self.rows_left * cost / self._lanes > _FIRST_BUDGET_SECONDS

    def take(self) -> WorkUnit | None:
        """The next unit, or None where nothing can be handed out now."""
        suspect = self._suspect()
        if suspect is not None:
            return suspect
        ready = [f for f in self._open.values() if f.to_assemble]
        if ready:
            return self._unit(
                [self._whole(f) for f in ready[: min(max(1, len(ready) // self._lanes), _MOST_FRAGMENTS)]], 0.0
            )
        rows = self._rows_to_take()
        works: list[FragmentWork] = []
        if self._diversity:
            next_in_turn = self._next_in_turn()
            works = [self._part(next_in_turn, rows)] if next_in_turn else []
            return self._unit(works, self._budget(works)) if works else None
        for fragment in sorted(
            (f for f in self._open.values() if f.missing), key=lambda f: (-f.rows, f.task.fragment_id)
        ):
            if works and not self._fits(fragment, rows):
                break
            works.append(self._part(fragment, rows))
            rows -= total(works[-1].ranges)
            if rows <= 0 or self._task_size or len(works) >= _MOST_FRAGMENTS:
                break
        return self._unit(works, self._budget(works)) if works else None

    def _next_in_turn(self) -> _Fragment | None:
        """Of `diversity` fragments, largest first, each in its turn, until it has no rows left to hand out."""
        self._turn = deque(f for f in self._turn if f.missing and not f.over)
        if len(self._turn) < self._diversity:
            here = {f.task.fragment_id for f in self._turn}
            waiting = [f for i, f in self._open.items() if f.missing and i not in here]
            waiting.sort(key=lambda f: (-f.rows, f.task.fragment_id))
            self._turn.extend(waiting[: self._diversity - len(self._turn)])
        if not self._turn:
            return None
        self._turn.rotate(-1)
        return self._turn[-1]

    def _target_seconds(self, cost: float) -> float:
        guided = self.rows_left * cost / (2 * self._lanes)
        return min(max(guided, _LEAST_SECONDS), _MOST_SECONDS)

    def _rows_to_take(self) -> int:
        if self._task_size:
            return self._task_size
        if self._cost is None or self._cost <= 0:
            return max(1, self.rows_left // (self._lanes * (self._diversity or 1)))
        return max(1, int(self._target_seconds(self._cost) / self._cost))

    def _budget(self, works: Sequence[FragmentWork]) -> float:
        if self._task_size:
            return 0.0
        if not self._cost:
            return _FIRST_BUDGET_SECONDS
        expected = self._cost * sum(total(work.ranges) for work in works)
        return _OVERRUN * max(expected, self._target_seconds(self._cost))

    def note(self, outcome: UnitOutcome) -> None:
        """What a unit did: ranges that come back, checkpoints, files; the cost of a row."""
        self._came_back(outcome.unit_id)
        for result in outcome.results:
            self._note_result(result)
        times = outcome.timings
        self._computing += times.udf + times.read
        self._storing += times.checkpoint + times.write
        self._evaluated += sum(r.rows_evaluated for r in outcome.results)
        if self._evaluated:
            self._cost = (self._computing + self._storing) / self._evaluated

    def _note_result(self, result: FragmentResult) -> None:
        fragment = self._fragments[result.fragment_id]
        fragment.out -= 1
        fragment.checkpoints.extend(result.checkpoints)
        fragment.missing = merge([*fragment.missing, *result.left])
        fragment.busy.extend(result.busy)
        if result.staged is not None:
            fragment.over = True
        if fragment.over or (fragment.busy and not (fragment.missing or fragment.out or fragment.suspects)):
            self._open.pop(result.fragment_id, None)

    def give_back(
        self,
        unit: WorkUnit,
        held: Sequence[tuple[int, RowRange]] = (),
        stored: Mapping[int, Sequence[CheckpointRef]] | None = None,
    ) -> None:
        """A unit was lost with its worker: what it had not `stored` is to be done again, and what the function was
        called with at its death (`held`, by fragment) is suspect."""
        self._came_back(unit.unit_id)
        for work in unit.works:
            fragment = self._fragments[work.fragment_id]
            fragment.out -= 1
            fragment.lost = True
            refs = (stored or {}).get(work.fragment_id, ())
            fragment.checkpoints.extend(refs)
            left = subtract(work.ranges, [ref.range for ref in refs])
            suspects = [r for f, h in held if f == work.fragment_id for part in left if (r := h.intersect(part))]
            if unit.slice_rows:
                # what came after the row at hand has not been tried yet
                tried = RowRange(0, suspects[-1].end if suspects else 0)
                suspects.extend(subtract(left, [tried]))
            fragment.suspects = [*suspects, *fragment.suspects]
            fragment.missing = merge([*fragment.missing, *subtract(left, suspects)])

    def condemn(self, row: RowFailure) -> None:
        """The row is not to be evaluated any more, but recorded as failed. It must be a suspect."""
        fragment = self._fragments[row.fragment_id]
        place = RowRange(row.offset, row.offset + 1)
        fragment.condemned = (*fragment.condemned, row)
        fragment.suspects = subtract(fragment.suspects, [place])
        fragment.missing = merge([*fragment.missing, place])

    def _came_back(self, unit_id: str) -> None:
        self.outstanding -= 1
        if unit_id == self._suspect_unit:
            self._suspect_unit = ""

    def _suspect(self) -> WorkUnit | None:
        """Suspects of one range; one such unit at a time, so that a death is this one's."""
        fragment = next((f for f in self._open.values() if f.suspects), None)
        if fragment is None or self._suspect_unit:
            return None
        rows = fragment.suspects.pop(0)
        unit = self._unit([self._work(fragment, [rows], alone=True)], 0.0)
        self._suspect_unit = unit.unit_id
        return replace(unit, slice_rows=-(-rows.rows // _SUSPECT_SLICES))

    def _whole(self, fragment: _Fragment) -> FragmentWork:
        ranges, fragment.missing = fragment.missing, []
        return self._work(fragment, ranges)

    def _fits(self, fragment: _Fragment, rows: int) -> bool:
        """Whether all its missing rows are no more than `rows` and a crumb."""
        return fragment.rows <= rows * (1 if self._task_size else 1.25)

    def _part(self, fragment: _Fragment, rows: int) -> FragmentWork:
        """The first `rows` missing rows, or all where it is not worth cutting: what is cut is stored once more."""
        if self._fits(fragment, rows) or (not self._task_size and self._storing > self._computing):
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

    def _work(self, fragment: _Fragment, ranges: Sequence[RowRange], *, alone: bool = False) -> FragmentWork:
        task = fragment.task
        finish = not (fragment.missing or fragment.out or fragment.busy or fragment.suspects or alone)
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
            tuple(f for f in fragment.condemned if any(r.start <= f.offset < r.end for r in ranges)),
            task.row_states,
        )

    def _unit(self, works: Sequence[FragmentWork], budget_seconds: float) -> WorkUnit:
        self._units += 1
        self.outstanding += 1
        lost = any(self._fragments[w.fragment_id].lost for w in works)
        return WorkUnit(f"u{self._units}", tuple(works), budget_seconds, look_first=lost)
