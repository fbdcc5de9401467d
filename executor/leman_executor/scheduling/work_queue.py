"""The work queue: what of a plan is still to be given to workers, and in which units. Pure: no I/O, no clock.

Work goes out in three ways:

1. First units. While nobody knows what a row costs, each worker gets one coarse unit of whole fragments with a budget
   of a second. Cheap work is done then. What is not comes back, and with it the cost of a row.
2. Guided units. The rest goes out in units that shrink towards the end, so that all workers end together (guided
   self-scheduling, see `UnitSizes`). A large fragment is cut into row ranges, unless most of the time goes into
   storing: what is cut is stored once more.
3. Assembly. A fragment that several units computed is put together from its checkpoints by one more unit, when its
   last range is in. Such units need no rows, so they go out before guided ones.

Example: 4 workers, 8 fragments of 100,000 rows, 0.1 ms a row. Each worker gets two fragments, stops after a second with
10,000 rows in a checkpoint, and gives 190,000 back. The 760,000 rows that are left cost 76 s, so the next unit is made
for 76 / (2 · 4) = 9.5 s or 95,000 rows, and gets a whole fragment: one that is up to a quarter larger is not cut. Two
units later 560,000 rows are left, the unit is made for 7 s, and gets 70,000 rows of a fragment.

Suspects: rows that the function had when its worker died. They go out before anything else, alone, one range at a time
and in small slices, so that the next death names one row of them. The rest of that unit is innocent, and goes out as
before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from leman_core.model.plan import CheckpointRef, FragmentTask
from leman_core.model.ranges import RowRange, merge, subtract, total
from leman_core.model.task_columns import PlannedTasks
from leman_core.model.work import FragmentResult, FragmentWork, RowFailure, UnitOutcome, WorkUnit
from leman_executor.scheduling.open_fragments import OpenFragment, OpenFragments
from leman_executor.scheduling.unit_sizes import UnitSizes

_FIRST_BUDGET_SECONDS = 1.0
_LEAST_FIRST_SECONDS = 0.2
_MOST_FRAGMENTS = 512  # in one unit: its description has to travel
_SUSPECT_SLICES = 256  # of a suspect range: one more death finds a slice, the next a row of 65,536


def _first_budget(share: float) -> float:
    """Return the seconds for a worker that was dealt 1 / `share` of what workers with work have on average.

    A worker that has more than the others is to come back sooner: they are idle by then, and wait for what it gives
    back.
    """
    return max(_LEAST_FIRST_SECONDS, _FIRST_BUDGET_SECONDS * min(1.0, share))


class WorkQueue:
    """The work of one plan.

    Args:
        tasks: The fragments of the plan; those whose file is complete are passed over.
        workers: How many share the work.
        seconds_per_row: What a row costs on one worker, measured by an earlier plan or job; None: that is not known.
        task_size: Rows of each unit, where the request says that; 0: chosen.
        diversity: Units of so many fragments go out in turn; 0: always of the one with the most rows left.
        first_unit: Units that the job's earlier plans have made: ids go on from there.
    """

    def __init__(
        self,
        tasks: Sequence[FragmentTask],
        workers: int,
        *,
        seconds_per_row: float | None = None,
        task_size: int = 0,
        diversity: int = 0,
        first_unit: int = 0,
    ) -> None:
        self._open = OpenFragments(PlannedTasks.of(tasks).without_staged())
        self._workers = workers
        self._sizes = UnitSizes(workers, seconds_per_row)
        self._task_size = task_size
        self._diversity = diversity
        self._units = first_unit
        self._suspect_unit = ""
        self.outstanding = 0

    def spread(self, workers: int) -> None:
        """Share what is left among so many workers from now on."""
        self._workers = self._sizes.workers = workers

    @property
    def empty(self) -> bool:
        """Tell whether no unit is out, and nothing is to be handed out."""
        return not self.outstanding and not self._open

    @property
    def rows_left(self) -> int:
        """The number of rows that no unit has been given yet."""
        return self._open.rows_left

    @property
    def busy_fragments(self) -> int:
        """The number of fragments with ranges that another job is computing."""
        return self._open.busy

    @property
    def scopes_out(self) -> list[str]:
        """The scopes that units that are out, or were lost, may have reserved."""
        return self._open.scopes_out

    @property
    def units_made(self) -> int:
        """The number of units so far, and so the number of the next one."""
        return self._units

    @property
    def begun(self) -> list[OpenFragment]:
        """The fragments that units have been given of and that are still open."""
        return self._open.begun

    def first_units(self) -> list[WorkUnit]:
        """Deal whole fragments to the workers, the largest first; empty where the size of units is known or given."""
        if self._task_size or self._diversity or self._expensive():
            return []
        hands: list[list[OpenFragment]] = [[] for _ in range(self._workers)]
        lightest = [(0, worker) for worker in range(self._workers)]
        for fragment in self._open.largest_first(self._workers * _MOST_FRAGMENTS):
            weight, worker = lightest[0]
            hands[worker].append(fragment)
            heapq.heapreplace(lightest, (weight + fragment.rows + 1, worker))
        weights = {worker: weight for weight, worker in lightest if weight}
        share = sum(weights.values()) / max(1, len(weights))
        return [
            self._unit([self._whole(f) for f in hand], _first_budget(share / weights[worker]))
            for worker, hand in enumerate(hands)
            if hand
        ]

    def _expensive(self) -> bool:
        cost = self._sizes.seconds_per_row
        return cost is not None and self.rows_left * cost / self._workers > _FIRST_BUDGET_SECONDS

    def take(self) -> WorkUnit | None:
        """Give the next unit out; None where nothing can be given out now."""
        suspect = self._suspect()
        if suspect is not None:
            return suspect
        if self._open.ready:
            return self._unit(self._assembled(), 0.0)
        works = self._in_turn() if self._diversity else self._largest()
        return self._unit(works, self._budget(works)) if works else None

    def _assembled(self) -> list[FragmentWork]:
        """Return a worker's share of the fragments whose rows are all stored, in the order of the plan."""
        share = min(max(1, self._open.ready // self._workers), _MOST_FRAGMENTS)
        works: list[FragmentWork] = []
        while len(works) < share and (fragment := self._open.first_to_assemble()) is not None:
            works.append(self._whole(fragment))
        return works

    def _in_turn(self) -> list[FragmentWork]:
        fragment = self._open.next_in_turn(self._diversity)
        return [self._part(fragment, self._rows_to_take())] if fragment is not None else []

    def _largest(self) -> list[FragmentWork]:
        """Return whole fragments, the largest first, or a part of one."""
        rows = self._rows_to_take()
        works: list[FragmentWork] = []
        while (fragment := self._open.largest()) is not None:
            if works and not self._fits(fragment, rows):
                break
            works.append(self._part(fragment, rows))
            rows -= total(works[-1].ranges) + self._fixed_rows
            if rows <= 0 or self._task_size or len(works) >= _MOST_FRAGMENTS:
                break
        return works

    @property
    def _fixed_rows(self) -> int:
        """The number of rows that cost as much as beginning with another fragment."""
        return 0 if self._task_size else self._sizes.fixed_rows

    def _rows_to_take(self) -> int:
        """Return what one unit may cost, in rows."""
        return self._task_size or self._sizes.rows(self.rows_left, self._open.waiting, self._diversity)

    def _budget(self, works: Sequence[FragmentWork]) -> float:
        if self._task_size:
            return 0.0
        if not self._sizes.seconds_per_row:
            return _FIRST_BUDGET_SECONDS
        rows = sum(total(work.ranges) for work in works)
        return self._sizes.budget(rows, len(works), self.rows_left, self._open.waiting)

    def note(self, outcome: UnitOutcome) -> None:
        """Take in what a unit did: ranges that come back, checkpoints, files, the cost of a row."""
        self._came_back(outcome.unit_id)
        for result in outcome.results:
            self._note_result(result)
        self._sizes.note(outcome)

    def _note_result(self, result: FragmentResult) -> None:
        fragment = self._open.of(result.fragment_id)
        fragment.out -= 1
        fragment.checkpoints = (*fragment.checkpoints, *result.checkpoints)
        fragment.missing = merge([*fragment.missing, *result.left])
        fragment.busy = (*fragment.busy, *result.busy)
        if result.staged is not None:
            fragment.over = True
        self._open.changed(fragment)

    def give_back(
        self,
        unit: WorkUnit,
        held: Sequence[tuple[int, RowRange]] = (),
        stored: Mapping[int, Sequence[CheckpointRef]] | None = None,
    ) -> None:
        """Take back a unit that was lost with its worker.

        Args:
            unit: The unit.
            held: Rows that the function had when the worker died, by fragment: they are suspects.
            stored: Checkpoints that the unit had stored, by fragment; all other rows are to be computed again.
        """
        self._came_back(unit.unit_id)
        for work in unit.works:
            fragment = self._open.of(work.fragment_id)
            fragment.out -= 1
            fragment.lost = True
            refs = (stored or {}).get(work.fragment_id, ())
            fragment.checkpoints = (*fragment.checkpoints, *refs)
            left = subtract(work.ranges, [ref.range for ref in refs])
            suspects = [r for f, h in held if f == work.fragment_id for part in left if (r := h.intersect(part))]
            if unit.slice_rows:
                # what came after the row at hand has not been tried yet
                tried = RowRange(0, suspects[-1].end if suspects else 0)
                suspects.extend(subtract(left, [tried]))
            fragment.suspects = [*suspects, *fragment.suspects]
            fragment.missing = merge([*fragment.missing, *subtract(left, suspects)])
            self._open.changed(fragment)

    def quarantine(self, row: RowFailure) -> None:
        """Have a suspect row recorded as failed instead of evaluated."""
        fragment = self._open.of(row.fragment_id)
        place = RowRange(row.offset, row.offset + 1)
        fragment.quarantined = (*fragment.quarantined, row)
        fragment.suspects = subtract(fragment.suspects, [place])
        fragment.missing = merge([*fragment.missing, place])
        self._open.changed(fragment)

    def _came_back(self, unit_id: str) -> None:
        self.outstanding -= 1
        if unit_id == self._suspect_unit:
            self._suspect_unit = ""

    def _suspect(self) -> WorkUnit | None:
        """Return a unit with the suspects of one range; None: there are none, or such a unit is out.

        There is one such unit at a time, so that a death is its own.
        """
        fragment = None if self._suspect_unit else self._open.first_suspect()
        if fragment is None:
            return None
        rows, *fragment.suspects = fragment.suspects
        unit = self._unit([self._work(fragment, [rows], alone=True)], 0.0)
        self._suspect_unit = unit.unit_id
        return replace(unit, slice_rows=-(-rows.rows // _SUSPECT_SLICES))

    def _whole(self, fragment: OpenFragment) -> FragmentWork:
        ranges, fragment.missing = fragment.missing, ()
        return self._work(fragment, ranges)

    def _fits(self, fragment: OpenFragment, rows: int) -> bool:
        """Tell whether all missing rows of a fragment cost no more than `rows`, or up to a quarter more."""
        return fragment.rows + self._fixed_rows <= rows * (1 if self._task_size else 1.25)

    def _part(self, fragment: OpenFragment, rows: int) -> FragmentWork:
        """Return as many first missing rows as cost no more than `rows`, or all where cutting is not worth it."""
        if self._fits(fragment, rows) or (not self._task_size and self._sizes.mostly_storing):
            return self._whole(fragment)
        rows = max(1, rows - self._fixed_rows)
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

    def _work(self, fragment: OpenFragment, ranges: Sequence[RowRange], *, alone: bool = False) -> FragmentWork:
        finish = not (fragment.missing or fragment.out or fragment.busy or fragment.suspects or alone)
        fragment.out += 1
        self._open.changed(fragment)
        return FragmentWork.of(
            fragment.task,
            ranges,
            finish=finish,
            checkpoints=fragment.checkpoints if finish else _within(fragment.checkpoints, ranges),
            quarantined=tuple(f for f in fragment.quarantined if any(r.start <= f.offset < r.end for r in ranges)),
        )

    def _unit(self, works: Sequence[FragmentWork], budget_seconds: float) -> WorkUnit:
        self._units += 1
        self.outstanding += 1
        lost = any(self._open.of(w.fragment_id).lost for w in works)
        return WorkUnit(f"u{self._units}", tuple(works), budget_seconds, look_first=lost)


def _within(checkpoints: Iterable[CheckpointRef], ranges: Sequence[RowRange]) -> list[CheckpointRef]:
    """Return the checkpoints that may reach into the ranges; only the assembly of a fragment needs the others."""
    if not ranges:
        return []
    start, end = ranges[0].start, ranges[-1].end
    return [ref for ref in checkpoints if ref.range.start < end and ref.range.end > start]
