"""Find the source rows that have the same values in two versions, in the columns that a view reads. Read no
values.

A row counts as changed, and is recomputed, unless one of three tests shows that it is unchanged. The tests run in this
order, the cheapest first:

1. Lance's `_row_last_updated_at_version` is the same in both versions. An Update, DataReplacement, and a Merge that
   gives a fragment other files change this number. Some operations change values without changing it, and
   `may_hide_updates` finds them: a change of the schema alone (a column that is dropped and added again empty can get
   the same field id), an Update that rewrites columns without listing the rows, and perhaps operations that are not
   known here.
2. The row has another address, and only compaction moved it (`Ancestry`): the older version has the files that
   compaction read. A computed column of the compacted fragment may have a newer file, which lists the rows in which it
   differs (`leman_core.model.row_states`).
3. The row has the same address, its fragment has another file, and that file lists the rows that it changed
   (`leman_core.storage.view_data_files`).

Example: row 17 was at (fragment 0, offset 3) and is now at (fragment 4, offset 3), because compaction made fragment 4
from fragments 0 and 1. If no column was rewritten in between, the first test shows that the row is unchanged. If a
column that the view does not read was rewritten in fragment 0, Lance marks the row as updated. Then only the second
test shows that the row is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import lance
import numpy as np

from leman_core.model import keys
from leman_core.model.row_ids import NO_IDS, Ids, Mask, distinct, isin, isin_sorted
from leman_core.model.row_positions import addresses_of
from leman_core.model.row_states import Predecessor
from leman_core.model.service_errors import LemanError
from leman_core.model.table import CompactionHistory, Fragment, TableField
from leman_core.model.view import RefreshPlan
from leman_core.sql.expressions import columns_read
from leman_core.storage import compaction_history
from leman_core.storage.column_files import read_predecessors
from leman_core.storage.lance_tables import fields_of
from leman_core.storage.manifest import read_fragments
from leman_core.storage.opening import open_version
from leman_core.storage.source_rows import NO_ROWS, RowFacts, SourceRows
from leman_core.storage.transactions import HOUSEKEEPING, Kind, Transaction, Transactions, VersionGone
from leman_core.storage.view_data_files import patched_offsets

#: Maximum number of versions that are examined. If there are more, `_row_last_updated_at_version` proves nothing.
MOST_VERSIONS = 5000
_HARMLESS = HOUSEKEEPING | {
    Kind.APPEND,
    Kind.DELETE,
    Kind.REWRITE,
    Kind.DATA_REPLACEMENT,
    Kind.MERGE,
    Kind.OVERWRITE,
}


def may_hide_updates(dataset: lance.LanceDataset, other: int, columns: Collection[str]) -> bool:
    """Return whether values of the columns may have changed without a change of `_row_last_updated_at_version`.

    This examines the versions from `other` to the version of `dataset`. If their history is lost, return True.
    """
    ahead, behind = max(int(dataset.version), other), min(int(dataset.version), other)
    transactions = Transactions(dataset.uri)
    for _ in range(MOST_VERSIONS):
        if ahead == behind:
            return False
        try:
            transaction = transactions.read(ahead)
        except (VersionGone, OSError):
            return True
        if transaction.kind is Kind.RESTORE:
            ahead = int(transaction.operation.version)
        else:
            if _may_be_silent(dataset, transaction, columns):
                return True
            ahead -= 1
        ahead, behind = max(ahead, behind), min(ahead, behind)
    return True


def _may_be_silent(dataset: lance.LanceDataset, transaction: Transaction, columns: Collection[str]) -> bool:
    if transaction.kind in _HARMLESS:
        return False
    if transaction.kind is Kind.UPDATE:
        update = transaction.operation
        says_which = update.updated_fragment_offset_bitmaps or update.updated_fragment_offsets
        return bool(update.fields_modified) and not says_which
    try:
        before, after = (dataset.checkout_version(v) for v in (transaction.version - 1, transaction.version))
    except (OSError, ValueError):
        return True
    ids = [{f.name: f.field_ids for f in fields_of(d) if f.name in columns} for d in (before, after)]
    if ids[0] != ids[1]:
        return True
    return transaction.kind is not Kind.PROJECT and read_fragments(before) != read_fragments(after)


#: The files of a fragment that have the fields that the view reads. Fragments with the same files have the same values.
FilesRead = tuple[str, ...]


class Ancestry:
    """The fragments of one version of a source, and the fragments from which compactions made them.

    `fields` are the ids of the fields that the view reads.
    """

    def __init__(self, uri: str, version: int, fields: Sequence[int], fragments: Mapping[int, Fragment]) -> None:
        self.fragments = fragments
        self._uri = uri
        self._version = version
        self._fields = tuple(fields)
        self._read: dict[tuple[int, int], RowFacts] = {}
        self._ancestors: dict[int, Mapping[FilesRead, Ids]] = {}
        self._predecessors: dict[str, Sequence[Predecessor]] = {}
        self._compactions = CompactionHistory()

    def state(self, fragment: Fragment) -> FilesRead:
        return tuple(fragment.file_of(i) for i in self._fields)

    def trace(self, fragment_ids: Collection[int], is_end: Callable[[Fragment], bool]) -> None:
        """Trace these fragments back through compactions, to fragments for which `is_end` is True."""
        files = {self._compacted(self.fragments[i])[0] for i in fragment_ids if i in self.fragments} - {""}
        if not files:
            return
        most = compaction_history.versions_to_look_at(len(self.fragments))
        try:
            found = compaction_history.trace_compactions(
                self._uri,
                self._version,
                files,
                lambda fragments: (self._compacted(old)[0] for old in fragments if not is_end(old)),
                most,
            )
        except LemanError:
            return
        self._compactions = CompactionHistory(
            {**self._compactions.rewrites, **found.rewrites}, self._compactions.lost | found.lost
        )

    def made_of(self, fragment: Fragment) -> Iterator[tuple[Fragment, RowFacts]]:
        """Yield the fragments from which compaction made `fragment`, each with its rows that are unchanged since."""
        file, changed = self._compacted(fragment)
        rewrite = self._compactions.rewrites.get(file)
        if rewrite is None:
            return
        made, before = rewrite.place_of(file)
        has_all = all(made.file_of(i) == (file if fragment.file_of(i) else "") for i in self._fields)
        if not has_all or made.physical_rows != fragment.physical_rows:
            return
        begin = -before
        for old in rewrite.old:
            alive = self._alive(rewrite.before, old.fragment_id)
            if not changed.any():
                yield old, alive
            elif len(alive) == old.live_rows:  # the new fragment has the rows in the same order
                places = begin + np.argsort(np.argsort(alive.offsets))
                inside = (places >= 0) & (places < len(changed))
                yield old, alive.at(inside & ~changed[np.where(inside, places, 0)])
            begin += old.live_rows

    def ancestors(self, fragment_id: int) -> Mapping[FilesRead, Ids]:
        """Return the sorted ids of this fragment's rows, by the earlier files from which compactions read them."""
        if fragment_id not in self._ancestors:
            found: dict[FilesRead, list[Ids]] = {}
            for state, ids in self._further(self.fragments[fragment_id]):
                found.setdefault(state, []).append(ids)
            self._ancestors[fragment_id] = {state: np.sort(np.concatenate(ids)) for state, ids in found.items()}
        return self._ancestors[fragment_id]

    def _further(self, fragment: Fragment) -> Iterator[tuple[FilesRead, Ids]]:
        for old, alive in self.made_of(fragment):
            yield self.state(old), alive.ids
            for state, ids in self._further(old):
                yield state, ids[isin(ids, alive.ids)]

    def is_same(self, one: Fragment, other: Fragment) -> bool:
        return self.state(one) == self.state(other) and one.physical_rows == other.physical_rows

    def _compacted(self, fragment: Fragment) -> tuple[str, Mask]:
        """Return the name of the file that had all fields that the view reads, and the rows that changed since then.

        The name is empty if no single file had all fields, or if it is unknown which rows have changed.
        """
        changed = np.zeros(fragment.physical_rows, np.bool_)
        files = fragment.files_of(self._fields)
        if len(files) == 1 and keys.parse_column_file_name(files[0]) is None:
            return files[0], changed
        earlier = [self._earlier(file) for file in files]
        known = [name for name in earlier[0] if all(name in found for found in earlier)] if earlier else []
        file = next((name for name in known if keys.parse_column_file_name(name) is None), "")
        for found in earlier if file else ():
            predecessor = found[file]
            if predecessor is not None and predecessor.rows != len(changed):
                return "", changed
            if predecessor is not None:
                changed |= predecessor.changed
        return file, changed

    def _earlier(self, file: str) -> Mapping[str, Predecessor | None]:
        """Return the predecessors of a column's file, by file name.

        The file itself is included, with the value None.
        """
        if file not in self._predecessors:
            self._predecessors[file] = read_predecessors(self._uri, file)
        return {file: None, **{predecessor.file: predecessor for predecessor in self._predecessors[file]}}

    def _moved(self, version: int, fragment_id: int) -> RowFacts:
        """Return the rows that the compaction recorded as moved. Return no rows if it recorded nothing."""
        found = compaction_history.OldVersion(self._uri, version).moved(fragment_id)
        if found is None:
            return NO_ROWS
        ids, offsets = (column.astype(np.int64) for column in found)
        return RowFacts(ids, addresses_of(fragment_id, offsets), np.full(len(ids), -1, np.int64))

    def _alive(self, version: int, fragment_id: int) -> RowFacts:
        key = (version, fragment_id)
        if key not in self._read:
            try:
                self._read[key] = SourceRows(self._uri, version).rows_of([fragment_id])
            except LemanError:  # the version was cleaned up
                self._read[key] = self._moved(version, fragment_id)
        return self._read[key]


