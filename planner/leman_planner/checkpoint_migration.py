"""Decide which stored rows are to be stored anew, and where. Pure: the reader is asked for what has to be read.

A plan cannot use checkpoints and finished files of fragments that compaction took away, nor files that another
function's replaced, nor what was computed from files that its inputs had before. Their rows are stored once more, as
checkpoints under the fragments that have them now (`MigratedRows`); the next plan finds them there. A file that was
replaced is not installed again: `cleanup_old_versions` may delete it at any moment.

Where a row went: the live rows of the old fragments lie in the new one in their order. Fragment 0 has rows 0 to 9 of
which 3 is deleted, fragment 1 rows 0 to 4, and both became fragment 7. The checkpoint of rows 4 to 9 of fragment 0 then
covers rows 3 to 8 of fragment 7, and that of rows 0 to 4 of fragment 1 rows 9 to 13. Where fragment 7 was compacted
again, the walk goes on from it.

Where a computed column is an input and got another file, that file says which rows differ
(`leman_core.model.changed_rows`): stored values of the others are good still.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from leman_core.model import keys
from leman_core.model.changed_rows import Predecessor
from leman_core.model.compactions import CompactionHistory, Rewrite
from leman_core.model.plan import MigratedRows, Plan, Reason
from leman_core.model.ranges import RowRange, chunks, subtract
from leman_core.model.table import Fragment
from leman_core.storage.checkpoints.records import FragmentRecord
from leman_planner.compacted_rows import Live, as_before
from leman_planner.fragment_tasks import Tasks
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, inspect_fragment
from leman_planner.statuses import Statuses
from leman_planner.stored_work import Slot, StoredWork

#: Rows of a file that go into one checkpoint.
CHUNK_ROWS = 1 << 15
_NO_FILTER = keys.md5("")
_NONE: Live = np.zeros(0, np.bool_)


class CheckpointReader(Protocol):
    """What reads older stored work; it returns None where that is gone or damaged."""

    def record(self, key: str) -> FragmentRecord | None:
        """Read a fragment record."""
        ...

    def live(self, version: int, fragment: Fragment) -> Live | None:
        """Tell which physical rows of an old fragment were not deleted in a version."""
        ...

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the files that an input's column file follows; none where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """A fragment that is to get rows."""

    fragment: Fragment
    sources: str

    missing: tuple[RowRange, ...] | None
    """The rows that it lacks; None: it is gone too, and others have its rows by now."""

    is_traced: bool = False
    """What was committed before the compaction is known to hold still."""

    changed: Live | None = None
    """Which rows have other inputs than those that are stored; None: none has."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A fragment as compaction made it, perhaps."""

    #: With the files that its inputs had then.
    fragment: Fragment
    #: The file that tells which compaction that was; empty: there is none.
    file: str
    #: Which rows have other inputs since then; None: none has.
    changed: Live | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows of one key: `ranges` of them go into a checkpoint each, under the filter `filter_id`."""

    key: str
    filter_id: str
    ranges: Sequence[RowRange]


@dataclass(slots=True)
class _Move:
    """Where a fragment's rows went."""

    fragment: Fragment

    at: int
    """The new offset of its first live row; less than 0 where another fragment has the first ones."""

    before: int = 0
    """The version that tells which of its rows were live; 0: all."""

    live: Live | None = None
    """Which of its rows were, once that is read."""

    _ranks: list[int] = field(default_factory=list)

    def rank(self, offset: int) -> int:
        """Return the new offset of the first live row from an old offset on."""
        if self.live is None:
            return self.at + offset
        if not self._ranks:
            self._ranks = [0, *np.cumsum(self.live).tolist()]
        return self.at + self._ranks[offset]


