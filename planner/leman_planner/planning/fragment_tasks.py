"""Make the task of each fragment with work. Pure.

A table may have a million fragments. So fragments without stored work, or with only checkpoints of the request's own
filter, are handled together with arrays. All others are handled one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from leman_core.model import keys, row_ids, row_states
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason, StagedFile
from leman_core.model.plan_columns import (
    BATCH_TASKS,
    FragmentColumns,
    Mask,
    Numbers,
    PlannedTasks,
    RangeKeys,
    RangeLists,
    TaskKeys,
    offsets_of_counts,
    task_batch,
    task_columns,
    whole_range,
)
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import REASONS, Codes, FragmentStatus, Statuses
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import FoundCheckpoints, StoredWork


def cover_fragments(
    resolved: ResolvedRequest, statuses: Statuses, found: FoundCheckpoints | None, others: Mask
) -> RangeLists:
    """Return the ranges of the checkpoints of each fragment that has no other stored work.

    A fragment's list is empty if one of its checkpoints does not settle its range. It is then handled by itself.

    Args:
        resolved: The request.
        statuses: The statuses of all fragments.
        found: The checkpoints, if any.
        others: Which fragments have other stored work.
    """
    if found is None:
        none = np.zeros(0, np.int64)
        return _range_lists(len(statuses), none, none, none)
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
    return _range_lists(len(statuses), places[chosen], known.starts[chosen], known.ends[chosen])


def _settle(resolved: ResolvedRequest, statuses: Statuses, found: RangeKeys, places: Numbers) -> Mask:
    """Return which checkpoints settle all rows of their range; see `_settles`.

    If the filter's identity may differ between fragments, no checkpoint is returned as settling.
    """
    if resolved.failed_only or resolved.filter.columns or resolved.filter.reads_output or not len(found):
        return np.zeros(len(found), np.bool_)
    identity = resolved.filter_identity(statuses.fragments[int(places[0])])
    same: Mask = found.filters == keys.md5_of_few(identity).encode()
    return same & ~statuses.with_file(places) if resolved.selective else same


def _range_lists(fragments: int, places: Numbers, begins: Numbers, ends: Numbers) -> RangeLists:
    """Return the ranges of each fragment, without ranges that lie within an earlier range.

    Args:
        fragments: The number of fragments in the table.
        places: The fragment of each range. Ranges of one fragment are adjacent.
        begins: The beginnings of the ranges, ascending within each fragment.
        ends: Their ends, descending among ranges with the same beginning.
    """
    apart = int(ends.max(initial=0)) + 1  # an offset between fragments, so that their ranges do not overlap
    nth = np.cumsum(np.diff(places, prepend=-1) != 0) - 1
    further = np.diff(np.maximum.accumulate(ends + nth * apart), prepend=-1) > 0
    places, begins, ends = places[further], begins[further], ends[further]
    order = np.argsort(places, kind="stable")
    return RangeLists(offsets_of_counts(np.bincount(places, minlength=fragments)), begins[order], ends[order])


class PendingFragment(NamedTuple):
    """A fragment with work: its stored and its missing rows."""

    status: FragmentStatus
    reason: Reason
    extends: bool
    missing: tuple[RowRange, ...]
    checkpoints: tuple[CheckpointRef, ...] = ()
    staged: StagedFile | None = None
    #: The number of rows that failed and are not retried.
    failed_before: int = 0
    #: By version of a kept function, an upper bound of the missing rows whose values are in checkpoints.
    kept: Mapping[int, int] = MappingProxyType({})


class HeldValues(NamedTuple):
    """The decision about a fragment's values; see `Decisions`."""

    reason: Reason
    states: StateSummary | None


class KeptKeys(NamedTuple):
    """Checkpoints of a fragment with values of a kept function."""

    #: The function's index in `ResolvedRequest.versions`, from 1 on.
    version: int
    #: The request for this function.
    resolved: ResolvedRequest
    found: Sequence[keys.FamilyKey]


