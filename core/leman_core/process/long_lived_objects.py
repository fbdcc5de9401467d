"""Keep Python's garbage collector from looking again and again through objects that stay.

A collection stops all threads, and a full one looks at every object there is: a quarter of a second for the history of
a hundred thousand jobs, every few seconds under load. What outlives such a collection is set aside (`gc.freeze`), so
that the next ones look at what has come since. Python still frees set-aside objects that nobody refers to; only cycles
among them stay, until half as much again has been set aside: then all is looked at once more.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any

_FULL = 2
_LONG_SECONDS = 0.02


class LongLivedObjects:
    """Sets aside what outlives a long collection, from `watch` to `forget`."""

    def __init__(self, long_seconds: float = _LONG_SECONDS) -> None:
        self._long_seconds = long_seconds
        self._begun = 0.0
        #: Objects that are set aside, and how many there were when all had been looked at.
        self._aside = 0
        self._looked_through = 0
        self._looks_at_all = True

    def watch(self) -> None:
        """Watch the collections of this process."""
        gc.callbacks.append(self._collecting)

    def forget(self) -> None:
        """Leave all objects to the collector again."""
        gc.callbacks.remove(self._collecting)
        gc.unfreeze()

    def _collecting(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._begin()
        elif time.thread_time() - self._begun >= self._long_seconds:
            self._set_aside()
        elif self._looks_at_all:
            self._aside = self._looked_through = 0

    def _begin(self) -> None:
        self._looks_at_all = self._aside >= 1.5 * self._looked_through
        if self._looks_at_all:
            gc.unfreeze()
        self._begun = time.thread_time()

    def _set_aside(self) -> None:
        gc.freeze()
        self._aside = gc.get_freeze_count()
        if self._looks_at_all:
            self._looked_through = self._aside
