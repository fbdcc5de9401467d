"""What objects that notebooks show have in common."""

from __future__ import annotations

import importlib


class Shown:
    """Shown by notebooks as HTML, by `leman._notebook`, which nobody else needs to load."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """What Jupyter asks for; None: it falls back to text."""
        shown: str | None = importlib.import_module("leman._notebook").show(self)
        return shown
