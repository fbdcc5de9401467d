"""Find the computed rows of compacted fragments, and stored rows that must be stored again elsewhere. Pure.

`RowTracer` finds the computed rows of a fragment whose file compaction wrote. Such a fragment has the live rows of
older fragments, in order. The names of the older files, their row states and records show which rows were computed.
Example: fragment 0 (rows a b c, all computed, b deleted) and fragment 1 (rows d e, nothing computed) became fragment 5
with rows a c d e. Its states are computed, computed, untouched, untouched, so the plan has rows 2 and 3.

`CheckpointMigrator` finds stored rows that a plan cannot use in their present place: rows of fragments that compaction
removed, rows in files that another function's files replaced, and rows computed from earlier files of the inputs. A job
stores these rows again as checkpoints of the fragments that have them now (`MigratedRows`), where the next plan finds
them. A replaced file is not installed again, because `cleanup_old_versions` may delete it at any moment. Example:
fragment 0 (rows 0 to 9, row 3 deleted) and fragment 1 (rows 0 to 4) became fragment 7. The checkpoint of rows 4 to 9 of
fragment 0 then covers rows 3 to 8 of fragment 7, and that of rows 0 to 4 of fragment 1 covers rows 9 to 13.

If an input is a computed column with a new file, that file lists its predecessors and the rows that differ from each
(`leman_core.model.row_states`). All other rows keep the states that they had with a predecessor
(`docs/decisions/0054-stale-by-rows.md`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from leman_core.model import keys, row_states
from leman_core.model.plan import MigratedRows, Plan, Reason
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import RowRange, split_range, subtract_ranges
from leman_core.model.row_states import Predecessor, RowState, States, StateSummary
from leman_core.model.table import CompactionHistory, DataFile, Fragment, Rewrite
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import FragmentStatus, Moved, Statuses, inspect_fragments, unnamed_file
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import Slot, StoredWork

#: The maximum number of combinations of earlier files of the inputs that are tried.
_MOST_COMBINATIONS = 64
#: The number of compactions whose fragments are inspected together.
_REWRITES_AT_ONCE = 256
#: Stands for the request's filter, because the filter's id may differ between fragments.
_ASKED = "asked"
#: If a fragment has several reasons why no row is settled, the reason that comes first here is reported.
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
    """Reads what is still stored about older fragments. Each method returns None if that is gone or damaged."""

    def record(self, status: FragmentStatus) -> FragmentRecord | None:
        """Return the record of a file that compaction wrote for a fragment."""
        ...

    def states(self, status: FragmentStatus) -> bytes | None:
        """Return the row states of an old fragment's partial column file."""
        ...

    def live(self, version: int, fragment: Fragment) -> Live | None:
        """Return which physical rows of an old fragment were live in a version."""
        ...

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the earlier files that a column file of an input replaced; an empty sequence if they are unknown."""
        ...


@dataclass(frozen=True, slots=True)
class _Rows:
    """Consecutive rows with their states."""

    count: int
    #: The states, or a single state for all rows. A version in a state is an index into `ResolvedRequest.versions`.
    states: States | int
    #: The reason if no row is settled.
    why: Reason
    #: The filters for which the rows are settled, or None for all.
    filters: frozenset[str] | None = None

    def array(self) -> States:
        if isinstance(self.states, int):
            return np.full(self.count, self.states, np.uint8)
        return self.states

    @property
    def are_known(self) -> bool:
        """Return whether the state of any of the rows is known."""
        return bool(self.states if isinstance(self.states, int) else self.states.any())


class RowTracer:
    """Traces the fragments of one request through a history of compactions."""

    def __init__(self, resolved: ResolvedRequest, archive: Archive) -> None:
        self._resolved = resolved
        self._archive = archive
        self._rewrites: dict[str, Rewrite] = {}
        self._lost: set[str] = set()
        #: The rows that each compaction wrote, by id of the rewrite; None if the numbers of rows differ before and
        #: after it.
        self._made: dict[int, _Rows | None] = {}

    def knows(self, file: str) -> bool:
        """Return whether the history of a file was already added, or is known to be lost."""
        return file in self._rewrites or file in self._lost

    def add(self, compactions: CompactionHistory) -> None:
        """Add compactions, and those earlier ones that they depend on, unless they were added before."""
        self._rewrites.update(compactions.rewrites)
        self._lost.update(compactions.lost)
        added = {id(rewrite): rewrite for rewrite in compactions.rewrites.values() if id(rewrite) not in self._made}
        # oldest first, so that each finds its predecessors done without recursion: there may be thousands in a row
        rewrites = sorted(added.values(), key=lambda rewrite: rewrite.before)
        for begin in range(0, len(rewrites), _REWRITES_AT_ONCE):
            some = rewrites[begin : begin + _REWRITES_AT_ONCE]
            statuses = iter(inspect_fragments(self._resolved, (old for rewrite in some for old in rewrite.old)))
            for rewrite in some:
                self._made[id(rewrite)] = self._joined(rewrite, tuple(itertools.islice(statuses, len(rewrite.old))))

    def trace(self, status: FragmentStatus) -> FragmentStatus:
        """Return the status of a fragment with its row states, or with the reason why none are known."""
        record = self._archive.record(status)
        rows = self._recorded(status, record) if record is not None else self._rows(status)
        if not rows.are_known:
            return status if record is not None else status._replace(reason=rows.why)
        identity = keys.md5_of_few(self._resolved.filter_identity(status.fragment))
        filters = frozenset(identity if f == _ASKED else f for f in rows.filters or ())
        older = self._resolved.versions[1:]
        summary = row_states.summarize_states(rows.array(), filters, older)
        whole = summary.computed == rows.count
        recorded = record is not None and record.fingerprint == status.fingerprint
        if status.reason is Reason.INPUT_CHANGED:
            recorded = True  # the names of the fragment's present files show the states
        moved = Moved(summary, b"" if whole else row_states.encode_states(rows.array(), filters, older), recorded)
        reason = Reason.PARTIAL
        if not summary.untouched + summary.failed_older:
            reason = Reason.REUSED if moved.recorded else Reason.REUSED_COMPACTED
        return status._replace(reason=reason, moved=moved)

    def _rows(self, status: FragmentStatus) -> _Rows:
        """Return the rows of a fragment, including deleted ones."""
        rows = self._of_these_inputs(status)
        if rows.are_known or status.reason not in (Reason.INPUT_CHANGED, Reason.EXTERNAL_WRITE):
            return rows
        return self._of_earlier_inputs(status.fragment) or rows

    def _of_these_inputs(self, status: FragmentStatus) -> _Rows:
        """Return the rows, with the states of values that were computed from the present files of the inputs."""
        count = status.fragment.physical_rows
        if status.reason is Reason.REUSED:
            return _Rows(count, row_states.with_version(RowState.COMPUTED, status.version), Reason.REUSED)
        if status.reason is Reason.PARTIAL:
            own = self._resolved.versions[status.version]
            return self._decoded(status, self._archive.states(status), own)
        if unnamed_file(self._resolved, status):
            record = self._archive.record(status)
            return self._recorded(status, record) if record is not None else self._compacted(status)
        return _untouched(count, status.reason)

    def _of_earlier_inputs(self, fragment: Fragment) -> _Rows | None:
        """Return the rows with values computed from earlier files of the inputs, or None if there are none.

        A filter of an earlier computation settles no rows, because it may match other rows now.
        """
        for earlier, changed in fragment_before(fragment, self._resolved.input_ids, self._archive.predecessors):
            status = inspect_fragments(self._resolved, (earlier,))[0]
            rows = self._of_these_inputs(status)
            if rows.are_known:
                states = np.where(changed, np.uint8(RowState.UNTOUCHED), rows.array())
                return _Rows(rows.count, states, Reason.INPUT_CHANGED, frozenset())
        return None

    def _recorded(self, status: FragmentStatus, record: FragmentRecord) -> _Rows:
        own = keys.function_of(record.fingerprint)
        if record.states:
            return self._decoded(status, record.states, own)
        state = row_states.with_version(RowState.COMPUTED, self._resolved.versions.index(own))
        return _Rows(status.fragment.physical_rows, state, Reason.REUSED)

    def _decoded(self, status: FragmentStatus, buffer: bytes | None, own: str) -> _Rows:
        count = status.fragment.physical_rows
        accepted = self._resolved.versions
        states = None if buffer is None else row_states.decode_states_for(buffer, own, accepted)
        if buffer is None or states is None or len(states) != count:
            return _untouched(count, Reason.HISTORY_LOST)
        summary = row_states.summary_for_version(row_states.decode_state_summary(buffer), own, accepted)
        return _Rows(count, states, Reason.MISSING, self._filters(status, summary))

    def _filters(self, status: FragmentStatus, summary: StateSummary) -> frozenset[str] | None:
        if not summary.untouched + summary.failed_older:
            return None
        asked = self._resolved.filter.where and keys.md5_of_few(self._resolved.filter_identity(status.fragment))
        return summary.filters | {_ASKED} if asked in summary.filters else summary.filters

    def _compacted(self, status: FragmentStatus) -> _Rows:
        """Return the rows of a fragment, assembled from the fragments that compaction merged into it.

        The reason is EXTERNAL_WRITE if no compaction wrote the file, and HISTORY_LOST if the history is too short.
        """
        fragment, file = status.fragment, status.current_file
        rewrite = self._rewrites.get(file)
        if rewrite is None:
            lost = file in self._lost
            return _untouched(fragment.physical_rows, Reason.HISTORY_LOST if lost else Reason.EXTERNAL_WRITE)
        made, before = rewrite.place_of(file)
        if self._resolved.input_pairs(made) != self._resolved.input_pairs(fragment):
            return _untouched(fragment.physical_rows, Reason.INPUT_CHANGED)
        joined = self._made[id(rewrite)]
        if joined is None or made.physical_rows != fragment.physical_rows:
            return _untouched(fragment.physical_rows, Reason.HISTORY_LOST)
        rows = _cut(joined, before, made.physical_rows)
        if self._resolved.filter_identity(made) != self._resolved.filter_identity(fragment) and rows.filters:
            return dataclasses.replace(rows, filters=rows.filters - {_ASKED})
        return rows

    def _joined(self, rewrite: Rewrite, statuses: Sequence[FragmentStatus]) -> _Rows | None:
        """Join the live rows of the fragments that a compaction read. Each new fragment has a range of these rows.

        Returns:
            None if the number of live rows in the old fragments is not the number of rows in the new ones.
        """
        parts: list[_Rows] = []
        for status in statuses:
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


def fragment_before(
    fragment: Fragment, field_ids: Sequence[int], predecessors: Callable[[str], Sequence[Predecessor]]
) -> Iterator[tuple[Fragment, npt.NDArray[np.bool_]]]:
    """Yield earlier states of a fragment, and the rows whose values in some columns have changed since.

    Each state has an earlier combination of the files of these columns.

    Args:
        fragment: The fragment as it is now.
        field_ids: The fields of the columns.
        predecessors: Returns the predecessors of a column file; see `leman_core.model.row_states`.
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


