"""What is to be done about each fragment, given its stored work. Pure.

Fragments of which nothing but checkpoints of the request's own filter is stored: decided about all at once. Pure.

What is decided about one fragment stands in `leman_planner.planning.fragment_tasks`; of a table of 100,000 fragments
all may be half in checkpoints.

What is to be done about one fragment. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from leman_core.model import keys, row_ids, row_states
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason, StagedFile
from leman_core.model.plan_columns import (
    AT_ONCE,
    CheckpointColumns,
    CheckpointedFragments,
    FragmentColumns,
    Numbers,
    RangeKeys,
    UntouchedFragments,
    offsets_of_counts,
    whole_range,
    with_checkpoints,
)
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import REASONS, FragmentStatus, Mask, ReuseDecision, Statuses
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import FoundCheckpoints, StoredWork


class CoveredFragments:
    """Fragments with work, and the checkpoints of each that are reused.

    Args:
        fragments: how many the table has.
        places: of these among them, each once.
        checkpoints: of each of these.
    """

    def __init__(self, fragments: int, places: Numbers, checkpoints: CheckpointColumns) -> None:
        self._checkpoints = checkpoints
        #: Of each of the table's fragments, its place in `checkpoints`; -1: it is none of these.
        self._at = np.full(fragments, -1, np.int64)
        self._at[places] = np.arange(len(places))
        self.places = places

    @property
    def mask(self) -> Mask:
        """Tell of each of the table's fragments whether it is one of these."""
        return self._at >= 0

    def of(self, places: Numbers) -> CheckpointColumns:
        """Return the checkpoints of some of these fragments, by their places in the table."""
        return self._checkpoints.some(self._at[places])


def cover_fragments(
    resolved: ResolvedRequest, statuses: Statuses, found: FoundCheckpoints | None, others: Mask
) -> CoveredFragments:
    """Return the fragments whose checkpoints all settle their ranges; each other one is to be looked at by itself.

    Args:
        others: of each fragment, whether more than checkpoints is stored of it.
    """
    if found is None:
        none = np.zeros(0, np.int64)
        return _covered(statuses, none, none, none)
    order = statuses.in_order
    ids = statuses.fragments.ids[order]
    known = found.keys.some(row_ids.isin_sorted(ids, found.keys.fragment_ids))
    places = order[np.searchsorted(ids, known.fragment_ids)]
    rows = statuses.fragments.physical_rows[places]
    usable = (known.starts < known.ends) & (known.ends <= rows)
    alone = ~others
    alone[places[usable & ~_settle(resolved, statuses, known, places)]] = False
    alone[statuses.fragments.with_ids(found.strange)] = False
    chosen = usable & alone[places]
    return _covered(statuses, places[chosen], known.starts[chosen], known.ends[chosen])


def _settle(resolved: ResolvedRequest, statuses: Statuses, found: RangeKeys, places: Numbers) -> Mask:
    """Tell which checkpoints say of all rows of their range what is to become of them; see `fragment_tasks`.

    It is said of none where each fragment has a filter of its own.
    """
    if resolved.failed_only or resolved.filter.columns or resolved.filter.reads_output or not len(found):
        return np.zeros(len(found), np.bool_)
    identity = resolved.filter_identity(statuses.fragments[int(places[0])])
    same: Mask = found.filters == keys.md5_of_few(identity).encode()
    return same & ~statuses.with_file(places) if resolved.selective else same


def _covered(statuses: Statuses, places: Numbers, begins: Numbers, ends: Numbers) -> CoveredFragments:
    """Return the fragments at some places with their ranges, without those that lie within ranges before them.

    Args:
        places: of each range, those of one fragment side by side.
        begins: in order in each fragment.
        ends: of ranges that begin at the same row, the last one first.
    """
    apart = int(ends.max(initial=0)) + 1  # so much that no range of one fragment ends behind those of the next
    nth = np.cumsum(np.diff(places, prepend=-1) != 0) - 1
    furthest = np.maximum.accumulate(ends + nth * apart)
    further = np.diff(furthest, prepend=-1) > 0
    first = offsets_of_counts(np.bincount(nth[further]))
    covered = places[further][first[:-1]]
    checkpoints = CheckpointColumns(
        rows=statuses.fragments.physical_rows[covered], first=first, starts=begins[further], ends=ends[further]
    )
    return CoveredFragments(len(statuses), covered, checkpoints)


class PendingFragment(NamedTuple):
    """A fragment with work: what is stored of it, and what is missing."""

    status: FragmentStatus
    reason: Reason
    extends: bool
    missing: tuple[RowRange, ...]
    checkpoints: tuple[CheckpointRef, ...] = ()
    staged: StagedFile | None = None
    #: Rows that failed and are not to be tried again.
    failed_before: int = 0
    #: Rows among the missing ones for which checkpoints hold values of kept functions: by version, at most so many.
    kept: Mapping[int, int] = MappingProxyType({})


