"""What the services of a commit coordinator do while it stops."""

from __future__ import annotations

import asyncio

from leman_core.model.errors import Unavailable


def check_draining(draining: asyncio.Event) -> None:
    """Refuse a call once the process has been asked to stop.

    Raises:
        Unavailable: DRAINING.
    """
    if draining.is_set():
        raise Unavailable("DRAINING", "The commit coordinator is stopping: send the same call again")
