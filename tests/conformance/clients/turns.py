"""Cases side by side, and cases alone."""

from __future__ import annotations

import threading


class Turns:
    """Languages do their cases side by side; one that kills a service is done while no other one is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False
        self._wanted_alone = 0

    @property
    def waits(self) -> bool:
        """Whether a case waits to be alone."""
        return self._wanted_alone > 0

    def take(self, alone: bool) -> None:
        """Wait for the turn of a case; `give` has to follow. One that is to be alone comes before those that wait."""
        with self._changed:
            if alone:
                self._wanted_alone += 1
                self._changed.wait_for(lambda: not self._alone and not self._running)
                self._wanted_alone -= 1
                self._alone = True
            else:
                self._changed.wait_for(lambda: not self._alone and not self._wanted_alone)
                self._running += 1

    def give(self, alone: bool) -> None:
        """The case has ended."""
        with self._changed:
            if alone:
                self._alone = False
            else:
                self._running -= 1
            self._changed.notify_all()