class KeptKeys(NamedTuple):
    """Checkpoints of a fragment that hold values of a function which the column keeps."""

    #: The function's place in `ResolvedRequest.versions`, from 1 on.
    version: int
    #: The request as this function asked it.
    resolved: ResolvedRequest
    found: Sequence[keys.FamilyKey]


class TaskParts(NamedTuple):
    """Some of a plan's tasks."""

    #: Fragments of which nothing is stored.
    untouched: UntouchedFragments | None
    #: Fragments of which checkpoints are stored and nothing else.
    checkpointed: CheckpointedFragments | None
    others: Sequence[FragmentTask]


class Tasks(Sequence[FragmentTask]):
    """The tasks of fragments with work, each made when it is looked at and not kept: a plan may have very many.

    Args:
        resolved: the request.
        statuses: of all fragments.
        places: of the fragments with work among them, in the order of the tasks.
        opened: by place, the fragments that were decided about one by one.
        covered: fragments of which checkpoints are stored. Of those that are neither all rows are missing.
    """

    def __init__(
        self,
        resolved: ResolvedRequest,
        statuses: Statuses,
        places: Numbers,
        opened: Mapping[int, PendingFragment],
        covered: CoveredFragments,
    ) -> None:
        self._resolved = resolved
        self._statuses = statuses
        self._places = places
        self._opened = opened
        self._covered = covered

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> FragmentTask: ...
    @overload
    def __getitem__(self, at: slice) -> Tasks: ...
    def __getitem__(self, at: int | slice) -> FragmentTask | Tasks:
        if isinstance(at, slice):
            return Tasks(self._resolved, self._statuses, self._places[at], self._opened, self._covered)
        return next(self._made(self._places[[at]]))

    def __iter__(self) -> Iterator[FragmentTask]:
        return self._made(self._places)

    def of(self, ids: Collection[int]) -> Iterator[FragmentTask]:
        """Yield the tasks of some fragments, in their order."""
        return self._made(self._places[self._statuses.fragments.with_ids(ids)[self._places]])

    def _made(self, places: Numbers) -> Iterator[FragmentTask]:
        for begin in range(0, len(places), AT_ONCE):
            yield from self._of_part(places[begin : begin + AT_ONCE])

    def _of_part(self, places: Numbers) -> Iterator[FragmentTask]:
        resolved, prefixes = self._resolved, _Prefixes(self._resolved.family)
        opened = [self._opened.get(at) for at in places.tolist()]
        others = self._statuses.some(places[[pending is None for pending in opened]])
        covered = self._covered.mask[places]
        checkpoints = self._covered.of(places[covered])
        ranges = checkpoints.ranges(0, len(checkpoints))
        for pending, is_covered in zip(opened, covered.tolist(), strict=True):
            if pending is not None:
                yield _task(resolved, pending, prefixes)
            elif is_covered:
                yield with_checkpoints(_task(resolved, _untouched(next(others)), prefixes), *next(ranges))
            else:
                yield _task(resolved, _untouched(next(others)), prefixes)

    def parts(self, most: int, *, checkpointed: bool) -> Iterator[TaskParts]:
        """Yield the tasks in parts of so many.

        Args:
            checkpointed: whether fragments of which checkpoints are stored are wanted in columns, too.
        """
        inputs = _InputFiles(self._resolved, self._statuses.fragments)
        is_open, covered = self._one_by_one, self._covered.mask
        if not checkpointed:
            is_open |= covered
        for begin in range(0, len(self._places), most):
            part = self._places[begin : begin + most]
            in_columns = part[~is_open[part]]
            stored, untouched = in_columns[covered[in_columns]], in_columns[~covered[in_columns]]
            yield TaskParts(
                self._columns(untouched, inputs) if len(untouched) else None,
                self._checkpointed(stored, inputs) if len(stored) else None,
                list(self._made(part[is_open[part]])),
            )

    @property
    def _one_by_one(self) -> Mask:
        if self._resolved.filter.columns:  # each fragment has checkpoints under a filter of its own
            return np.ones(len(self._statuses), np.bool_)
        is_open = np.zeros(len(self._statuses), np.bool_)
        is_open[list(self._opened)] = True
        return is_open

    def _checkpointed(self, places: Numbers, inputs: _InputFiles) -> CheckpointedFragments:
        fragments = replace(self._columns(places, inputs), reasons=[Reason.PARTIAL] * len(places))
        return CheckpointedFragments(fragments, self._covered.of(places))

    def _columns(self, places: Numbers, inputs: _InputFiles) -> UntouchedFragments:
        resolved, statuses = self._resolved, self._statuses
        fragments = statuses.fragments
        files, first = inputs.of(places)
        return UntouchedFragments(
            ids=fragments.ids[places],
            physical_rows=fragments.physical_rows[places],
            deleted_rows=fragments.deleted_rows[places],
            reasons=[REASONS[code] for code in statuses.reasons[places].tolist()],
            sources=statuses.source_digests(places),
            function=resolved.versions[0],
            prefix=_Prefixes(resolved.family)[resolved.filter_identity(fragments[int(places[0])])],
            input_files=files,
            first_input=first,
            current_files=statuses.current_paths(places),
        )

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Tasks) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class _InputFiles:
    """The files of the inputs, of all fragments."""

    def __init__(self, resolved: ResolvedRequest, fragments: FragmentColumns) -> None:
        self._resolved = resolved
        self._fragments = fragments
        self._first, self._count = fragments.files_with(resolved.input_ids)

    def of(self, places: Numbers) -> tuple[pa.LargeStringArray, Numbers]:
        """Return those of some fragments one after the other, and where those of each begin."""
        if self._resolved.past is None and bool((self._count[places] == 1).all()):
            return self._fragments.paths_at(self._first[places]), np.arange(len(places) + 1)
        each = [self._resolved.input_files(fragment) for fragment in self._fragments.some(places)]
        return pa.array([file for files in each for file in files], pa.large_string()), offsets_of_counts(
            map(len, each)
        )


