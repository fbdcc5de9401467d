"""Whether there is a database in a folder of this machine, and what else may have been meant."""

from __future__ import annotations

import difflib
import os

from leman.errors import InvalidArgument, NotFound

_NEAR = 0.6
_LOOKED_AT = 1000


def is_there(path: str) -> bool:
    """Whether a folder is a database: one that has a table, or what Leman keeps of one."""
    try:
        with os.scandir(path) as found:
            return any(entry.name == "_leman" or entry.name.endswith(".lance") for entry in found)
    except OSError:
        return False


def check_possible(path: str) -> None:
    """Raises InvalidArgument where a database can neither be nor be made, as there is a file."""
    there = path
    while not os.path.lexists(there) and os.path.dirname(there) != there:  # noqa: PTH120 - a str, as on the wire
        there = os.path.dirname(there)  # noqa: PTH120
    if not os.path.isdir(there):  # noqa: PTH112
        raise InvalidArgument(f"{path} cannot be a database: {there} is not a folder")


def check_there(path: str) -> None:
    """Raises NotFound (DATABASE_NOT_FOUND), InvalidArgument."""
    if not is_there(path):
        check_possible(path)
        raise NotFound(absence(path), reason="DATABASE_NOT_FOUND", facts={"database": path})


def absence(path: str) -> str:
    """What is said of a database that is not there, with the one beside it whose name is nearest."""
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
        if is_there(os.path.join(folder, near)):  # noqa: PTH118
            return os.path.join(folder, near)  # noqa: PTH118
    return ""
