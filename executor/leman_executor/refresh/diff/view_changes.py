"""Which rows of a view a refresh has to append, compute anew or evict.

Reads only what the changes of the source require: the row ids of fragments that differ, the filter's columns of new or
changed rows, and the view's row ids where something was removed or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from leman_core.model.refresh import ChangeKind, RefreshMode, RefreshPlan
from leman_core.model.sorted_sets import among, common, contains, union
from leman_core.model.view_rows import NO_IDS, Beyond, Bounds, Ids, membership, positions, window
from leman_core.storage.error_translation import using_storage
from leman_core.storage.views.row_facts import RowFacts
from leman_core.storage.views.source import SourceRows
from leman_core.storage.views.view_order import in_view_order, view_rows
from leman_executor.refresh.diff.base_source_version import Base
from leman_executor.refresh.diff.row_diff import RowDiff, diff_rows
from leman_executor.refresh.diff.view_rows import held

_ROWS = 1 << 16
#: A fragment is scanned with the filter if half of its rows are to be evaluated, or one of so many where these are
#: many: a scan reads 30 times as many rows in the same time as a take. Other rows are taken.
_SCAN_SHARE = 16
_MANY = 1 << 14
_LEAST_SLICE = 64
#: So many new rows are read with their values at once, if these take no more bytes.
_FEW_ROWS = 1 << 14
_FEW_BYTES = 32 << 20

#: Opens a source at a version.
Source = Callable[[str, int], SourceRows]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowOutcome:
    """What a refresh does to a view's rows."""

    #: Source ids of new rows, in their final order.
    append: Ids
    #: Source ids of rows that stay where they are, with other values.
    recompute_ids: Ids
    #: Row addresses of the same rows in the view, ascending.
    recompute_addresses: Ids
    #: Row addresses in the view of the rows to evict, ascending.
    evict_addresses: Ids
    #: How many rows of the source had their filter columns read.
    source_rows_read: int
    #: Source ids of the same rows, sorted.
    evict_ids: Ids = field(default_factory=lambda: NO_IDS)
    #: The selected columns of the new rows, in their order, where these were read along.
    values: pa.RecordBatch | None = None


#: The outcome where all rows stay as they are.
NOTHING = RowOutcome(
    append=NO_IDS, recompute_ids=NO_IDS, recompute_addresses=NO_IDS, evict_addresses=NO_IDS, source_rows_read=0
)


def row_outcome(plan: RefreshPlan, source: Source = SourceRows) -> RowOutcome:
    """Return what the plan does to the view's rows: step 2 of a refresh (docs/decisions/0010-views.md).

    The view is read at `plan.version`.

    Args:
        plan: The plan.
        source: Opens the source at the plan's target.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        Aborted: SOURCE_ROW_GONE.
        LemanError: What `storage_errors.unusable` gives.
    """
    with using_storage(plan.definition.source_uri):
        return _Comparison(plan, source).outcome()


def every_row(plan: RefreshPlan) -> RowOutcome:
    """Return an outcome in which all rows of the view are computed anew where they are; reads nothing of the source."""
    ids, addresses = held(plan.uri, plan.version)
    order = np.argsort(addresses)
    return RowOutcome(
        append=NO_IDS,
        recompute_ids=ids[order],
        recompute_addresses=addresses[order],
        evict_addresses=NO_IDS,
        source_rows_read=0,
    )


def with_all_others(plan: RefreshPlan, outcome: RowOutcome) -> RowOutcome:
    """Return the outcome with the rows that stay as they are computed anew too."""
    ids, addresses = held(plan.uri, plan.version)
    stay = ~contains(outcome.evict_ids, ids)
    order = np.argsort(addresses[stay])
    return replace(outcome, recompute_ids=ids[stay][order], recompute_addresses=addresses[stay][order])


class _Filter:
    """The view's filter at one version of the source; counts the rows that it reads."""

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
        """Return those of the sorted ids that match."""
        if self._free or not len(ids):
            return ids
        self.rows_read += len(ids)
        return np.concatenate([self.source.matching(self._where, piece) for piece in _slices(ids)])

    def rows(self, facts: RowFacts) -> Ids:
        """Return the ids of those of the rows that match, sorted."""
        if self._free or not len(facts):
            return np.sort(facts.ids)
        fragments, counts = np.unique(facts.fragment_ids, return_counts=True)
        alive = [self.source.live_rows([fragment_id]) for fragment_id in fragments.tolist()]
        share = np.where(counts >= _MANY, _SCAN_SHARE, 2)
        dense = fragments[counts * share >= alive]
        found = [self.among(np.sort(facts.ids[~contains(dense, facts.fragment_ids)]))]
        if len(dense):
            self.rows_read += self.source.live_rows(dense.tolist())
            pieces = [NO_IDS, *self.source.matching_ids(self._where, dense.tolist())]
            found.append(common(np.concatenate(pieces), facts.ids))
        return np.sort(np.concatenate(found))


