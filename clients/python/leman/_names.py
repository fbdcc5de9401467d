"""Names that callers give, as far as the SDK checks them."""

from __future__ import annotations

import os
import re
import urllib.parse
from typing import Any

from leman.errors import InvalidArgument

_FILE_URI = re.compile("file:(//(localhost)?)?(?=/(?!/))", re.IGNORECASE)
#: How a database can be named.
_REGISTERED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_name(name: Any, what: str) -> str:
    """`name`. Raises InvalidArgument for what can be the name of nothing; the services know the finer rules."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} is named by a str, not {name!r}")
    return name


def database_uri(path_or_uri: str | os.PathLike[str]) -> str:
    """How a database is called on the wire: a local path absolute and without links, a uri as it is.

    The services bring every spelling into one form (their `leman_core.storage.locations`); what only this process
    knows, its folder and its home, is resolved here. Raises InvalidArgument.
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


def far_uri(path_or_uri: str | os.PathLike[str], by_name: str = "") -> str:
    """As `database_uri`, for services that run elsewhere: a relative path is none of theirs, and may be a name.

    `by_name`: how to name one that is registered instead, with `…` for its name; empty: that cannot be. Raises
    InvalidArgument.
    """
    uri = database_uri(path_or_uri)
    text = os.fspath(path_or_uri)
    if "://" in uri or text.startswith(("/", "~")) or _FILE_URI.match(text):
        return uri
    registered = f", or for a registered database {by_name}" if by_name else ""
    raise InvalidArgument(
        f"{text!r} is a relative path, and services elsewhere have folders of their own: give an absolute path or a uri"
        + registered.replace("…", text if _REGISTERED.fullmatch(text) else "NAME")
    )
