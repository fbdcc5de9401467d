"""Is what a fragment holds still right? Names in the manifest tell, and row states of partial files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core import keys
from core.domain.plan import SETTLED, Reason
from core.domain.table import Fragment
from core.row_states import StateSummary
from planner.question import Question


@dataclass(frozen=True, slots=True)
class Sight:
    """One fragment as its manifest entry shows it. PARTIAL: the row states of `current_file` decide."""

    fragment: Fragment
    reason: Reason
    fingerprint: str
    sources: str
    current_file: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the fragment's values are worth. `states` where its file holds some of this fingerprint."""

    reason: Reason
    states: StateSummary | None = None

    @property
    def settled(self) -> bool:
        return self.reason in SETTLED


def look(question: Question) -> list[Sight]:
    """One sight a fragment, in the order of the manifest."""
    function = keys.function_part(question.udf.name, question.udf.version, question.output.column_id)
    output_ids = question.output.field.field_ids
    sights = []
    for fragment in question.table.fragments:
        sources = keys.sources(question.input_pairs(fragment))
        fingerprint = function + sources[:16]
        files = fragment.files_of(output_ids)
        reason = _reason(fragment, files, fingerprint)
        sights.append(Sight(fragment, reason, fingerprint, sources, files[0] if files else ""))
    return sights


def judge(question: Question, sight: Sight, states: Mapping[str, StateSummary]) -> Verdict:
    """`states` by file name. A partial file whose states cannot be read is worth nothing."""
    if sight.reason is not Reason.PARTIAL:
        return Verdict(sight.reason)
    summary = states.get(sight.current_file)
    if summary is None:
        return Verdict(Reason.FOREIGN_VALUES)
    if summary.untouched == 0:
        return Verdict(Reason.REUSED, summary)
    if question.filter.where and keys.md5_of_few(question.filter_identity(sight.fragment)) in summary.filters:
        return Verdict(Reason.REUSED_FILTER, summary)
    return Verdict(Reason.PARTIAL, summary)


def _reason(fragment: Fragment, files: tuple[str, ...], fingerprint: str) -> Reason:
    if fragment.live_rows == 0:
        return Reason.REUSED
    if not files:
        return Reason.MISSING
    name = keys.parse_column_file_name(files[0])
    if name is None or len(files) > 1:
        return Reason.FOREIGN_VALUES
    if name.fingerprint == fingerprint:
        return Reason.PARTIAL if name.partial else Reason.REUSED
    if name.function_part != fingerprint[:16]:
        return Reason.UDF_CHANGED
    return Reason.INPUT_CHANGED
