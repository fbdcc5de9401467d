"""What objects that notebooks show have in common."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any


class Shown:
    """Shown by notebooks as HTML, by `leman._notebook`, which nobody else needs to load."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """What Jupyter asks for; None: it falls back to text."""
        shown: str | None = importlib.import_module("leman._notebook").show(self)
        return shown


def short_repr(one: Any) -> str:
    """A dataclass as code, without the fields that have their defaults."""
    told = [(field, getattr(one, field.name)) for field in dataclasses.fields(one)]
    shown = [f"{field.name}={value!r}" for field, value in told if value != _default(field)]
    return f"{type(one).__name__}({', '.join(shown)})"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
