"""One line on a terminal that says what of the embedded services is up, while they start."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_PARTS = ("redis", "planner", "commit_coordinator", "executor")
_CLEAR = "\r\x1b[2K"


class StartLine:
    """The line; there is none where standard error is no terminal. It is gone at the end of the `with` block."""

    def __init__(self, log: Path, before: int) -> None:
        """`log`: the supervisor's, from byte `before` on."""
        self._log = log
        self._before = before
        self._begun = time.monotonic()
        self._shown = ""
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def look(self) -> None:
        """Show how far it is."""
        if not self._is_shown:
            return
        up = parts_up(self._log, self._before)
        marks = "  ".join(f"{'✓' if part in up else '·'} {part.replace('_', ' ')}" for part in _PARTS)
        text = f"leman: starting services {time.monotonic() - self._begun:3.0f} s  {marks}"
        if text != self._shown:
            self._shown = text
            sys.stderr.write(_CLEAR + text)
            sys.stderr.flush()


def parts_up(log: Path, before: int) -> set[str]:
    """The processes that a supervisor's log says to be up, from byte `before` on."""
    found = set()
    try:
        with log.open("rb") as stream:
            stream.seek(before)
            lines = stream.read().splitlines()
    except OSError:
        return set()
    for line in lines:
        if b'"event": "up"' in line:
            try:
                found.add(str(json.loads(line)["process"]))
            except (ValueError, KeyError):  # half of a line
                continue
    return found
