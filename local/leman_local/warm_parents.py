"""What services are forked from, one after the other: where one has ended, the next service is started from another."""

from __future__ import annotations

import itertools
from pathlib import Path

import structlog

from leman_local.warm_parent import WarmParent

#: So many of one system at the most: where they go on ending, services are started as new processes.
_MOST = 5

log = structlog.get_logger(__name__)


class WarmParents:
    """Those of one system, of which at most one is there.

    Args:
        folder: of the system's files.
        first: where it was begun already.
    """

    def __init__(self, folder: Path, first: WarmParent | None) -> None:
        self._folder = folder
        self._places = iter(range(_MOST))
        self._there = first
        if first is not None:
            next(self._places)

    @property
    def pids(self) -> set[int]:
        """The processes that are its own."""
        return self._there.pids if self._there is not None else set()

    def get(self) -> WarmParent | None:
        """Return the one that is there, begun where there is none; it imports what it is asked for. None: services are
        to be started as new processes."""
        if self._there is not None:
            self._there.look()
        self.look()
        if self._there is None:
            for place in itertools.islice(self._places, 1):
                self._there = WarmParent.begin(self._folder, with_jvm=False, place=place)
        return self._there

    def look(self) -> None:
        """Forget the one that is gone."""
        if self._there is not None and self._there.is_gone:
            log.warning("what services are forked from is gone", why=self._there.last_words.strip())
            self._there = None

    async def end(self) -> None:
        """End it."""
        if self._there is not None:
            await self._there.end()
