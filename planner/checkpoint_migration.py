"""Stored work that a plan cannot use where it lies: checkpoints and finished files of fragments that compaction took
away, and files that another function's replaced. Says what is to be stored anew, and where; see `MigratedRows`.

A file that was replaced is not installed again: `cleanup_old_versions` may delete it at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from core import keys
from core.checkpoints.records import FragmentRecord
from core.domain.compactions import CompactionHistory, Rewrite
from core.domain.plan import MigratedRows, Plan, Reason
from core.domain.ranges import RowRange, chunks, subtract
from core.domain.table import Fragment
from planner.request_resolution import ResolvedRequest
from planner.reuse_decision import FragmentStatus, inspect_fragment
from planner.row_tracing import Live
from planner.stored_work import Slot, StoredWork

#: Rows of a file that go into one checkpoint.
CHUNK_ROWS = 1 << 15
_NO_FILTER = keys.md5("")


class CheckpointReader(Protocol):
    """Reads what older work left. None: it is gone or damaged."""

    def record(self, key: str) -> FragmentRecord | None:
        """A fragment record."""
        ...

    def live(self, version: int, fragment: Fragment) -> Live | None:
        """Which physical rows of an old fragment were not deleted in a version."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """A fragment that is to get rows. `missing` None: it is gone too, and hands them on to others. `follows`: what was
    committed before the compaction is known to hold still."""

    fragment: Fragment
    sources: str
    missing: tuple[RowRange, ...] | None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows of one key: `ranges` of them go into a checkpoint each, under the filter `filter_id`."""

    key: str
    filter_id: str
    ranges: Sequence[RowRange]


@dataclass(slots=True)
class _Move:
    """Where a fragment's rows went. `at`: the offset of its first live row, which may lie before or after the target's
    rows. `before` and `live`: where some of its rows are deleted."""

    fragment: Fragment
    at: int
    before: int = 0
    live: Live | None = None
    _ranks: list[int] = field(default_factory=list)

    def rank(self, offset: int) -> int:
        """The new offset of the first live row from an old offset on."""
        if self.live is None:
            return self.at + offset
        if not self._ranks:
            self._ranks = [0, *np.cumsum(self.live).tolist()]
        return self.at + self._ranks[offset]


