"""What columns are computed by."""

from __future__ import annotations

import time

#: So long a row takes: jobs last long enough to be there when a service is killed.
ROW_SECONDS = 0.1


def slowly_negated(number: int) -> int:
    """Return −number, taking its time."""
    time.sleep(ROW_SECONDS)
    return -number
