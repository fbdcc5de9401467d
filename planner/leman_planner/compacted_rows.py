"""Tell which rows of a fragment are computed where names of files do not. Pure: the archive reads what is needed.

That is so where a compaction wrote the column's file, and where an input is a computed column that got another file.

A compacted fragment holds the live rows of older ones, in their order, in a file whose name says nothing. What is known
of the older fragments holds for their rows there: by the names of their files, by row states, by what an earlier run
recorded, or, where a compaction made them too, in the same way once more.

Fragment 0 (rows a b c, all computed by this version, b deleted) and fragment 1 (rows d e, nothing computed) became
fragment 5, which holds a c d e. Its states are those of the live rows, one fragment after the other: computed,
computed, untouched, untouched. The plan then wants rows 2 and 3 of fragment 5, and no others.

Where a computed column that is an input got another file, that file lists its predecessors, and the rows that differ
from each (`leman_core.model.changed_rows`). The tracer looks at the fragment as it was with a predecessor: what is
known of the rows then still holds for those that do not differ (`docs/decisions/0054-stale-by-rows.md`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from leman_core.model import keys, row_states
from leman_core.model.changed_rows import Predecessor
from leman_core.model.compactions import CompactionHistory, Rewrite
from leman_core.model.plan import Reason
from leman_core.model.row_states import RowState, States, StateSummary
from leman_core.model.table import DataFile, Fragment
from leman_core.storage.checkpoints.records import FragmentRecord
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, Moved, inspect_fragment, unnamed

#: How many combinations of earlier files of the inputs are looked at.
_MOST_COMBINATIONS = 64
#: Stands for the filter that is asked for: its id is another one for every fragment.
_ASKED = "asked"
#: Where nothing is settled for several reasons, the first of these is given.
_GRAVEST = (
    Reason.HISTORY_LOST,
    Reason.UDF_CHANGED,
    Reason.INPUT_CHANGED,
    Reason.EXTERNAL_WRITE,
    Reason.MISSING,
)

Live = npt.NDArray[np.bool_]
Part = TypeVar("Part")


class Archive(Protocol):
    """What reads what older fragments left; it returns None where that is gone or damaged."""

    def record(self, status: FragmentStatus) -> FragmentRecord | None:
        """Return what an earlier run recorded about the file that compaction wrote for a fragment."""
        ...

    def states(self, status: FragmentStatus) -> bytes | None:
        """Return row states of an old fragment's partial column file."""
        ...

    def live(self, version: int, fragment: Fragment) -> Live | None:
        """Tell which physical rows of an old fragment were not deleted in a version."""
        ...

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the files that an input's column file follows; none where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in order, and what is known of them."""

    count: int
    #: A single state where all rows have the same. Their versions are places in `ResolvedRequest.versions`.
    states: States | int
    #: The reason where nothing is settled.
    why: Reason
    #: The filters that are settled; None: all are.
    filters: frozenset[str] | None = None

    def array(self) -> States:
        if isinstance(self.states, int):
            return np.full(self.count, self.states, np.uint8)
        return self.states

    @property
    def are_known(self) -> bool:
        """Tell whether anything is known of any of the rows."""
        return bool(self.states if isinstance(self.states, int) else self.states.any())


