"""What became of a source's rows between two versions, from row ids alone.

Tells which rows are gone, which are fresh and which may have other values. Memory is bounded, apart from what is found:
ids are compared range by range.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from leman_core.model.refresh import ChangeKind, RefreshPlan
from leman_core.model.sorted_sets import contains, without
from leman_core.model.view_rows import Ids, Moves, positions
from leman_core.storage.views.row_facts import NO_ROWS, RowFacts
from leman_core.storage.views.source import SourceRows
from leman_core.storage.views.source_record_file import SourceRecord
from leman_executor.refresh.diff.base_source_version import Base
from leman_executor.refresh.diff.unchanged_rows import Pairs, UnchangedRows

#: How many rows of listed fragments are compared at once, in each version: some 500 MB for both.
_AT_ONCE = 1 << 22
_ALL = (0, 1 << 62)


@dataclass(frozen=True, slots=True, eq=False)
class RowDiff:
    """What became of the rows."""

    moves: Moves
    #: The fresh and the changed rows, in the target, sorted by id.
    asked: RowFacts


def diff_rows(plan: RefreshPlan, base: Base, target: SourceRows) -> RowDiff:
    """Compare the fragments that the plan lists; `base` is opened only where one of them is older than the target."""
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
    base: Base, target: SourceRows, fragments: Collection[int], *, old: bool, new: bool
) -> tuple[RowFacts, RowFacts]:
    """Return the rows that only the first version has, and those that only the second has.

    The fragments have the same files in both. Reads which rows are deleted, and no others.

    Args:
        base: The first version.
        target: The second version.
        fragments: Ids of the fragments.
        old: Whether rows of other fragments are gone from the first version: they may be here now.
        new: Whether other fragments have rows that the second version has: they may have been here.
    """
    gone, back = {}, {}
    for fragment_id in sorted(fragments):
        before, after = base.rows.deleted(fragment_id), target.deleted(fragment_id)
        gone[fragment_id], back[fragment_id] = without(after, before), without(before, after)
    moved = (old or any(map(len, gone.values()))) and (new or any(map(len, back.values())))
    lost = [base.rows.at(fragment_id, offsets, updated=moved) for fragment_id, offsets in gone.items()]
    found = [target.at(fragment_id, offsets, updated=moved) for fragment_id, offsets in back.items()]
    return _concatenated([NO_ROWS, *lost]), _concatenated([NO_ROWS, *found])


def _ranges(rows: int, highest: Callable[[], int]) -> Iterable[tuple[int, int]]:
    """Return ranges of row ids with about `_AT_ONCE` rows each, if ids are spread evenly."""
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
    pairs = Pairs(before.at(stayed), after.at(at[stayed]))
    changed = pairs.now.ids[~same.unchanged(pairs)]
    fresh = np.ones(len(after), np.bool_)
    fresh[at[stayed]] = False
    moves = Moves(gone=before.ids[~stayed], fresh=after.ids[fresh], changed=changed)
    return RowDiff(moves, after.at(fresh | contains(changed, after.ids)))


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
