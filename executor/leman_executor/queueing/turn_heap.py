"""A heap of names by keys that change. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Key = TypeVar("_Key", bound=tuple[Any, ...])
#: Entries that do not count any more and are kept, beside as many as there are names.
_STALE = 32


class TurnHeap(Generic[_Key]):
    """Names, of which the one with the least key is found in few steps; `key_of`: the keys that count."""

    def __init__(self) -> None:
        self.key_of: dict[str, _Key] = {}
        self._entries: list[tuple[_Key, str]] = []

    def put(self, name: str, key: _Key) -> None:
        """Give a name a key, in the place of the one that it had."""
        if self.key_of.get(name) == key:
            return
        self.key_of[name] = key
        heapq.heappush(self._entries, (key, name))
        if len(self._entries) > 2 * len(self.key_of) + _STALE:
            self._entries = [(key, name) for name, key in self.key_of.items()]
            heapq.heapify(self._entries)

    def drop(self, name: str) -> None:
        """Forget a name."""
        self.key_of.pop(name, None)

    def first(self, may: Callable[[str], bool]) -> str | None:
        """Return the name with the least key among those that may be taken; None: none may."""
        passed_over = []
        found = None
        while self._entries and found is None:
            key, name = self._entries[0]
            if self.key_of.get(name) != key:  # it has another one by now
                heapq.heappop(self._entries)
            elif may(name):
                found = name
            else:
                passed_over.append(heapq.heappop(self._entries))
        for entry in passed_over:
            heapq.heappush(self._entries, entry)
        return found

    def least(self) -> _Key:
        """Return the least key; there is a name."""
        name = self.first(lambda _: True)
        if name is None:
            raise LookupError("the heap is empty")
        return self.key_of[name]

    def copy(self) -> TurnHeap[_Key]:
        """Return another heap with the same names and keys."""
        other: TurnHeap[_Key] = TurnHeap()
        other.key_of = dict(self.key_of)
        other._entries = list(self._entries)
        return other
