"""Decide which values each fragment has for a column, and whether these may be reused. No I/O.

The decision depends on the names of files in the manifest, and on the row states of partial files. It is made for all
fragments at once, with arrays. `tests/unit/planner/decision_oracle.py` states the same rules for a single fragment.
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
from leman_core.model.plan_columns import AT_ONCE, FragmentColumns, Mask, Numbers, ObjectColumns, as_texts
from leman_core.model.row_states import StateSummary
from leman_core.model.table import Fragment
from leman_planner.planning.request_resolution import ResolvedRequest


@dataclass(frozen=True, slots=True)
class Moved:
    """The rows of a fragment that compaction moved."""

    summary: StateSummary
    #: Their encoded states (`leman_core.model.row_states.encode_states`), or b"" if every row is computed.
    states: bytes
    #: Whether an earlier run recorded these states.
    recorded: bool


class FragmentStatus(NamedTuple):
    """One fragment, as its manifest entry shows it."""

    fragment: Fragment
    #: If the reason is PARTIAL, the row states of `current_file` or of `moved` decide which rows are computed.
    reason: Reason
    fingerprint: str
    sources: str
    current_file: str
    moved: Moved | None = None
    #: The version of the values in a complete file, as an index into `ResolvedRequest.versions`.
    version: int = 0


def unnamed_file(resolved: ResolvedRequest, status: FragmentStatus) -> str:
    """Return the column's file if an update or a compaction wrote it, or else "".

    The name of such a file does not show which function computed its values.
    """
    if status.reason is not Reason.EXTERNAL_WRITE or keys.parse_column_file_name(status.current_file) is not None:
        return ""
    files = status.fragment.files_of(resolved.output.field.field_ids)
    return status.current_file if len(files) == 1 else ""


def file_reason(versions: tuple[str, ...], file: str, inputs: str) -> tuple[Reason, int]:
    """Return the reason that the name of a fragment's only file shows, and the version of its values.

    The version is an index into `versions`.

    Args:
        versions: The versions of the `ResolvedRequest`.
        file: The name of the file.
        inputs: The second half of the fragment's fingerprint.
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


Codes: TypeAlias = npt.NDArray[np.uint8]

#: The code of a reason is its index here.
REASONS = tuple(Reason)
CODE = {reason: code for code, reason in enumerate(REASONS)}
#: For each code, whether its reason leaves nothing to do.
SETTLES = np.array([reason in SETTLED for reason in REASONS])
_DIGEST = 16
_DIGEST_TYPE = np.dtype((np.void, _DIGEST))


class Statuses(ObjectColumns[FragmentStatus]):
    """One status for each fragment, in the order of the manifest.

    Args:
        fragments: The fragments.
        reasons: The code of each fragment's reason.
        versions: For each fragment, an index into `ResolvedRequest.versions`.
        sources: The md5 of each fragment's inputs, 16 bytes each.
        files: For each fragment, its first file of the output as an index into the paths of the fragments, or -1.
        function: The first half of the fingerprints.
        others: Statuses that replace those in the arrays, by place.
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
        """Yield the statuses with a reason, each with its place."""
        places = np.flatnonzero(self.reasons == CODE[reason])
        return zip(places.tolist(), self.take(places), strict=True)

    @property
    def with_states(self) -> Mask:
        """Return which fragments have row states that may affect the decision."""
        found: Mask = self.reasons == CODE[Reason.PARTIAL]
        found[[at for at, status in self.others.items() if status.moved is not None]] = True
        return found

    @property
    def in_order(self) -> Numbers:
        """Return all places, in the order of fragment ids."""
        return np.argsort(self.fragments.ids, kind="stable")

    def with_file(self, places: Numbers) -> Mask:
        """Return, for each of these fragments, whether it has a file of the output."""
        found: Mask = self._files[places] >= 0
        return found

    def current_files(self, places: Numbers) -> list[str]:
        """Return the output's file in some fragments, or "" where there is none."""
        return as_texts(self.current_paths(places))

    def current_paths(self, places: Numbers) -> pa.LargeStringArray:
        """Return `current_files` as an array."""
        return self.fragments.paths_at(self._files[places])

    def source_digests(self, places: Numbers) -> bytes:
        """Return the md5 of the inputs of some fragments, 16 bytes each."""
        every = np.frombuffer(self._sources, _DIGEST_TYPE)
        return bytes(every[places].tobytes())

    def replaced(self, others: Mapping[int, FragmentStatus]) -> Statuses:
        """Return a copy in which the statuses at some places are replaced."""
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
        rows = zip(self.fragments.take(places), reasons, versions, self.current_files(places), strict=True)
        for at, (fragment, reason, version, file) in enumerate(rows):
            sources = digests[_DIGEST * at : _DIGEST * (at + 1)].hex()
            fingerprint = keys.fingerprint_of(self._function, sources)
            yield FragmentStatus(fragment, REASONS[reason], fingerprint, sources, file, None, version)


