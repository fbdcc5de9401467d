"""Is what a fragment holds still right? Names in the manifest tell, and row states of partial files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core import keys, row_states
from core.domain.plan import SETTLED, Reason
from core.domain.table import Fragment
from core.row_states import StateSummary
from planner.request_resolution import Question


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of a fragment that compaction moved. `states` is what `core.row_states.encode` makes of them, empty where
    every row is computed; `recorded`: an earlier run stored it."""

    summary: StateSummary
    states: bytes
    recorded: bool


class Sight(NamedTuple):
    """One fragment as its manifest entry shows it. PARTIAL: the row states of `current_file` decide, or those that
    `moved` has. `version`: whose values a complete file has, as a place in `Question.versions`."""

    fragment: Fragment
    reason: Reason
    fingerprint: str
    sources: str
    current_file: str
    moved: Moved | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the fragment's values are worth. `states` where its file holds some of this fingerprint."""

    reason: Reason
    states: StateSummary | None = None

    @property
    def settled(self) -> bool:
        return self.reason in SETTLED


#: What a file with the wanted values says.
_OF_THIS = frozenset({Reason.REUSED, Reason.PARTIAL})
_PLAIN = {reason: Verdict(reason) for reason in Reason}


def look(question: Question) -> list[Sight]:
    """One sight a fragment, in the order of the manifest."""
    return list(look_at(question, question.table.fragments))


def look_at(question: Question, fragments: Iterable[Fragment]) -> Iterator[Sight]:
    """The sights of some fragments, not necessarily of the table's latest version."""
    function = keys.function_part(question.udf.name, question.udf.version, question.output.column_id)
    output_ids = frozenset(question.output.field.field_ids)
    for fragment in fragments:
        sources = keys.sources(question.input_pairs(fragment))
        fingerprint = keys.fingerprint_of(function, sources)
        files = fragment.files_of(output_ids)
        reason, version = _reason(question, fragment, files, fingerprint)
        if reason not in _OF_THIS and question.is_past(fragment):
            reason = Reason.PAST_INPUT
        yield Sight(fragment, reason, fingerprint, sources, files[0] if files else "", None, version)


def unnamed(question: Question, sight: Sight) -> str:
    """The column's file where its name says nothing: an update wrote it, or a compaction. Empty: it is none such."""
    if sight.reason is not Reason.FOREIGN_VALUES or keys.parse_column_file_name(sight.current_file) is not None:
        return ""
    files = sight.fragment.files_of(question.output.field.field_ids)
    return sight.current_file if len(files) == 1 else ""


def judge(question: Question, sight: Sight, states: Mapping[str, StateSummary]) -> Verdict:
    """`states` by file name. A partial file whose states cannot be read is worth nothing."""
    summary = None
    if sight.reason is Reason.PARTIAL or sight.moved is not None:
        summary = _summary(question, sight, states)
    if question.failed_only:
        return _judge_failed(sight, summary)
    if sight.reason is not Reason.PARTIAL:
        return _PLAIN[sight.reason] if summary is None else Verdict(sight.reason, summary)
    if summary is None:
        return Verdict(Reason.FOREIGN_VALUES)
    if summary.untouched + summary.failed_older == 0:
        return Verdict(Reason.REUSED, summary)
    if question.selective and keys.md5_of_few(question.filter_identity(sight.fragment)) in summary.filters:
        return Verdict(Reason.REUSED_FILTER, summary)
    return Verdict(Reason.PARTIAL, summary)


def _summary(question: Question, sight: Sight, states: Mapping[str, StateSummary]) -> StateSummary | None:
    """Row states as the question's version sees them; None where the fragment has none that count."""
    if sight.moved is not None:
        return sight.moved.summary
    found = states.get(sight.current_file)
    name = keys.parse_column_file_name(sight.current_file)
    if found is None or name is None:
        return None
    return row_states.seen_from(found, name.function_part, question.versions)


def _judge_failed(sight: Sight, summary: StateSummary | None) -> Verdict:
    """Where only failed rows are asked for, a fragment without any is settled, whatever it lacks."""
    if summary is not None and summary.failed + summary.failed_older:
        return Verdict(Reason.PARTIAL, summary)
    whole = sight.reason in SETTLED or (summary is not None and not summary.untouched)
    return Verdict(Reason.REUSED if whole else Reason.REUSED_FILTER, summary)


def _reason(question: Question, fragment: Fragment, files: tuple[str, ...], fingerprint: str) -> tuple[Reason, int]:
    """Why, and whose values a file has."""
    if fragment.live_rows == 0:
        return Reason.REUSED, 0
    if not files:
        return Reason.MISSING, 0
    name = keys.parse_column_file_name(files[0])
    if name is None or len(files) > 1:
        return Reason.FOREIGN_VALUES, 0
    if name.function_part not in question.versions:
        return Reason.UDF_CHANGED, 0
    if name.fingerprint[16:] != fingerprint[16:]:
        return Reason.INPUT_CHANGED, 0
    return Reason.PARTIAL if name.partial else Reason.REUSED, question.versions.index(name.function_part)
