"""The fragments of a plan that are not settled yet, in the orders in which they are handed out. Pure.

What is asked for with each unit costs the same however many fragments are open: sums are kept, and the fragments lie
in order of their size. An entry is never removed when its fragment changes; it is passed over where it no longer holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leman_core.model.plan import CheckpointRef, FragmentTask
from leman_core.model.ranges import RowRange, total
from leman_core.model.task_columns import PlannedTasks
from leman_core.model.work import RowFailure, scope_of

_FEW_ENTRIES = 1024


@dataclass(slots=True, eq=False)
class OpenFragment:
    """One fragment; call `OpenFragments.changed` after a change of what it lacks."""

    task: FragmentTask
    #: Its number in the plan.
    place: int
    #: Ranges that are to be handed out.
    missing: Sequence[RowRange]
    checkpoints: Sequence[CheckpointRef]
    #: Number of units that have rows of it.
    out: int = 0
    #: Its column file is complete.
    over: bool = False
    #: A unit of it was lost.
    lost: bool = False
    #: Ranges that another job computes.
    busy: Sequence[RowRange] = ()
    #: Ranges that are to be handed out by themselves.
    suspects: Sequence[RowRange] = ()
    quarantined: tuple[RowFailure, ...] = ()
    #: This and what follows says how `OpenFragments` has filed it.
    filed_rows: int = 0
    filed_suspects: int = 0
    filed_to_assemble: bool = False
    filed_busy: bool = False
    closed: bool = False
    #: The number under which it is handed out in turn; 0: it is not in turn.
    turn: int = 0

    @property
    def rows(self) -> int:
        """The number of rows to be handed out, without suspects, when it was filed last."""
        return self.filed_rows

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def to_assemble(self) -> bool:
        """Tell whether everything it lacks is in checkpoints."""
        return not (self.over or self.out or self.missing or self.busy or self.suspects)

    @property
    def settled(self) -> bool:
        """Tell whether this job has nothing to do for it, now or later."""
        return self.over or bool(self.busy and not (self.missing or self.out or self.suspects))


class OpenFragments:
    """All fragments of a plan; one is open until it is `settled`, and never open again after that.

    A plan may have a million fragments, of which few are at work at once. So an `OpenFragment` is made when a fragment
    is looked at, and let go of when it is settled; of the others there is a number in an array. Those that nobody has
    looked at yet lie in `_order`, the largest first, beside the heap of those that have changed.
    """

    def __init__(self, tasks: PlannedTasks) -> None:
        self._tasks = tasks
        self._known: dict[int, OpenFragment] = {}
        self._rows = tasks.rows_missing.copy()
        self._closed = np.zeros(len(tasks), np.bool_)
        self._open = len(tasks)
        by_size = np.lexsort((tasks.fragment_ids, -self._rows))
        self._order = by_size[: np.count_nonzero(self._rows)]
        #: How many of these were passed over.
        self._passed = 0
        self._largest: list[tuple[int, int, int]] = []
        self._suspect: list[int] = []
        self._to_assemble: list[int] = np.flatnonzero(self._rows == 0).tolist()
        self._turns: deque[tuple[int, OpenFragment]] = deque()
        self._in_turn = 0
        self._turn = 0
        self._out_of_rows: list[OpenFragment] = []
        #: Rows that no unit has been given yet, suspects among them.
        self.rows_left = int(self._rows.sum())
        #: Fragments with rows to hand out.
        self.waiting = len(self._order)
        #: Fragments that can be assembled now.
        self.ready = len(self._to_assemble)
        #: Fragments with ranges that another job is computing, settled ones too.
        self.busy = 0

    def __bool__(self) -> bool:
        return self._open > 0

    def of(self, fragment_id: int) -> OpenFragment:
        """Return a fragment of the plan.

        Raises:
            KeyError: the plan does not have it.
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
        """Return so many open fragments with the most rows to hand out, of several those with the lowest ids."""
        by_size = np.lexsort((self._tasks.fragment_ids, -self._rows))
        return [self._at(place) for place in by_size[~self._closed[by_size]][:most].tolist()]

    @property
    def begun(self) -> list[OpenFragment]:
        """The fragments that were looked at and that are still open."""
        return [f for f in self._known.values() if not f.closed]

    @property
    def scopes_out(self) -> list[str]:
        """The scopes that units that are out, or were lost, may have reserved."""
        return [scope_of(f.task) for f in self._known.values() if f.out or f.lost]

    def changed(self, fragment: OpenFragment) -> None:
        """File a fragment anew, after a change of what it lacks."""
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
        rows, suspects = total(fragment.missing), total(fragment.suspects)
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
        if len(self._largest) > 2 * self._open + _FEW_ENTRIES:  # most of them hold no longer
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
        """Return the first fragment in the plan with suspects."""
        while self._suspect:
            fragment = self._at(self._suspect[0])
            if fragment.filed_suspects and not fragment.closed:
                return fragment
            heapq.heappop(self._suspect)
        return None

    def first_to_assemble(self) -> OpenFragment | None:
        """Return the first fragment in the plan that can be assembled."""
        while self._to_assemble:
            fragment = self._at(self._to_assemble[0])
            if fragment.filed_to_assemble and not fragment.closed:
                return fragment
            heapq.heappop(self._to_assemble)
        return None

    def largest(self) -> OpenFragment | None:
        """Return the fragment with the most rows to hand out, of several the one with the lowest id.

        Fragments that are in turn are left out.
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
        """Return the first entry of those that were there from the beginning."""
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

        `diversity` fragments, the largest first, have their turn one after the other, each until it has no rows left to
        hand out.
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