#: Compares a fragment in the older version with the same fragment later. Returns the offsets at which values may
#: differ, or None if values may differ at any offset.
Patched = Callable[[Fragment, Fragment], Ids | None]


class Origins:
    """Trace fragments of one version of a source back to fragments that the version `old` also has.

    `patched` is passed to each call instead of being stored. A stored reference would keep its owner, and everything
    that the owner has read, in memory until Python's garbage collector runs.
    """

    def __init__(self, new: Ancestry, old: Ancestry) -> None:
        self._new = new
        self._old = old
        self._found: dict[int, dict[int, Ids]] = {}

    def only_moved(self, now: RowFacts, before: RowFacts, patched: Patched) -> Mask:
        """Return, for each row and its two addresses (`now` and `before`), whether only compaction moved it."""
        found = np.zeros(len(now), np.bool_)
        asked = [i for i in distinct(now.fragment_ids).tolist() if i in self._new.fragments]
        unknown = [i for i in asked if i not in self._found]
        self._new.trace(unknown, lambda f: self._other_offsets(f, patched) is not None)
        for fragment_id in asked:
            here = np.flatnonzero(now.fragment_ids == fragment_id)
            for origin, ids in self._origins_of(fragment_id, patched).items():
                came = here[before.fragment_ids[here] == origin]
                found[came] |= isin_sorted(ids, now.ids[came])
        return found

    def _origins_of(self, fragment_id: int, patched: Patched) -> dict[int, Ids]:
        """Return the result of `_origins`, with sorted ids."""
        if fragment_id not in self._found:
            origins = self._origins(self._new.fragments[fragment_id], patched)
            self._found[fragment_id] = {origin: np.sort(ids) for origin, ids in origins.items()}
        return self._found[fragment_id]

    def _origins(self, fragment: Fragment, patched: Patched) -> dict[int, Ids]:
        """Return, by fragment id of the old version, the ids of those rows of this fragment that came from there."""
        found: dict[int, list[Ids]] = {}
        for old, alive in self._new.made_of(fragment):
            other = self._other_offsets(old, patched)
            if other is not None:
                found.setdefault(old.fragment_id, []).append(alive.ids[~isin_sorted(other, alive.offsets)])
                continue
            for origin, ids in self._origins(old, patched).items():
                found.setdefault(origin, []).append(ids[isin(ids, alive.ids)])
        return {origin: np.concatenate(parts) for origin, parts in found.items()}

    def _other_offsets(self, fragment: Fragment, patched: Patched) -> Ids | None:
        """Return the offsets at which the old version's fragment with this id has other values. Return None if values
        may differ anywhere, or if the old version has no such fragment.
        """
        kept = self._old.fragments.get(fragment.fragment_id)
        if kept is None or kept.physical_rows != fragment.physical_rows:
            return None
        return NO_IDS if self._old.is_same(kept, fragment) else patched(kept, fragment)