def inspect_fragments(resolved: ResolvedRequest, fragments: Iterable[Fragment] | None = None) -> Statuses:
    """Return one status for each fragment, in the same order.

    Args:
        resolved: The request.
        fragments: The fragments, possibly of an earlier version of the table, or None for those of the request's table.
    """
    known = FragmentColumns.from_fragments(resolved.table.fragments if fragments is None else fragments)
    first, holding = _output_files(resolved, known)
    reasons = np.where(holding == 0, CODE[Reason.MISSING], CODE[Reason.EXTERNAL_WRITE]).astype(np.uint8)
    with_rows = known.live_rows > 0
    reasons[~with_rows] = CODE[Reason.REUSED]
    sources, is_past = _inputs(resolved, known)
    found = Statuses(
        known,
        reasons=reasons,
        versions=np.zeros(len(known), np.int64),
        sources=sources,
        files=first,
        function=resolved.versions[0],
        others={},
    )
    _judge_files(resolved, found, np.flatnonzero((holding == 1) & with_rows))
    if resolved.past is not None:
        is_other = (reasons != CODE[Reason.REUSED]) & (reasons != CODE[Reason.PARTIAL])
        reasons[is_past & is_other] = CODE[Reason.PAST_INPUT]
    return found


def _output_files(resolved: ResolvedRequest, fragments: FragmentColumns) -> tuple[Numbers, Numbers]:
    """Return the index of the output's first file by name in each fragment (-1: none), and the number of its files."""
    ids = resolved.output.field.field_ids
    first, holding = fragments.files_with(ids)
    several = np.flatnonzero(holding > 1)
    for at, fragment in zip(several.tolist(), fragments.take(several), strict=True):
        files = fragment.files_of(ids)
        first[at] = fragments.first_file[at] + [file.path for file in fragment.files].index(files[0])
        holding[at] = len(files)
    return first, holding


def _inputs(resolved: ResolvedRequest, fragments: FragmentColumns) -> tuple[bytes, Mask]:
    """Return the md5 of each fragment's inputs as read, 16 bytes each, and which fragments have other inputs now."""
    past, ids = resolved.past, resolved.input_ids
    now = [fragments.files_with((field_id,))[0] for field_id in ids]
    is_past = np.zeros(len(fragments), np.bool_)
    if past is None:
        return _digests(ids, fragments, now), is_past
    none = Fragment(0, 0, 0, ())
    read = FragmentColumns.from_fragments(past.same.get(at, none) for at in fragments.ids.tolist())
    then = [read.files_with((field_id,))[0] for field_id in ids]
    for before, files in zip(then, now, strict=True):
        is_past |= np.asarray(pc.not_equal(read.paths_at(before), fragments.paths_at(files)))
    has_moved = ~fragments.with_ids(past.same)
    digests = np.frombuffer(_digests(ids, read, then), _DIGEST_TYPE).copy()
    digests[has_moved] = np.void(bytes.fromhex(keys.sources(keys.moved_sources(ids, past.version))))
    return digests.tobytes(), is_past | has_moved


def _digests(ids: Sequence[int], fragments: FragmentColumns, files: Sequence[Numbers]) -> bytes:
    if not ids:
        return bytes.fromhex(keys.sources(())) * len(fragments)
    parts = []
    for begin in range(0, len(fragments), AT_ONCE):
        names = [as_texts(fragments.paths_at(column[begin : begin + AT_ONCE])) for column in files]
        parts += keys.sources_of_many(ids, names)
    return b"".join(parts)


