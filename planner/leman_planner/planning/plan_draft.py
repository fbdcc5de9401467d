"""Decide which work is left. Pure: the same table and stored work always give the same plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from leman_core.model import row_ids
from leman_core.model.keys import FamilyKey
from leman_core.model.plan import KeptRows, Plan, PlanHeader, Reason, ReasonCount, TracedFile
from leman_core.model.plan_columns import FragmentColumns, Mask, Numbers, RangeLists
from leman_core.model.row_positions import count_offsets
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import (
    CODE,
    REASONS,
    SETTLES,
    Codes,
    FragmentStatus,
    Moved,
    Statuses,
    decide_reuse,
)
from leman_planner.planning.fragment_tasks import (
    HeldValues,
    KeptKeys,
    PendingFragment,
    cover_fragments,
    make_tasks,
    open_fragment,
)
from leman_planner.planning.request_resolution import ResolvedRequest, given_types, with_names_now
from leman_planner.planning.stored_work import NONE_FAILED, FailedNow, KeptWork, Slot, StoredWork


@dataclass(slots=True)
class _Totals:
    fragments: dict[Reason, int] = field(default_factory=lambda: defaultdict(int))
    rows: dict[Reason, int] = field(default_factory=lambda: defaultdict(int))
    live: int = 0
    reused: int = 0
    to_compute: int = 0
    failed: int = 0
    not_computed: int = 0
    fragments_collected: int = 0
    rows_collected: int = 0
    ready: int = 0
    kept: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def count(self, codes: Codes, live: Numbers) -> None:
        fragments = np.bincount(codes, minlength=len(REASONS))
        rows = np.bincount(codes, live, len(REASONS)).astype(np.int64) if len(codes) else fragments
        for reason in np.flatnonzero(fragments).tolist():
            self.fragments[REASONS[reason]] += int(fragments[reason])
            self.rows[REASONS[reason]] += int(rows[reason])
        self.live += int(live.sum())

    def keep(self, rows: Mapping[str, int]) -> None:
        """Count the rows of a fragment with values of earlier versions."""
        for part, computed in rows.items():
            self.kept[part] += computed

    def collect(self, pending: PendingFragment) -> None:
        """Count the stored rows of a fragment with work."""
        self.fragments_collected += 1
        if pending.staged is not None:
            self.rows_collected += pending.staged.physical_rows
            self.ready += pending.status.fragment.live_rows
        else:
            settled = count_offsets([ref.range for ref in pending.checkpoints if ref.settles])
            self.rows_collected += settled + sum(pending.kept.values())

    def collect_covered(self, stored: RangeLists, rows: Numbers, asked: Numbers) -> None:
        """Count the stored and the remaining rows of fragments that have only checkpoints.

        Args:
            stored: The ranges of the checkpoints of each fragment.
            rows: The number of physical rows of each fragment.
            asked: The number of requested rows of each fragment.
        """
        left = np.minimum(asked, stored.gaps(rows).rows)
        self.fragments_collected += len(rows)
        self.rows_collected += int(stored.rows.sum())
        self.to_compute += int(left.sum())
        self.reused += int((asked - left).sum())

    def reasons(self) -> tuple[ReasonCount, ...]:
        return tuple(ReasonCount(r, self.fragments[r], self.rows[r]) for r in Reason if r in self.fragments)


class Draft(NamedTuple):
    """A plan, and the numbers of its fragments and rows that are already stored in checkpoints or finished files."""

    plan: Plan
    fragments_collected: int
    rows_collected: int
    #: The number of live rows in finished files that only have to be committed.
    rows_ready: int


def draft_plan(resolved: ResolvedRequest, statuses: Statuses, stored_work: StoredWork) -> Draft:
    """Make a plan from the statuses of all fragments and the stored work.

    The header counts all fragments by reason. `num_frags` limits the tasks, and so `rows_to_compute`. Fragments with
    row states, finished files or checkpoints of several filters are handled one by one, all others together with
    arrays.

    Args:
        resolved: The request.
        statuses: The statuses from `inspect_fragments`, and for compacted fragments those from `FileTracer`.
        stored_work: The stored work.
    """
    fragments = statuses.fragments
    asked = _rows_asked(resolved, fragments)
    totals = _Totals()
    stored = _Stored(resolved, statuses, stored_work)
    codes = stored.codes.copy()
    order = statuses.in_order
    unsettled = order[~SETTLES[codes[order]]]
    opened = stored.open(unsettled[stored.mask[unsettled]])
    for at, pending in opened.items():
        codes[at] = CODE[pending.reason]
    covered = stored.covered
    is_covered = np.diff(covered.first) > 0
    codes[is_covered] = CODE[Reason.PARTIAL]
    totals.count(codes, asked)
    totals.reused = int(asked[SETTLES[codes]].sum())
    stored.count_settled(totals, opened)
    if resolved.kept:
        _count_kept(resolved, statuses, stored, totals)
    if resolved.failed_only:
        totals.not_computed = _not_computed(statuses, stored)
    taken = unsettled[: resolved.num_frags or None]
    from_checkpoints, by_itself = is_covered[taken], stored.mask[taken]
    totals.to_compute = int(asked[taken[~(from_checkpoints | by_itself)]].sum())
    some = taken[from_checkpoints]
    if len(some):
        totals.collect_covered(covered.take(some), fragments.physical_rows[some], asked[some])
    for at in taken[by_itself].tolist():
        stored.count_open(totals, at, opened[at], int(asked[at]))
    tasks = make_tasks(resolved, statuses, codes, taken, opened, covered)
    plan = Plan(_header(resolved, totals), tasks, tuple(newly_traced_files(resolved, _moved(statuses))))
    return Draft(plan, totals.fragments_collected, totals.rows_collected, totals.ready)


class _Stored:
    def __init__(self, resolved: ResolvedRequest, statuses: Statuses, stored_work: StoredWork) -> None:
        self._resolved = resolved
        self._statuses = statuses
        self._stored_work = stored_work
        self._records = _by_fragment(resolved, stored_work.records)
        self._found: Mapping[int, Sequence[FamilyKey]] = {}
        self._kept = [_by_id(work) for work in stored_work.kept]
        known = {fragment_id for _, fragment_id in self._records}.union(*(found for _, _, found in self._kept))
        mask = statuses.with_states | statuses.fragments.with_ids(known)
        #: The checkpoints of each fragment that has only checkpoints, all of which settle their ranges.
        self.covered = cover_fragments(resolved, statuses, stored_work.found, mask)
        if stored_work.found is not None:
            found = row_ids.isin_sorted(stored_work.found.fragment_ids, statuses.fragments.ids)
            mask |= found & (np.diff(self.covered.first) == 0)
            self._found = stored_work.found.of(statuses.fragments.ids[mask])
        #: Which fragments have other stored work, and so are handled one by one.
        self.mask: Mask = mask
        #: See `Decisions`.
        self.codes, self.states = stored_work.decisions or decide_reuse(resolved, statuses, stored_work.states)

    def open(self, places: Numbers) -> dict[int, PendingFragment]:
        pairs = zip(places.tolist(), self._statuses.take(places), strict=True)
        return {at: self._opened(at, status) for at, status in pairs}

    def _opened(self, at: int, status: FragmentStatus) -> PendingFragment:
        fragment_id = status.fragment.fragment_id
        records, found = self._records.get((status.sources, fragment_id), ()), self._found.get(fragment_id, ())
        kept = [KeptKeys(n, asked, by_id[fragment_id]) for n, asked, by_id in self._kept if fragment_id in by_id]
        held = HeldValues(REASONS[self.codes[at]], self.states.get(at))
        return open_fragment(self._resolved, status, held, self._stored_work, records, found, kept=kept)

    def count_settled(self, totals: _Totals, opened: Container[int]) -> None:
        """Count the failed rows of fragments without work."""
        for at, states in self.states.items():
            if at not in opened and states.failed:
                totals.failed += self._failed_now(at).asked

    def count_open(self, totals: _Totals, at: int, pending: PendingFragment, asked: int) -> None:
        """Count the stored and the remaining rows of a fragment with work, in which `asked` rows are requested."""
        states = self.states.get(at)
        failed = self._failed_now(at)
        left = _rows_left(self._resolved, pending, states, failed)
        if pending.checkpoints or pending.staged is not None:
            totals.collect(pending)
            # Rows that are also in the fragment's file are counted with the file.
            unknown = asked if states is None else states.untouched + states.failed_older
            for version, known in pending.kept.items():
                rows = max(0, min(known, unknown - left))
                totals.kept[self._resolved.versions[version]] += rows
                unknown -= rows
        totals.to_compute += left
        totals.reused += asked - left
        totals.failed += 0 if self._resolved.failed_only else failed.asked

    def kept_now(self, at: int) -> Mapping[str, int]:
        """Return the numbers of a fragment's rows with values of earlier versions, by version."""
        return self._stored_work.kept_now(int(self._statuses.fragments.ids[at]), self.states[at])

    def _failed_now(self, at: int) -> FailedNow:
        states = self.states.get(at)
        if states is None:
            return NONE_FAILED
        return self._stored_work.failed_now(int(self._statuses.fragments.ids[at]), states)


