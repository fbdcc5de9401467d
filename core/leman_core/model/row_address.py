"""Where a row lies in one version of a table: its fragment, and its physical offset there.

Lance makes one number of the two, `_rowaddr`: the fragment id in the upper 32 bits, the offset in the lower. Row 5 of
fragment 3 has the address 3 * 2**32 + 5 = 12884901893. Addresses of a version sort as its rows lie. They hold for that
version alone: compaction gives rows others.

`RowAddress` is one address; the functions take whole numpy arrays of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_OFFSET_BITS = 32
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True, order=True)
class RowAddress:
    """One address; they sort as rows lie."""

    fragment_id: int
    offset: int

    @classmethod
    def from_int(cls, number: int) -> RowAddress:
        """Return the address that Lance writes as this number."""
        return cls(number >> _OFFSET_BITS, number & _OFFSET_MASK)

    def to_int(self) -> int:
        """Return the number that Lance writes for it."""
        return self.fragment_id << _OFFSET_BITS | self.offset


def fragments_of(addresses: Ints) -> Ints:
    """Return the fragment id of each address."""
    return addresses >> _OFFSET_BITS


def offsets_of(addresses: Ints) -> Ints:
    """Return the physical offset of each address."""
    return addresses & _OFFSET_MASK


def addresses_of(fragment_ids: int | Ints, offsets: Ints) -> Ints:
    """Return the addresses of rows by offset: all in one fragment, or each in its own."""
    joined: Any = fragment_ids << _OFFSET_BITS | offsets
    found: Ints = joined
    return found