class RowTracer:
    """What traces the fragments of one request along one history of compactions."""

    def __init__(self, resolved: ResolvedRequest, compactions: CompactionHistory, archive: Archive) -> None:
        self._resolved = resolved
        self._compactions = compactions
        self._archive = archive
        self._made: dict[int, _Rows | None] = {}

    def trace(self, status: FragmentStatus) -> FragmentStatus:
        """Return the status of a fragment with what is known of its rows, or why nothing is."""
        record = self._archive.record(status)
        rows = self._recorded(status, record) if record is not None else self._rows(status)
        if not rows.are_known:
            return status if record is not None else status._replace(reason=rows.why)
        identity = keys.md5_of_few(self._resolved.filter_identity(status.fragment))
        filters = frozenset(identity if f == _ASKED else f for f in rows.filters or ())
        older = self._resolved.versions[1:]
        summary = row_states.summarize(rows.array(), filters, older)
        whole = summary.computed == rows.count
        recorded = record is not None and record.fingerprint == status.fingerprint
        if status.reason is Reason.INPUT_CHANGED:
            recorded = True  # the files that are there tell
        moved = Moved(summary, b"" if whole else row_states.encode(rows.array(), filters, older), recorded)
        reason = Reason.PARTIAL
        if not summary.untouched + summary.failed_older:
            reason = Reason.REUSED if moved.recorded else Reason.REUSED_COMPACTED
        return status._replace(reason=reason, moved=moved)

    def _rows(self, status: FragmentStatus) -> _Rows:
        """Return the rows of a fragment, deleted ones included."""
        rows = self._of_these_inputs(status)
        if rows.are_known or status.reason not in (Reason.INPUT_CHANGED, Reason.EXTERNAL_WRITE):
            return rows
        return self._of_earlier_inputs(status.fragment) or rows

    def _of_these_inputs(self, status: FragmentStatus) -> _Rows:
        """Return what is known of the rows without a look at earlier files of the inputs."""
        count = status.fragment.physical_rows
        if status.reason is Reason.REUSED:
            return _Rows(count, row_states.of_version(RowState.COMPUTED, status.version), Reason.REUSED)
        if status.reason is Reason.PARTIAL:
            own = self._resolved.versions[status.version]
            return self._decoded(status, self._archive.states(status), own)
        if unnamed(self._resolved, status):
            record = self._archive.record(status)
            return self._recorded(status, record) if record is not None else self._compacted(status)
        return _untouched(count, status.reason)

    def _of_earlier_inputs(self, fragment: Fragment) -> _Rows | None:
        """Return the rows by what was computed from earlier files of its inputs; None where nothing was.

        No filter counts as settled: it may match other rows by now.
        """
        for earlier, changed in as_before(fragment, self._resolved.input_ids, self._archive.predecessors):
            status = next(inspect_fragment(self._resolved, (earlier,)))
            rows = self._of_these_inputs(status)
            if rows.are_known:
                states = np.where(changed, np.uint8(RowState.UNTOUCHED), rows.array())
                return _Rows(rows.count, states, Reason.INPUT_CHANGED, frozenset())
        return None

    def _recorded(self, status: FragmentStatus, record: FragmentRecord) -> _Rows:
        own = keys.function_of(record.fingerprint)
        if record.states:
            return self._decoded(status, record.states, own)
        state = row_states.of_version(RowState.COMPUTED, self._resolved.versions.index(own))
        return _Rows(status.fragment.physical_rows, state, Reason.REUSED)

    def _decoded(self, status: FragmentStatus, buffer: bytes | None, own: str) -> _Rows:
        count = status.fragment.physical_rows
        accepted = self._resolved.versions
        states = None if buffer is None else row_states.decode_for(buffer, own, accepted)
        if buffer is None or states is None or len(states) != count:
            return _untouched(count, Reason.HISTORY_LOST)
        summary = row_states.seen_from(row_states.decode_summary(buffer), own, accepted)
        return _Rows(count, states, Reason.MISSING, self._filters(status, summary))

    def _filters(self, status: FragmentStatus, summary: StateSummary) -> frozenset[str] | None:
        if not summary.untouched + summary.failed_older:
            return None
        asked = self._resolved.filter.where and keys.md5_of_few(self._resolved.filter_identity(status.fragment))
        return summary.filters | {_ASKED} if asked in summary.filters else summary.filters

    def _compacted(self, status: FragmentStatus) -> _Rows:
        """Return the rows of a fragment by those that a compaction made it of.

        They are external writes where no compaction is known of the file, and count as lost where the history is too
        short to tell. A file that an update gave the fragment later makes its inputs other ones.
        """
        fragment, file = status.fragment, status.current_file
        rewrite = self._compactions.rewrites.get(file)
        if rewrite is None:
            lost = file in self._compactions.lost
            return _untouched(fragment.physical_rows, Reason.HISTORY_LOST if lost else Reason.EXTERNAL_WRITE)
        made, before = rewrite.place_of(file)
        if self._resolved.input_pairs(made) != self._resolved.input_pairs(fragment):
            return _untouched(fragment.physical_rows, Reason.INPUT_CHANGED)
        if id(rewrite) not in self._made:
            self._made[id(rewrite)] = self._joined(rewrite)
        joined = self._made[id(rewrite)]
        if joined is None or made.physical_rows != fragment.physical_rows:
            return _untouched(fragment.physical_rows, Reason.HISTORY_LOST)
        rows = _cut(joined, before, made.physical_rows)
        if self._resolved.filter_identity(made) != self._resolved.filter_identity(fragment) and rows.filters:
            return dataclasses.replace(rows, filters=rows.filters - {_ASKED})
        return rows

    def _joined(self, rewrite: Rewrite) -> _Rows | None:
        """Join the live rows of the old fragments, one after the other.

        A new fragment's rows are cut out of them: of 100 live rows that became fragments of 60 and 40 rows, the second
        has rows 60 to 100.

        Returns:
            None where the old fragments have more or fewer live rows than the new ones have rows.
        """
        parts: list[_Rows] = []
        for status in inspect_fragment(self._resolved, rewrite.old):
            part = self._alive(rewrite, status)
            if part is None:
                return None
            parts.append(part)
        parts = [part for part in parts if part.count]
        if sum(part.count for part in parts) != sum(new.physical_rows for new in rewrite.new):
            return None
        return _join(parts)

    def _alive(self, rewrite: Rewrite, status: FragmentStatus) -> _Rows | None:
        fragment = status.fragment
        if not fragment.live_rows:
            return _Rows(0, RowState.COMPUTED, Reason.REUSED)
        rows = self._rows(status)
        if not fragment.deleted_rows:
            return rows
        if isinstance(rows.states, int):
            return dataclasses.replace(rows, count=fragment.live_rows)
        live = self._archive.live(rewrite.before, fragment)
        if live is None or int(live.sum()) != fragment.live_rows:
            return None
        return dataclasses.replace(rows, count=fragment.live_rows, states=rows.states[live])


