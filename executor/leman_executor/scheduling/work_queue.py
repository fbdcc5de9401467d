"""Decide which rows of a plan are handed to workers next, and how large the units are.

`WorkQueue` decides on units, `OpenFragments` indexes the unfinished fragments, and `UnitSizes` learns the cost of rows
from finished units. Pure: no I/O, no clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leman_core.model.plan import CheckpointRef, FragmentTask
from leman_core.model.plan_columns import PlannedTasks, planned_tasks
from leman_core.model.row_positions import RowRange, count_offsets, merge_ranges, subtract_ranges
from leman_core.model.work import FragmentResult, FragmentWork, RowError, Timings, UnitOutcome, WorkUnit, scope_of

_LEAST_SECONDS = 0.2
_MOST_SECONDS = 30.0
_OVERRUN = 3.0
#: The minimum cost of a unit, as a multiple of its fixed cost.
_LEAST_FIXED = 4.0
_UNKNOWN = Timings()


class UnitSizes:
    """Choose the sizes of one plan's units, for `workers` workers. `seconds_per_row` is the cost of a row for one
    worker; None if unknown.

    The cost of a part of a fragment is the cost of its rows, plus a fixed wait for storage before the first row and
    after the last row. Rows and wait are measured separately. If the wait counted as a cost of rows, rows would seem
    expensive and units would become smaller. Each smaller unit would have the same wait, so rows would seem even more
    expensive. No unit is planned to take less than four times its fixed cost.

    Example: a row takes 1 ms, starting a part takes 0.5 s, and 2 workers have 8,000 rows in 4 fragments left. The
    remaining work takes 8 + 4 · 0.5 = 10 s, and half a worker's share is 10 / (2 · 2) = 2.5 s, more than 4 · 0.5 s. The
    unit gets 2.5 s, which is the cost of 2,500 rows; 500 of these stand for the wait. With 800 rows left, half a share
    would be 0.7 s, so the unit gets 2 s instead.
    """

    def __init__(self, workers: int, seconds_per_row: float | None) -> None:
        self.workers = workers
        self.seconds_per_row = seconds_per_row
        self._times = Timings()
        self._rows = 0
        self._parts = 0

    def note(self, outcome: UnitOutcome) -> None:
        """Update the estimates with the times of a unit. A unit that was lost with its worker has no times."""
        if outcome.timings == _UNKNOWN:
            return
        self._times += outcome.timings
        self._rows += sum(r.rows_evaluated for r in outcome.results)
        self._parts += sum(bool(r.rows_evaluated or r.staged is not None) for r in outcome.results)
        if self._rows:
            self.seconds_per_row = self._times.by_rows / self._rows

    @property
    def fixed_seconds(self) -> float:
        """The cost in seconds of a fragment, or of a part of one, in addition to its rows."""
        return self._times.fixed / self._parts if self._parts else 0.0

    @property
    def fixed_rows(self) -> int:
        """The number of rows that cost as much as `fixed_seconds`."""
        return int(self.fixed_seconds / self.seconds_per_row) if self.seconds_per_row else 0

    @property
    def mostly_storing(self) -> bool:
        """Return whether storing rows takes longer than reading and computing them.

        If so, dividing a fragment among several units costs more than it gains. Time in which storage did not respond
        does not count.
        """
        return self._times.storing - self._times.fixed > self._times.udf + self._times.read

    def seconds(self, rows: int, parts: int) -> float:
        """Return the seconds that `rows` rows in `parts` fragments take one worker."""
        return (self.seconds_per_row or 0.0) * rows + self.fixed_seconds * parts

    def target(self, rows_left: int, fragments_left: int) -> float:
        """Return the seconds for the next unit: half of a worker's share of the remaining work, within limits."""
        guided = self.seconds(rows_left, fragments_left) / (2 * self.workers)
        return min(max(guided, _LEAST_SECONDS, _LEAST_FIXED * self.fixed_seconds), _MOST_SECONDS)

    def rows(self, rows_left: int, fragments_left: int, diversity: int) -> int:
        """Return the number of rows for the next unit. The fixed costs of its fragments count as rows."""
        if not self.seconds_per_row:
            return max(1, rows_left // (self.workers * (diversity or 1)))
        return max(1, int(self.target(rows_left, fragments_left) / self.seconds_per_row))

    def budget(self, rows: int, parts: int, rows_left: int, fragments_left: int) -> float:
        """Return the seconds after which a worker returns a unit, finished or not.

        Call this only if the cost of a row is known.
        """
        return _OVERRUN * max(self.seconds(rows, parts), self.target(rows_left, fragments_left))


_FEW_ENTRIES = 1024


@dataclass(slots=True, eq=False)
class OpenFragment:
    """One fragment and its missing rows. After you change the missing rows, call `OpenFragments.changed`."""

    task: FragmentTask
    #: The number of the fragment in the plan.
    place: int
    #: The ranges that are still to be handed out.
    missing: Sequence[RowRange]
    checkpoints: Sequence[CheckpointRef]
    #: Number of units that have rows of the fragment.
    out: int = 0
    #: Whether the column file is complete.
    over: bool = False
    #: Whether a unit with rows of the fragment was lost.
    lost: bool = False
    #: The ranges that another job computes.
    busy: Sequence[RowRange] = ()
    #: The ranges of suspects, which are handed out alone.
    suspects: Sequence[RowRange] = ()
    quarantined: tuple[RowError, ...] = ()
    #: This and the following fields are used by the index of `OpenFragments`.
    filed_rows: int = 0
    filed_suspects: int = 0
    filed_to_assemble: bool = False
    filed_busy: bool = False
    closed: bool = False
    #: The fragment's number among those that are handed out in turn; 0 if it is not among them.
    turn: int = 0

    @property
    def rows(self) -> int:
        """Number of rows to hand out, without suspects, when `OpenFragments.changed` was last called."""
        return self.filed_rows

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def to_assemble(self) -> bool:
        """Return whether the checkpoints together have all rows that the column file still lacks."""
        return not (self.over or self.out or self.missing or self.busy or self.suspects)

    @property
    def settled(self) -> bool:
        """Return whether this job has no more work for the fragment, now or later."""
        return self.over or bool(self.busy and not (self.missing or self.out or self.suspects))


class OpenFragments:
    """All fragments of a plan. A fragment is open until it is `settled`, and is never reopened.

    A plan may have a million fragments, few of which are in progress at a time. Therefore an `OpenFragment` is created
    when first used, and dropped when settled. Fragments that are unused or settled are only numbers in an array. Unused
    fragments are in `_order`, the largest first. Fragments in use are in a heap.

    The cost of handing out a unit does not grow with the number of open fragments: sums are maintained, and fragments
    are sorted by size. When a fragment changes, its old index entry stays, and is skipped later.
    """

    def __init__(self, tasks: PlannedTasks) -> None:
        self._tasks = tasks
        self._known: dict[int, OpenFragment] = {}
        self._rows = tasks.rows_missing.copy()
        self._closed = np.zeros(len(tasks), np.bool_)
        self._open = len(tasks)
        by_size = np.lexsort((tasks.fragment_ids, -self._rows))
        self._order = by_size[: np.count_nonzero(self._rows)]
        #: Number of entries at the beginning of `_order` that were skipped.
        self._passed = 0
        self._largest: list[tuple[int, int, int]] = []
        self._suspect: list[int] = []
        self._to_assemble: list[int] = np.flatnonzero(self._rows == 0).tolist()
        self._turns: deque[tuple[int, OpenFragment]] = deque()
        self._in_turn = 0
        self._turn = 0
        self._out_of_rows: list[OpenFragment] = []
        #: Number of rows that no unit has got yet, including suspects.
        self.rows_left = int(self._rows.sum())
        #: Number of fragments with rows to hand out.
        self.waiting = len(self._order)
        #: Number of fragments that can be assembled now.
        self.ready = len(self._to_assemble)
        #: Number of fragments in which another job computes ranges, including settled fragments.
        self.busy = 0

    def __bool__(self) -> bool:
        return self._open > 0

    def of(self, fragment_id: int) -> OpenFragment:
        """Return the fragment of the plan with this id.

        Raises:
            KeyError: The plan has no such fragment.
        """
        return self._at(self._tasks.place_of(fragment_id))

    def _at(self, place: int) -> OpenFragment:
        found = self._known.get(place)
        if found is None:
            task = self._tasks[place]
            found = OpenFragment(task, place, task.missing, task.checkpoints, filed_rows=int(self._rows[place]))
            found.filed_to_assemble = not task.missing
            found.closed = found.over = bool(self._closed[place])
            if not found.closed:
                self._known[place] = found
        return found

    def largest_first(self, most: int) -> list[OpenFragment]:
        """Return the `most` open fragments with the most rows to hand out. Among equals, the lowest id comes first."""
        by_size = np.lexsort((self._tasks.fragment_ids, -self._rows))
        return [self._at(place) for place in by_size[~self._closed[by_size]][:most].tolist()]

    @property
    def begun(self) -> list[OpenFragment]:
        """The open fragments with rows that were handed out or returned."""
        return [f for f in self._known.values() if not f.closed]

    @property
    def scopes_out(self) -> list[str]:
        """The scopes in which units that are in flight, or were lost, may have reservations."""
        return [scope_of(f.task) for f in self._known.values() if f.out or f.lost]

    def changed(self, fragment: OpenFragment) -> None:
        """Update the index entries of a fragment whose missing rows have changed."""
        if fragment.busy and not fragment.filed_busy:
            fragment.filed_busy = True
            self.busy += 1
        if fragment.closed:
            return
        if fragment.settled:
            self._close(fragment)
            return
        self._file_rows(fragment)
        if fragment.to_assemble is not fragment.filed_to_assemble:
            fragment.filed_to_assemble = fragment.to_assemble
            self.ready += 1 if fragment.filed_to_assemble else -1
            if fragment.filed_to_assemble:
                heapq.heappush(self._to_assemble, fragment.place)

    def _file_rows(self, fragment: OpenFragment) -> None:
        rows, suspects = count_offsets(fragment.missing), count_offsets(fragment.suspects)
        if suspects > fragment.filed_suspects:
            heapq.heappush(self._suspect, fragment.place)
        self.rows_left += rows - fragment.filed_rows + suspects - fragment.filed_suspects
        fragment.filed_suspects = suspects
        if rows == fragment.filed_rows:
            return
        self.waiting += (rows > 0) - (fragment.filed_rows > 0)
        fragment.filed_rows = self._rows[fragment.place] = rows
        if not fragment.turn:
            self._file_by_size(fragment, rows)
        elif not rows:
            self._out_of_rows.append(fragment)

    def _file_by_size(self, fragment: OpenFragment, rows: int) -> None:
        if rows:
            heapq.heappush(self._largest, (-rows, fragment.fragment_id, fragment.place))
        if len(self._largest) > 2 * self._open + _FEW_ENTRIES:  # most entries are stale
            self._largest = [e for e in set(self._largest) if self._holds(e)]
            heapq.heapify(self._largest)

    def _close(self, fragment: OpenFragment) -> None:
        self.rows_left -= fragment.filed_rows + fragment.filed_suspects
        self.ready -= fragment.filed_to_assemble
        self.waiting -= fragment.filed_rows > 0
        self._open -= 1
        self._closed[fragment.place] = fragment.closed = True
        if not (fragment.out or fragment.lost or fragment.busy):
            del self._known[fragment.place]
        if fragment.turn:
            self._out_of_rows.append(fragment)

    def first_suspect(self) -> OpenFragment | None:
        """Return the first fragment of the plan that has suspects."""
        while self._suspect:
            fragment = self._at(self._suspect[0])
            if fragment.filed_suspects and not fragment.closed:
                return fragment
            heapq.heappop(self._suspect)
        return None

    def first_to_assemble(self) -> OpenFragment | None:
        """Return the first fragment of the plan that can be assembled."""
        while self._to_assemble:
            fragment = self._at(self._to_assemble[0])
            if fragment.filed_to_assemble and not fragment.closed:
                return fragment
            heapq.heappop(self._to_assemble)
        return None

    def largest(self) -> OpenFragment | None:
        """Return the fragment with the most rows to hand out. Among equals, return the one with the lowest id.

        Fragments that `next_in_turn` hands out are not considered.
        """
        while self._largest and not self._holds(self._largest[0]):
            heapq.heappop(self._largest)
        changed = self._largest[0] if self._largest else None
        while (first := self._first_unseen()) is not None and not self._holds(first):
            self._passed += 1
        if changed is None or (first is not None and first < changed):
            return None if first is None else self._at(first[2])
        return self._at(changed[2])

    def _first_unseen(self) -> tuple[int, int, int] | None:
        """Return the first entry among the unused fragments."""
        if self._passed == len(self._order):
            return None
        place = int(self._order[self._passed])
        return -int(self._tasks.rows_missing[place]), int(self._tasks.fragment_ids[place]), place

    def _holds(self, entry: tuple[int, int, int]) -> bool:
        rows, _, place = entry
        if self._closed[place] or self._rows[place] != -rows:
            return False
        fragment = self._known.get(place)
        return fragment is None or not fragment.turn

    def next_in_turn(self, diversity: int) -> OpenFragment | None:
        """Return the fragment whose turn it is.

        The `diversity` largest fragments take turns. A fragment without rows to hand out is replaced by another
        fragment.
        """
        for fragment in self._out_of_rows:
            if fragment.turn and (fragment.closed or not fragment.filed_rows):
                fragment.turn = 0
                self._in_turn -= 1
        self._out_of_rows.clear()
        while self._in_turn < diversity and (following := self.largest()) is not None:
            self._turn += 1
            self._in_turn += 1
            following.turn = self._turn
            self._turns.append((self._turn, following))
        while self._turns:
            turn, fragment = self._turns.popleft()
            if fragment.turn == turn:
                self._turns.append((turn, fragment))
                return fragment
        return None


_FIRST_BUDGET_SECONDS = 1.0
_LEAST_FIRST_SECONDS = 0.2
_MOST_FRAGMENTS = 512  # in one unit, as its description is sent to the worker
_SUSPECT_SLICES = 256  # of a suspect range: two deaths then identify one row of 65,536


def _first_budget(share: float) -> float:
    """Return the time budget of a worker's first unit. `share` is the average number of rows of a worker, divided by
    the number of rows of this worker.

    A worker with more rows than the average stops sooner. Workers with fewer rows are then idle, and can take over some
    of its rows.
    """
    return max(_LEAST_FIRST_SECONDS, _FIRST_BUDGET_SECONDS * min(1.0, share))


class WorkQueue:
    """The work of one plan.

    Work is handed out in three ways:

    1. First units. If the cost of a row is unknown, each worker gets one large unit of whole fragments, with a time
       budget of one second. If rows are cheap, the unit is then finished. Otherwise it returns its remaining rows, and
       the cost of a row is known.
    2. Guided units. The remaining rows are handed out in units that shrink towards the end, so that all workers end
       together (guided self-scheduling, see `UnitSizes`). A large fragment is cut into row ranges, unless storing takes
       most of the time, because the rows of a cut fragment are stored twice.
    3. Assembly. If several units computed a fragment, and all its ranges are stored, one more unit assembles the
       fragment from its checkpoints. Such units need no rows, so they are handed out before guided units.

    Example: 4 workers, 8 fragments of 100,000 rows, 0.1 ms a row. Each worker gets two fragments, stops after a second
    with 10,000 rows in a checkpoint, and returns 190,000 rows. The remaining 760,000 rows take 76 s, so the next unit
    should take 76 / (2 · 4) = 9.5 s. That is 95,000 rows, but the unit gets a whole fragment, because one that is
    up to a quarter larger is not cut. Two units later, 560,000 rows are left. The next unit should take 7 s, and gets
    70,000 rows of a fragment.

    Suspects are rows that the function was computing when its worker died. They are handed out first, separately from
    other rows, one range at a time and in small slices, until another death identifies a single row. The other rows of
    the lost unit are handed out as usual.

    Args:
        tasks: The fragments of the plan. Those with a complete file are skipped.
        workers: The number of workers that share the work.
        seconds_per_row: The cost of a row for one worker, as measured in an earlier plan or job; None if unknown.
        task_size: Number of rows in each unit, if the request sets it. If 0, `UnitSizes` chooses.
        diversity: Number of fragments that are handed out in turn. If 0, the one with the most rows left is always
            next.
        first_unit: Number of units in earlier plans of the job. The ids of units continue from there.
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
        self._open = OpenFragments(planned_tasks(tasks).without_staged())
        self._workers = workers
        self._sizes = UnitSizes(workers, seconds_per_row)
        self._task_size = task_size
        self._diversity = diversity
        self._units = first_unit
        self._suspect_unit = ""
        self.outstanding = 0

    def spread(self, workers: int) -> None:
        """From now on, share the remaining work among this number of workers."""
        self._workers = self._sizes.workers = workers

    @property
    def empty(self) -> bool:
        """Return whether no unit is in flight and no work remains to be handed out."""
        return not self.outstanding and not self._open

    @property
    def rows_left(self) -> int:
        """Number of rows that no unit has got yet."""
        return self._open.rows_left

    @property
    def busy_fragments(self) -> int:
        """Number of fragments in which another job computes ranges."""
        return self._open.busy

    @property
    def scopes_out(self) -> list[str]:
        """The scopes in which units that are in flight, or were lost, may have reservations."""
        return self._open.scopes_out

    @property
    def units_made(self) -> int:
        """Number of units so far, and so the number of the next unit."""
        return self._units

    @property
    def begun(self) -> list[OpenFragment]:
        """The open fragments with rows that were handed out or returned."""
        return self._open.begun

    def first_units(self) -> list[WorkUnit]:
        """Divide whole fragments among the workers, the largest first. If the cost of a row is known, or the request
        sets the size of units, return no units.
        """
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
        """Hand out the next unit. Return None if there is none now."""
        suspect = self._suspect()
        if suspect is not None:
            return suspect
        if self._open.ready:
            return self._unit(self._assembled(), 0.0)
        works = self._in_turn() if self._diversity else self._largest()
        return self._unit(works, self._budget(works)) if works else None

    def _assembled(self) -> list[FragmentWork]:
        """Return one worker's share of the fragments that are ready to assemble, in the order of the plan."""
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
            rows -= count_offsets(works[-1].ranges) + self._fixed_rows
            if rows <= 0 or self._task_size or len(works) >= _MOST_FRAGMENTS:
                break
        return works

    @property
    def _fixed_rows(self) -> int:
        """Number of rows that cost as much as starting another fragment."""
        return 0 if self._task_size else self._sizes.fixed_rows

    def _rows_to_take(self) -> int:
        """Return the maximum cost of a unit, as a number of rows."""
        return self._task_size or self._sizes.rows(self.rows_left, self._open.waiting, self._diversity)

    def _budget(self, works: Sequence[FragmentWork]) -> float:
        if self._task_size:
            return 0.0
        if not self._sizes.seconds_per_row:
            return _FIRST_BUDGET_SECONDS
        rows = sum(count_offsets(work.ranges) for work in works)
        return self._sizes.budget(rows, len(works), self.rows_left, self._open.waiting)

    def note(self, outcome: UnitOutcome) -> None:
        """Record the outcome of a unit: the ranges it returned, its checkpoints and files, and the cost of a row."""
        self._came_back(outcome.unit_id)
        for result in outcome.results:
            self._note_result(result)
        self._sizes.note(outcome)

    def _note_result(self, result: FragmentResult) -> None:
        fragment = self._open.of(result.fragment_id)
        fragment.out -= 1
        fragment.checkpoints = (*fragment.checkpoints, *result.checkpoints)
        fragment.missing = merge_ranges([*fragment.missing, *result.left])
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
            held: Rows that the function was computing when the worker died, by fragment. They become suspects.
            stored: Checkpoints that the unit had stored, by fragment. All other rows of the unit must be computed
                again.
        """
        self._came_back(unit.unit_id)
        for work in unit.works:
            fragment = self._open.of(work.fragment_id)
            fragment.out -= 1
            fragment.lost = True
            refs = (stored or {}).get(work.fragment_id, ())
            fragment.checkpoints = (*fragment.checkpoints, *refs)
            left = subtract_ranges(work.ranges, [ref.range for ref in refs])
            suspects = [r for f, h in held if f == work.fragment_id for part in left if (r := h.intersect(part))]
            if unit.slice_rows:
                # The worker had not tried the rows after the current one.
                tried = RowRange(0, suspects[-1].end if suspects else 0)
                suspects.extend(subtract_ranges(left, [tried]))
            fragment.suspects = [*suspects, *fragment.suspects]
            fragment.missing = merge_ranges([*fragment.missing, *subtract_ranges(left, suspects)])
            self._open.changed(fragment)

    def quarantine(self, row: RowError) -> None:
        """Record a suspect row as failed instead of evaluating it."""
        fragment = self._open.of(row.fragment_id)
        place = RowRange(row.offset, row.offset + 1)
        fragment.quarantined = (*fragment.quarantined, row)
        fragment.suspects = subtract_ranges(fragment.suspects, [place])
        fragment.missing = merge_ranges([*fragment.missing, place])
        self._open.changed(fragment)

    def _came_back(self, unit_id: str) -> None:
        self.outstanding -= 1
        if unit_id == self._suspect_unit:
            self._suspect_unit = ""

    def _suspect(self) -> WorkUnit | None:
        """Return a unit with the suspects of one range. Return None if there are none, or if such a unit is in flight.

        At most one such unit is in flight, so that the death of a worker can be attributed to its rows.
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
        """Return whether the missing rows of a fragment cost at most a quarter more than `rows` rows."""
        return fragment.rows + self._fixed_rows <= rows * (1 if self._task_size else 1.25)

    def _part(self, fragment: OpenFragment, rows: int) -> FragmentWork:
        """Return the first missing rows that together cost at most as much as `rows` rows.

        Return all if cutting does not pay.
        """
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
    """Return the checkpoints that may overlap the ranges. Other checkpoints are needed only to assemble a fragment."""
    if not ranges:
        return []
    start, end = ranges[0].start, ranges[-1].end
    return [ref for ref in checkpoints if ref.range.start < end and ref.range.end > start]
