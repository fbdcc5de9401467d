"""From what is there to what is left to do. Pure: the same evidence gives the same plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core import keys, row_states
from core.checkpoints.records import FragmentRecord
from core.domain.plan import (
    SETTLED,
    CheckpointRef,
    FollowedFile,
    FragmentTask,
    KeptRows,
    Plan,
    PlanHeader,
    Reason,
    ReasonCount,
)
from core.domain.ranges import RowRange, total
from core.row_states import StateSummary
from planner.question import Question
from planner.reuse import Sight, Verdict, judge

#: A fragment under certain input files: (md5 of the inputs, fragment id).
Slot = tuple[str, int]
#: A checkpoint: (filter id, range, key).
Found = tuple[str, RowRange, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was stored by earlier runs.

    `states`: row states by name of partial file, committed or staged. `found`: checkpoints of the question's family, by
    fragment. `records`: fragment records by key, only of files that exist. `gone`: keys of fragments that the table
    does not have.
    """

    states: Mapping[str, StateSummary] = field(default_factory=dict)
    found: Mapping[Slot, Sequence[Found]] = field(default_factory=dict)
    records: Mapping[str, FragmentRecord] = field(default_factory=dict)
    gone: Sequence[str] = ()


@dataclass(slots=True)
class _Totals:
    fragments: dict[Reason, int] = field(default_factory=lambda: defaultdict(int))
    rows: dict[Reason, int] = field(default_factory=lambda: defaultdict(int))
    live: int = 0
    reused: int = 0
    to_compute: int = 0
    failed: int = 0
    not_computed: int = 0
    kept: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def keep(self, question: Question, sight: Sight, states: StateSummary | None) -> None:
        """Rows with values of earlier versions."""
        if states is not None:
            for part, computed, _ in states.older:
                self.kept[part] += computed
        elif sight.version and sight.reason is Reason.REUSED:
            self.kept[question.versions[sight.version]] += sight.fragment.live_rows

    def count(self, reason: Reason, live: int) -> None:
        self.fragments[reason] += 1
        self.rows[reason] += live
        self.live += live

    def reasons(self) -> tuple[ReasonCount, ...]:
        return tuple(ReasonCount(r, self.fragments[r], self.rows[r]) for r in Reason if r in self.fragments)


def make_plan(question: Question, sights: Sequence[Sight], evidence: Evidence) -> Plan:
    """`sights` are those of `reuse.look(question)`, those of compacted fragments with what is known of their rows.

    The header counts all fragments by reason. `num_frags` cuts the tasks, and with them `rows_to_compute`.
    """
    records = _by_fragment(question, evidence.records)
    totals = _Totals()
    tasks: list[FragmentTask] = []
    ordered = sorted(sights, key=lambda s: s.fragment.fragment_id)
    for sight in ordered:
        verdict = judge(question, sight, evidence.states)
        live = sight.fragment.live_rows
        totals.keep(question, sight, verdict.states)
        totals.not_computed += _not_computed(question, sight, verdict)
        if verdict.settled:
            totals.count(verdict.reason, live)
            totals.reused += live
            totals.failed += verdict.states.failed if verdict.states else 0
            continue
        slot = (sight.sources, sight.fragment.fragment_id)
        task = _task(
            question,
            sight,
            verdict,
            evidence.found.get(slot, ()),
            _staged(question, sight, records.get(slot), evidence),
        )
        totals.count(task.reason, live)
        if question.num_frags and len(tasks) >= question.num_frags:
            continue
        tasks.append(task)
        left = _rows_left(question, task, verdict)
        totals.to_compute += left
        totals.reused += live - left
        totals.failed += _failed_before(question, task, verdict)
    return Plan(_header(question, totals), tuple(tasks), tuple(followed(question, ordered)))


def open_slots(question: Question, sights: Iterable[Sight], states: Mapping[str, StateSummary]) -> set[Slot]:
    """(inputs md5, fragment id) of the fragments with something to do: only their checkpoints matter."""
    return {(s.sources, s.fragment.fragment_id) for s in sights if not judge(question, s, states).settled}


def _by_fragment(
    question: Question, stored: Mapping[str, FragmentRecord]
) -> dict[Slot, list[tuple[str, FragmentRecord]]]:
    """Records as (filter id, record)."""
    records = defaultdict(list)
    for key, (filter_id, sources, fragment_id, covered) in question.family.parse_all(stored):
        if covered is None:
            records[sources, fragment_id].append((filter_id, stored[key]))
    return records


def _task(
    question: Question,
    sight: Sight,
    verdict: Verdict,
    found: Sequence[Found],
    staged: FragmentRecord | None,
) -> FragmentTask:
    fragment = sight.fragment
    identity = question.filter_identity(fragment)
    whole = RowRange(0, fragment.physical_rows)
    refs: Sequence[CheckpointRef] = ()
    missing: Sequence[RowRange] = (whole,)
    if staged is not None:
        missing = ()
    elif found:
        filter_id = keys.md5_of_few(identity)
        if question.failed_only:  # others' checkpoints hold the failures that are to be tried again
            found = [entry for entry in found if entry[0] == filter_id]
        refs, missing = _cover(whole, filter_id if _settles(question, sight, verdict) else None, found)
    reason = Reason.STAGED if staged else Reason.PARTIAL if refs else verdict.reason
    return FragmentTask(
        fragment_id=fragment.fragment_id,
        physical_rows=fragment.physical_rows,
        deleted_rows=fragment.deleted_rows,
        reason=reason,
        fingerprint=sight.fingerprint,
        checkpoint_prefix=question.family.prefix_for(identity, sight.sources),
        input_files=question.input_files(fragment),
        current_file=sight.current_file,
        extend_current=verdict.states is not None,
        missing=tuple(missing),
        checkpoints=tuple(refs),
        staged=staged.staged if staged else None,
        row_states=sight.moved.states if sight.moved is not None else b"",
    )


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


