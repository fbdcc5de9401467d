"""The file of the socket at which Spark's daemon is asked for: each supervisor has its own. Standard library only.

Two supervisors may be starting in one folder at once, before one of them has its lock.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_NAME = re.compile(r"warm-(\d+)(-\d+)?\.sock")


def name(supervisor: int, place: int = 0) -> str:
    """Return the name of that of a supervisor, by its process id; `place`: of which of its warm processes, in turn."""
    return f"warm-{supervisor}-{place}.sock" if place else f"warm-{supervisor}.sock"


def sweep(folder: Path) -> None:
    """Delete those whose supervisor is gone."""
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            found = _NAME.fullmatch(file.name)
            if found is not None and not _lives(int(found[1])):
                file.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
