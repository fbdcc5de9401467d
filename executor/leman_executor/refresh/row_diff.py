"""Compute the row diff: which rows a refresh has to append to a view, recompute or evict.

This reads only what the changes of the source require: the row ids of fragments that differ, the filter's columns of
new or changed rows and, if rows were removed or changed, the row ids of the view. Row ids are compared one range after
another, so that memory grows only with the number of differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import lance
import numpy as np
import pyarrow as pa

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from leman_core.model.row_ids import (
    NO_IDS,
    Beyond,
    Bounds,
    Ids,
    Mask,
    Moves,
    difference,
    intersection,
    isin,
    isin_sorted,
    membership,
    positions,
    union,
    window,
)
from leman_core.model.service_errors import NotFound
from leman_core.model.view import PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX, ChangeKind, RefreshMode, RefreshPlan
from leman_core.model.view_metadata import from_metadata
from leman_core.storage import view_side_files
from leman_core.storage.error_translation import using_storage
from leman_core.storage.opening import open_version
from leman_core.storage.source_rows import NO_ROWS, RowFacts, SourceRows
from leman_core.storage.view_data_files import in_view_order, view_rows
from leman_core.storage.view_side_files import SourceRecord
from leman_executor.refresh.unchanged_rows import RowPairs, SourceSide, UnchangedRows


class BaseSourceVersion:
    """The source version that a view shows. It is read on first use, from the source or from the view's record of it.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND – the source no longer has the version. `rows` and `side` raise this only if
            the view has no record of the version either.
    """

    def __init__(self, plan: RefreshPlan) -> None:
        self._plan = plan

    @cached_property
    def source(self) -> SourceRows:
        """Return the version as read from the source."""
        definition = self._plan.definition
        return SourceRows(definition.source_uri, definition.base_version)

    @cached_property
    def rows(self) -> SourceRows | SourceRecord:
        """Return the rows by fragment, from the source version itself or from the view's record of it."""
        try:
            return self.source
        except NotFound:
            found = self._plan.definition
            return view_side_files.read_or_rebuild_source_record(
                self._plan.uri, found.base_record, found.source_uri, found.base_version
            )

    def side(self) -> SourceSide:
        """Return the columns and fragments of the version."""
        rows = self.rows
        if isinstance(rows, SourceRows):
            return SourceSide.of(rows.dataset)
        return SourceSide(rows.snapshot.version, rows.snapshot.fields, lambda: rows.snapshot.fragments)


#: Number of rows in each version that are compared at once. Both versions together take some 500 MB.
_AT_ONCE = 1 << 22
_ALL = (0, 1 << 62)


@dataclass(frozen=True, slots=True, eq=False)
class RowDiff:
    """The differences between the rows of a source in two versions."""

    moves: Moves
    #: The fresh and the changed rows, as the target version has them, sorted by id.
    asked: RowFacts


def diff_rows(plan: RefreshPlan, base: BaseSourceVersion, target: SourceRows) -> RowDiff:
    """Compare the fragments that the plan lists. Open `base` only if the list has fragments of the base version."""
    kinds = ChangeKind
    deletions = {c.fragment_id for c in plan.changes if c.kind is kinds.DELETIONS}
    old = {c.fragment_id for c in plan.changes if c.kind in (kinds.GONE, kinds.REWRITTEN)}
    new = {c.fragment_id for c in plan.changes if c.kind in (kinds.APPEARED, kinds.REWRITTEN)}
    gone, back = _deletions(base, target, deletions, old=bool(old), new=bool(new))
    then = base.rows if old else None
    same = UnchangedRows(plan, base.side)
    found = []
    rows = max(target.live_rows(new), 0 if then is None else then.live_rows(old))
    for low, high in _ranges(rows, lambda: target.highest_id(new)):
        before = _joined(gone.between(low, high), then, old, low, high)
        after = _joined(back.between(low, high), target, new, low, high)
        found.append(_compare(same, before, after))
    return _all(found)


