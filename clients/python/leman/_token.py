"""What says who calls: a token that stays, or a source that is asked for one."""

from __future__ import annotations

from collections.abc import Callable

from leman.errors import InvalidArgument


class Token:
    """A token, or where tokens come from: a source is asked before the first call, and again where its token was
    refused. Safe for use by several threads: what a source said last counts for all of them."""

    def __init__(self, given: str | Callable[[], str] | None) -> None:
        """Raises InvalidArgument for what is neither, and for an empty token; None: there is none."""
        if given is not None and not isinstance(given, str) and not callable(given):
            raise InvalidArgument(f"token is a text, or a function that gives one, not a {type(given).__name__}")
        if given == "":
            raise InvalidArgument("the token is empty: leave it out where the services ask for none")
        self._source = given if callable(given) else None
        self._last = None if callable(given) else checked(given or "")

    def __bool__(self) -> bool:
        """Whether there is a token, or a source of tokens."""
        return self._source is not None or bool(self._last)

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
            raise InvalidArgument(f"the source of tokens gave a {type(found).__name__}, which is no text")
        if not found:
            raise InvalidArgument("the source of tokens gave an empty one")
        self._last = checked(found)
        return True


def checked(token: str) -> str:
    """The token, which no message shows. Raises InvalidArgument for one that no call can carry."""
    if not all("!" <= letter <= "~" for letter in token):
        raise InvalidArgument(
            "the token has a blank, a line end or a letter beyond ASCII: no token of services has; take it without, "
            "such as open(path).read().strip()"
        )
    return token
