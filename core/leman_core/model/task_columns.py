"""The tasks of a plan, in columns where nothing, or nothing but checkpoints, is stored: a plan may have a million."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload

import numpy as np
import pyarrow as pa

from leman_core.model import keys
from leman_core.model.checkpoint_columns import CheckpointColumns
from leman_core.model.fragment_columns import listed, starts
from leman_core.model.object_columns import AT_ONCE, Numbers
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.ranges import RowRange, total

_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UntouchedFragments:
    """Fragments of which nothing is stored: all of their rows are missing. In the order of their ids."""

    ids: Numbers
    physical_rows: Numbers
    deleted_rows: Numbers
    reasons: Sequence[Reason]
    #: md5 of the inputs, 16 bytes each.
    sources: bytes
    #: What fingerprints begin with.
    function: str
    #: What checkpoint prefixes begin with.
    prefix: str
    #: Files of the inputs, those of one fragment after those of the other.
    input_files: pa.LargeStringArray
    #: Where those of each fragment begin, and the number of all.
    first_input: Numbers
    #: The output's files; empty where there is none.
    current_files: pa.LargeStringArray

    def __len__(self) -> int:
        return len(self.ids)

    def task(self, at: int) -> FragmentTask:
        """Return the task at a place: `tasks` takes less time for many."""
        return next(self.tasks(at, at + 1))

    def tasks(self, begin: int, end: int) -> Iterator[FragmentTask]:
        """Yield the tasks at places from `begin` to before `end`."""
        first = self.first_input[begin : end + 1].tolist()
        files = iter(listed(self.input_files[first[0] : first[-1]]))
        current = listed(self.current_files[begin:end])
        columns = (column[begin:end].tolist() for column in (self.ids, self.physical_rows, self.deleted_rows))
        rows = zip(*columns, self.reasons[begin:end], current, itertools.pairwise(first), strict=True)
        for at, (fragment_id, physical, deleted, reason, file, (start, stop)) in enumerate(rows, begin):
            sources = self.sources[_DIGEST * at : _DIGEST * (at + 1)].hex()
            yield FragmentTask(
                fragment_id,
                physical,
                deleted,
                reason,
                keys.fingerprint_of(self.function, sources),
                self.prefix + sources,
                tuple(itertools.islice(files, stop - start)),
                file,
                False,
                all_rows(physical),
            )

    def part(self, begin: int, end: int) -> UntouchedFragments:
        """Return the fragments at places from `begin` to before `end`."""
        first = self.first_input[begin : end + 1]
        return replace(
            self,
            ids=self.ids[begin:end],
            physical_rows=self.physical_rows[begin:end],
            deleted_rows=self.deleted_rows[begin:end],
            reasons=self.reasons[begin:end],
            sources=self.sources[_DIGEST * begin : _DIGEST * end],
            input_files=self.input_files[first[0] : first[-1]],
            first_input=first - first[0],
            current_files=self.current_files[begin:end],
        )

    @classmethod
    def joined(cls, parts: Sequence[UntouchedFragments]) -> UntouchedFragments:
        """Return parts of one plan as one; one at least."""
        counts = [np.diff(part.first_input) for part in parts]
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            physical_rows=np.concatenate([part.physical_rows for part in parts]),
            deleted_rows=np.concatenate([part.deleted_rows for part in parts]),
            reasons=[reason for part in parts for reason in part.reasons],
            sources=b"".join([part.sources for part in parts]),
            function=parts[0].function,
            prefix=parts[0].prefix,
            input_files=pa.concat_arrays([part.input_files for part in parts]),
            first_input=starts(np.concatenate(counts)),
            current_files=pa.concat_arrays([part.current_files for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class CheckpointedFragments:
    """Fragments of which nothing but checkpoints is stored, all under the plan's filter. In the order of their ids."""

    #: What can be said of them without their checkpoints.
    fragments: UntouchedFragments
    #: Of each of them.
    checkpoints: CheckpointColumns

    def __len__(self) -> int:
        return len(self.fragments)

    def task(self, at: int) -> FragmentTask:
        """Return the task at a place: `tasks` takes less time for many."""
        return next(self.tasks(at, at + 1))

    def tasks(self, begin: int, end: int) -> Iterator[FragmentTask]:
        """Yield the tasks at places from `begin` to before `end`."""
        for task, ranges in zip(self.fragments.tasks(begin, end), self.checkpoints.ranges(begin, end), strict=True):
            yield with_checkpoints(task, *ranges)

    def part(self, begin: int, end: int) -> CheckpointedFragments:
        """Return the fragments at places from `begin` to before `end`."""
        return CheckpointedFragments(self.fragments.part(begin, end), self.checkpoints.part(begin, end))

    @classmethod
    def joined(cls, parts: Sequence[CheckpointedFragments]) -> CheckpointedFragments:
        """Return parts of one plan as one; one at least."""
        fragments = UntouchedFragments.joined([part.fragments for part in parts])
        return cls(fragments, CheckpointColumns.joined([part.checkpoints for part in parts]))


