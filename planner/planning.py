"""From what is there to what is left to do. Pure: the same stored work gives the same plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.checkpoints.records import FragmentRecord
from core.domain.plan import (
    SETTLED,
    KeptRows,
    Plan,
    PlanHeader,
    Reason,
    ReasonCount,
    TracedFile,
)
from core.domain.ranges import total
from core.row_states import StateSummary
from planner.fragment_tasks import PendingFragment, Tasks, open_fragment
from planner.resolved_request import ResolvedRequest
from planner.reuse_decision import FragmentStatus, ReuseDecision, decide
from planner.stored_work import NONE_FAILED, FailedNow, Slot, StoredWork


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
    kept: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def keep(self, resolved: ResolvedRequest, status: FragmentStatus, states: StateSummary | None) -> None:
        """Count the rows with values of earlier versions."""
        if states is not None:
            for part, computed, _ in states.older:
                self.kept[part] += computed
        elif status.version and status.reason is Reason.REUSED:
            self.kept[resolved.versions[status.version]] += status.fragment.live_rows

    def settle(self, decision: ReuseDecision, live: int) -> None:
        """Count a fragment with nothing to do."""
        self.count(decision.reason, live)
        self.reused += live

    def count(self, reason: Reason, live: int) -> None:
        self.fragments[reason] += 1
        self.rows[reason] += live
        self.live += live

    def collect(self, pending: PendingFragment) -> None:
        """Count what is stored of a fragment with work."""
        self.fragments_collected += 1
        if pending.staged is not None:
            self.rows_collected += pending.staged.physical_rows
        else:
            self.rows_collected += total([ref.range for ref in pending.checkpoints if ref.settles])

    def reasons(self) -> tuple[ReasonCount, ...]:
        return tuple(ReasonCount(r, self.fragments[r], self.rows[r]) for r in Reason if r in self.fragments)


class Draft(NamedTuple):
    """A plan, and how many fragments and rows of it are stored already, in checkpoints or finished files."""

    plan: Plan
    fragments_collected: int
    rows_collected: int


def make_plan(resolved: ResolvedRequest, statuses: Sequence[FragmentStatus], stored_work: StoredWork) -> Plan:
    """Return the plan alone; see `draft`."""
    return draft(resolved, statuses, stored_work).plan


def draft(resolved: ResolvedRequest, statuses: Sequence[FragmentStatus], stored_work: StoredWork) -> Draft:
    """Make a plan from the statuses of all fragments and what is stored.

    The header counts all fragments by reason. `num_frags` cuts the tasks, and with them `rows_to_compute`.

    Args:
        statuses: those of `reuse_decision.inspect`; those of compacted fragments with what is known of their rows.
    """
    records = _by_fragment(resolved, stored_work.records)
    totals = _Totals()
    unsettled: list[PendingFragment] = []
    ordered = sorted(statuses, key=lambda s: s.fragment.fragment_id)
    for status in ordered:
        decision = decide(resolved, status, stored_work.states)
        live = resolved.rows_asked(status.fragment)
        if resolved.kept:
            totals.keep(resolved, status, decision.states)
        if resolved.failed_only:
            totals.not_computed += _not_computed(status, decision)
        if decision.settled:
            totals.settle(decision, live)
            if decision.states is not None and decision.states.failed:
                totals.failed += stored_work.failed_now(status.fragment.fragment_id, decision.states).asked
            continue
        stored = records.get((status.sources, status.fragment.fragment_id), ()) if records else ()
        pending = open_fragment(resolved, status, decision, stored_work, stored)
        totals.count(pending.reason, live)
        if resolved.num_frags and len(unsettled) >= resolved.num_frags:
            continue
        unsettled.append(pending)
        if pending.checkpoints or pending.staged is not None:
            totals.collect(pending)
        failed = NONE_FAILED
        if decision.states is not None:
            failed = stored_work.failed_now(status.fragment.fragment_id, decision.states)
        left = _rows_left(resolved, pending, decision, failed)
        totals.to_compute += left
        totals.reused += live - left
        totals.failed += 0 if resolved.failed_only else failed.asked
    plan = Plan(_header(resolved, totals), Tasks(resolved, unsettled), tuple(traced(resolved, ordered)))
    return Draft(plan, totals.fragments_collected, totals.rows_collected)


def _by_fragment(
    resolved: ResolvedRequest, stored: Mapping[str, FragmentRecord]
) -> dict[Slot, list[tuple[str, FragmentRecord]]]:
    """Group the fragment records by slot, each as (filter id, record)."""
    records = defaultdict(list)
    for key, filter_id, sources, fragment_id, covered in resolved.family.parse_all(stored):
        if covered is None:
            records[sources, fragment_id].append((filter_id, stored[key]))
    return records


def traced(resolved: ResolvedRequest, statuses: Iterable[FragmentStatus]) -> Iterator[TracedFile]:
    """Yield what this plan found out about files that compaction wrote, and no earlier run recorded."""
    return (
        TracedFile(
            fragment_id=status.fragment.fragment_id,
            file=status.current_file,
            physical_rows=status.fragment.physical_rows,
            fingerprint=status.fingerprint,
            input_files=resolved.input_files(status.fragment),
            row_states=status.moved.states,
            rows_computed=status.moved.summary.computed,
            rows_failed=status.moved.summary.failed,
            column_id=resolved.output.column_id,
            output_field_ids=resolved.output.field.field_ids,
        )
        for status in statuses
        if status.moved is not None and not status.moved.recorded
    )


def _not_computed(status: FragmentStatus, decision: ReuseDecision) -> int:
    """Count the rows that a request for failed rows leaves for a plain backfill."""
    if decision.states is not None:
        return min(decision.states.untouched, status.fragment.live_rows)
    return 0 if status.reason in SETTLED else status.fragment.live_rows


def _rows_left(resolved: ResolvedRequest, pending: PendingFragment, decision: ReuseDecision, failed: FailedNow) -> int:
    """Return how many rows may have to be computed at the most: which rows of a range are deleted is not looked up."""
    if pending.staged is not None:
        return 0
    left = resolved.rows_asked(pending.status.fragment)
    if pending.checkpoints:  # else all of them are missing
        left = min(left, total(pending.missing))
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
        input_columns=_input_columns(resolved),
        udf=resolved.udf,
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
        input_source=resolved.source,
        inputs_version=0 if resolved.past is None else resolved.past.version,
    )


def _input_columns(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return the inputs' names in the version that is read."""
    return tuple(c.name for c in resolved.inputs) if resolved.past is None else resolved.past.input_columns


def _kept(resolved: ResolvedRequest, totals: _Totals) -> tuple[KeptRows, ...]:
    pairs = zip(resolved.kept, resolved.versions[1:], strict=True)
    return tuple(KeptRows(function, totals.kept[part]) for function, part in pairs if totals.kept.get(part))
