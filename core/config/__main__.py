"""`python -m core.config`: list all settings."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from core import class_archives
from core.config import describe, load
from core.errors import InvalidArgument


def main(argv: list[str] | None = None) -> int:
    """Run `python -m core.config [--json]`, which lists all settings."""
    parser = argparse.ArgumentParser(prog="python -m core.config", description="List all settings.")
    parser.add_argument("--json", action="store_true", help="one JSON array instead of lines")
    arguments = parser.parse_args(argv)
    try:
        settings = load()
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    rows = [asdict(info) for info in describe(settings)]
    lines = [f"{row['env']}={row['value']}  ({row['origin']})  {row['description']}" for row in rows]
    sys.stdout.write((json.dumps(rows, indent=2) if arguments.json else "\n".join(lines)) + "\n")
    if not arguments.json:
        sys.stdout.write(f"# {class_archives.summary(class_archives.folder(settings.spark.class_archive_dir))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