def make_tasks(
    resolved: ResolvedRequest,
    statuses: Statuses,
    codes: Codes,
    places: Numbers,
    opened: Mapping[int, PendingFragment],
    covered: RangeLists,
) -> PlannedTasks:
    """Return the tasks of fragments with work.

    Args:
        resolved: The request.
        statuses: The statuses of all fragments.
        codes: The reasons of all fragments.
        places: The places of the fragments with work, ordered by fragment id.
        opened: Fragments that were handled one by one, by place.
        covered: The result of `cover_fragments`. If a fragment is neither in `opened` nor here, all its rows are
            missing.
    """
    if not len(places):
        return PlannedTasks()
    batches = _TaskBatches(resolved, statuses, codes, opened, covered)
    parts = (places[begin : begin + BATCH_TASKS] for begin in range(0, len(places), BATCH_TASKS))
    return PlannedTasks(map(batches.batch, parts))


class _TaskBatches:
    """Makes record batches of tasks; see `make_tasks` for the arguments."""

    def __init__(
        self,
        resolved: ResolvedRequest,
        statuses: Statuses,
        codes: Codes,
        opened: Mapping[int, PendingFragment],
        covered: RangeLists,
    ) -> None:
        self._resolved = resolved
        self._statuses = statuses
        self._codes = codes
        self._opened = opened
        self._covered = covered
        self._inputs = _InputFiles(resolved, statuses.fragments)
        self._prefixes = _Prefixes(resolved.family)
        # A filter over other columns has a different identity in each fragment.
        self._by_itself = np.full(len(statuses), bool(resolved.filter.columns))
        self._by_itself[list(opened)] = True

    def batch(self, places: Numbers) -> pa.RecordBatch:
        """Return the tasks at some places, at least one."""
        by_itself = self._by_itself[places]
        if not by_itself.any():
            return self._columns(places)
        made = task_batch([self._task(at) for at in places[by_itself].tolist()])
        if by_itself.all():
            return made
        parts = [pa.Table.from_batches([part]) for part in (made, self._columns(places[~by_itself]))]
        both = pa.concat_tables(parts, promote_options="default").unify_dictionaries().combine_chunks()
        order = np.argsort(np.concatenate([np.flatnonzero(by_itself), np.flatnonzero(~by_itself)]))
        return both.take(pa.array(order)).combine_chunks().to_batches()[0]

    def _task(self, at: int) -> FragmentTask:
        pending = self._opened.get(at) or _untouched(self._statuses[at])
        return _task(self._resolved, pending, self._prefixes)

    def _columns(self, places: Numbers) -> pa.RecordBatch:
        resolved, statuses = self._resolved, self._statuses
        codes = pa.array(self._codes[places], pa.int32())
        return task_columns(
            fragments=statuses.fragments,
            places=places,
            reasons=pa.DictionaryArray.from_arrays(codes, pa.array([reason.value for reason in REASONS])),
            keys=TaskKeys(
                function=resolved.versions[0],
                prefix=self._prefixes[resolved.filter_identity(statuses.fragments[int(places[0])])],
                sources=statuses.source_digests(places),
            ),
            input_files=self._inputs.of(places),
            current_files=statuses.current_paths(places) if statuses.with_file(places).any() else None,
            checkpoints=self._covered.take(places),
        )


class _InputFiles:
    def __init__(self, resolved: ResolvedRequest, fragments: FragmentColumns) -> None:
        self._resolved = resolved
        self._fragments = fragments
        self._first, self._count = fragments.files_with(resolved.input_ids)

    def of(self, places: Numbers) -> pa.ListArray:
        if self._resolved.past is None and bool((self._count[places] == 1).all()):
            files = self._fragments.paths_at(self._first[places])
            return pa.ListArray.from_arrays(pa.array(np.arange(len(places) + 1), pa.int32()), files)
        each = [self._resolved.input_files(fragment) for fragment in self._fragments.take(places)]
        return pa.array(each, pa.list_(pa.large_string()))


def _untouched(status: FragmentStatus) -> PendingFragment:
    return PendingFragment(status, status.reason, extends=False, missing=whole_range(status.fragment.physical_rows))


