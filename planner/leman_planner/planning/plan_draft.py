"""From what is there to what is left to do. Pure: the same stored work gives the same plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from leman_core.model import row_ids
from leman_core.model.keys import FamilyKey
from leman_core.model.plan import KeptRows, Plan, PlanHeader, Reason, ReasonCount, TracedFile
from leman_core.model.plan_columns import CheckpointColumns, FragmentColumns, Numbers
from leman_core.model.row_positions import count_offsets
from leman_core.model.row_states import StateSummary
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import (
    CODE,
    REASONS,
    SETTLES,
    Codes,
    FragmentStatus,
    Mask,
    Moved,
    ReuseDecision,
    Statuses,
    outcome_codes,
)
from leman_planner.planning.fragment_tasks import KeptKeys, PendingFragment, Tasks, cover_fragments, open_fragment
from leman_planner.planning.request_resolution import ResolvedRequest, given_types, with_names_now
from leman_planner.planning.stored_work import NONE_FAILED, FailedNow, KeptWork, Slot, StoredWork, decided_at


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
        """Count fragments by their reasons."""
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
        """Count what is stored of a fragment with work."""
        self.fragments_collected += 1
        if pending.staged is not None:
            self.rows_collected += pending.staged.physical_rows
            self.ready += pending.status.fragment.live_rows
        else:
            settled = count_offsets([ref.range for ref in pending.checkpoints if ref.settles])
            self.rows_collected += settled + sum(pending.kept.values())

    def collect_covered(self, stored: CheckpointColumns, asked: Numbers) -> None:
        """Count what is stored of fragments with nothing but checkpoints, and what is left.

        Args:
            asked: the rows of each that are asked for.
        """
        left = np.minimum(asked, stored.rows_missing)
        self.fragments_collected += len(stored)
        self.rows_collected += int(stored.rows_stored.sum())
        self.to_compute += int(left.sum())
        self.reused += int((asked - left).sum())

    def reasons(self) -> tuple[ReasonCount, ...]:
        return tuple(ReasonCount(r, self.fragments[r], self.rows[r]) for r in Reason if r in self.fragments)


class Draft(NamedTuple):
    """A plan, and how many fragments and rows of it are stored already, in checkpoints or finished files."""

    plan: Plan
    fragments_collected: int
    rows_collected: int
    #: Live rows of finished files that only have to be committed.
    rows_ready: int


def make_plan(resolved: ResolvedRequest, statuses: Statuses, stored_work: StoredWork) -> Plan:
    """Return the plan alone; see `draft`."""
    return draft_plan(resolved, statuses, stored_work).plan


def draft_plan(resolved: ResolvedRequest, statuses: Statuses, stored_work: StoredWork) -> Draft:
    """Make a plan from the statuses of all fragments and what is stored.

    The header counts all fragments by reason. `num_frags` cuts the tasks, and with them `rows_to_compute`. Fragments
    are decided about one by one where row states, checkpoints or finished files are known of them, and the others, of
    which there may be a million, all at once.

    Args:
        statuses: those of `statuses.inspect`; those of compacted fragments with what is known of their rows.
    """
    fragments = statuses.fragments
    asked = _rows_asked(resolved, fragments)
    codes = outcome_codes(statuses, failed_only=resolved.failed_only).copy()
    totals = _Totals()
    stored = _Stored(resolved, statuses, stored_work)
    for at, decision in stored.decisions.items():
        codes[at] = CODE[decision.reason]
    order = statuses.in_order
    unsettled = order[~SETTLES[codes[order]]]
    opened = {at: stored.open(at) for at in unsettled[stored.mask[unsettled]].tolist()}
    for at, pending in opened.items():
        codes[at] = CODE[pending.reason]
    covered = stored.covered
    codes[covered.places] = CODE[Reason.PARTIAL]
    totals.count(codes, asked)
    totals.reused = int(asked[SETTLES[codes]].sum())
    stored.count_settled(totals, opened)
    if resolved.kept:
        _count_kept(resolved, statuses, stored, totals)
    if resolved.failed_only:
        totals.not_computed = _not_computed(statuses, stored)
    taken = unsettled[: resolved.num_frags or None]
    from_checkpoints, by_itself = covered.mask[taken], stored.mask[taken]
    totals.to_compute = int(asked[taken[~(from_checkpoints | by_itself)]].sum())
    totals.collect_covered(covered.of(taken[from_checkpoints]), asked[taken[from_checkpoints]])
    for at in taken[by_itself].tolist():
        stored.count_open(totals, at, opened[at], int(asked[at]))
    tasks = Tasks(resolved, statuses, taken, opened, covered)
    plan = Plan(_header(resolved, totals), tasks, tuple(newly_traced_files(resolved, _moved(statuses))))
    return Draft(plan, totals.fragments_collected, totals.rows_collected, totals.ready)


class _Stored:
    """The fragments of which something is stored, and what is decided about each that is decided about by itself."""

    def __init__(self, resolved: ResolvedRequest, statuses: Statuses, stored_work: StoredWork) -> None:
        self._resolved = resolved
        self._stored_work = stored_work
        self._records = _by_fragment(resolved, stored_work.records)
        self._found: Mapping[int, Sequence[FamilyKey]] = {}
        self._kept = [_by_id(work) for work in stored_work.kept]
        known = {fragment_id for _, fragment_id in self._records}.union(*(found for _, _, found in self._kept))
        mask = statuses.with_states | statuses.fragments.with_ids(known)
        #: Those of which nothing but checkpoints is stored that settle their ranges.
        self.covered = cover_fragments(resolved, statuses, stored_work.found, mask)
        if stored_work.found is not None:
            found = row_ids.isin_sorted(stored_work.found.fragment_ids, statuses.fragments.ids)
            mask |= found & ~self.covered.mask
            self._found = stored_work.found.of(statuses.fragments.ids[mask])
        #: Of each fragment, whether it is one of the others.
        self.mask: Mask = mask
        places = np.flatnonzero(self.mask)
        rest = places[[at not in stored_work.decided for at in places.tolist()]]
        decided = {**stored_work.decided, **decided_at(resolved, statuses, stored_work.states, rest)}
        self._known = {at: status for at, (status, _) in decided.items()}
        self.decisions = {at: decision for at, (_, decision) in decided.items()}

    def open(self, at: int) -> PendingFragment:
        """Return a fragment with work."""
        status = self._known[at]
        fragment_id = status.fragment.fragment_id
        records, found = self._records.get((status.sources, fragment_id), ()), self._found.get(fragment_id, ())
        kept = [KeptKeys(n, asked, by_id[fragment_id]) for n, asked, by_id in self._kept if fragment_id in by_id]
        return open_fragment(self._resolved, status, self.decisions[at], self._stored_work, records, found, kept=kept)

    def count_settled(self, totals: _Totals, opened: Container[int]) -> None:
        """Count the failed rows of fragments with nothing to do."""
        for at, decision in self.decisions.items():
            if at not in opened and decision.states is not None and decision.states.failed:
                totals.failed += self._failed_now(at, decision).asked

    def count_open(self, totals: _Totals, at: int, pending: PendingFragment, asked: int) -> None:
        """Count what is stored of a fragment with work, and what is left; `asked`: its rows that are asked for."""
        decision = self.decisions[at]
        failed = self._failed_now(at, decision)
        left = _rows_left(self._resolved, pending, decision, failed)
        if pending.checkpoints or pending.staged is not None:
            totals.collect(pending)
            # checkpoints may hold rows that the fragment's file has, too: those are counted with the file
            unknown = asked if decision.states is None else decision.states.untouched + decision.states.failed_older
            for version, known in pending.kept.items():
                rows = max(0, min(known, unknown - left))
                totals.kept[self._resolved.versions[version]] += rows
                unknown -= rows
        totals.to_compute += left
        totals.reused += asked - left
        totals.failed += 0 if self._resolved.failed_only else failed.asked

    def kept_now(self, at: int, states: StateSummary) -> Mapping[str, int]:
        """Return the rows of a fragment with values of earlier versions, by version."""
        return self._stored_work.kept_now(self._known[at].fragment.fragment_id, states)

    def _failed_now(self, at: int, decision: ReuseDecision) -> FailedNow:
        if decision.states is None:
            return NONE_FAILED
        return self._stored_work.failed_now(self._known[at].fragment.fragment_id, decision.states)


def _rows_asked(resolved: ResolvedRequest, fragments: FragmentColumns) -> Numbers:
    """Return what `ResolvedRequest.rows_asked` does, of all fragments."""
    live = fragments.live_rows
    if resolved.past is not None:
        for at in np.flatnonzero(fragments.with_ids(resolved.past.moved)).tolist():
            live[at] = min(live[at], resolved.past.moved[int(fragments.ids[at])])
    return live


def _moved(statuses: Statuses) -> Iterator[FragmentStatus]:
    """Yield the statuses of compacted fragments, in the order of their ids."""
    return iter(sorted(statuses.others.values(), key=lambda status: status.fragment.fragment_id))


def _count_kept(resolved: ResolvedRequest, statuses: Statuses, stored: _Stored, totals: _Totals) -> None:
    """Count the rows with values of earlier versions."""
    known = [at for at, decision in stored.decisions.items() if decision.states is not None]
    for at in known:
        if (states := stored.decisions[at].states) is not None:
            totals.keep(stored.kept_now(at, states))
    whole = statuses.reasons == CODE[Reason.REUSED]
    whole[known] = False
    rows = np.bincount(statuses.versions[whole], statuses.fragments.live_rows[whole], len(resolved.versions))
    for part, count in zip(resolved.versions[1:], rows[1:].tolist(), strict=True):
        totals.kept[part] += int(count)


def _by_id(work: KeptWork) -> tuple[int, ResolvedRequest, Mapping[int, Sequence[FamilyKey]]]:
    """Return a kept function's version and request, and its checkpoints by id of their fragment."""
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
    """Yield what this plan found out about files that compaction wrote, and no earlier run recorded."""
    return (
        traced_file(resolved, status, status.moved)
        for status in statuses
        if status.moved is not None and not status.moved.recorded
    )


def traced_file(resolved: ResolvedRequest, status: FragmentStatus, moved: Moved) -> TracedFile:
    """Return what is known of the rows of a fragment's file."""
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
    """Count the rows that a request for failed rows leaves for a plain backfill."""
    live = statuses.fragments.live_rows
    known = {at: decision.states for at, decision in stored.decisions.items() if decision.states is not None}
    plain = ~SETTLES[statuses.reasons]
    plain[list(known)] = False
    return int(live[plain].sum()) + sum(min(states.untouched, int(live[at])) for at, states in known.items())


def _rows_left(resolved: ResolvedRequest, pending: PendingFragment, decision: ReuseDecision, failed: FailedNow) -> int:
    """Return how many rows may have to be computed at the most: which rows of a range are deleted is not looked up."""
    if pending.staged is not None:
        return 0
    left = resolved.rows_asked(pending.status.fragment)
    if pending.checkpoints:  # else all of them are missing
        left = min(left, count_offsets(pending.missing) - sum(pending.kept.values()))
    if decision.states is None:
        return left
    open_rows = failed.asked if resolved.failed_only else decision.states.untouched
    return min(left, open_rows + decision.states.failed_older)


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
