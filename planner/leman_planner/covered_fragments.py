"""Fragments of which nothing but checkpoints of the request's own filter is stored: decided about all at once. Pure.

What is decided about one fragment stands in `leman_planner.fragment_tasks`; of a table of 100,000 fragments all may be
half in checkpoints.
"""

from __future__ import annotations

import numpy as np

from leman_core.model import keys, sorted_sets
from leman_core.model.checkpoint_columns import CheckpointColumns
from leman_core.model.fragment_columns import starts
from leman_core.model.key_columns import RangeKeys
from leman_core.model.object_columns import Numbers
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.statuses import Mask, Statuses
from leman_planner.stored_work import FoundCheckpoints


class CoveredFragments:
    """Fragments with work, and the checkpoints of each that are reused.

    Args:
        fragments: how many the table has.
        places: of these among them, each once.
        checkpoints: of each of these.
    """

    def __init__(self, fragments: int, places: Numbers, checkpoints: CheckpointColumns) -> None:
        self._checkpoints = checkpoints
        #: Of each of the table's fragments, its place in `checkpoints`; -1: it is none of these.
        self._at = np.full(fragments, -1, np.int64)
        self._at[places] = np.arange(len(places))
        self.places = places

    @property
    def mask(self) -> Mask:
        """Tell of each of the table's fragments whether it is one of these."""
        return self._at >= 0

    def of(self, places: Numbers) -> CheckpointColumns:
        """Return the checkpoints of some of these fragments, by their places in the table."""
        return self._checkpoints.some(self._at[places])


def cover(
    resolved: ResolvedRequest, statuses: Statuses, found: FoundCheckpoints | None, others: Mask
) -> CoveredFragments:
    """Return the fragments whose checkpoints all settle their ranges; each other one is to be looked at by itself.

    Args:
        others: of each fragment, whether more than checkpoints is stored of it.
    """
    if found is None:
        none = np.zeros(0, np.int64)
        return _covered(statuses, none, none, none)
    order = statuses.in_order
    ids = statuses.fragments.ids[order]
    known = found.keys.some(sorted_sets.contains(ids, found.keys.fragment_ids))
    places = order[np.searchsorted(ids, known.fragment_ids)]
    rows = statuses.fragments.physical_rows[places]
    usable = (known.starts < known.ends) & (known.ends <= rows)
    alone = ~others
    alone[places[usable & ~_settle(resolved, statuses, known, places)]] = False
    alone[statuses.fragments.with_ids(found.strange)] = False
    chosen = usable & alone[places]
    return _covered(statuses, places[chosen], known.starts[chosen], known.ends[chosen])


def _settle(resolved: ResolvedRequest, statuses: Statuses, found: RangeKeys, places: Numbers) -> Mask:
    """Tell which checkpoints say of all rows of their range what is to become of them; see `fragment_tasks`.

    It is said of none where each fragment has a filter of its own.
    """
    if resolved.failed_only or resolved.filter.columns or resolved.filter.reads_output or not len(found):
        return np.zeros(len(found), np.bool_)
    identity = resolved.filter_identity(statuses.fragments[int(places[0])])
    same: Mask = found.filters == keys.md5_of_few(identity).encode()
    return same & ~statuses.with_file(places) if resolved.selective else same


def _covered(statuses: Statuses, places: Numbers, begins: Numbers, ends: Numbers) -> CoveredFragments:
    """Return the fragments at some places with their ranges, without those that lie within ranges before them.

    Args:
        places: of each range, those of one fragment side by side.
        begins: in order in each fragment.
        ends: of ranges that begin at the same row, the last one first.
    """
    apart = int(ends.max(initial=0)) + 1  # so much that no range of one fragment ends behind those of the next
    nth = np.cumsum(np.diff(places, prepend=-1) != 0) - 1
    furthest = np.maximum.accumulate(ends + nth * apart)
    further = np.diff(furthest, prepend=-1) > 0
    first = starts(np.bincount(nth[further]))
    covered = places[further][first[:-1]]
    checkpoints = CheckpointColumns(
        rows=statuses.fragments.physical_rows[covered], first=first, starts=begins[further], ends=ends[further]
    )
    return CoveredFragments(len(statuses), covered, checkpoints)
