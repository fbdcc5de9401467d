"""Decide whether what a fragment holds is still right.

Pure.

Names in the manifest tell, and row states of partial files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leman_core.model import keys, row_states
from leman_core.model.plan import SETTLED, Reason
from leman_core.model.row_states import StateSummary
from leman_core.model.table import Fragment
from leman_planner.resolved_request import ResolvedRequest


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of a fragment that compaction moved."""

    summary: StateSummary
    #: What `leman_core.model.row_states.encode` makes of them; empty where every row is computed.
    states: bytes
    #: Whether an earlier run stored it.
    recorded: bool


class FragmentStatus(NamedTuple):
    """One fragment as its manifest entry shows it."""

    fragment: Fragment
    #: PARTIAL: the row states of `current_file` decide, or those that `moved` has.
    reason: Reason
    fingerprint: str
    sources: str
    current_file: str
    moved: Moved | None = None
    #: Whose values a complete file has, as a place in `ResolvedRequest.versions`.
    version: int = 0


@dataclass(frozen=True, slots=True)
class ReuseDecision:
    """What the fragment's values are worth."""

    reason: Reason
    #: Present where its file holds some values of this fingerprint.
    states: StateSummary | None = None

    @property
    def settled(self) -> bool:
        return self.reason in SETTLED


#: The reasons that a file with the wanted values gives.
_OF_THIS = frozenset({Reason.REUSED, Reason.PARTIAL})
_PLAIN = {reason: ReuseDecision(reason) for reason in Reason}


def inspect_fragment(resolved: ResolvedRequest, fragments: Iterable[Fragment]) -> Iterator[FragmentStatus]:
    """Yield the statuses of some fragments, which need not belong to the table's latest version."""
    function = resolved.versions[0]
    output_ids = frozenset(resolved.output.field.field_ids)
    for fragment in fragments:
        sources = keys.sources(resolved.input_pairs(fragment))
        fingerprint = keys.fingerprint_of(function, sources)
        files = fragment.files_of(output_ids)
        reason, version = _reason(resolved, fragment, files, fingerprint)
        if reason not in _OF_THIS and resolved.is_past(fragment):
            reason = Reason.PAST_INPUT
        yield FragmentStatus(fragment, reason, fingerprint, sources, files[0] if files else "", None, version)


def unnamed(resolved: ResolvedRequest, status: FragmentStatus) -> str:
    """Return the column's file where its name says nothing: an update or a compaction wrote it. Empty elsewhere."""
    if status.reason is not Reason.EXTERNAL_WRITE or keys.parse_column_file_name(status.current_file) is not None:
        return ""
    files = status.fragment.files_of(resolved.output.field.field_ids)
    return status.current_file if len(files) == 1 else ""


def decide(resolved: ResolvedRequest, status: FragmentStatus, states: Mapping[str, StateSummary]) -> ReuseDecision:
    """Decide what a fragment's values are worth to the request.

    Args:
        states: by file name. A partial file whose states cannot be read is worth nothing.
    """
    summary = None
    if status.reason is Reason.PARTIAL or status.moved is not None:
        summary = _summary(resolved, status, states)
    if resolved.failed_only:
        return _decide_failed(status, summary)
    if status.reason is not Reason.PARTIAL:
        return _PLAIN[status.reason] if summary is None else ReuseDecision(status.reason, summary)
    if summary is None:
        return ReuseDecision(Reason.EXTERNAL_WRITE)
    if summary.untouched + summary.failed_older == 0:
        return ReuseDecision(Reason.REUSED, summary)
    if resolved.selective and keys.md5_of_few(resolved.filter_identity(status.fragment)) in summary.filters:
        return ReuseDecision(Reason.REUSED_FILTER, summary)
    return ReuseDecision(Reason.PARTIAL, summary)


def _summary(
    resolved: ResolvedRequest, status: FragmentStatus, states: Mapping[str, StateSummary]
) -> StateSummary | None:
    """Return the row states as the request's version sees them; None where the fragment has none that count."""
    if status.moved is not None:
        return status.moved.summary
    found = states.get(status.current_file)
    name = keys.parse_column_file_name(status.current_file)
    if found is None or name is None:
        return None
    return row_states.seen_from(found, name.function_part, resolved.versions)


def _decide_failed(status: FragmentStatus, summary: StateSummary | None) -> ReuseDecision:
    """Decide for a request for failed rows: a fragment without any is settled, whatever it lacks."""
    if summary is not None and summary.failed + summary.failed_older:
        return ReuseDecision(Reason.PARTIAL, summary)
    whole = status.reason in SETTLED or (summary is not None and not summary.untouched)
    return ReuseDecision(Reason.REUSED if whole else Reason.REUSED_FILTER, summary)


def _reason(
    resolved: ResolvedRequest, fragment: Fragment, files: tuple[str, ...], fingerprint: str
) -> tuple[Reason, int]:
    """Return the reason, and whose values the file has as a place in `ResolvedRequest.versions`."""
    if fragment.live_rows == 0:
        return Reason.REUSED, 0
    if not files:
        return Reason.MISSING, 0
    if len(files) > 1:
        return Reason.EXTERNAL_WRITE, 0
    return file_reason(resolved.versions, files[0], fingerprint[16:])


def file_reason(versions: tuple[str, ...], file: str, inputs: str) -> tuple[Reason, int]:
    """Return the reason that a fragment's only file gives, and whose values it has as a place in `versions`.

    Args:
        versions: those of `ResolvedRequest`.
        file: its name.
        inputs: the second half of the fragment's fingerprint.
    """
    name = keys.parse_column_file_name(file)
    if name is None:
        return Reason.EXTERNAL_WRITE, 0
    fingerprint, partial = name
    function = keys.function_of(fingerprint)
    if function not in versions:
        return Reason.UDF_CHANGED, 0
    if fingerprint[16:] != inputs:
        return Reason.INPUT_CHANGED, 0
    return Reason.PARTIAL if partial else Reason.REUSED, versions.index(function)
