"""Plans in columns: fragments, checkpoints and their keys, tasks. A plan may have a million of each.

A table of a million fragments has several objects for each; columns of numbers take their place, and objects are
created on access.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_core.model import keys, row_ids
from leman_core.model.keys import FamilyKey, KeyFamily, range_key
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.row_positions import RowRange, count_offsets
from leman_core.model.table import DataFile, Fragment

Numbers: TypeAlias = npt.NDArray[np.int64]
Item = TypeVar("Item")

#: Objects that are created at a time when all are read.
AT_ONCE = 8192


#: Up to this many objects are kept by code that reads all of them several times.
_FEW = 1000


def materialize(items: Sequence[Item]) -> Sequence[Item]:
    """Return the objects for code that reads all of them several times: created once if they are few."""
    return tuple(items) if len(items) <= _FEW else items


class ObjectColumns(Sequence[Item]):
    """A sequence whose objects are created from columns on access, and not kept."""

    __slots__ = ()

    @abstractmethod
    def _made(self, places: Numbers) -> Iterable[Item]:
        """Create the objects at some places, in the order of these; at least one and at most AT_ONCE."""

    def some(self, places: Numbers) -> Iterator[Item]:
        """Yield the objects at some places, in the order of these."""
        for begin in range(0, len(places), AT_ONCE):
            yield from self._made(places[begin : begin + AT_ONCE])

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return next(self.some(np.array([at % len(self)])))

    def __iter__(self) -> Iterator[Item]:
        return self.some(np.arange(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class FragmentColumns(ObjectColumns[Fragment]):
    """Fragments in the order of the manifest.

    Example: fragments 0 (files a, b) and 3 (file c) are `ids` [0, 3], `first_file` [0, 2, 3] and `paths` [a, b, c].

    Args:
        ids: Of the fragments.
        physical_rows: Of each.
        deleted_rows: Of each.
        first_file: Where the files of each begin in `paths`, and the number of all files at the end.
        paths: Names of files.
        held: Of each file an index into `field_sets`.
        field_sets: Lance field ids that files hold, each set once.
        deletion_files: Of `Fragment`, by place, if there is one.
    """

    __slots__ = ("deleted_rows", "deletion_files", "field_sets", "first_file", "held", "ids", "paths", "physical_rows")

    def __init__(
        self,
        ids: Numbers,
        physical_rows: Numbers,
        deleted_rows: Numbers,
        *,
        first_file: Numbers,
        paths: pa.LargeStringArray,
        held: Numbers,
        field_sets: Sequence[tuple[int, ...]],
        deletion_files: dict[int, str],
    ) -> None:
        self.ids = ids
        self.physical_rows = physical_rows
        self.deleted_rows = deleted_rows
        self.first_file = first_file
        self.paths = paths
        self.held = held
        self.field_sets = field_sets
        self.deletion_files = deletion_files

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> FragmentColumns:
        """Return fragments as columns, or unchanged if they are columns already."""
        if isinstance(fragments, cls):
            return fragments
        known = list(fragments)
        files = [file for fragment in known for file in fragment.files]
        sets: dict[tuple[int, ...], int] = {}
        return cls(
            _numbers(fragment.fragment_id for fragment in known),
            _numbers(fragment.physical_rows for fragment in known),
            _numbers(fragment.deleted_rows for fragment in known),
            first_file=offsets_of_counts(len(fragment.files) for fragment in known),
            paths=pa.array([file.path for file in files], pa.large_string()),
            held=_numbers(sets.setdefault(file.field_ids, len(sets)) for file in files),
            field_sets=tuple(sets),
            deletion_files={at: f.deletion_file for at, f in enumerate(known) if f.deletion_file},
        )

    @property
    def live_rows(self) -> Numbers:
        """The live rows of each fragment."""
        return self.physical_rows - self.deleted_rows

    def with_ids(self, wanted: Collection[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the fragments with one of the ids."""
        return row_ids.isin_sorted(np.array(sorted(wanted), np.int64), self.ids)

    def files_with(self, field_ids: Collection[int]) -> tuple[Numbers, Numbers]:
        """Return of each fragment its first file that holds any of the fields (-1: none), and their number."""
        wanted = frozenset(field_ids)
        holds = np.array([not wanted.isdisjoint(held) for held in self.field_sets], np.bool_)
        files = np.flatnonzero(holds[self.held]) if len(holds) else np.zeros(0, np.int64)
        owners = np.searchsorted(self.first_file, files, side="right") - 1
        first = np.full(len(self), -1, np.int64)
        first[owners[::-1]] = files[::-1]
        return first, np.bincount(owners, minlength=len(self))

    def names(self, files: Numbers) -> list[str]:
        """Return the names of some files, by their places in `paths`; empty for -1."""
        return as_texts(self.paths_at(files))

    def paths_at(self, files: Numbers) -> pa.LargeStringArray:
        """Return `names` as an array."""
        return self.paths.take(pa.array(files, mask=files < 0)).fill_null("")

    def __len__(self) -> int:
        return len(self.ids)

    def _made(self, places: Numbers) -> Iterator[Fragment]:
        first = self.first_file[places]
        counts = self.first_file[places + 1] - first
        ends = np.cumsum(counts)
        each = np.arange(ends[-1]) + np.repeat(first - (ends - counts), counts)
        held = map(self.field_sets.__getitem__, self.held[each].tolist())
        files = map(DataFile, self.names(each), held)
        columns = (places, self.ids[places], self.physical_rows[places], self.deleted_rows[places], counts)
        for at, fragment_id, rows, deleted, count in zip(*(column.tolist() for column in columns), strict=True):
            own = tuple(itertools.islice(files, count))
            yield Fragment(fragment_id, rows, deleted, own, self.deletion_files.get(at, ""))

    def __repr__(self) -> str:
        return f"<{len(self)} fragments>"