class CheckpointMigrator:
    """For one plan, which was made from the stored work."""

    def __init__(self, resolved: ResolvedRequest, stored_work: StoredWork, reader: CheckpointReader) -> None:
        self._resolved = resolved
        self._stored_work = stored_work
        self._reader = reader
        self._stored = self._by_slot([*stored_work.records, *stored_work.gone])

    def _by_slot(self, listed: Iterable[str]) -> dict[Slot, list[keys.FamilyKey]]:
        found: dict[Slot, list[keys.FamilyKey]] = defaultdict(list)
        for key in self._resolved.family.parse_all(listed):
            found[key.sources, key.fragment_id].append(key)
        return found

    @cached_property
    def _covered(self) -> dict[Slot, list[keys.FamilyKey]]:
        """Ranges that need not be migrated: read when there is something to be migrated at all."""
        found = (stored.key for checkpoints in self._stored_work.found.values() for stored in checkpoints)
        return self._by_slot([*found, *self._stored_work.gone])

    def replaced(self, plan: Plan, statuses: Iterable[FragmentStatus]) -> Iterator[MigratedRows]:
        """From files that were replaced, or that are another column's by now."""
        tasks = {task.fragment_id: task for task in plan.tasks if task.missing}
        for status in statuses:
            task = tasks.get(status.fragment.fragment_id)
            if task is None or task.extend_current or status.reason is Reason.PARTIAL:
                continue
            target = _Target(status.fragment, status.sources, task.missing)
            for source in self._files(status.fragment, status.sources, status.current_file):
                yield from self._carry(source, target, _Move(status.fragment, 0))

    def moved(
        self, plan: Plan, statuses: Iterable[FragmentStatus], compactions: CompactionHistory
    ) -> Iterator[MigratedRows]:
        """From fragments that were compacted, each to the one that has its rows next."""
        by_id = {status.fragment.fragment_id: status for status in statuses}
        waiting = []
        for task in plan.tasks:
            if task.missing:
                status = by_id[task.fragment_id]
                waiting.append(_Target(status.fragment, status.sources, task.missing, status.moved is not None))
        seen = {target.fragment.fragment_id for target in waiting}
        while waiting:
            target = waiting.pop()
            rewrite = compactions.rewrites.get(origin(self._resolved, target.fragment))
            if rewrite is None:
                continue
            for move in self._moves(rewrite, target.fragment):
                yield from self._from(move, target)
                if move.fragment.fragment_id not in seen:
                    seen.add(move.fragment.fragment_id)
                    sources = keys.sources(self._resolved.input_pairs(move.fragment))
                    waiting.append(_Target(move.fragment, sources, None, target.follows))

    def _moves(self, rewrite: Rewrite, fragment: Fragment) -> Iterator[_Move]:
        """Of the old fragments; none where the new one is not as compaction made it."""
        made, before = rewrite.place_of(origin(self._resolved, fragment))
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
        if target.follows and status.reason is Reason.REUSED:
            return
        known = status.current_file if target.follows else ""
        files = list(self._files(old, status.sources, known))
        whole = [source for source in files if source.filter_id == _NO_FILTER]  # that has what checkpoints have
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
            yield from self._carry(source, target, move)

    def _checkpoints(self, old: Fragment, sources: str) -> Iterator[_Source]:
        for stored in self._stored.get((sources, old.fragment_id), ()):
            if stored.range is not None and stored.range.end <= old.physical_rows:
                yield _Source(stored.key, stored.filter_id, (stored.range,))

    def _files(self, fragment: Fragment, sources: str, current: str) -> Iterator[_Source]:
        for key, *_, covered in self._stored.get((sources, fragment.fragment_id), ()):
            record = self._reader.record(key) if covered is None else None
            if record is None or record.file == current or not self._is_about(record, fragment):
                continue
            # rows of earlier versions are not migrated: the column may keep other ones by now
            settled = record.rows_computed + record.rows_failed
            whole = not record.rows_older and settled >= record.physical_rows
            ranges = tuple(chunks(RowRange(0, record.physical_rows), CHUNK_ROWS))
            # which of the rows were asked for under which filter is not known any more: none is settled by them
            yield _Source(key, _NO_FILTER if whole else keys.md5(f"rows of {record.file}"), ranges)

    def _is_about(self, record: FragmentRecord, fragment: Fragment) -> bool:
        """Whether it has values of this function version and these inputs, for whichever column."""
        udf, name = self._resolved.udf, keys.parse_column_file_name(record.file)
        wanted = keys.fingerprint(udf.name, udf.version, record.column_id, self._resolved.input_pairs(fragment))
        return (
            name is not None
            and name.fingerprint == record.fingerprint == wanted
            and record.physical_rows == fragment.physical_rows
            and tuple(sorted(record.src_data_files)) == self._resolved.input_files(fragment)
        )

    def _carry(self, source: _Source, target: _Target, move: _Move) -> Iterator[MigratedRows]:
        whole = RowRange(0, target.fragment.physical_rows)
        prefix = self._resolved.family.prefix_under(source.filter_id, target.sources)
        known = [
            stored.range
            for stored in self._covered.get((target.sources, target.fragment.fragment_id), ())
            if stored.range is not None and stored.filter_id == source.filter_id
        ]
        for rows in source.ranges:
            at = move.rank(rows.start)
            covered = RowRange(at, move.rank(rows.end)).intersect(whole)
            if covered is None or not subtract([covered], known):
                continue
            if target.missing is not None and not any(covered.intersect(r) for r in target.missing):
                continue
            fragment_id = target.fragment.fragment_id
            yield MigratedRows(
                fragment_id,
                keys.range_key(prefix, fragment_id, covered),
                covered,
                source.key,
                move.fragment.fragment_id,
                rows,
                at,
                move.before,
            )


def origin(resolved: ResolvedRequest, fragment: Fragment) -> str:
    """The file that tells which compaction made a fragment; empty where it is one of Leman's, or none is read."""
    file = next((f for i in resolved.input_ids if (f := fragment.file_of(i))), "")
    return "" if keys.parse_column_file_name(file) is not None else file