class CheckpointMigrator:
    """What decides for one plan, which was made from the stored work."""

    def __init__(self, resolved: ResolvedRequest, stored_work: StoredWork, reader: CheckpointReader) -> None:
        self._resolved = resolved
        self._stored_work = stored_work
        self._reader = reader
        self._stored = self._by_slot([*stored_work.records, *stored_work.gone, *stored_work.outdated])

    def _by_slot(self, listed: Iterable[str]) -> dict[Slot, list[keys.FamilyKey]]:
        found: dict[Slot, list[keys.FamilyKey]] = defaultdict(list)
        for key in self._resolved.family.parse_all(listed):
            found[key.sources, key.fragment_id].append(key)
        return found

    @cached_property
    def _covered(self) -> dict[Slot, list[keys.FamilyKey]]:
        """Return what is stored where the plan finds it, so that its ranges are left out.

        It is put together only where there is something to be migrated.
        """
        found = [stored.key for stored in self._stored_work.found or ()]
        return self._by_slot([*found, *self._stored_work.gone])

    def replaced(self, plan: Plan, statuses: Statuses) -> Iterator[MigratedRows]:
        """Yield the rows of files that were replaced, or that belong to another column by now."""
        stored = {fragment_id for _, fragment_id in self._stored}  # of a million fragments it may be one
        known = plan.tasks.of(stored) if isinstance(plan.tasks, Tasks) else plan.tasks
        tasks = {task.fragment_id: task for task in known if task.missing}
        for status in statuses.some(np.flatnonzero(statuses.fragments.with_ids(stored))):
            task = tasks.get(status.fragment.fragment_id)
            if task is None or task.extend_current or status.reason is Reason.PARTIAL:
                continue
            target = _Target(status.fragment, status.sources, task.missing)
            for source in self._files(status.fragment, status.sources, status.current_file):
                yield from self._migrated(source, target, _Move(status.fragment, 0))

    def followed(self, plan: Plan, statuses: Statuses) -> Iterator[MigratedRows]:
        """Yield the rows that were computed from earlier files of the inputs, and whose inputs did not change since."""
        outdated = {key.fragment_id for key in self._resolved.family.parse_all(self._stored_work.outdated)}
        known = plan.tasks.of(outdated) if isinstance(plan.tasks, Tasks) else plan.tasks
        tasks = {task.fragment_id: task for task in known if task.missing}
        for status in statuses.some(np.flatnonzero(statuses.fragments.with_ids(outdated))):
            task = tasks.get(status.fragment.fragment_id)
            for earlier, changed in self._as_before(status.fragment) if task is not None else ():
                target = _Target(status.fragment, status.sources, task.missing if task else None, changed=changed)
                sources = keys.sources(self._resolved.input_pairs(earlier))
                files = self._files(earlier, sources, status.current_file)
                for source in (*files, *self._checkpoints(earlier, sources)):
                    yield from self._migrated(source, target, _Move(status.fragment, 0))

    def made(self, fragment: Fragment) -> _Made:
        """Return a fragment as compaction made it, perhaps before its inputs got other files."""
        states: Iterable[tuple[Fragment, Live | None]] = itertools.chain([(fragment, None)], self._as_before(fragment))
        for then, changed in states:
            files = then.files_of(self._resolved.input_ids)
            if files and all(keys.parse_column_file_name(file) is None for file in files):
                return _Made(then, origin(self._resolved, then), changed)
        return _Made(fragment, "")

    def _as_before(self, fragment: Fragment) -> Iterator[tuple[Fragment, Live]]:
        return as_before(fragment, self._resolved.input_ids, self._reader.predecessors)

    def moved(
        self, plan: Plan, statuses: Iterable[FragmentStatus], compactions: CompactionHistory
    ) -> Iterator[MigratedRows]:
        """Yield the rows of fragments that were compacted, each for the one that has them next."""
        by_id = {status.fragment.fragment_id: status for status in statuses}
        waiting = []
        for task in plan.tasks:
            if task.missing:
                status = by_id[task.fragment_id]
                waiting.append(_Target(status.fragment, status.sources, task.missing, status.moved is not None))
        seen = {target.fragment.fragment_id for target in waiting}
        while waiting:
            target = waiting.pop()
            made = _Made(target.fragment, origin(self._resolved, target.fragment))
            if target.missing is not None:
                made = self.made(target.fragment)
            rewrite = compactions.rewrites.get(made.file)
            if rewrite is None:
                continue
            for move in self._moves(rewrite, made):
                yield from self._from(move, replace(target, changed=made.changed))
                if move.fragment.fragment_id not in seen:
                    seen.add(move.fragment.fragment_id)
                    sources = keys.sources(self._resolved.input_pairs(move.fragment))
                    waiting.append(_Target(move.fragment, sources, None, target.is_traced))

    def _moves(self, rewrite: Rewrite, found: _Made) -> Iterator[_Move]:
        """Yield where the rows of the old fragments went; nothing where the new one is not as compaction made it."""
        fragment = found.fragment
        made, before = rewrite.place_of(found.file)
        same = self._resolved.input_pairs(made) == self._resolved.input_pairs(fragment)
        rows = sum(old.live_rows for old in rewrite.old)
        if not same or rows != sum(new.physical_rows for new in rewrite.new):
            return
        begin = -before
        for old in rewrite.old:
            if begin < fragment.physical_rows and begin + old.live_rows > 0:
                yield _Move(old, begin, rewrite.before if old.deleted_rows else 0)
            begin += old.live_rows

    def _from(self, move: _Move, target: _Target) -> Iterator[MigratedRows]:
        old = move.fragment
        status = next(inspect_fragment(self._resolved, (old,)))
        if target.is_traced and status.reason is Reason.REUSED:
            return
        known = status.current_file if target.is_traced else ""
        files = list(self._files(old, status.sources, known))
        whole = [source for source in files if source.filter_id == _NO_FILTER]  # it has all that checkpoints have
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
            # rows of earlier versions are left: the column may keep other ones by now
            settled = record.rows_computed + record.rows_failed
            whole = not record.rows_older and settled >= record.physical_rows
            ranges = tuple(chunks(RowRange(0, record.physical_rows), CHUNK_ROWS))
            # which rows a filter asked for is forgotten by now, so that they are stored under a filter of their own
            yield _Source(key, _NO_FILTER if whole else keys.md5(f"rows of {record.file}"), ranges)

    def _is_about(self, record: FragmentRecord, fragment: Fragment) -> bool:
        """Tell whether a record has values of this function version and these inputs, for any column."""
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
            # of rows that are left out the checkpoint says nothing
            filter_id = keys.md5(f"rows of {source.key}") if changed.any() else source.filter_id
            if not subtract([covered], known.get(filter_id, ())) or (len(changed) and changed.all()):
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


def origin(resolved: ResolvedRequest, fragment: Fragment) -> str:
    """Return the file that tells which compaction made a fragment; empty: it is one of Leman's, or none is read."""
    file = next((f for i in resolved.input_ids if (f := fragment.file_of(i))), "")
    return "" if keys.parse_column_file_name(file) is not None else file
