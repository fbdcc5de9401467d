"""Names that callers give, as far as the SDK checks them."""

from __future__ import annotations

from typing import Any

from leman.errors import InvalidArgument


def check_name(name: Any, what: str) -> str:
    """`name`. Raises InvalidArgument for what can be the name of nothing; the services know the finer rules."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} is named by a str, not {name!r}")
    return name