def as_texts(names: pa.LargeStringArray) -> list[str]:
    """Return the names as texts."""
    found: list[str] = names.to_numpy(zero_copy_only=False).tolist()  # to_pylist takes four times as long
    return found


def offsets_of_counts(counts: Iterable[int]) -> Numbers:
    """Return where each of consecutive parts begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(_numbers(counts))])


def _numbers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckpointColumns:
    """Ranges that checkpoints settle: at least one of each fragment, in order, none contained in the previous ones.

    Example: fragments of 100 rows, one with the ranges 0-40 and 30-60, one with 50-100, are `rows` [100, 100], `first`
    [0, 2, 3], `starts` [0, 30, 50] and `ends` [40, 60, 100].
    """

    #: In the files of each fragment.
    rows: Numbers
    #: Where the ranges of each fragment begin in `starts` and `ends`, and the number of all at the end.
    first: Numbers
    starts: Numbers
    ends: Numbers

    @property
    def rows_stored(self) -> Numbers:
        """Of each fragment; a row counts once for each of its checkpoints."""
        return self._summed(self.ends - self.starts)

    @property
    def rows_missing(self) -> Numbers:
        """Of each fragment."""
        before = np.concatenate([np.zeros(1, np.int64), self.ends])[:-1]
        before[self.first[:-1]] = 0
        return self.rows - self._summed(self.ends - np.maximum(self.starts, before))

    def _summed(self, values: Numbers) -> Numbers:
        return np.add.reduceat(values, self.first[:-1]) if len(values) else values

    def __len__(self) -> int:
        return len(self.rows)

    def ranges(self, begin: int, end: int) -> Iterator[tuple[list[RowRange], tuple[RowRange, ...]]]:
        """Yield the stored and the missing ranges of the fragments at places from `begin` to before `end`."""
        first = self.first[begin : end + 1].tolist()
        bounds = zip(*(ends[first[0] : first[-1]].tolist() for ends in (self.starts, self.ends)), strict=True)
        covered = itertools.starmap(RowRange, bounds)
        for rows, (start, stop) in zip(self.rows[begin:end].tolist(), itertools.pairwise(first), strict=True):
            settled = list(itertools.islice(covered, stop - start))
            yield settled, tuple(_between(settled, rows))

    def part(self, begin: int, end: int) -> CheckpointColumns:
        """Return the fragments at places from `begin` to before `end`."""
        first = self.first[begin : end + 1]
        return CheckpointColumns(
            rows=self.rows[begin:end],
            first=first - first[0],
            starts=self.starts[first[0] : first[-1]],
            ends=self.ends[first[0] : first[-1]],
        )

    def some(self, places: Numbers) -> CheckpointColumns:
        """Return the fragments at some places."""
        counts = np.diff(self.first)[places]
        first = offsets_of_counts(counts)
        each = np.arange(first[-1]) + np.repeat(self.first[places] - first[:-1], counts)
        return CheckpointColumns(rows=self.rows[places], first=first, starts=self.starts[each], ends=self.ends[each])

    @classmethod
    def joined(cls, parts: Sequence[CheckpointColumns]) -> CheckpointColumns:
        """Concatenate at least one part."""
        return cls(
            rows=np.concatenate([part.rows for part in parts]),
            first=offsets_of_counts(np.concatenate([np.diff(part.first) for part in parts])),
            starts=np.concatenate([part.starts for part in parts]),
            ends=np.concatenate([part.ends for part in parts]),
        )


def _between(settled: Sequence[RowRange], rows: int) -> Iterator[RowRange]:
    """Yield the gaps that ordered ranges leave in `rows` rows."""
    at = 0
    for start, end in settled:
        if start > at:
            yield RowRange(at, start)
        at = end
    if at < rows:
        yield RowRange(at, rows)


#: md5 in hex digits, 32 bytes each.
Digests: TypeAlias = npt.NDArray[np.bytes_]

_DIGITS = 32
#: A number as Leman writes it, within 64 bits.
_NUMBER = "0|[1-9][0-9]{0,17}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeKeys:
    """Keys of checkpoints of one family. Each field has one value for each key."""

    family: KeyFamily
    #: md5 of the filter.
    filters: Digests
    #: md5 of the inputs.
    sources: Digests
    fragment_ids: Numbers
    #: Where the range begins.
    starts: Numbers
    #: Where it ends.
    ends: Numbers

    def some(self, which: npt.NDArray[Any]) -> RangeKeys:
        """Return some of the keys, by a mask or by their places."""
        return RangeKeys(
            family=self.family,
            filters=self.filters[which],
            sources=self.sources[which],
            fragment_ids=self.fragment_ids[which],
            starts=self.starts[which],
            ends=self.ends[which],
        )

    def __len__(self) -> int:
        return len(self.fragment_ids)

    def __iter__(self) -> Iterator[FamilyKey]:
        """Yield the keys, each as `KeyFamily.parse` returns it."""
        digests = (self.filters.astype(str).tolist(), self.sources.astype(str).tolist())
        numbers = (column.tolist() for column in (self.fragment_ids, self.starts, self.ends))
        for filter_id, sources, fragment_id, start, end in zip(*digests, *numbers, strict=True):
            covered = RowRange(start, end)
            key = range_key(self.family.prefix_under(filter_id, sources), fragment_id, covered)
            yield FamilyKey(key, filter_id, sources, fragment_id, covered)


def parse_range_keys(family: KeyFamily, keys: Sequence[str]) -> tuple[RangeKeys, list[str]]:
    """Parse keys of checkpoints that belong to a family and are as Leman writes them.

    Returns:
        These, and all other keys, including those of fragment records, and of ranges with leading zeros.
    """
    try:
        texts = pa.array(keys, pa.large_string())
    except UnicodeEncodeError:  # a file name that is not valid text
        return _ranges(family, _apart(family, pa.array([], pa.large_string()))), list(keys)
    found = _apart(family, texts)
    others = np.flatnonzero(np.asarray(pc.is_null(found)))
    return _ranges(family, found), [keys[at] for at in others.tolist()]


def _apart(family: KeyFamily, keys: pa.LargeStringArray) -> pa.StructArray:
    return pc.extract_regex(keys, _pattern(family.head, family.place))


def _ranges(family: KeyFamily, found: pa.StructArray) -> RangeKeys:
    filters, sources, *numbers = found.drop_null().flatten()
    fragment_ids, starts, ends = (pc.cast(column, pa.int64()).to_numpy() for column in numbers)
    return RangeKeys(
        family=family,
        filters=_digests(filters),
        sources=_digests(sources),
        fragment_ids=fragment_ids,
        starts=starts,
        ends=ends,
    )


def _digests(texts: pa.LargeStringArray) -> Digests:
    fixed = texts.cast(pa.large_binary()).cast(pa.binary(_DIGITS))
    return np.frombuffer(fixed.buffers()[1], f"S{_DIGITS}", len(fixed), fixed.offset * _DIGITS)


@functools.lru_cache(maxsize=64)
def _pattern(head: str, place: str) -> str:
    digest = f"[0-9a-f]{{{_DIGITS}}}"
    return (
        rf"\A{re.escape(head)}(?P<filter>{digest})_uri-{place}_srcfiles-(?P<sources>{digest})"
        rf"_frag-(?P<fragment>{_NUMBER})_range-(?P<start>{_NUMBER})-(?P<end>{_NUMBER})\z"
    )


_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UntouchedFragments:
    """Fragments without stored values, whose rows are all missing, in the order of their ids."""

    ids: Numbers
    physical_rows: Numbers
    deleted_rows: Numbers
    reasons: Sequence[Reason]
    #: md5 of the inputs, 16 bytes each.
    sources: bytes
    #: The start of fingerprints.
    function: str
    #: The start of checkpoint prefixes.
    prefix: str
    #: Files of the inputs, fragment by fragment.
    input_files: pa.LargeStringArray
    #: Where those of each fragment begin, and the number of all at the end.
    first_input: Numbers
    #: The output's files; empty if there is none.
    current_files: pa.LargeStringArray

    def __len__(self) -> int:
        return len(self.ids)

    def task(self, at: int) -> FragmentTask:
        """Return the task at a place; `tasks` is faster for many."""
        return next(self.tasks(at, at + 1))

    def tasks(self, begin: int, end: int) -> Iterator[FragmentTask]:
        """Yield the tasks at places from `begin` to before `end`."""
        first = self.first_input[begin : end + 1].tolist()
        files = iter(as_texts(self.input_files[first[0] : first[-1]]))
        current = as_texts(self.current_files[begin:end])
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
                whole_range(physical),
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
        """Concatenate at least one part of a plan."""
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
            first_input=offsets_of_counts(np.concatenate(counts)),
            current_files=pa.concat_arrays([part.current_files for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class CheckpointedFragments:
    """Fragments with only checkpoints stored, all under the plan's filter, in the order of their ids."""

    #: The fragments without their checkpoints.
    fragments: UntouchedFragments
    #: The checkpoints of each.
    checkpoints: CheckpointColumns

    def __len__(self) -> int:
        return len(self.fragments)

    def task(self, at: int) -> FragmentTask:
        """Return the task at a place; `tasks` is faster for many."""
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
        """Concatenate at least one part of a plan."""
        fragments = UntouchedFragments.joined([part.fragments for part in parts])
        return cls(fragments, CheckpointColumns.joined([part.checkpoints for part in parts]))