def _rows_asked(resolved: ResolvedRequest, fragments: FragmentColumns) -> Numbers:
    live = fragments.live_rows
    if resolved.past is not None:
        for at in np.flatnonzero(fragments.with_ids(resolved.past.moved)).tolist():
            live[at] = min(live[at], resolved.past.moved[int(fragments.ids[at])])
    return live


def _moved(statuses: Statuses) -> Iterator[FragmentStatus]:
    """Return the statuses of compacted fragments, in the order of their ids."""
    return iter(sorted(statuses.others.values(), key=lambda status: status.fragment.fragment_id))


def _count_kept(resolved: ResolvedRequest, statuses: Statuses, stored: _Stored, totals: _Totals) -> None:
    for at in stored.states:
        totals.keep(stored.kept_now(at))
    whole = statuses.reasons == CODE[Reason.REUSED]
    whole[list(stored.states)] = False
    rows = np.bincount(statuses.versions[whole], statuses.fragments.live_rows[whole], len(resolved.versions))
    for part, count in zip(resolved.versions[1:], rows[1:].tolist(), strict=True):
        totals.kept[part] += int(count)


def _by_id(work: KeptWork) -> tuple[int, ResolvedRequest, Mapping[int, Sequence[FamilyKey]]]:
    """Return the version, the request and, by fragment id, the checkpoints of a kept function."""
    found = work.stored.found
    return work.version, work.resolved, {} if found is None else found.of(found.fragment_ids)


