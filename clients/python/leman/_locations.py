"""Names and folders of databases: which names are valid, and whether a database exists."""

from __future__ import annotations

import difflib
import os
import re
import urllib.parse
from typing import Any

from leman.errors import InvalidArgument, NotFound

_FILE_URI = re.compile("file:(//(localhost)?)?(?=/(?!/))", re.IGNORECASE)
#: The form of a registered database's name.
_REGISTERED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_name(name: Any, what: str) -> str:
    """Return `name`. Raises InvalidArgument unless it is a str. The services check the other rules."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} is named by a str, not {name!r}")
    return name


def database_uri(path_or_uri: str | os.PathLike[str]) -> str:
    """Return the name of a database on the wire. A uri stays as it is; a local path becomes absolute, without links.

    The services normalize all spellings (`leman_core.storage.locations`). Only this process knows its current folder
    and home, so these are resolved here. Raises InvalidArgument.
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
    """Return the name of a database for services on other machines. Raises InvalidArgument for a relative path, too.

    `by_name`: how to open a registered database instead, for the error text, with `…` for the database's name; empty if
    that is impossible.
    """
    uri = database_uri(path_or_uri)
    text = os.fspath(path_or_uri)
    if "://" in uri or text.startswith(("/", "~")) or _FILE_URI.match(text):
        return uri
    registered = f", or for a registered database {by_name}" if by_name else ""
    raise InvalidArgument(
        f"{text!r} is a relative path, and the services run in other folders: give an absolute path or a uri"
        + registered.replace("…", text if _REGISTERED.fullmatch(text) else "NAME")
    )


_NEAR = 0.6
_LOOKED_AT = 1000


def database_exists(path: str) -> bool:
    """Return whether a folder is a database, that is, has a table or files that Leman keeps for a database."""
    try:
        with os.scandir(path) as found:
            return any(entry.name == "_leman" or entry.name.endswith(".lance") for entry in found)
    except OSError:
        return False


def check_database_possible(path: str) -> None:
    """Raise InvalidArgument if a file is in the way of a database at this path."""
    there = path
    while not os.path.lexists(there) and os.path.dirname(there) != there:  # noqa: PTH120 - a str, as on the wire
        there = os.path.dirname(there)  # noqa: PTH120
    if not os.path.isdir(there):  # noqa: PTH112
        raise InvalidArgument(f"{path} cannot be a database: {there} is not a folder")


def check_database_exists(path: str) -> None:
    """Raise NotFound (DATABASE_NOT_FOUND), or InvalidArgument, if there is no database."""
    if not database_exists(path):
        check_database_possible(path)
        raise NotFound(missing_database_text(path), reason="DATABASE_NOT_FOUND", facts={"database": path})


def missing_database_text(path: str) -> str:
    """Return the message for a database that does not exist, with the folder next to it that has the nearest name."""
    is_folder = os.path.isdir(path)  # noqa: PTH112
    what = f"no database at {path}" + (": the folder has no table" if is_folder else "")
    near = _nearest(path)
    hint = f"; did you mean {near}?" if near else "; leman.connect() makes one with its first table"
    return what + hint


def _nearest(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_LOOKED_AT), strict=False) if entry.is_dir()]
    except OSError:
        return ""
    for near in difflib.get_close_matches(name, [n for n in names if n != name], n=5, cutoff=_NEAR):
        if database_exists(os.path.join(folder, near)):  # noqa: PTH118
            return os.path.join(folder, near)  # noqa: PTH118
    return ""