class _Comparison:
    """The comparison of the source at two versions, for one view."""

    def __init__(self, plan: RefreshPlan, source: Source) -> None:
        query = plan.definition.query
        self._plan = plan
        self._source = source
        self._bounds = Bounds(query.offset, query.limit)
        self._recorded = Base(plan)

    def outcome(self) -> RowOutcome:
        if self._plan.mode is RefreshMode.FULL:
            return self._anew()
        if not self._plan.changes:
            return NOTHING
        if self._bounds.bounded:
            return self._bounded()
        return self._only_new() or self._unbounded()

    def _only_new(self) -> RowOutcome | None:
        """Return the outcome where all that came to the source is few new rows; None: there is more to it.

        Of a row that the view has, the fragment where it was is listed too.
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
            NOTHING,
            append=append,
            source_rows_read=rows if source.condition(query.where) else len(ids),
            values=values.take(pa.array(np.searchsorted(ids, append))),
        )

    def _anew(self) -> RowOutcome:
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
        ids, addresses = held(plan.uri, plan.version, affected) if len(affected) else (NO_IDS, NO_IDS)
        change = membership(moves, matching, ids)
        return self._outcome(ids, addresses, change.entering, change.kept, change.leaving)

    def _bounded(self) -> RowOutcome:
        ids, addresses = held(self._plan.uri, self._plan.version)
        wanted, kept = self._window(ids) if len(ids) else (self._first(), NO_IDS)
        return self._outcome(
            ids,
            addresses,
            wanted[~contains(ids, wanted)],
            kept[contains(ids, kept) & contains(wanted, kept)],
            ids[~contains(wanted, ids)],
        )

    def _window(self, held: Ids) -> tuple[Ids, Ids]:
        """Return the view's rows at the target, and those of the changed ones that matched before too."""
        low, high = int(held[0]), int(held[-1])
        found = self._differences()
        moves, asked = found.moves, found.asked
        if self._bounds.limit is not None and len(held) >= self._bounds.limit:
            asked = asked.at(asked.ids <= high)
        matching = self._target.rows(asked)
        affected = union(moves.gone, moves.changed)
        before = affected[contains(held, affected)]
        if self._bounds.offset:
            before = union(before, self._base.among(affected[affected < low]))
        change = membership(moves, matching, before)
        return window(held, change, self._bounds, Beyond(self._below, self._above)), change.kept

    def _first(self) -> Ids:
        """Return the rows of a view that has none yet: nothing is known of what matches."""
        if self._bounds.limit == 0:
            return NO_IDS
        if self._bounds.limit is None:
            return self._bounds.cut(np.sort(np.concatenate([NO_IDS, *self._target.everything()])))
        return self._bounds.cut(self._above(-1, self._bounds.offset + self._bounds.limit))

    def _differences(self) -> RowDiff:
        return diff_rows(self._plan, self._recorded, self._target.source)

    @cached_property
    def _target(self) -> _Filter:
        """Return the filter at the version to go to; opened only where something is to be read."""
        definition = self._plan.definition
        return _Filter(self._source(definition.source_uri, self._plan.target_version), definition.query.where)

    @cached_property
    def _base(self) -> _Filter:
        """Return the filter at the version that the view was made from."""
        return _Filter(self._recorded.source, self._plan.definition.query.where)

    def _below(self, low: int, count: int) -> Ids:
        return -self._nearest(lambda ids: -ids[ids < low], count)[::-1]

    def _above(self, high: int, count: int) -> Ids:
        return self._nearest(lambda ids: ids[ids > high], count)

    def _nearest(self, side: Callable[[Ids], Ids], count: int) -> Ids:
        """Return the `count` least of the matching ones among what `side` makes of row ids.

        Looks at the filter's columns in growing slices, of the nearest rows first; the row ids themselves are read
        without data.
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
            found = np.concatenate([found, candidates[among(np.abs(candidates), matching)]])
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
