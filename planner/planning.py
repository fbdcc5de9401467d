"""From what is there to what is left to do. Pure: the same evidence gives the same plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.checkpoints.records import FragmentRecord
from core.domain.plan import (
    SETTLED,
    FollowedFile,
    KeptRows,
    Plan,
    PlanHeader,
    Reason,
    ReasonCount,
)
from core.domain.ranges import total
from core.row_states import StateSummary
from planner.fragment_tasks import Opening, Tasks, open_fragment
from planner.request_resolution import Question
from planner.reuse_decision import Sight, Verdict, judge
from planner.stored_work import NONE_FAILED, Evidence, FailedNow, Slot


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

    def keep(self, question: Question, sight: Sight, states: StateSummary | None) -> None:
        """Rows with values of earlier versions."""
        if states is not None:
            for part, computed, _ in states.older:
                self.kept[part] += computed
        elif sight.version and sight.reason is Reason.REUSED:
            self.kept[question.versions[sight.version]] += sight.fragment.live_rows

    def settle(self, verdict: Verdict, live: int) -> None:
        """A fragment with nothing to do."""
        self.count(verdict.reason, live)
        self.reused += live

    def count(self, reason: Reason, live: int) -> None:
        self.fragments[reason] += 1
        self.rows[reason] += live
        self.live += live

    def collect(self, opening: Opening) -> None:
        """What is stored of a fragment with work."""
        self.fragments_collected += 1
        if opening.staged is not None:
            self.rows_collected += opening.staged.physical_rows
        else:
            self.rows_collected += total([ref.range for ref in opening.checkpoints if ref.settles])

    def reasons(self) -> tuple[ReasonCount, ...]:
        return tuple(ReasonCount(r, self.fragments[r], self.rows[r]) for r in Reason if r in self.fragments)


class Draft(NamedTuple):
    """A plan, and how many fragments and rows of it are stored already, in checkpoints or finished files."""

    plan: Plan
    fragments_collected: int
    rows_collected: int


def make_plan(question: Question, sights: Sequence[Sight], evidence: Evidence) -> Plan:
    """See `draft`."""
    return draft(question, sights, evidence).plan


def draft(question: Question, sights: Sequence[Sight], evidence: Evidence) -> Draft:
    """`sights` are those of `reuse.look(question)`, those of compacted fragments with what is known of their rows.

    The header counts all fragments by reason. `num_frags` cuts the tasks, and with them `rows_to_compute`.
    """
    records = _by_fragment(question, evidence.records)
    totals = _Totals()
    openings: list[Opening] = []
    ordered = sorted(sights, key=lambda s: s.fragment.fragment_id)
    for sight in ordered:
        verdict = judge(question, sight, evidence.states)
        live = question.rows_asked(sight.fragment)
        if question.kept:
            totals.keep(question, sight, verdict.states)
        if question.failed_only:
            totals.not_computed += _not_computed(sight, verdict)
        if verdict.settled:
            totals.settle(verdict, live)
            if verdict.states is not None and verdict.states.failed:
                totals.failed += evidence.failed_now(sight.fragment.fragment_id, verdict.states).asked
            continue
        stored = records.get((sight.sources, sight.fragment.fragment_id), ()) if records else ()
        opening = open_fragment(question, sight, verdict, evidence, stored)
        totals.count(opening.reason, live)
        if question.num_frags and len(openings) >= question.num_frags:
            continue
        openings.append(opening)
        if opening.checkpoints or opening.staged is not None:
            totals.collect(opening)
        failed = NONE_FAILED
        if verdict.states is not None:
            failed = evidence.failed_now(sight.fragment.fragment_id, verdict.states)
        left = _rows_left(question, opening, verdict, failed)
        totals.to_compute += left
        totals.reused += live - left
        totals.failed += 0 if question.failed_only else failed.asked
    plan = Plan(_header(question, totals), Tasks(question, openings), tuple(followed(question, ordered)))
    return Draft(plan, totals.fragments_collected, totals.rows_collected)


def _by_fragment(
    question: Question, stored: Mapping[str, FragmentRecord]
) -> dict[Slot, list[tuple[str, FragmentRecord]]]:
    """Records as (filter id, record)."""
    records = defaultdict(list)
    for key, filter_id, sources, fragment_id, covered in question.family.parse_all(stored):
        if covered is None:
            records[sources, fragment_id].append((filter_id, stored[key]))
    return records


def followed(question: Question, sights: Iterable[Sight]) -> Iterator[FollowedFile]:
    """What is news about files that compaction wrote."""
    return (
        FollowedFile(
            fragment_id=sight.fragment.fragment_id,
            file=sight.current_file,
            physical_rows=sight.fragment.physical_rows,
            fingerprint=sight.fingerprint,
            input_files=question.input_files(sight.fragment),
            row_states=sight.moved.states,
            rows_computed=sight.moved.summary.computed,
            rows_failed=sight.moved.summary.failed,
            column_id=question.output.column_id,
            output_field_ids=question.output.field.field_ids,
        )
        for sight in sights
        if sight.moved is not None and not sight.moved.recorded
    )


def _not_computed(sight: Sight, verdict: Verdict) -> int:
    """Rows that a request for failed rows leaves for a plain backfill."""
    if verdict.states is not None:
        return min(verdict.states.untouched, sight.fragment.live_rows)
    return 0 if sight.reason in SETTLED else sight.fragment.live_rows


def _rows_left(question: Question, opening: Opening, verdict: Verdict, failed: FailedNow) -> int:
    """Rows that may have to be computed, at the most: which rows of a range are deleted is not looked up."""
    if opening.staged is not None:
        return 0
    left = question.rows_asked(opening.sight.fragment)
    if opening.checkpoints:  # else all of them are missing
        left = min(left, total(opening.missing))
    if verdict.states is None:
        return left
    open_rows = failed.asked if question.failed_only else verdict.states.untouched
    return min(left, open_rows + verdict.states.failed_older)


def _header(question: Question, totals: _Totals) -> PlanHeader:
    return PlanHeader(
        uri=question.table.uri,
        read_version=question.table.version,
        incarnation=question.table.incarnation,
        output=question.output,
        input_columns=_input_columns(question),
        udf=question.udf,
        bundle_uri=question.bundle_uri,
        where=question.filter.where,
        reasons=totals.reasons(),
        rows_total=totals.live,
        rows_reused=totals.reused,
        rows_to_compute=totals.to_compute,
        rows_failed_before=totals.failed,
        input_field_ids=question.input_ids,
        kept=_kept(question, totals),
        failed_only=question.failed_only,
        rows_not_computed=totals.not_computed,
        versions=question.versions,
        input_source=question.source,
        inputs_version=0 if question.past is None else question.past.version,
    )


def _input_columns(question: Question) -> tuple[str, ...]:
    """As they are called in the version that is read."""
    return tuple(c.name for c in question.inputs) if question.past is None else question.past.input_columns


def _kept(question: Question, totals: _Totals) -> tuple[KeptRows, ...]:
    pairs = zip(question.kept, question.versions[1:], strict=True)
    return tuple(KeptRows(function, totals.kept[part]) for function, part in pairs if totals.kept.get(part))
