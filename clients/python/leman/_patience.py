"""How long one call waits for a service that is away."""

from __future__ import annotations

import random
import time

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Patience:
    """Pauses between attempts, growing from 50 ms to a second, `seconds` in all."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = _FIRST_PAUSE

    def pause(self, at_least: float = 0.0) -> bool:
        """Wait; False, without waiting, when the time is used up."""
        wanted = max(at_least, self._next * random.uniform(0.5, 1.0))
        if time.monotonic() + wanted > self._end:
            return False
        time.sleep(wanted)
        self._next = min(self._next * 2, _LONGEST_PAUSE)
        return True
