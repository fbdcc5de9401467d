"""The import path of Spark's Python processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def without_archives(path: Sequence[str]) -> list[str]:
    """Return an import path without the zips and the jar that Spark puts in front of it.

    They are left out where the pyspark that they belong to is installed as files on the same path: those have bytecode.
    What is in a zip is compiled at each start, and each worker reads its list anew for each package: half a second of
    the daemon, a fifth of a second and 30 MB of each worker.
    """
    folders = {Path(entry).resolve() for entry in path if entry}
    return [entry for entry in path if not _is_double(Path(entry), folders)]


def _is_double(entry: Path, folders: set[Path]) -> bool:
    if entry.suffix == ".zip" and entry.parts[-3:-1] == ("python", "lib"):
        home = entry.resolve().parents[2]
    elif entry.suffix == ".jar" and entry.parent.name == "jars":
        home = entry.resolve().parents[1]
    else:
        return False
    return home.name == "pyspark" and (home / "__init__.py").is_file() and home.parent in folders
