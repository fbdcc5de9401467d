"""What the supervisor begins before it imports anything that takes time."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from leman_core.process import linux
from leman_local.service_file import Home
from leman_local.warm_parent import WarmParent


def begin_early(arguments: Sequence[str]) -> WarmParent | None:
    """Begin the process that services are forked from, with Spark's JVM where that is to start anyway.

    None where the arguments are none that a system is started with, its folder is not there yet, or another one has it:
    then it is begun later, or not at all.
    """
    linux.raise_open_files_limit()
    places = dict(itertools.pairwise(arguments))
    database, folder = places.get("--database"), places.get("--home")
    if (database is None) == (folder is None):
        return None
    try:
        home = Home(Path(folder)) if folder is not None else Home.of(Path(database or "").expanduser())
    except RuntimeError:  # of `~NAME`
        return None
    if not home.folder.is_dir() or _is_held(home.lock_file):
        return None
    on_demand = os.environ.get("LEMAN_SPARK__ON_DEMAND", "").lower() in ("1", "true", "yes", "on")
    with_jvm = "--warm" in arguments if folder is not None else not on_demand
    return WarmParent.begin(home.folder.resolve(), with_jvm=with_jvm)


def _is_held(lock_file: Path) -> bool:
    try:
        lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)
