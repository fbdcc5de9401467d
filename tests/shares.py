"""How much of what is generated runs with every change; LEMAN_LONG=1 runs all of it."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("LEMAN_LONG"))


def examples(most: int) -> int:
    """Return how many of so many generated examples a property is tried with."""
    return most if LONG else max(20, most // 5)
