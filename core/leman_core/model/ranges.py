"""Half-open ranges of physical row offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class RowRange(NamedTuple):
    """Physical offsets [start, end) in a fragment. Deleted rows are counted."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start

    def intersect(self, other: RowRange) -> RowRange | None:
        start, end = max(self.start, other.start), min(self.end, other.end)
        return RowRange(start, end) if start < end else None


def merge(ranges: Iterable[RowRange]) -> list[RowRange]:
    """Return the same offsets as few, sorted, disjoint ranges. Empty ranges vanish."""
    merged: list[RowRange] = []
    for start, end in sorted(r for r in ranges if r.end > r.start):
        if merged and start <= merged[-1].end:
            merged[-1] = RowRange(merged[-1].start, max(end, merged[-1].end))
        else:
            merged.append(RowRange(start, end))
    return merged


def subtract(whole: Iterable[RowRange], covered: Iterable[RowRange]) -> list[RowRange]:
    """Return the offsets of `whole` that no range of `covered` holds, merged."""
    left: list[RowRange] = []
    holes = merge(covered)
    first = 0
    for start, end in merge(whole):
        at = start
        while first < len(holes) and holes[first].end <= start:
            first += 1
        for hole in itertools.islice(holes, first, None):
            if hole.start >= end:
                break
            if hole.start > at:
                left.append(RowRange(at, hole.start))
            at = max(at, hole.end)
        if at < end:
            left.append(RowRange(at, end))
    return left


def total(ranges: Iterable[RowRange]) -> int:
    """Count the offsets in disjoint ranges."""
    return sum([end - start for start, end in ranges])


def chunks(whole: RowRange, size: int) -> Iterator[RowRange]:
    """Yield consecutive pieces of at most `size` offsets."""
    for start in range(whole.start, whole.end, size):
        yield RowRange(start, min(start + size, whole.end))
