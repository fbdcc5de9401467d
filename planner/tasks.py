"""What is to be done about one fragment. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core import keys, row_states
from core.checkpoints.records import FragmentRecord
from core.domain.plan import CheckpointRef, FragmentTask, Reason
from core.domain.ranges import RowRange
from core.row_states import StateSummary
from planner.evidence import Evidence, Found
from planner.question import Question
from planner.reuse import Sight, Verdict


def make_task(
    question: Question,
    sight: Sight,
    verdict: Verdict,
    evidence: Evidence,
    stored: Sequence[tuple[str, FragmentRecord]],
) -> FragmentTask:
    """The task of a fragment with work. `stored`: its records, each with the md5 of the filter it was made under."""
    fragment = sight.fragment
    identity = question.filter_identity(fragment)
    whole = RowRange(0, fragment.physical_rows)
    refs: Sequence[CheckpointRef] = ()
    missing: Sequence[RowRange] = (whole,)
    staged = _staged(question, sight, stored, evidence) if stored else None
    found = evidence.found.get(fragment.fragment_id, ())
    if staged is not None:
        missing = ()
    elif found:
        filter_id = keys.md5_of_few(identity)
        if question.failed_only:  # others' checkpoints hold the failures that are to be tried again
            found = [entry for entry in found if entry.filter_id == filter_id]
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
    ordered = found if len(found) == 1 else sorted(found, key=lambda e: (e.range.start, -e.range.end, e.key))
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
    candidates: Sequence[tuple[str, FragmentRecord]],
    evidence: Evidence,
) -> FragmentRecord | None:
    """A finished file that only has to be committed; of several the one with the most values."""

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