def with_checkpoints(task: FragmentTask, settled: Iterable[RowRange], missing: tuple[RowRange, ...]) -> FragmentTask:
    """Return a task with checkpoints under its own prefix that settle some ranges."""
    fragment_id, prefix = task.fragment_id, task.checkpoint_prefix
    refs = tuple([CheckpointRef(keys.range_key(prefix, fragment_id, covered), covered) for covered in settled])
    return task._replace(reason=Reason.PARTIAL, missing=missing, checkpoints=refs)


class PlannedTasks(Sequence[FragmentTask]):
    """The tasks of a plan in the order of fragment ids; those in columns are created on access.

    Args:
        untouched: Consecutive parts of the plan.
        stored: The tasks of the other fragments.
        checkpointed: Consecutive parts of the plan.
    """

    def __init__(
        self,
        untouched: Sequence[UntouchedFragments],
        stored: Sequence[FragmentTask],
        checkpointed: Sequence[CheckpointedFragments] = (),
    ) -> None:
        self._untouched = UntouchedFragments.joined(untouched) if untouched else None
        self._checkpointed = CheckpointedFragments.joined(checkpointed) if checkpointed else None
        #: The tasks of fragments with more than checkpoints, or with checkpoints of other filters.
        self.stored = stored
        ids = [np.array([task.fragment_id for task in stored], np.int64)]
        rows = [np.array([count_offsets(task.missing) for task in stored], np.int64)]
        #: The columns, and the first of their places, which follow those of `stored`.
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
        """Return the number of fragments with stored checkpoints and no finished file."""
        others = sum(1 for task in self.stored if task.checkpoints and task.staged is None)
        return others + (0 if self._checkpointed is None else len(self._checkpointed))

    @classmethod
    def of(cls, tasks: Sequence[FragmentTask]) -> PlannedTasks:
        """Return tasks as columns, or unchanged if they are columns already."""
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
        # They are consecutive, as all kinds are in the order of ids.
        return columns.tasks(int(places[0]) - begin, int(places[-1]) - begin + 1)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, PlannedTasks) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@lru_cache(maxsize=64)
def whole_range(rows: int) -> tuple[RowRange, ...]:
    """Return all rows as a range, cached: most fragments of a table have the same number of rows."""
    return (RowRange(0, rows),)