def _by_fragment(
    resolved: ResolvedRequest, stored: Mapping[str, FragmentRecord]
) -> dict[Slot, list[tuple[str, FragmentRecord]]]:
    """Group the fragment records by slot, each as (filter id, record)."""
    records = defaultdict(list)
    for key, filter_id, sources, fragment_id, covered in resolved.family.parse_all(stored):
        if covered is None:
            records[sources, fragment_id].append((filter_id, stored[key]))
    return records


def newly_traced_files(resolved: ResolvedRequest, statuses: Iterable[FragmentStatus]) -> Iterator[TracedFile]:
    """Yield records of files that compaction wrote and that no earlier run recorded."""
    return (
        traced_file(resolved, status, status.moved)
        for status in statuses
        if status.moved is not None and not status.moved.recorded
    )


def traced_file(resolved: ResolvedRequest, status: FragmentStatus, moved: Moved) -> TracedFile:
    """Return the record of a compacted fragment's file."""
    return TracedFile(
        fragment_id=status.fragment.fragment_id,
        file=status.current_file,
        physical_rows=status.fragment.physical_rows,
        fingerprint=status.fingerprint,
        input_files=resolved.input_files(status.fragment),
        row_states=moved.states,
        rows_computed=moved.summary.computed,
        rows_failed=moved.summary.failed,
        column_id=resolved.output.column_id,
        output_field_ids=resolved.output.field.field_ids,
    )


def _not_computed(statuses: Statuses, stored: _Stored) -> int:
    """Count the rows that a backfill would compute, but a retry of failed rows does not."""
    live = statuses.fragments.live_rows
    plain = ~SETTLES[statuses.reasons]
    plain[list(stored.states)] = False
    return int(live[plain].sum()) + sum(min(states.untouched, int(live[at])) for at, states in stored.states.items())


def _rows_left(
    resolved: ResolvedRequest, pending: PendingFragment, states: StateSummary | None, failed: FailedNow
) -> int:
    """Return an upper bound of the rows to compute. It is not exact, as deletions within ranges are not read."""
    if pending.staged is not None:
        return 0
    left = resolved.rows_asked(pending.status.fragment)
    if pending.checkpoints:  # otherwise all are missing
        left = min(left, count_offsets(pending.missing) - sum(pending.kept.values()))
    if states is None:
        return left
    open_rows = failed.asked if resolved.failed_only else states.untouched
    return min(left, open_rows + states.failed_older)


def _header(resolved: ResolvedRequest, totals: _Totals) -> PlanHeader:
    return PlanHeader(
        uri=resolved.table.uri,
        read_version=resolved.table.version,
        incarnation=resolved.table.incarnation,
        output=resolved.output,
        input_columns=tuple(column.name for column in resolved.read_inputs),
        input_types=given_types(resolved.read_inputs, resolved.names),
        udf=with_names_now(resolved.udf, resolved.read_inputs, resolved.names),
        bundle_uri=resolved.bundle_uri,
        where=resolved.filter.where,
        reasons=totals.reasons(),
        rows_total=totals.live,
        rows_reused=totals.reused,
        rows_to_compute=totals.to_compute,
        rows_failed_before=totals.failed,
        input_field_ids=resolved.input_ids,
        kept=_kept(resolved, totals),
        failed_only=resolved.failed_only,
        rows_not_computed=totals.not_computed,
        versions=resolved.versions,
        kept_functions=resolved.kept,
        input_source=resolved.source,
        inputs_version=0 if resolved.past is None else resolved.past.version,
        manifest=resolved.table.manifest,
        identity=resolved.table.version_identity,
    )


def _kept(resolved: ResolvedRequest, totals: _Totals) -> tuple[KeptRows, ...]:
    pairs = zip(resolved.kept, resolved.versions[1:], strict=True)
    return tuple(KeptRows(function, totals.kept[part]) for function, part in pairs if totals.kept.get(part))