def as_before(
    fragment: Fragment, field_ids: Sequence[int], predecessors: Callable[[str], Sequence[Predecessor]]
) -> Iterator[tuple[Fragment, npt.NDArray[np.bool_]]]:
    """Yield a fragment as it was when some columns had earlier files, with the rows of these columns that differ now.

    Args:
        fragment: the fragment as it is.
        field_ids: those of the columns that matter.
        predecessors: returns those of a column file; see `leman_core.model.changed_rows`.
    """
    followed = {file: predecessors(file) for file in fragment.files_of(field_ids)}
    followed = {file: found for file, found in followed.items() if found}
    choices = itertools.product(*([None, *found] for found in followed.values()))
    for chosen in itertools.islice(choices, 1, _MOST_COMBINATIONS):
        changed = np.zeros(fragment.physical_rows, np.bool_)
        files = {file.path: file for file in fragment.files}
        for now, earlier in zip(followed, chosen, strict=True):
            if earlier is None:
                continue
            if earlier.rows != len(changed):
                break
            changed |= earlier.changed
            moved = files.pop(now)
            has = files.get(earlier.file, DataFile(earlier.file, ()))
            files[earlier.file] = has._replace(field_ids=(*has.field_ids, *moved.field_ids))
        else:
            yield fragment._replace(files=tuple(files.values())), changed


def _untouched(count: int, why: Reason) -> _Rows:
    return _Rows(count, RowState.UNTOUCHED, why, frozenset())


def _cut(rows: _Rows, start: int, count: int) -> _Rows:
    if isinstance(rows.states, int):
        return dataclasses.replace(rows, count=count)
    return dataclasses.replace(rows, count=count, states=rows.states[start : start + count])


def _join(parts: Sequence[_Rows]) -> _Rows:
    count = sum(part.count for part in parts)
    reasons = {part.why for part in parts}
    why = next((reason for reason in _GRAVEST if reason in reasons), Reason.PARTIAL)
    listed = [part.filters for part in parts if part.filters is not None]
    filters = frozenset.intersection(*listed) if listed else None
    first = parts[0].states if parts else RowState.COMPUTED
    if isinstance(first, int) and all(isinstance(part.states, int) and part.states == first for part in parts):
        return _Rows(count, first, why, filters)
    return _Rows(count, np.concatenate([part.array() for part in parts]), why, filters)


def further(resolved: ResolvedRequest, recorded: Callable[[FragmentStatus], bool]) -> Callable[[Fragment], str]:
    """Return, for `compactions.trace`, what tells which file of an old fragment is to be traced too."""

    def name(fragment: Fragment) -> str:
        status = next(inspect_fragment(resolved, (fragment,)))
        file = unnamed(resolved, status)
        return "" if file and recorded(status) else file

    return name
