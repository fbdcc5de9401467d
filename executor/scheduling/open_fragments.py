"""The fragments of a plan that are not settled yet, in the orders in which they are handed out. Pure.

What is asked for with each unit costs the same however many fragments are open: sums are kept, and the fragments lie
in heaps. An entry of a heap is never removed when its fragment changes; it is passed over where it no longer holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.domain.plan import CheckpointRef, FragmentTask
from core.domain.ranges import RowRange, total
from core.domain.work import RowFailure

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
    """All fragments of a plan; one is open until it is `settled`, and never open again after that."""

    def __init__(self, tasks: Iterable[FragmentTask]) -> None:
        self._all = [OpenFragment(t, place, t.missing, t.checkpoints) for place, t in enumerate(tasks)]
        self.by_id: Mapping[int, OpenFragment] = {f.fragment_id: f for f in self._all}
        for fragment in self._all:
            fragment.filed_rows = total(fragment.missing)
            fragment.filed_to_assemble = not fragment.missing
        self._open = len(self._all)
        self._largest = [(-f.rows, f.fragment_id) for f in self._all if f.rows]
        heapq.heapify(self._largest)
        self._suspect: list[int] = []
        self._to_assemble = [f.place for f in self._all if f.filed_to_assemble]
        self._turns: deque[tuple[int, OpenFragment]] = deque()
        self._in_turn = 0
        self._turn = 0
        self._out_of_rows: list[OpenFragment] = []
        #: Rows that no unit has been given yet, suspects among them.
        self.rows_left = -sum(rows for rows, _ in self._largest)
        #: Fragments with rows to hand out.
        self.waiting = len(self._largest)
        #: Fragments that can be assembled now.
        self.ready = len(self._to_assemble)
        #: Fragments with ranges that another job is computing, settled ones too.
        self.busy = 0

    def __bool__(self) -> bool:
        return self._open > 0

    def __iter__(self) -> Iterator[OpenFragment]:
        """Yield the open fragments, in the order of the plan."""
        return (f for f in self._all if not f.closed)

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
        fragment.filed_rows = rows
        if not fragment.turn:
            self._file_by_size(fragment, rows)
        elif not rows:
            self._out_of_rows.append(fragment)

    def _file_by_size(self, fragment: OpenFragment, rows: int) -> None:
        if rows:
            heapq.heappush(self._largest, (-rows, fragment.fragment_id))
        if len(self._largest) > 2 * self._open + _FEW_ENTRIES:  # most of them hold no longer
            self._largest = [e for e in set(self._largest) if self._holds(e)]
            heapq.heapify(self._largest)

    def _close(self, fragment: OpenFragment) -> None:
        self.rows_left -= fragment.filed_rows + fragment.filed_suspects
        self.ready -= fragment.filed_to_assemble
        self.waiting -= fragment.filed_rows > 0
        self._open -= 1
        fragment.closed = True
        if fragment.turn:
            self._out_of_rows.append(fragment)

    def first_suspect(self) -> OpenFragment | None:
        """Return the first fragment in the plan with suspects."""
        while self._suspect:
            fragment = self._all[self._suspect[0]]
            if fragment.filed_suspects and not fragment.closed:
                return fragment
            heapq.heappop(self._suspect)
        return None

    def first_to_assemble(self) -> OpenFragment | None:
        """Return the first fragment in the plan that can be assembled."""
        while self._to_assemble:
            fragment = self._all[self._to_assemble[0]]
            if fragment.filed_to_assemble and not fragment.closed:
                return fragment
            heapq.heappop(self._to_assemble)
        return None

    def largest(self) -> OpenFragment | None:
        """Return the fragment with the most rows to hand out, of several the one with the lowest id.

        Fragments that are in turn are left out.
        """
        while self._largest:
            if self._holds(self._largest[0]):
                return self.by_id[self._largest[0][1]]
            heapq.heappop(self._largest)
        return None

    def _holds(self, entry: tuple[int, int]) -> bool:
        fragment = self.by_id[entry[1]]
        return not fragment.closed and not fragment.turn and fragment.filed_rows == -entry[0]

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
