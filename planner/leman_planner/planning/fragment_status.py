"""What each fragment holds for a column, and whether it may be reused; for all fragments in columns. Pure.

Decide whether what a fragment holds is still right.

Pure.

Names in the manifest tell, and row states of partial files.

The statuses of all fragments of a table, in columns. Pure.

What is decided about one fragment stands in `leman_planner.planning.fragment_status`; here the same is decided about
all, a column at a time: `inspect` gives what `inspect_fragment` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_core.model import keys, row_states
from leman_core.model.plan import SETTLED, Reason
from leman_core.model.plan_columns import AT_ONCE, FragmentColumns, Numbers, ObjectColumns, as_texts
from leman_core.model.row_states import StateSummary
from leman_core.model.table import Fragment
from leman_planner.planning.request_resolution import ResolvedRequest


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of a fragment that compaction moved."""

    summary: StateSummary
    #: What `leman_core.model.row_states.encode_states` makes of them; empty where every row is computed.
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


def unnamed_file(resolved: ResolvedRequest, status: FragmentStatus) -> str:
    """Return the column's file where its name says nothing: an update or a compaction wrote it. Empty elsewhere."""
    if status.reason is not Reason.EXTERNAL_WRITE or keys.parse_column_file_name(status.current_file) is not None:
        return ""
    files = status.fragment.files_of(resolved.output.field.field_ids)
    return status.current_file if len(files) == 1 else ""


def decide_reuse(
    resolved: ResolvedRequest, status: FragmentStatus, states: Mapping[str, StateSummary]
) -> ReuseDecision:
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
    return row_states.summary_for_version(found, name.function_part, resolved.versions)


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


Mask: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.uint8]

#: A reason's place in it is its code.
REASONS = tuple(Reason)
CODE = {reason: code for code, reason in enumerate(REASONS)}
#: By code, whether it leaves nothing to do.
SETTLES = np.array([reason in SETTLED for reason in REASONS])
_DIGEST = 16


class Statuses(ObjectColumns[FragmentStatus]):
    """One status for each fragment, in the order of the manifest; each is made when it is looked at, and not kept.

    Args:
        fragments: what they are of.
        reasons: codes.
        versions: places in `ResolvedRequest.versions`.
        sources: md5 of the inputs of each fragment, 16 bytes each.
        files: the output's first file of each fragment, as a place in the paths of the fragments; -1: none.
        function: what fingerprints begin with.
        others: by place, what holds instead of what the columns say.
    """

    __slots__ = ("_files", "_function", "_sources", "fragments", "others", "reasons", "versions")

    def __init__(
        self,
        fragments: FragmentColumns,
        *,
        reasons: Codes,
        versions: Numbers,
        sources: bytes,
        files: Numbers,
        function: str,
        others: Mapping[int, FragmentStatus],
    ) -> None:
        self.fragments = fragments
        self.reasons = reasons
        self.versions = versions
        self._sources = sources
        self._files = files
        self._function = function
        self.others = others

    def having(self, reason: Reason) -> Iterator[tuple[int, FragmentStatus]]:
        """Yield the statuses with a reason, each with its place, in the order of the manifest."""
        places = np.flatnonzero(self.reasons == CODE[reason])
        return zip(places.tolist(), self.some(places), strict=True)

    @property
    def with_states(self) -> Mask:
        """Tell of each fragment whether row states may decide about it."""
        found: Mask = self.reasons == CODE[Reason.PARTIAL]
        found[[at for at, status in self.others.items() if status.moved is not None]] = True
        return found

    @property
    def in_order(self) -> Numbers:
        """Return all places in the order of fragment ids."""
        return np.argsort(self.fragments.ids, kind="stable")

    def with_file(self, places: Numbers) -> Mask:
        """Tell of some fragments whether the output has a file in them."""
        found: Mask = self._files[places] >= 0
        return found

    def current_files(self, places: Numbers) -> list[str]:
        """Return the output's files of some fragments; empty where there is none."""
        return self.fragments.names(self._files[places])

    def current_paths(self, places: Numbers) -> pa.LargeStringArray:
        """Return what `current_files` does, as an array."""
        return self.fragments.paths_at(self._files[places])

    def source_digests(self, places: Numbers) -> bytes:
        """Return the md5 of the inputs of some fragments, 16 bytes each."""
        every = np.frombuffer(self._sources, np.dtype((np.void, _DIGEST)))
        return bytes(every[places].tobytes())

    def sources_at(self, at: int) -> str:
        """Return the md5 of the inputs of a fragment."""
        return self._sources[_DIGEST * at : _DIGEST * (at + 1)].hex()

    def replaced(self, others: Mapping[int, FragmentStatus]) -> Statuses:
        """Return the same with other statuses at some places."""
        reasons, versions = self.reasons.copy(), self.versions.copy()
        for at, status in others.items():
            reasons[at], versions[at] = CODE[status.reason], status.version
        return Statuses(
            self.fragments,
            reasons=reasons,
            versions=versions,
            sources=self._sources,
            files=self._files,
            function=self._function,
            others={**self.others, **others},
        )

    def __len__(self) -> int:
        return len(self.fragments)

    def _made(self, places: Numbers) -> Iterable[FragmentStatus]:
        made = self._of_columns(places)
        return map(self.others.get, places.tolist(), made) if self.others else made

    def _of_columns(self, places: Numbers) -> Iterator[FragmentStatus]:
        digests = self.source_digests(places)
        reasons, versions = self.reasons[places].tolist(), self.versions[places].tolist()
        rows = zip(self.fragments.some(places), reasons, versions, self.current_files(places), strict=True)
        for at, (fragment, reason, version, file) in enumerate(rows):
            sources = digests[_DIGEST * at : _DIGEST * (at + 1)].hex()
            fingerprint = keys.fingerprint_of(self._function, sources)
            yield FragmentStatus(fragment, REASONS[reason], fingerprint, sources, file, None, version)


