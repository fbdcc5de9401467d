"""How many calls of a kind may be at work at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from core.errors import ResourceExhausted


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
        self._reason = reason
        self._what = what

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Take a place until the context ends.

        Raises:
            ResourceExhausted: all are taken.
        """
        if self._taken >= self._most:
            raise ResourceExhausted(self._reason, f"{self._taken} {self._what} are at work already: try again later")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
