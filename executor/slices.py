"""How many rows to hand over at once: enough to be fast, few enough to stop, checkpoint and report in time."""

from __future__ import annotations

_TARGET_SECONDS = 0.1
_GROWTH = 4
#: A function that takes a row at a time loses nothing by beginning with one, and may take seconds for it.
_FIRST_ROWS = {True: 1, False: 16}


class SliceSizer:
    """Grows from a few rows to what takes about a tenth of a second, and shrinks again when rows get dearer."""

    def __init__(self, *, scalar: bool, most: int, fixed: int = 0) -> None:
        self._most = most
        self._fixed = fixed
        self._rows = min(fixed or _FIRST_ROWS[scalar], most)

    @property
    def rows(self) -> int:
        return self._rows

    def note(self, rows: int, seconds: float) -> None:
        """Learns from a slice that was evaluated."""
        if self._fixed or rows < self._rows:
            return
        if seconds * _GROWTH < _TARGET_SECONDS:
            self._rows = min(self._rows * _GROWTH, self._most)
        elif seconds > _TARGET_SECONDS:
            self._rows = max(1, int(self._rows * _TARGET_SECONDS / seconds))