#: The number of rows of a file that go into one checkpoint.
CHUNK_ROWS = 1 << 15
_NO_FILTER = keys.md5("")
_NONE: Live = np.zeros(0, np.bool_)


class CheckpointReader(Protocol):
    """Reads older stored work. Each method returns None if the work is gone or damaged."""

    def record(self, key: str) -> FragmentRecord | None:
        """Read a fragment record."""
        ...

    def live(self, version: int, fragment: Fragment) -> Live | None:
        """Return which physical rows of an old fragment were live in a version."""
        ...

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the earlier files that a column file of an input replaced; an empty sequence if they are unknown."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """A fragment to which stored rows are migrated."""

    fragment: Fragment
    sources: str

    missing: tuple[RowRange, ...] | None
    """The fragment's missing rows, or None if the fragment is gone too and other fragments have its rows."""

    is_traced: bool = False
    """Whether values that were committed before the compaction are still in use."""

    changed: Live | None = None
    """The rows whose inputs differ from those of the stored rows, or None if no row does."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A fragment with the input files that a compaction gave it, or as it is now if no compaction created it."""

    #: The fragment with the files that its inputs had at that time.
    fragment: Fragment
    #: The file that identifies the compaction, or "" if there was none.
    file: str
    #: The rows whose inputs have changed since, or None if there are no such rows.
    changed: Live | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows with one key. Each of `ranges` becomes a checkpoint under the filter `filter_id`."""

    key: str
    filter_id: str
    ranges: Sequence[RowRange]


@dataclass(slots=True)
class _Move:
    """The place to which a compaction moved a fragment's rows."""

    fragment: Fragment

    at: int
    """The offset of its first live row in the new fragment; negative if an earlier new fragment has its first rows."""

    before: int = 0
    """The version whose deletions apply to the old fragment; 0 if all its rows were live."""

    live: Live | None = None
    """The old fragment's live rows, or None until they are read."""

    _ranks: list[int] = field(default_factory=list)

    def rank(self, offset: int) -> int:
        """Return the new offset of the first live row at or after an old offset."""
        if self.live is None:
            return self.at + offset
        if not self._ranks:
            self._ranks = [0, *np.cumsum(self.live).tolist()]
        return self.at + self._ranks[offset]


