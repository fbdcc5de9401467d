"""How many calls of a kind may be at work at once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from leman_core.model.errors import ResourceExhausted
from leman_core.server.blocking import STORE

#: Places beyond all, for calls about a store of which nothing is at work: another one may not answer any of its calls.
_RESERVE = 2


class CallPlaces:
    """A number of places on one event loop. Who finds none is refused at once: waiting would hold a call open."""

    def __init__(self, most: int, reason: str, what: str) -> None:
        """Offer `most` places.

        Args:
            reason: of the refusal.
            what: the calls, for people: "calls of ReadRows".
        """
        self._most = most
        self._taken = 0
        self._of_store: Counter[str] = Counter()
        self._reason = reason
        self._what = what

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Take a place until the context ends.

        Raises:
            ResourceExhausted: all are taken.
        """
        store = STORE.get()
        if self._taken >= (self._most if self._of_store[store] else self._most + _RESERVE):
            raise ResourceExhausted(self._reason, f"{self._taken} {self._what} are at work already: try again later")
        self._taken += 1
        self._of_store[store] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._of_store[store] -= 1