def common_origin(one: Ancestry, here: RowFacts, other: Ancestry, there: RowFacts) -> Mask:
    """Return for each row whether compactions alone moved it from one common address to its addresses in both versions.

    This happens if an earlier version is restored after a compaction, and the table is then compacted again.
    """
    found = np.zeros(len(here), np.bool_)
    for ancestry, rows in ((one, here), (other, there)):
        ancestry.trace(distinct(rows.fragment_ids).tolist(), lambda _: False)
    for a, b in {*zip(here.fragment_ids.tolist(), there.fragment_ids.tolist(), strict=True)}:
        both = np.flatnonzero((here.fragment_ids == a) & (there.fragment_ids == b))
        ids, states = here.ids[both], other.ancestors(b)
        for state, came in one.ancestors(a).items():
            if state in states:
                found[both] |= isin_sorted(came, ids) & isin_sorted(states[state], ids)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RowPairs:
    """The rows that both versions have, sorted by id. Row `i` of one side is row `i` of the other side."""

    before: RowFacts
    now: RowFacts


class SourceSide:
    """One of the two versions. Its fragments are read when first used."""

    def __init__(self, version: int, fields: Sequence[TableField], read: Callable[[], Iterable[Fragment]]) -> None:
        self.version = version
        self.fields = fields
        self._read = read

    @classmethod
    def of(cls, dataset: lance.LanceDataset) -> SourceSide:
        """Return the side for a version that still exists."""
        return cls(int(dataset.version), fields_of(dataset), lambda: read_fragments(dataset))

    @cached_property
    def fragments(self) -> Mapping[int, Fragment]:
        """Return the fragments by id."""
        return {fragment.fragment_id: fragment for fragment in self._read()}