def inspect_all_fragments(resolved: ResolvedRequest) -> Statuses:
    """Return one status for each fragment, in the order of the manifest."""
    fragments = FragmentColumns.of(resolved.table.fragments)
    if resolved.past is not None:  # inputs lie in fragments of another version: one is looked at after the other
        return _as_columns(resolved, fragments, list(inspect_fragment(resolved, fragments)))
    first, holding = _output_files(resolved, fragments)
    reasons = np.where(holding == 0, CODE[Reason.MISSING], CODE[Reason.EXTERNAL_WRITE]).astype(np.uint8)
    with_rows = fragments.live_rows > 0
    reasons[~with_rows] = CODE[Reason.REUSED]
    found = Statuses(
        fragments,
        reasons=reasons,
        versions=np.zeros(len(fragments), np.int64),
        sources=_sources(resolved, fragments),
        files=first,
        function=resolved.versions[0],
        others={},
    )
    _judge_files(resolved, found, np.flatnonzero((holding == 1) & with_rows))
    several = np.flatnonzero(holding > 1)
    one_by_one = inspect_fragment(resolved, fragments.some(several))
    return found.replaced(dict(zip(several.tolist(), one_by_one, strict=True))) if len(several) else found


def _as_columns(resolved: ResolvedRequest, fragments: FragmentColumns, statuses: Sequence[FragmentStatus]) -> Statuses:
    return Statuses(
        fragments,
        reasons=np.array([CODE[status.reason] for status in statuses], np.uint8),
        versions=np.array([status.version for status in statuses], np.int64),
        sources=b"".join([bytes.fromhex(status.sources) for status in statuses]),
        files=_output_files(resolved, fragments)[0],
        function=resolved.versions[0],
        others=dict(enumerate(statuses)),
    )


def _output_files(resolved: ResolvedRequest, fragments: FragmentColumns) -> tuple[Numbers, Numbers]:
    """Return of each fragment the output's file (-1: none), of several that which sorts first; and how many it has."""
    ids = resolved.output.field.field_ids
    first, holding = fragments.files_with(ids)
    several = np.flatnonzero(holding > 1)
    for at, fragment in zip(several.tolist(), fragments.some(several), strict=True):
        names = [file.path for file in fragment.files]
        first[at] = fragments.first_file[at] + names.index(fragment.files_of(ids)[0])
    return first, holding


def _sources(resolved: ResolvedRequest, fragments: FragmentColumns) -> bytes:
    """Return the md5 of the inputs of each fragment, 16 bytes each."""
    ids = resolved.input_ids
    if not ids:
        return bytes.fromhex(keys.sources(())) * len(fragments)
    files = [fragments.files_with((field_id,))[0] for field_id in ids]
    parts = []
    for begin in range(0, len(fragments), AT_ONCE):
        names = [fragments.names(column[begin : begin + AT_ONCE]) for column in files]
        parts += keys.sources_of_many(ids, names)
    return b"".join(parts)


def _judge_files(resolved: ResolvedRequest, statuses: Statuses, places: Numbers) -> None:
    """Set the reasons of fragments whose output lies in one file, by its name, and whose values these are."""
    for begin in range(0, len(places), AT_ONCE):
        part = places[begin : begin + AT_ONCE]
        digests = statuses.source_digests(part).hex()
        inputs = [digests[at : at + _DIGEST] for at in range(0, len(digests), 2 * _DIGEST)]
        paths = statuses.current_paths(part)
        others = ~_are_current(paths, resolved.versions[0], inputs)
        statuses.reasons[part] = CODE[Reason.REUSED]  # most are, and so are found all at once
        pairs = itertools.compress(zip(as_texts(paths), inputs, strict=True), others)
        found = [file_reason(resolved.versions, name, half) for name, half in pairs]
        statuses.reasons[part[others]] = [CODE[reason] for reason, _ in found]
        statuses.versions[part[others]] = [version for _, version in found]


def _are_current(paths: pa.LargeStringArray, function: str, inputs: Sequence[str]) -> Mask:
    """Tell of many files by their names whether each has all values of the function for its fragment's inputs."""
    whole = pc.match_substring_regex(paths, keys.whole_file_pattern(function))
    same = pc.equal(pc.utf8_slice_codeunits(paths, len(function), 2 * len(function)), pa.array(inputs, paths.type))
    found: Mask = pc.and_(whole, same).to_numpy(zero_copy_only=False)
    return found


def outcome_codes(statuses: Statuses, *, failed_only: bool) -> Codes:
    """Return the codes of what `reuse_decision.decide` gives of fragments about which no row states decide.

    Of the others they mean nothing.
    """
    if not failed_only:
        return statuses.reasons
    settled = SETTLES[statuses.reasons]
    return np.where(settled, CODE[Reason.REUSED], CODE[Reason.REUSED_FILTER]).astype(np.uint8)
