"""The archives of Spark's classes: where they are, how large they are, and how to delete them.

`python -m leman_core.process.class_archives --clean` deletes them; without the option it lists them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

PREFIX = "spark-"


def folder(chosen: str = "") -> Path | None:
    """Return the chosen folder, or Leman's in the user's cache; None for a user without a home."""
    if chosen:
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "leman"
    except RuntimeError:
        return None


def files(place: Path | None) -> list[Path]:
    """Return the archives, including drafts, sorted by name."""
    return sorted(place.glob(f"{PREFIX}*")) if place is not None and place.is_dir() else []


def size(paths: list[Path]) -> int:
    """Return the total size of these files in bytes."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def summary(place: Path | None) -> str:
    """Describe the archives of a folder in one line."""
    if place is None:
        return "archives of Spark's classes: none, as there is no home folder"
    found = files(place)
    return f"archives of Spark's classes: {len(found)} files of {size(found) / 1e6:.0f} MB in {place}"


def main(argv: list[str] | None = None) -> int:
    """Run `python -m leman_core.process.class_archives [--clean]`."""
    from leman_core import settings as config  # noqa: PLC0415 - the settings import this module
    from leman_core.model.service_errors import InvalidArgument  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="python -m leman_core.process.class_archives", description="Archives of Spark's classes."
    )
    parser.add_argument("--clean", action="store_true", help="delete them: the next start is slower")
    arguments = parser.parse_args(argv)
    try:
        place = folder(config.load().spark.class_archive_dir)
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(summary(place) + "\n")
    if arguments.clean:
        gone = 0
        for path in files(place):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                gone += 1
        sys.stdout.write(f"deleted {gone} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
