"""How long one call waits for a service that is away."""

from __future__ import annotations

import random
import time

from leman.errors import InvalidArgument

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_BUSY_TRIES = 5  # as in the published retry policy
_LOSSES = 2  # of connections; as in the clients of the other languages


def check_timeout(timeout: float | None) -> None:
    """Raises InvalidArgument for what is no time to wait."""
    if timeout is not None and not timeout >= 0:  # which NaN is not, either
        raise InvalidArgument(f"timeout is a number of seconds from 0 on, or None, not {timeout:g}")


class Patience:
    """Pauses between attempts, growing from 50 ms to a second, `seconds` in all."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = _FIRST_PAUSE
        self._renewals = 1
        self._turns = _BUSY_TRIES - 1
        self._losses = _LOSSES

    def may_renew(self) -> bool:
        """Whether its token may be renewed for this call: the first time that this is asked."""
        self._renewals -= 1
        return self._renewals >= 0

    def may_stand_in_line(self) -> bool:
        """Whether a service that has too much to do may be asked again."""
        self._turns -= 1
        return self._turns >= 0

    def may_lose_connection(self) -> bool:
        """Return whether the call may be made again after its connection was lost while it ran.

        A call that loses it twice probably ends the service itself.
        """
        self._losses -= 1
        return self._losses > 0

    def pause(self, at_least: float = 0.0) -> bool:
        """Wait; False, without waiting, when the time is used up."""
        wanted = max(at_least, self._next * random.uniform(0.5, 1.0))
        if time.monotonic() + wanted > self._end:
            return False
        time.sleep(wanted)
        self._next = min(self._next * 2, _LONGEST_PAUSE)
        return True