def open_fragment(
    resolved: ResolvedRequest,
    status: FragmentStatus,
    held: HeldValues,
    stored_work: StoredWork,
    records: Sequence[tuple[str, FragmentRecord]],
    found: Sequence[keys.FamilyKey],
    *,
    kept: Sequence[KeptKeys] = (),
) -> PendingFragment:
    """Return a fragment with work, with its stored and its missing rows.

    Args:
        resolved: The request.
        status: The status of the fragment.
        held: The decision about its values.
        stored_work: The stored work of all fragments.
        records: Its records, each with the md5 of the filter of its file.
        found: Its checkpoints.
        kept: Its checkpoints of kept functions.
    """
    extends = held.states is not None
    failed = 0
    if held.states is not None and not resolved.failed_only:
        failed = stored_work.failed_now(status.fragment.fragment_id, held.states).live
    rows = status.fragment.physical_rows
    staged = _staged(resolved, status, records, stored_work) if records else None
    if staged is not None:
        return PendingFragment(status, Reason.STAGED, extends, (), (), staged.staged, failed)
    if not (found or kept):
        return PendingFragment(status, held.reason, extends, whole_range(rows), (), None, failed)
    filter_id = keys.md5_of_few(resolved.filter_identity(status.fragment))
    if resolved.failed_only:  # checkpoints of other filters contain the failures that are retried
        found = [entry for entry in found if entry.filter_id == filter_id]
    refs, missing = _cover(rows, filter_id if _settles(resolved, status, held) else None, found)
    of_kept, known = _of_kept(status, rows, missing, kept)
    if of_kept:
        refs = sorted([*refs, *of_kept], key=lambda ref: (ref.range, ref.key))
    return PendingFragment(
        status, Reason.PARTIAL if refs else held.reason, extends, tuple(missing), tuple(refs), None, failed, known
    )


def _of_kept(
    status: FragmentStatus, rows: int, missing: Sequence[RowRange], kept: Sequence[KeptKeys]
) -> tuple[list[CheckpointRef], dict[int, int]]:
    """Return the checkpoints of kept functions that have missing rows, and the number of these rows by version.

    Such a checkpoint does not settle its range, because the new function computes the rows on which the kept function
    failed. All rows of the checkpoint still count as kept, unless another filter selected them.
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
    """The beginnings of checkpoint keys, by filter identity."""

    def __init__(self, family: keys.KeyFamily) -> None:
        self._family = family

    def __missing__(self, identity: str) -> str:
        found = self[identity] = self._family.before_inputs(keys.md5_of_few(identity))
        return found


def _settles(resolved: ResolvedRequest, status: FragmentStatus, held: HeldValues) -> bool:
    """Return whether a checkpoint of the same filter settles all rows of its range."""
    if resolved.failed_only:
        return True  # the filter's identity contains the file with the failed rows
    # Rows outside the filter keep the values in another function's file. A checkpoint of this function lacks them.
    others = resolved.selective and status.current_file and held.states is None
    return not resolved.filter.reads_output and not others


def _cover(
    rows: int, filter_id: str | None, found: Sequence[keys.FamilyKey]
) -> tuple[list[CheckpointRef], list[RowRange]]:
    """Return the checkpoints to reuse, in order, and the ranges that they do not settle.

    Only checkpoints of the same filter settle a range. A checkpoint of another filter shows which rows it has, but not
    which rows the present filter selects. Checkpoints of other filters are also returned for settled ranges, because a
    restore may bring back rows that were deleted when the settling checkpoint was stored.

    Args:
        rows: The number of physical rows of the fragment.
        filter_id: The filter whose checkpoints settle their ranges. None if no checkpoint does, as for a filter over
            the output column, which may match other rows now.
        found: The checkpoints.
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
    """Return a finished file that only has to be committed, or None. Of several, return that with the most values."""

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
    """Return whether a finished file may be committed unchanged for this request."""
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
    """Return whether a partial file settles all rows that a filter selects. An empty filter selects all rows."""
    if states is None:
        return False
    return states.untouched + states.failed_older == 0 or filter_id in states.filters