def _judge_files(resolved: ResolvedRequest, statuses: Statuses, places: Numbers) -> None:
    """Set reasons and versions of fragments with one file of the output, by its name."""
    for begin in range(0, len(places), AT_ONCE):
        part = places[begin : begin + AT_ONCE]
        digests = statuses.source_digests(part).hex()
        inputs = [digests[at : at + _DIGEST] for at in range(0, len(digests), 2 * _DIGEST)]
        paths = statuses.current_paths(part)
        others = ~_are_current(paths, resolved.versions[0], inputs)
        statuses.reasons[part] = CODE[Reason.REUSED]  # correct for most of these fragments; the others are set below
        pairs = itertools.compress(zip(as_texts(paths), inputs, strict=True), others)
        found = [file_reason(resolved.versions, name, half) for name, half in pairs]
        statuses.reasons[part[others]] = [CODE[reason] for reason, _ in found]
        statuses.versions[part[others]] = [version for _, version in found]


def _are_current(paths: pa.LargeStringArray, function: str, inputs: Sequence[str]) -> Mask:
    """Return which files, by their names, have all values of the function for their fragments' inputs."""
    whole = pc.match_substring_regex(paths, keys.whole_file_pattern(function))
    same = pc.equal(pc.utf8_slice_codeunits(paths, len(function), 2 * len(function)), pa.array(inputs, paths.type))
    found: Mask = pc.and_(whole, same).to_numpy(zero_copy_only=False)
    return found


class Decisions(NamedTuple):
    """For each fragment, by place, whether its values may be reused."""

    #: The codes of the reasons.
    codes: Codes
    #: The row states for the request's version, by place, of fragments whose file has some values of its fingerprint.
    states: Mapping[int, StateSummary]

    @property
    def is_settled(self) -> Mask:
        """Return which fragments have no work left."""
        found: Mask = SETTLES[self.codes]
        return found


def decide_reuse(resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]) -> Decisions:
    """Decide whether the values of each fragment may be reused.

    Args:
        resolved: The request.
        statuses: The statuses of all fragments.
        states: Row states by file name. A partial file without an entry is computed again.
    """
    known = _summaries(resolved, statuses, states)
    places = np.fromiter(known, np.int64, len(known))
    codes = statuses.reasons.copy()
    if resolved.failed_only:  # a fragment without failed rows is settled then, even if it lacks values
        is_whole: Mask = SETTLES[codes]
        is_whole[places] |= np.array([not summary.untouched for summary in known.values()], np.bool_)
        codes = np.where(is_whole, CODE[Reason.REUSED], CODE[Reason.REUSED_FILTER]).astype(np.uint8)
        failed = np.array([summary.failed + summary.failed_older for summary in known.values()], np.int64)
        codes[places[failed > 0]] = CODE[Reason.PARTIAL]
        return Decisions(codes, known)
    is_partial = codes == CODE[Reason.PARTIAL]
    codes[is_partial] = CODE[Reason.EXTERNAL_WRITE]
    codes[places[is_partial[places]]] = CODE[Reason.PARTIAL]
    for at in places[is_partial[places]].tolist():
        if not known[at].untouched + known[at].failed_older:
            codes[at] = CODE[Reason.REUSED]
        elif resolved.selective and _filter_id(resolved, statuses.fragments[at]) in known[at].filters:
            codes[at] = CODE[Reason.REUSED_FILTER]
    return Decisions(codes, known)


def _filter_id(resolved: ResolvedRequest, fragment: Fragment) -> str:
    return keys.md5_of_few(resolved.filter_identity(fragment))


def _summaries(
    resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]
) -> dict[int, StateSummary]:
    """Return the row states for the request's version that affect the decision, by place."""
    places = np.flatnonzero(statuses.with_states)
    found: dict[int, StateSummary] = {}
    if not len(places):
        return found
    for at, file in zip(places.tolist(), statuses.current_files(places), strict=True):
        status = statuses.others.get(at)
        name = keys.parse_column_file_name(file)
        if status is not None and status.moved is not None:
            found[at] = status.moved.summary
        elif name is not None and file in states:
            found[at] = row_states.summary_for_version(states[file], name.function_part, resolved.versions)
    return found