def with_checkpoints(task: FragmentTask, settled: Iterable[RowRange], missing: tuple[RowRange, ...]) -> FragmentTask:
    """Return a task with checkpoints under its own prefix that settle some ranges."""
    fragment_id, prefix = task.fragment_id, task.checkpoint_prefix
    refs = tuple([CheckpointRef(keys.range_key(prefix, fragment_id, covered), covered) for covered in settled])
    return task._replace(reason=Reason.PARTIAL, missing=missing, checkpoints=refs)


class PlannedTasks(Sequence[FragmentTask]):
    """The tasks of a plan in the order of fragment ids; those that came in columns are made when they are looked at.

    Args:
        untouched: parts of the plan, one after the other.
        stored: the tasks of the other fragments.
        checkpointed: parts of the plan, one after the other.
    """

    def __init__(
        self,
        untouched: Sequence[UntouchedFragments],
        stored: Sequence[FragmentTask],
        checkpointed: Sequence[CheckpointedFragments] = (),
    ) -> None:
        self._untouched = UntouchedFragments.joined(untouched) if untouched else None
        self._checkpointed = CheckpointedFragments.joined(checkpointed) if checkpointed else None
        #: The tasks of fragments of which more is stored than checkpoints, or checkpoints of other filters.
        self.stored = stored
        ids = [np.array([task.fragment_id for task in stored], np.int64)]
        rows = [np.array([total(task.missing) for task in stored], np.int64)]
        #: What came in columns, and the first of their places, which come after those of `stored`.
        self._columns: list[tuple[int, UntouchedFragments | CheckpointedFragments]] = []
        count = len(stored)
        if self._untouched is not None:
            self._columns.append((count, self._untouched))
            ids.append(self._untouched.ids)
            rows.append(self._untouched.physical_rows)
            count += len(self._untouched)
        if self._checkpointed is not None:
            self._columns.append((count, self._checkpointed))
            ids.append(self._checkpointed.fragments.ids)
            rows.append(self._checkpointed.checkpoints.rows_missing)
        every = np.concatenate(ids)
        #: Places of tasks.
        self._order = np.argsort(every, kind="stable")
        #: Ids of the fragments, in the order of the tasks.
        self.fragment_ids: Numbers = every[self._order]
        #: Rows that no checkpoint covers, in the order of the tasks.
        self.rows_missing: Numbers = np.concatenate(rows)[self._order]

    @property
    def from_checkpoints(self) -> int:
        """Count the fragments of which checkpoints are stored and no finished file."""
        others = sum(1 for task in self.stored if task.checkpoints and task.staged is None)
        return others + (0 if self._checkpointed is None else len(self._checkpointed))

    @classmethod
    def of(cls, tasks: Sequence[FragmentTask]) -> PlannedTasks:
        """Return tasks as columns; what is that already, as it is."""
        return tasks if isinstance(tasks, cls) else cls((), tasks)

    def without_staged(self) -> PlannedTasks:
        """Return the tasks of fragments whose file is still to be written."""
        untouched = () if self._untouched is None else (self._untouched,)
        checkpointed = () if self._checkpointed is None else (self._checkpointed,)
        return PlannedTasks(untouched, [task for task in self.stored if task.staged is None], checkpointed)

    def of_fragment(self, fragment_id: int) -> FragmentTask:
        """Return a fragment's task.

        Raises:
            KeyError: it has none.
        """
        return self[self.place_of(fragment_id)]

    def place_of(self, fragment_id: int) -> int:
        """Return the place of a fragment's task.

        Raises:
            KeyError: it has none.
        """
        at = int(np.searchsorted(self.fragment_ids, fragment_id))
        if at == len(self) or self.fragment_ids[at] != fragment_id:
            raise KeyError(fragment_id)
        return at

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> FragmentTask: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FragmentTask]: ...
    def __getitem__(self, at: int | slice) -> FragmentTask | Sequence[FragmentTask]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        place = int(self._order[at])
        for begin, columns in reversed(self._columns):
            if place >= begin:
                return columns.task(place - begin)
        return self.stored[place]

    def __iter__(self) -> Iterator[FragmentTask]:
        for begin in range(0, len(self), AT_ONCE):
            part = self._order[begin : begin + AT_ONCE]
            bounds = [0, *(first for first, _ in self._columns), len(self)]
            kinds = np.searchsorted(bounds, part, side="right") - 1
            made = [self._of_kind(kind, part[kinds == kind]) for kind in range(len(bounds) - 1)]
            yield from map(next, map(made.__getitem__, kinds.tolist()))

    def _of_kind(self, kind: int, places: Numbers) -> Iterator[FragmentTask]:
        """Yield the tasks at places of one kind: 0 is `stored`, others are in columns."""
        if not kind or not len(places):
            return map(self.stored.__getitem__, places.tolist())
        begin, columns = self._columns[kind - 1]
        # they lie side by side, as all kinds are in the order of ids
        return columns.tasks(int(places[0]) - begin, int(places[-1]) - begin + 1)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, PlannedTasks) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@lru_cache(maxsize=64)
def all_rows(rows: int) -> tuple[RowRange, ...]:
    """Return all rows as a range, cached: most fragments of a table have the same number of rows."""
    return (RowRange(0, rows),)