def _settles(question: Question, sight: Sight, verdict: Verdict) -> bool:
    """Whether checkpoints of the same filter say of all rows of their range what is to become of them."""
    if question.failed_only:
        return True  # the file whose rows the filter reads is part of its identity
    # rows beside the filter keep the values of another function's file: what has them of this one settles nothing
    others = question.filter.where and sight.current_file and verdict.states is None
    return not question.filter.reads_output and not others


def _cover(
    whole: RowRange, filter_id: str | None, found: Sequence[Found]
) -> tuple[list[CheckpointRef], list[RowRange]]:
    """Checkpoints to be reused, in order, and the ranges that they leave open.

    Only the same filter settles a range. Of others the rows are known, not which of them this one asks for:
    under a filter the rest must keep its values, and without one the rows between are open. `filter_id` None:
    nothing settles. That holds for a filter over the output column itself, which may match other rows by now.
    They are named in settled ranges too: a restore may have brought rows back that were deleted when the settling
    checkpoint was stored.
    """
    settling: list[CheckpointRef] = []
    others: list[CheckpointRef] = []
    missing: list[RowRange] = []
    end = 0
    ordered = found if len(found) == 1 else sorted(found, key=lambda e: (e[1].start, -e[1].end, e[2]))
    for written_under, covered, key in ordered:
        if not covered.start < covered.end <= whole.end:
            continue
        if written_under != filter_id:
            others.append(CheckpointRef(key, covered, settles=False))
        elif covered.end > end:
            if covered.start > end:
                missing.append(RowRange(end, covered.start))
            settling.append(CheckpointRef(key, covered))
            end = covered.end
    if end < whole.end:
        missing.append(RowRange(end, whole.end))
    return sorted([*settling, *others], key=lambda ref: (ref.range, ref.key)) if others else settling, missing


def _staged(
    question: Question,
    sight: Sight,
    candidates: Sequence[tuple[str, FragmentRecord]] | None,
    evidence: Evidence,
) -> FragmentRecord | None:
    """A finished file that only has to be committed; of several the one with the most values."""
    if not candidates:
        return None

    def states(record: FragmentRecord) -> StateSummary | None:
        found = evidence.states.get(record.file)
        return found and row_states.seen_from(found, sight.fingerprint[:16], question.versions)

    valid = [r for filter_id, r in candidates if _usable(question, sight, filter_id, r, states(r))]
    return max(valid, key=lambda r: (r.rows_computed, r.file), default=None)


def _usable(
    question: Question, sight: Sight, filter_id: str, record: FragmentRecord, states: StateSummary | None
) -> bool:
    name = keys.parse_column_file_name(record.file)
    ids = set(record.output_field_ids)
    if (
        name is None
        or name.fingerprint != sight.fingerprint
        or record.fingerprint != sight.fingerprint
        or record.column_id != question.output.column_id
        or not ids
        or not ids.issubset(question.output.field.field_ids)
        or tuple(sorted(record.src_data_files)) != question.input_files(sight.fragment)
        or record.replaces != sight.current_file
        or record.physical_rows != sight.fragment.physical_rows
    ):
        return False
    wanted = keys.md5_of_few(question.filter_identity(sight.fragment))
    if (question.filter.where or question.failed_only) and filter_id != wanted:
        return False
    if question.failed_only:
        return True
    return not name.partial or _covers(states, wanted if question.filter.where else "")


def _covers(states: StateSummary | None, filter_id: str) -> bool:
    """Whether nothing is left to do in a partial file, for a filter (empty: for all rows)."""
    if states is None:
        return False
    return states.untouched + states.failed_older == 0 or filter_id in states.filters


def _not_computed(question: Question, sight: Sight, verdict: Verdict) -> int:
    """Rows that a request for failed rows leaves for a plain backfill."""
    if not question.failed_only:
        return 0
    if verdict.states is not None:
        return min(verdict.states.untouched, sight.fragment.live_rows)
    return 0 if sight.reason in SETTLED else sight.fragment.live_rows


def _rows_left(question: Question, task: FragmentTask, verdict: Verdict) -> int:
    """Rows that may have to be computed, at the most: which rows of a range are deleted is not looked up."""
    if task.staged is not None:
        return 0
    left = min(task.physical_rows - task.deleted_rows, total(task.missing))
    if verdict.states is None:
        return left
    open_rows = verdict.states.failed if question.failed_only else verdict.states.untouched
    return min(left, open_rows + verdict.states.failed_older)


def _failed_before(question: Question, task: FragmentTask, verdict: Verdict) -> int:
    """Rows of a fragment with work that stay failed."""
    if task.staged is not None:
        return task.staged.rows_failed
    if question.failed_only:
        return 0
    return verdict.states.failed if verdict.states else 0


def _header(question: Question, totals: _Totals) -> PlanHeader:
    return PlanHeader(
        uri=question.table.uri,
        read_version=question.table.version,
        incarnation=question.table.incarnation,
        output=question.output,
        input_columns=tuple(column.name for column in question.inputs),
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
    )


def _kept(question: Question, totals: _Totals) -> tuple[KeptRows, ...]:
    pairs = zip(question.kept, question.versions[1:], strict=True)
    return tuple(KeptRows(function, totals.kept[part]) for function, part in pairs if totals.kept.get(part))
