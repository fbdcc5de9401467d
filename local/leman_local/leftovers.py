"""Half-written files of processes that were killed, in the service's own folder of a database."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from leman_core.model.garbage import DAY, UNFINISHED_NAME

#: The service file is written under such a name before it has its own, as definitions of functions once were.
_OURS = re.compile(r"\.[0-9a-f]{32}\.tmp|\.service\.json\.\d+")
_OF_OTHERS = frozenset({"redis", "logs"})


def sweep(folder: Path, older_than: float = DAY) -> list[Path]:
    """Delete half-written files that nobody has written to for so many seconds, and return what is gone.

    Younger ones stay, as another executor may be at work on the database.
    """
    now = time.time()
    gone = []
    for path in _files(folder):
        if not (UNFINISHED_NAME.fullmatch(path.name) or _OURS.fullmatch(path.name)):
            continue
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > older_than:
                path.unlink()
                gone.append(path)
    return gone


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        if Path(root) == folder:
            folders[:] = [name for name in folders if name not in _OF_OTHERS]
        yield from (Path(root, name) for name in names)
