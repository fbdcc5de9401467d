"""Many objects of one kind in columns: a table may have a million fragments, each of several objects."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Item = TypeVar("Item")

#: Objects are made of so many places at once, where all are looked at.
AT_ONCE = 8192


#: So many objects are kept by who looks at all of them several times.
_FEW = 1000


def made_once(items: Sequence[Item]) -> Sequence[Item]:
    """Return the objects as they are, for who looks at all of them several times: made once, where they are few."""
    return tuple(items) if len(items) <= _FEW else items


class ObjectColumns(Sequence[Item]):
    """A sequence whose objects are made of columns when they are looked at, and not kept."""

    __slots__ = ()

    @abstractmethod
    def _made(self, places: Numbers) -> Iterable[Item]:
        """Make the objects at some places, at most AT_ONCE of them and one at least, in the order of these."""

    def some(self, places: Numbers) -> Iterator[Item]:
        """Yield the objects at some places, in the order of these."""
        for begin in range(0, len(places), AT_ONCE):
            yield from self._made(places[begin : begin + AT_ONCE])

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return next(self.some(np.array([at % len(self)])))

    def __iter__(self) -> Iterator[Item]:
        return self.some(np.arange(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))