def _untouched(status: FragmentStatus) -> PendingFragment:
    return PendingFragment(status, status.reason, extends=False, missing=whole_range(status.fragment.physical_rows))


def open_fragment(
    resolved: ResolvedRequest,
    status: FragmentStatus,
    decision: ReuseDecision,
    stored_work: StoredWork,
    records: Sequence[tuple[str, FragmentRecord]],
    found: Sequence[keys.FamilyKey],
    *,
    kept: Sequence[KeptKeys] = (),
) -> PendingFragment:
    """Say what is stored of a fragment with work, and which of its rows are missing.

    Args:
        records: the fragment's own, each with the md5 of the filter that its file was made under.
        found: its checkpoints.
        kept: its checkpoints of functions whose values the column keeps.
    """
    extends = decision.states is not None
    failed = 0
    if decision.states is not None and not resolved.failed_only:
        failed = stored_work.failed_now(status.fragment.fragment_id, decision.states).live
    rows = status.fragment.physical_rows
    staged = _staged(resolved, status, records, stored_work) if records else None
    if staged is not None:
        return PendingFragment(status, Reason.STAGED, extends, (), (), staged.staged, failed)
    if not (found or kept):
        return PendingFragment(status, decision.reason, extends, whole_range(rows), (), None, failed)
    filter_id = keys.md5_of_few(resolved.filter_identity(status.fragment))
    if resolved.failed_only:  # others' checkpoints hold the failures that are to be tried again
        found = [entry for entry in found if entry.filter_id == filter_id]
    refs, missing = _cover(rows, filter_id if _settles(resolved, status, decision) else None, found)
    of_kept, known = _of_kept(status, rows, missing, kept)
    if of_kept:
        refs = sorted([*refs, *of_kept], key=lambda ref: (ref.range, ref.key))
    return PendingFragment(
        status, Reason.PARTIAL if refs else decision.reason, extends, tuple(missing), tuple(refs), None, failed, known
    )


def _of_kept(
    status: FragmentStatus, rows: int, missing: Sequence[RowRange], kept: Sequence[KeptKeys]
) -> tuple[list[CheckpointRef], dict[int, int]]:
    """Return the checkpoints of kept functions that hold missing rows, and how many of these rows, by version.

    Such a checkpoint settles nothing: rows on which the kept function failed are left to the new one. What it was
    computed for counts as known all the same, unless another filter chose its rows.
    """
    refs: list[CheckpointRef] = []
    known: dict[int, int] = {}
    left = list(missing)
    for version, resolved, found in kept:
        asked = keys.md5_of_few(resolved.filter_identity(status.fragment))
        ranges = []
        for key, filter_id, _, _, covered in found:
            if covered is None or not covered.start < covered.end <= rows:
                continue
            if any(covered.intersect(part) for part in missing):
                refs.append(CheckpointRef(key, covered, settles=False, version=version))
                ranges += [covered] if filter_id == asked else []
        after = subtract_ranges(left, ranges)
        if len(ranges) and (count := count_offsets(left) - count_offsets(after)):
            known[version] = count
        left = after
    return refs, known