class UnchangedRows:
    """Find the unchanged rows for one plan.

    The source is opened, and its history read, only if needed. `base` returns the older version.
    """

    def __init__(self, plan: RefreshPlan, base: Callable[[], SourceSide]) -> None:
        self._plan = plan
        self._get_base = base
        self._uri = plan.definition.source_uri
        self._known_ancestries: dict[int, Ancestry] = {}
        self._known_origins: dict[int, Origins] = {}

    def unchanged(self, pairs: RowPairs) -> Mask:
        """Return for each pair of rows whether the view reads the same values from both.

        Call this only for rows of fragments whose files differ.
        """
        now, before = pairs.now, pairs.before
        same: Mask = np.zeros(len(now), np.bool_)
        if not len(now):
            return same
        stayed: Mask = before.addresses == now.addresses
        if not self._changed_silently:
            same |= before.updated == now.updated
        if not self._other_columns:  # file names alone may show that compaction moved the rows
            same |= self._only_moved(pairs, ~same & ~stayed)
        rewritten = stayed & ~same
        for fragment_id in distinct(now.fragment_ids[rewritten]).tolist():
            patched = self._patched(fragment_id)
            if patched is not None:
                here = rewritten & (now.fragment_ids == fragment_id)
                same |= here & ~isin_sorted(patched, now.offsets)
        return same

    @cached_property
    def _base(self) -> SourceSide:
        return self._get_base()

    @cached_property
    def _dataset(self) -> lance.LanceDataset:
        return open_version(self._uri, self._plan.target_version)

    @cached_property
    def _target(self) -> SourceSide:
        return SourceSide.of(self._dataset)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return columns_read(self._plan.definition.query, [field.name for field in self._target.fields])

    @cached_property
    def _other_columns(self) -> bool:
        """Return whether a name now belongs to a different column, whose values may be in the same file as before."""
        ids = [{f.name: f.field_ids for f in side.fields} for side in (self._base, self._target)]
        return any(ids[0].get(c) != ids[1].get(c) for c in self._columns)

    @cached_property
    def _changed_silently(self) -> bool:
        """Return whether rows with the same `_row_last_updated_at_version` may have different values."""
        return self._other_columns or may_hide_updates(self._dataset, self._plan.definition.base_version, self._columns)

    def _only_moved(self, pairs: RowPairs, asked: Mask) -> Mask:
        """Return which `asked` rows only compaction moved: between the versions, or from a common earlier address."""
        found = np.zeros(len(asked), np.bool_)
        before, now = (self._base, pairs.before), (self._target, pairs.now)
        for (newer, here), (older, there) in ((now, before), (before, now)):
            left = np.flatnonzero(asked & ~found)
            if len(left):
                origins = self._origins(newer, older)
                found[left] = origins.only_moved(here.at(left), there.at(left), self._patched_between)
        left = np.flatnonzero(asked & ~found)
        if len(left):
            ancestries = self._ancestry(self._target), self._ancestry(self._base)
            found[left] = common_origin(ancestries[0], pairs.now.at(left), ancestries[1], pairs.before.at(left))
        return found

    def _origins(self, newer: SourceSide, older: SourceSide) -> Origins:
        key = newer.version
        if key not in self._known_origins:
            self._known_origins[key] = Origins(self._ancestry(newer), self._ancestry(older))
        return self._known_origins[key]

    def _ancestry(self, side: SourceSide) -> Ancestry:
        if side.version not in self._known_ancestries:
            fields = [i for f in side.fields if f.name in self._columns for i in f.field_ids]
            self._known_ancestries[side.version] = Ancestry(self._uri, side.version, fields, side.fragments)
        return self._known_ancestries[side.version]

    def _patched(self, fragment_id: int) -> Ids | None:
        """Return the offsets of a fragment's rows that changed between the versions.

        Return None if any row may have changed.
        """
        old, new = self._base.fragments.get(fragment_id), self._target.fragments.get(fragment_id)
        return None if old is None or new is None else self._patched_between(old, new)

    def _patched_between(self, old: Fragment, new: Fragment) -> Ids | None:
        if self._other_columns:
            return None
        before, after = self._files(self._base, old), self._files(self._target, new)
        if before is None or after is None:
            return None
        offsets = patched_offsets(self._uri, before, after)
        return patched_offsets(self._uri, after, before) if offsets is None else offsets

    def _files(self, side: SourceSide, fragment: Fragment) -> Mapping[str, str] | None:
        """Return the file of each column that is read. Return None if one column has several files."""
        files = {f.name: fragment.files_of(f.field_ids) for f in side.fields if f.name in self._columns}
        if any(len(names) != 1 for names in files.values()):
            return None
        return {column: names[0] for column, names in files.items()}
