"""What says who calls: a token that stays, or a source that is asked for one."""

from __future__ import annotations

from collections.abc import Callable

from leman.errors import InvalidArgument


class Token:
    """A token, or where tokens come from: a source is asked before the first call, and again where its token was
    refused. Safe for use by several threads: what a source said last counts for all of them."""

    def __init__(self, given: str | Callable[[], str] | None) -> None:
        """Raises InvalidArgument for what is neither."""
        if given is not None and not isinstance(given, str) and not callable(given):
            raise InvalidArgument(f"token is a text, or a function that gives one, not {given!r}")
        self._source = given if callable(given) else None
        self._last = None if callable(given) else given or ""

    def __call__(self) -> str:
        """The token that calls carry now; empty: none."""
        if self._last is None:
            self.renew()
        return self._last or ""

    def renew(self) -> bool:
        """Ask the source again; False where there is none. Raises InvalidArgument, and what the source raises."""
        if self._source is None:
            return False
        found = self._source()
        if not isinstance(found, str):
            raise InvalidArgument(f"the source of tokens gave {found!r}, which is no text")
        self._last = found
        return True