class CheckpointMigrator:
    """Decides which stored rows one plan migrates."""

    def __init__(self, resolved: ResolvedRequest, stored_work: StoredWork, reader: CheckpointReader) -> None:
        self._resolved = resolved
        self._stored_work = stored_work
        self._reader = reader
        self._stored = self._by_slot([*stored_work.records, *stored_work.gone, *stored_work.outdated])
        #: The statuses of the old fragments of a compaction, by its id.
        self._inspected: dict[int, list[FragmentStatus]] = {}

    def _by_slot(self, listed: Iterable[str]) -> dict[Slot, list[keys.FamilyKey]]:
        found: dict[Slot, list[keys.FamilyKey]] = defaultdict(list)
        for key in self._resolved.family.parse_all(listed):
            found[key.sources, key.fragment_id].append(key)
        return found

    @cached_property
    def _covered(self) -> dict[Slot, list[keys.FamilyKey]]:
        """The stored work that the plan can use, whose ranges are not migrated. Computed on first use."""
        found = [stored.key for stored in self._stored_work.found or ()]
        return self._by_slot([*found, *self._stored_work.gone])

    def replaced(self, plan: Plan, statuses: Statuses) -> Iterator[MigratedRows]:
        """Yield the rows of files that other files replaced, or that belong to another column by now."""
        stored = {fragment_id for _, fragment_id in self._stored}  # a few of perhaps a million fragments
        known = planned_tasks(plan.tasks).of_fragments(stored)
        tasks = {task.fragment_id: task for task in known if task.missing}
        for status in statuses.take(np.flatnonzero(statuses.fragments.with_ids(stored))):
            task = tasks.get(status.fragment.fragment_id)
            if task is None or task.extend_current or status.reason is Reason.PARTIAL:
                continue
            target = _Target(status.fragment, status.sources, task.missing)
            for source in self._files(status.fragment, status.sources, status.current_file):
                yield from self._migrated(source, target, _Move(status.fragment, 0))

    def followed(self, plan: Plan, statuses: Statuses) -> Iterator[MigratedRows]:
        """Yield the rows that were computed from earlier files of the inputs, but whose inputs have not changed."""
        outdated = {key.fragment_id for key in self._resolved.family.parse_all(self._stored_work.outdated)}
        known = planned_tasks(plan.tasks).of_fragments(outdated)
        tasks = {task.fragment_id: task for task in known if task.missing}
        for status in statuses.take(np.flatnonzero(statuses.fragments.with_ids(outdated))):
            task = tasks.get(status.fragment.fragment_id)
            for earlier, changed in self._as_before(status.fragment) if task is not None else ():
                target = _Target(status.fragment, status.sources, task.missing if task else None, changed=changed)
                sources = keys.sources(self._resolved.input_pairs(earlier))
                files = self._files(earlier, sources, status.current_file)
                for source in (*files, *self._checkpoints(earlier, sources)):
                    yield from self._migrated(source, target, _Move(status.fragment, 0))

    def made(self, fragment: Fragment) -> _Made:
        """Return a fragment as a compaction wrote it, before its inputs got other files."""
        states: Iterable[tuple[Fragment, Live | None]] = itertools.chain([(fragment, None)], self._as_before(fragment))
        for then, changed in states:
            files = then.files_of(self._resolved.input_ids)
            if files and all(keys.parse_column_file_name(file) is None for file in files):
                return _Made(then, compaction_origin(self._resolved, then), changed)
        return _Made(fragment, "")

    def _as_before(self, fragment: Fragment) -> Iterator[tuple[Fragment, Live]]:
        return fragment_before(fragment, self._resolved.input_ids, self._reader.predecessors)

    def moved(
        self, plan: Plan, statuses: Iterable[FragmentStatus], compactions: CompactionHistory
    ) -> Iterator[MigratedRows]:
        """Yield the stored rows of compacted fragments, each with the fragment that has them now."""
        by_id = {status.fragment.fragment_id: status for status in statuses}
        waiting = []
        for task in plan.tasks:
            if task.missing:
                status = by_id[task.fragment_id]
                waiting.append(_Target(status.fragment, status.sources, task.missing, status.moved is not None))
        seen = {target.fragment.fragment_id for target in waiting}
        while waiting:
            target = waiting.pop()
            made = _Made(target.fragment, compaction_origin(self._resolved, target.fragment))
            if target.missing is not None:
                made = self.made(target.fragment)
            rewrite = compactions.rewrites.get(made.file)
            if rewrite is None:
                continue
            for move, status in self._moves(rewrite, made):
                yield from self._from(move, status, replace(target, changed=made.changed))
                if move.fragment.fragment_id not in seen:
                    seen.add(move.fragment.fragment_id)
                    waiting.append(_Target(move.fragment, status.sources, None, target.is_traced))

    def _moves(self, rewrite: Rewrite, found: _Made) -> Iterator[tuple[_Move, FragmentStatus]]:
        """Yield the moves of a compaction, except to new fragments that have changed since."""
        fragment = found.fragment
        made, before = rewrite.place_of(found.file)
        same = self._resolved.input_pairs(made) == self._resolved.input_pairs(fragment)
        rows = sum(old.live_rows for old in rewrite.old)
        if not same or rows != sum(new.physical_rows for new in rewrite.new):
            return
        if id(rewrite) not in self._inspected:
            self._inspected[id(rewrite)] = list(inspect_fragments(self._resolved, rewrite.old))
        begin = -before
        for status in self._inspected[id(rewrite)]:
            old = status.fragment
            if begin < fragment.physical_rows and begin + old.live_rows > 0:
                yield _Move(old, begin, rewrite.before if old.deleted_rows else 0), status
            begin += old.live_rows

    def _from(self, move: _Move, status: FragmentStatus, target: _Target) -> Iterator[MigratedRows]:
        old = move.fragment
        if target.is_traced and status.reason is Reason.REUSED:
            return
        known = status.current_file if target.is_traced else ""
        files = list(self._files(old, status.sources, known))
        whole = [source for source in files if source.filter_id == _NO_FILTER]  # such a file has all checkpointed rows
        sources = whole[:1] or [*files, *self._checkpoints(old, status.sources)]
        if sources and move.before:
            move.live = self._reader.live(move.before, old)
            if move.live is None or int(move.live.sum()) != old.live_rows:
                return
        asked = self._resolved.filter_identity(old)
        for source in sources:
            if asked and source.filter_id == keys.md5_of_few(asked):
                now = keys.md5_of_few(self._resolved.filter_identity(target.fragment))
                source = _Source(source.key, now, source.ranges)  # noqa: PLW2901 the same filter, by its new files
            yield from self._migrated(source, target, move)

    def _checkpoints(self, old: Fragment, sources: str) -> Iterator[_Source]:
        for stored in self._stored.get((sources, old.fragment_id), ()):
            if stored.range is not None and stored.range.end <= old.physical_rows:
                yield _Source(stored.key, stored.filter_id, (stored.range,))

    def _files(self, fragment: Fragment, sources: str, current: str) -> Iterator[_Source]:
        for key, *_, covered in self._stored.get((sources, fragment.fragment_id), ()):
            record = self._reader.record(key) if covered is None else None
            if record is None or record.file == current or not self._is_about(record, fragment):
                continue
            # Rows with values of earlier versions do not count, because the column may keep other versions by now.
            settled = record.rows_computed + record.rows_failed
            whole = not record.rows_older and settled >= record.physical_rows
            ranges = tuple(split_range(RowRange(0, record.physical_rows), CHUNK_ROWS))
            # The filter that selected the rows is no longer known, so the rows get a filter id of their own.
            yield _Source(key, _NO_FILTER if whole else keys.md5(f"rows of {record.file}"), ranges)

    def _is_about(self, record: FragmentRecord, fragment: Fragment) -> bool:
        """Return whether a record has values that this function computed from these inputs, for whatever column."""
        udf, name = self._resolved.udf, keys.parse_column_file_name(record.file)
        wanted = keys.fingerprint(udf.name, udf.version, record.column_id, self._resolved.input_pairs(fragment))
        return (
            name is not None
            and name.fingerprint == record.fingerprint == wanted
            and record.physical_rows == fragment.physical_rows
            and tuple(sorted(record.src_data_files)) == self._resolved.input_files(fragment)
        )

    def _migrated(self, source: _Source, target: _Target, move: _Move) -> Iterator[MigratedRows]:
        fragment_id, whole = target.fragment.fragment_id, RowRange(0, target.fragment.physical_rows)
        known: dict[str, list[RowRange]] = defaultdict(list)
        for stored in self._covered.get((target.sources, fragment_id), ()):
            if stored.range is not None:
                known[stored.filter_id].append(stored.range)
        for rows in source.ranges:
            at = move.rank(rows.start)
            covered = RowRange(at, move.rank(rows.end)).intersect(whole)
            if covered is None:
                continue
            changed = _NONE if target.changed is None else target.changed[covered.start : covered.end]
            # The migrated checkpoint leaves out the changed rows, and must not settle them.
            filter_id = keys.md5(f"rows of {source.key}") if changed.any() else source.filter_id
            if not subtract_ranges([covered], known.get(filter_id, ())) or (len(changed) and changed.all()):
                continue
            if target.missing is not None and not any(covered.intersect(r) for r in target.missing):
                continue
            prefix = self._resolved.family.prefix_under(filter_id, target.sources)
            yield MigratedRows(
                fragment_id=fragment_id,
                key=keys.range_key(prefix, fragment_id, covered),
                covered=covered,
                source=source.key,
                from_fragment=move.fragment.fragment_id,
                from_rows=rows,
                at=at,
                before=move.before,
                left_out=np.packbits(changed).tobytes() if changed.any() else b"",
            )


def compaction_origin(resolved: ResolvedRequest, fragment: Fragment) -> str:
    """Return the file that identifies the compaction that created a fragment.

    Return "" if Leman wrote the fragment, or if there is no input.
    """
    file = next((f for i in resolved.input_ids if (f := fragment.file_of(i))), "")
    return "" if keys.parse_column_file_name(file) is not None else file