def _deletions(
    base: BaseSourceVersion, target: SourceRows, fragments: Collection[int], *, old: bool, new: bool
) -> tuple[RowFacts, RowFacts]:
    """Return the rows that only the first version has, and the rows that only the second version has.

    The fragments must have the same files in both versions. This reads only the lists of deleted rows.

    Args:
        base: The first version.
        target: The second version.
        fragments: Ids of the fragments.
        old: Whether the first version has other fragments, whose rows may have moved to these fragments.
        new: Whether the second version has other fragments, to which rows of these fragments may have moved.
    """
    gone, back = {}, {}
    for fragment_id in sorted(fragments):
        before, after = base.rows.deleted(fragment_id), target.deleted(fragment_id)
        gone[fragment_id], back[fragment_id] = difference(after, before), difference(before, after)
    moved = (old or any(map(len, gone.values()))) and (new or any(map(len, back.values())))
    lost = [base.rows.at(fragment_id, offsets, updated=moved) for fragment_id, offsets in gone.items()]
    found = [target.at(fragment_id, offsets, updated=moved) for fragment_id, offsets in back.items()]
    return _concatenated([NO_ROWS, *lost]), _concatenated([NO_ROWS, *found])


def _ranges(rows: int, highest: Callable[[], int]) -> Iterable[tuple[int, int]]:
    """Return ranges of row ids with about `_AT_ONCE` rows each, assuming that ids are spread evenly."""
    parts = -(-rows // _AT_ONCE)
    if parts < 2:
        return [_ALL]
    width = highest() // parts + 1
    cuts = [0, *(width * i for i in range(1, parts)), _ALL[1]]
    return list(itertools.pairwise(cuts))


def _joined(
    some: RowFacts, source: SourceRows | SourceRecord | None, fragments: Collection[int], low: int, high: int
) -> RowFacts:
    if source is None or not fragments:
        return some.by_id()
    rows = source.rows_of(fragments) if (low, high) == _ALL else source.rows_of(fragments, low, high)
    return _concatenated([some, rows]).by_id()


def _compare(same: UnchangedRows, before: RowFacts, after: RowFacts) -> RowDiff:
    at = positions(after.ids, before.ids)
    stayed = at >= 0
    pairs = RowPairs(before.at(stayed), after.at(at[stayed]))
    changed = pairs.now.ids[~same.unchanged(pairs)]
    fresh = np.ones(len(after), np.bool_)
    fresh[at[stayed]] = False
    moves = Moves(gone=before.ids[~stayed], fresh=after.ids[fresh], changed=changed)
    return RowDiff(moves, after.at(fresh | isin_sorted(changed, after.ids)))


def _all(found: list[RowDiff]) -> RowDiff:
    if len(found) == 1:
        return found[0]
    parts = [(d.moves.gone, d.moves.fresh, d.moves.changed) for d in found]
    gone, fresh, changed = (np.concatenate(part) for part in zip(*parts, strict=True))
    return RowDiff(Moves(gone, fresh, changed), _concatenated([d.asked for d in found]))


def _concatenated(rows: Iterable[RowFacts]) -> RowFacts:
    parts = list(rows)
    if len(parts) == 1:
        return parts[0]

    def join(column: Callable[[RowFacts], Ids]) -> Ids:
        return np.concatenate([column(part) for part in parts])

    return RowFacts(join(lambda r: r.ids), join(lambda r: r.addresses), join(lambda r: r.updated))


_ROWS = 1 << 16
#: Maximum number of a view's fragments to examine one by one. With more, scanning all rows is faster.
_MOST_PROBED = 1 << 8


def view_row_ids(uri: str, version: int, wanted: Ids | None = None) -> tuple[Ids, Ids]:
    """Return the sorted source row ids and the addresses of a view's rows, or only of `wanted` (sorted ids)."""
    return _read(uri, version, wanted, "_rowaddr")


def view_rows_with_values(uri: str, version: int, wanted: Ids) -> tuple[Ids, Ids]:
    """Return the source row ids in `wanted` (sorted) for which the view has values, and the view's ids of these rows.

    Both results are sorted by source row id.
    """
    return _read(uri, version, wanted, "_rowid", where=IS_SET)


def _read(uri: str, version: int, wanted: Ids | None, place: str, where: str | None = None) -> tuple[Ids, Ids]:
    ids, places = [NO_IDS], [NO_IDS]
    with using_storage(uri):
        dataset = open_version(uri, version)
        fragments = None if wanted is None else _fragments_with(dataset, wanted)
        if fragments is not None and not fragments:
            return NO_IDS, NO_IDS
        scanner = dataset.scanner(
            columns=[SOURCE_ROW_ID],
            filter=where,
            fragments=fragments,
            with_row_address=place == "_rowaddr",
            with_row_id=place == "_rowid",
            batch_size=_ROWS,
            batch_readahead=4,
            fragment_readahead=2,
        )
        for batch in scanner.to_batches():
            found = batch.column(SOURCE_ROW_ID).to_numpy()
            chosen = slice(None) if wanted is None else _positions(wanted, found)
            ids.append(found[chosen])
            places.append(batch.column(place).to_numpy()[chosen].astype(np.int64))
    joined = np.concatenate(ids)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(places)[order]


def _fragments_with(dataset: lance.LanceDataset, wanted: Ids) -> list[lance.LanceFragment] | None:
    """Return the fragments that may have some of the wanted rows. Return None if any fragment may.

    Unless a view is shuffled, Leman writes its rows in the order of their source row ids. So the first and the last id
    of a fragment show which rows it may have. A fragment that another writer wrote, or that was compacted, may have any
    row.
    """
    definition = from_metadata(dataset.schema.metadata or {})
    fragments = [fragment for fragment in dataset.get_fragments() if fragment.count_rows()]
    column = dataset.lance_schema.field(SOURCE_ROW_ID)
    if definition is None or definition.query.shuffle or column is None or not 1 < len(fragments) < _MOST_PROBED:
        return None
    ends = [fragment.take([0, fragment.count_rows() - 1], columns=[SOURCE_ROW_ID]) for fragment in fragments]
    taken = np.concatenate([table.column(SOURCE_ROW_ID).to_numpy() for table in ends])
    begins, stops = (np.searchsorted(wanted, taken[i::2] + i) for i in (0, 1))
    return [
        fragment
        for fragment, some in zip(fragments, (begins < stops).tolist(), strict=True)
        if some or not _is_ordered(fragment, column.id())
    ]


def _is_ordered(fragment: lance.LanceFragment, field_id: int) -> bool:
    names = [str(file.path) for file in fragment.metadata.files if field_id in file.fields]
    return bool(names) and all(name.startswith((PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX)) for name in names)


def _positions(wanted: Ids, found: Ids) -> Ids | Mask:
    """Return which of the ids in `found` are wanted.

    These ids are unsorted if the view is shuffled or was compacted.
    """
    if len(found) < 2 or not bool((found[1:] > found[:-1]).all()):
        return isin_sorted(wanted, found)
    begin, end = np.searchsorted(wanted, [found[0], found[-1] + 1])
    at = np.searchsorted(found, wanted[begin:end])
    return np.asarray(at[found[at] == wanted[begin:end]], np.int64)


#: A fragment is scanned with the filter if at least half of its rows need evaluation. If at least `_MANY` rows need it,
#: one row in `_SCAN_SHARE` is enough. Otherwise the rows are read by position, which is 30 times slower for each row.
_SCAN_SHARE = 16
_MANY = 1 << 14
_LEAST_SLICE = 64
#: Up to this many new rows are read together with their values, unless the values take too many bytes.
_FEW_ROWS = 1 << 14
_FEW_BYTES = 32 << 20

#: Opens a version of a source.
OpenSource = Callable[[str, int], SourceRows]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowOutcome:
    """The changes of a refresh to the rows of a view."""

    #: Source ids of the new rows, in the order in which the view will have them.
    append: Ids
    #: Source ids of the rows that stay in place and get other values.
    recompute_ids: Ids
    #: The view's row addresses of these recomputed rows, ascending.
    recompute_addresses: Ids
    #: The view's row addresses of the rows to evict, ascending.
    evict_addresses: Ids
    #: Number of source rows whose filter columns were read.
    source_rows_read: int
    #: Source ids of the rows to evict, sorted.
    evict_ids: Ids = field(default_factory=lambda: NO_IDS)
    #: The selected columns of the new rows, in the same order. None if they were not read.
    values: pa.RecordBatch | None = None


#: The outcome in which all rows stay unchanged.
NO_CHANGES = RowOutcome(
    append=NO_IDS, recompute_ids=NO_IDS, recompute_addresses=NO_IDS, evict_addresses=NO_IDS, source_rows_read=0
)


def row_outcome(plan: RefreshPlan, source: OpenSource = SourceRows) -> RowOutcome:
    """Return what the plan changes in the view's rows (docs/decisions/0010-views.md). The view is read at
    `plan.version`.

    Args:
        plan: The plan.
        source: Opens the source at the plan's target version.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        Aborted: SOURCE_ROW_GONE.
        LemanError: As `storage_errors.unusable` returns.
    """
    with using_storage(plan.definition.source_uri):
        return _Comparison(plan, source).outcome()


def every_row(plan: RefreshPlan) -> RowOutcome:
    """Return an outcome in which all rows of the view are recomputed in place. This does not read the source."""
    ids, addresses = view_row_ids(plan.uri, plan.version)
    order = np.argsort(addresses)
    return RowOutcome(
        append=NO_IDS,
        recompute_ids=ids[order],
        recompute_addresses=addresses[order],
        evict_addresses=NO_IDS,
        source_rows_read=0,
    )


def with_all_others(plan: RefreshPlan, outcome: RowOutcome) -> RowOutcome:
    """Return the outcome with unchanged rows recomputed too, because a function has a new version.

    The new function version reads only the target version of the source. Unchanged rows keep the view's values in the
    columns of all other functions.
    """
    ids, addresses = view_row_ids(plan.uri, plan.version)
    stay = ~isin_sorted(outcome.evict_ids, ids)
    order = np.argsort(addresses[stay])
    return replace(outcome, recompute_ids=ids[stay][order], recompute_addresses=addresses[stay][order])


class _Filter:
    """The view's filter at one version of the source. It also counts the rows that it reads."""

    def __init__(self, source: SourceRows, where: str) -> None:
        self.source = source
        self._where = where
        self._free = not source.condition(where)
        self.rows_read = 0

    def everything(self) -> Iterator[Ids]:
        if not self._free:
            self.rows_read += self.source.count_rows()
        return self.source.matching_ids(self._where)

    def among(self, ids: Ids) -> Ids:
        """Return those of the (sorted) ids whose rows match the filter."""
        if self._free or not len(ids):
            return ids
        self.rows_read += len(ids)
        return np.concatenate([self.source.matching(self._where, piece) for piece in _slices(ids)])

    def rows(self, facts: RowFacts) -> Ids:
        """Return the sorted ids of the rows that match the filter."""
        if self._free or not len(facts):
            return np.sort(facts.ids)
        fragments, counts = np.unique(facts.fragment_ids, return_counts=True)
        alive = [self.source.live_rows([fragment_id]) for fragment_id in fragments.tolist()]
        share = np.where(counts >= _MANY, _SCAN_SHARE, 2)
        dense = fragments[counts * share >= alive]
        found = [self.among(np.sort(facts.ids[~isin_sorted(dense, facts.fragment_ids)]))]
        if len(dense):
            self.rows_read += self.source.live_rows(dense.tolist())
            pieces = [NO_IDS, *self.source.matching_ids(self._where, dense.tolist())]
            found.append(intersection(np.concatenate(pieces), facts.ids))
        return np.sort(np.concatenate(found))


class _Comparison:
    def __init__(self, plan: RefreshPlan, source: OpenSource) -> None:
        query = plan.definition.query
        self._plan = plan
        self._source = source
        self._bounds = Bounds(query.offset, query.limit)
        self._recorded = BaseSourceVersion(plan)

    def outcome(self) -> RowOutcome:
        plan = self._plan
        if plan.mode is RefreshMode.FULL:
            return self._all_rows()
        if plan.only_columns:
            return every_row(plan)
        found = self._changed_rows()
        return with_all_others(plan, found) if plan.stale else found

    def _changed_rows(self) -> RowOutcome:
        if not self._plan.changes:
            return NO_CHANGES
        if self._bounds.bounded:
            return self._bounded()
        return self._only_new() or self._unbounded()

    def _only_new(self) -> RowOutcome | None:
        """If a few new rows are the only change of the source, return the outcome, else None.

        None of these rows can be a moved row, because the plan would also list the fragment where the row was before.
        """
        query, fragments = self._plan.definition.query, [c.fragment_id for c in self._plan.changes]
        if any(change.kind is not ChangeKind.APPEARED for change in self._plan.changes):
            return None
        source = self._target.source
        if (rows := source.live_rows(fragments)) > _FEW_ROWS:
            return None
        columns = {column.name: column.expression for column in query.columns}
        found = source.matching_rows(query.where, fragments, columns, _FEW_BYTES)
        if found is None:
            return None
        ids, values = found
        append = in_view_order(ids, query)
        return replace(
            NO_CHANGES,
            append=append,
            source_rows_read=rows if source.condition(query.where) else len(ids),
            values=values.take(pa.array(np.searchsorted(ids, append))),
        )

    def _all_rows(self) -> RowOutcome:
        pieces = [NO_IDS, *view_rows(self._target.everything(), self._plan.definition.query)]
        return RowOutcome(
            append=np.concatenate(pieces),
            recompute_ids=NO_IDS,
            recompute_addresses=NO_IDS,
            evict_addresses=NO_IDS,
            source_rows_read=self._target.rows_read,
        )

    def _unbounded(self) -> RowOutcome:
        found = self._differences()
        moves, matching = found.moves, self._target.rows(found.asked)
        affected = union(moves.gone, moves.changed)
        plan = self._plan
        ids, addresses = view_row_ids(plan.uri, plan.version, affected) if len(affected) else (NO_IDS, NO_IDS)
        change = membership(moves, matching, ids)
        return self._outcome(ids, addresses, change.entering, change.kept, change.leaving)

    def _bounded(self) -> RowOutcome:
        ids, addresses = view_row_ids(self._plan.uri, self._plan.version)
        wanted, kept = self._window(ids) if len(ids) else (self._first(), NO_IDS)
        return self._outcome(
            ids,
            addresses,
            wanted[~isin_sorted(ids, wanted)],
            kept[isin_sorted(ids, kept) & isin_sorted(wanted, kept)],
            ids[~isin_sorted(wanted, ids)],
        )

    def _window(self, held: Ids) -> tuple[Ids, Ids]:
        """Return the view's rows at the target version, and the changed rows that matched the filter before."""
        low, high = int(held[0]), int(held[-1])
        found = self._differences()
        moves, asked = found.moves, found.asked
        if self._bounds.limit is not None and len(held) >= self._bounds.limit:
            asked = asked.at(asked.ids <= high)
        matching = self._target.rows(asked)
        affected = union(moves.gone, moves.changed)
        before = affected[isin_sorted(held, affected)]
        if self._bounds.offset:
            before = union(before, self._base.among(affected[affected < low]))
        change = membership(moves, matching, before)
        return window(held, change, self._bounds, Beyond(self._below, self._above)), change.kept

    def _first(self) -> Ids:
        """Return the rows for a view that has no rows yet."""
        if self._bounds.limit == 0:
            return NO_IDS
        if self._bounds.limit is None:
            return self._bounds.cut(np.sort(np.concatenate([NO_IDS, *self._target.everything()])))
        return self._bounds.cut(self._above(-1, self._bounds.offset + self._bounds.limit))

    def _differences(self) -> RowDiff:
        return diff_rows(self._plan, self._recorded, self._target.source)

    @cached_property
    def _target(self) -> _Filter:
        """Return the filter at the target version, opened on first use."""
        definition = self._plan.definition
        return _Filter(self._source(definition.source_uri, self._plan.target_version), definition.query.where)

    @cached_property
    def _base(self) -> _Filter:
        """Return the filter at the source version that the view shows, opened on first use."""
        return _Filter(self._recorded.source, self._plan.definition.query.where)

    def _below(self, low: int, count: int) -> Ids:
        return -self._nearest(lambda ids: -ids[ids < low], count)[::-1]

    def _above(self, high: int, count: int) -> Ids:
        return self._nearest(lambda ids: ids[ids > high], count)

    def _nearest(self, side: Callable[[Ids], Ids], count: int) -> Ids:
        """Return the `count` smallest keys of rows that match the filter. `side` makes keys from row ids.

        The filter's columns are read in growing slices, starting with the smallest keys. Row ids are read without data.
        """
        found = NO_IDS
        size = max(_LEAST_SLICE, 2 * count)
        after: int | None = None
        while len(found) < count:
            candidates = NO_IDS
            for piece in self._target.source.all_ids():
                keys = side(piece)
                fresh = keys if after is None else keys[keys > after]
                candidates = np.concatenate([candidates, fresh])
                if len(candidates) > 2 * size:
                    candidates = np.partition(candidates, size)[:size]
            candidates = np.sort(candidates)[:size]
            if not len(candidates):
                break
            after = int(candidates[-1])
            matching = self._target.among(np.sort(np.abs(candidates)))
            found = np.concatenate([found, candidates[isin(np.abs(candidates), matching)]])
            size *= 8
        return found[:count]

    def _outcome(self, ids: Ids, addresses: Ids, entering: Ids, kept: Ids, leaving: Ids) -> RowOutcome:
        again = addresses[positions(ids, kept)]
        order = np.argsort(again)
        read = self._target.rows_read + (self._base.rows_read if "_base" in self.__dict__ else 0)
        return RowOutcome(
            append=in_view_order(entering, self._plan.definition.query),
            recompute_ids=kept[order],
            recompute_addresses=again[order],
            evict_addresses=np.sort(addresses[positions(ids, leaving)]),
            source_rows_read=read,
            evict_ids=leaving,
        )


def _slices(ids: Ids) -> Iterator[Ids]:
    for start in range(0, len(ids), _ROWS):
        yield ids[start : start + _ROWS]
