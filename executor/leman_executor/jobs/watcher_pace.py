"""How often watchers are told of progress: however many they are, they leave the executor time for others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

#: To all watchers of an executor together. What happened to a job is told at once, and does not count.
_MESSAGES_PER_SECOND = 500


class WatcherPace:
    """The watchers of one executor."""

    def __init__(self) -> None:
        self._watchers = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count one more watcher while the block runs."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    @property
    def seconds(self) -> float:
        """Return the time between two messages of progress to one watcher."""
        return self._watchers / _MESSAGES_PER_SECOND
