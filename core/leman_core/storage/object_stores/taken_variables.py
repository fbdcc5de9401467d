"""Environment variables with credentials: taken out of the environment when they are read, and kept here."""

from __future__ import annotations

import os

from leman_core.process.environment import blank_shown

_taken: dict[str, str] = {}


def take(name: str) -> str:
    """Return the value of a variable, which what this process starts does not inherit; empty: it was never set."""
    value = os.environ.pop(name, "")
    if value:
        _taken[name] = value
        blank_shown(lambda shown: shown != name)
    return _taken.get(name, "")


def forget() -> None:
    """Keep none any more: what is forked from this process has its memory."""
    _taken.clear()
