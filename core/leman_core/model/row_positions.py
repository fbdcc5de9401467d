"""Positions of rows: half-open ranges of physical offsets, and row addresses. Does not load numpy.

Lance combines fragment and offset in one number, `_rowaddr`: the fragment id in the upper 32 bits, the offset in the
lower. Row 5 of fragment 3 has the address 3 * 2**32 + 5 = 12884901893. Within a version, the order of addresses is the
order of its rows. An address is valid for one version only, because compaction changes addresses.

`RowAddress` is one address; the functions take numpy arrays of the numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple


class RowRange(NamedTuple):
    """Physical offsets [start, end) in a fragment, including deleted rows."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start

    def intersect(self, other: RowRange) -> RowRange | None:
        start, end = max(self.start, other.start), min(self.end, other.end)
        return RowRange(start, end) if start < end else None


def merge_ranges(ranges: Iterable[RowRange]) -> list[RowRange]:
    """Return the same offsets as the smallest number of sorted, disjoint ranges."""
    merged: list[RowRange] = []
    for start, end in sorted(r for r in ranges if r.end > r.start):
        if merged and start <= merged[-1].end:
            merged[-1] = RowRange(merged[-1].start, max(end, merged[-1].end))
        else:
            merged.append(RowRange(start, end))
    return merged


def subtract_ranges(whole: Iterable[RowRange], covered: Iterable[RowRange]) -> list[RowRange]:
    """Return the offsets of `whole` that are in no range of `covered`, as merged ranges."""
    left: list[RowRange] = []
    holes = merge_ranges(covered)
    first = 0
    for start, end in merge_ranges(whole):
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


def count_offsets(ranges: Iterable[RowRange]) -> int:
    """Return the number of offsets in disjoint ranges."""
    return sum([end - start for start, end in ranges])


def split_range(whole: RowRange, size: int) -> Iterator[RowRange]:
    """Yield consecutive pieces of at most `size` offsets."""
    for start in range(whole.start, whole.end, size):
        yield RowRange(start, min(start + size, whole.end))


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_OFFSET_BITS = 32
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True, order=True)
class RowAddress:
    """One address; addresses sort in the order of rows."""

    fragment_id: int
    offset: int

    @classmethod
    def from_int(cls, number: int) -> RowAddress:
        """Return the address that Lance's number stands for."""
        return cls(number >> _OFFSET_BITS, number & _OFFSET_MASK)

    def to_int(self) -> int:
        """Return the address as Lance's number."""
        return self.fragment_id << _OFFSET_BITS | self.offset


def fragments_of(addresses: Ints) -> Ints:
    """Return the fragment id of each address."""
    return addresses >> _OFFSET_BITS


def offsets_of(addresses: Ints) -> Ints:
    """Return the physical offset of each address."""
    return addresses & _OFFSET_MASK


def addresses_of(fragment_ids: int | Ints, offsets: Ints) -> Ints:
    """Return the addresses of rows at `offsets`, all in one fragment or each in the fragment at the same index."""
    joined: Any = fragment_ids << _OFFSET_BITS | offsets
    found: Ints = joined
    return found
