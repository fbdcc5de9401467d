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
    """One fragment. Whoever changes what it lacks tells `OpenFragments.changed`. `place`: its number in the plan.

    `missing` is to be handed out, `suspects` by themselves; `out`: units that have rows of it; `busy`: ranges that
    another job computes; `over`: its column file is complete; `lost`: a unit of it was lost. The others say how it is
    filed: `turn` is the number under which it is handed out in turn, 0: it is not."""

    task: FragmentTask
    place: int
    missing: Sequence[RowRange]
    checkpoints: Sequence[CheckpointRef]
    out: int = 0
    over: bool = False
    lost: bool = False
    busy: Sequence[RowRange] = ()
    suspects: Sequence[RowRange] = ()
    quarantined: tuple[RowFailure, ...] = ()
    filed_rows: int = 0
    filed_suspects: int = 0
    filed_to_assemble: bool = False
    filed_busy: bool = False
    closed: bool = False
    turn: int = 0

    @property
    def rows(self) -> int:
        """Those that are to be handed out, suspects aside, when it was filed last."""
        return self.filed_rows

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def to_assemble(self) -> bool:
        """Everything it lacks is in checkpoints."""
        return not (self.over or self.out or self.missing or self.busy or self.suspects)

    @property
    def settled(self) -> bool:
        """There is nothing that this job could do about it, now or later."""
        return self.over or bool(self.busy and not (self.missing or self.out or self.suspects))


class OpenFragments:
    """All fragments of a plan, of which those that are not `settled` are open; one that was settled is never open
    again."""

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
        """The open ones, in the order of the plan."""
        return (f for f in self._all if not f.closed)

    def changed(self, fragment: OpenFragment) -> None:
        """Files a fragment anew."""
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
        """The first in the plan with suspects."""
        while self._suspect:
            fragment = self._all[self._suspect[0]]
            if fragment.filed_suspects and not fragment.closed:
                return fragment
            heapq.heappop(self._suspect)
        return None

    def first_to_assemble(self) -> OpenFragment | None:
        """The first in the plan that can be assembled."""
        while self._to_assemble:
            fragment = self._all[self._to_assemble[0]]
            if fragment.filed_to_assemble and not fragment.closed:
                return fragment
            heapq.heappop(self._to_assemble)
        return None

    def largest(self) -> OpenFragment | None:
        """The one with the most rows to hand out, of several the one with the lowest id; none that is in turn."""
        while self._largest:
            if self._holds(self._largest[0]):
                return self.by_id[self._largest[0][1]]
            heapq.heappop(self._largest)
        return None

    def _holds(self, entry: tuple[int, int]) -> bool:
        fragment = self.by_id[entry[1]]
        return not fragment.closed and not fragment.turn and fragment.filed_rows == -entry[0]

    def next_in_turn(self, diversity: int) -> OpenFragment | None:
        """Of so many fragments, the largest first, each in its turn, until it has no rows left to hand out."""
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