def _task(resolved: ResolvedRequest, pending: PendingFragment, prefixes: _Prefixes) -> FragmentTask:
    status, reason, extends, missing, checkpoints, staged, failed_before, _ = pending
    fragment, _, fingerprint, sources, current_file, moved, _ = status
    return FragmentTask(
        fragment.fragment_id,
        fragment.physical_rows,
        fragment.deleted_rows,
        reason,
        fingerprint,
        prefixes[resolved.filter_identity(fragment)] + sources,
        resolved.input_files(fragment),
        current_file,
        extends,
        missing,
        checkpoints,
        staged,
        moved.states if moved is not None else b"",
        failed_before,
    )


class _Prefixes(dict[str, str]):
    """Beginnings of checkpoint prefixes by filter identity."""

    def __init__(self, family: keys.KeyFamily) -> None:
        self._family = family

    def __missing__(self, identity: str) -> str:
        found = self[identity] = self._family.before_inputs(keys.md5_of_few(identity))
        return found


def _settles(resolved: ResolvedRequest, status: FragmentStatus, decision: ReuseDecision) -> bool:
    """Return whether checkpoints of the same filter say of all rows of their range what is to become of them."""
    if resolved.failed_only:
        return True  # the file whose rows the filter reads is part of its identity
    # rows beside the filter keep the values of another function's file: what has them of this one settles nothing
    others = resolved.selective and status.current_file and decision.states is None
    return not resolved.filter.reads_output and not others


def _cover(
    rows: int, filter_id: str | None, found: Sequence[keys.FamilyKey]
) -> tuple[list[CheckpointRef], list[RowRange]]:
    """Return the checkpoints to be reused, in order, and the ranges that they leave open.

    Only checkpoints under the same filter settle a range. Of others it is known which rows they have, but not which of
    them this filter asks for: under a filter the rest must keep its values, and without one the rows between are open.

    Checkpoints of other filters are named in settled ranges too: a restore may have brought rows back that were deleted
    when the settling checkpoint was stored.

    Args:
        filter_id: None: nothing settles. That holds for a filter over the output column itself, which may match other
            rows by now.
    """
    settling: list[CheckpointRef] = []
    others: list[CheckpointRef] = []
    missing: list[RowRange] = []
    end = 0
    ordered = found if len(found) == 1 else sorted(found, key=_by_range)
    for key, written_under, _, _, covered in ordered:
        if covered is None or not covered.start < covered.end <= rows:
            continue
        if written_under != filter_id:
            others.append(CheckpointRef(key, covered, settles=False))
        elif covered.end > end:
            if covered.start > end:
                missing.append(RowRange(end, covered.start))
            settling.append(CheckpointRef(key, covered))
            end = covered.end
    if end < rows:
        missing.append(RowRange(end, rows))
    return sorted([*settling, *others], key=lambda ref: (ref.range, ref.key)) if others else settling, missing


def _by_range(found: keys.FamilyKey) -> tuple[int, int, str]:
    start, end = found.range or (0, 0)
    return start, -end, found.key


def _staged(
    resolved: ResolvedRequest,
    status: FragmentStatus,
    candidates: Sequence[tuple[str, FragmentRecord]],
    stored_work: StoredWork,
) -> FragmentRecord | None:
    """Return a finished file that only has to be committed; of several the one with the most values."""

    def states(record: FragmentRecord) -> StateSummary | None:
        found = stored_work.states.get(record.file)
        return found and row_states.summary_for_version(found, keys.function_of(status.fingerprint), resolved.versions)

    valid = [r for filter_id, r in candidates if _usable(resolved, status, filter_id, r, states(r))]
    return max(valid, key=lambda r: (r.rows_computed, r.file), default=None)


def _usable(
    resolved: ResolvedRequest,
    status: FragmentStatus,
    filter_id: str,
    record: FragmentRecord,
    states: StateSummary | None,
) -> bool:
    """Return whether a finished file may be committed as it is for this request."""
    name = keys.parse_column_file_name(record.file)
    ids = set(record.output_field_ids)
    if (
        name is None
        or name.fingerprint != status.fingerprint
        or record.fingerprint != status.fingerprint
        or record.column_id != resolved.output.column_id
        or not ids
        or not ids.issubset(resolved.output.field.field_ids)
        or tuple(sorted(record.src_data_files)) != resolved.input_files(status.fragment)
        or not record.may_replace(status.current_file)
        or record.physical_rows != status.fragment.physical_rows
    ):
        return False
    wanted = keys.md5_of_few(resolved.filter_identity(status.fragment))
    if (resolved.selective or resolved.failed_only) and filter_id != wanted:
        return False
    if resolved.failed_only:
        return True
    return not name.partial or _covers(states, wanted if resolved.selective else "")


def _covers(states: StateSummary | None, filter_id: str) -> bool:
    """Return whether nothing is left to do in a partial file, for a filter (empty: for all rows)."""
    if states is None:
        return False
    return states.untouched + states.failed_older == 0 or filter_id in states.filters
