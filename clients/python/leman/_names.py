"""Names that callers give, as far as the SDK checks them."""

from __future__ import annotations

import os
import re
import urllib.parse
from typing import Any

from leman.errors import InvalidArgument

_FILE_URI = re.compile("file:(//(localhost)?)?(?=/(?!/))", re.IGNORECASE)


def check_name(name: Any, what: str) -> str:
    """`name`. Raises InvalidArgument for what can be the name of nothing; the services know the finer rules."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} is named by a str, not {name!r}")
    return name


def database_uri(path_or_uri: str | os.PathLike[str]) -> str:
    """How a database is called on the wire: a local path absolute and without links, a uri as it is.

    The services bring every spelling into one form (their `core.locations`); what only this process knows, its folder
    and its home, is resolved here. Raises InvalidArgument.
    """
    given: object = path_or_uri
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"a database needs a path or uri, not {given!r}")
    if _FILE_URI.match(text):
        text = urllib.parse.unquote(_FILE_URI.sub("", text))
    if "://" in text:
        return text.rstrip("/")
    path = os.path.realpath(os.path.expanduser(text))  # noqa: PTH111 - a database is called by a str
    if "_leman" in path.split("/"):
        raise InvalidArgument(f"{path} lies in a folder _leman, which Leman keeps for itself: name the database above")
    return path
