"""`python -m leman_core.settings`: list all settings."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict

from leman_core.model.service_errors import InvalidArgument
from leman_core.process import class_archives
from leman_core.settings import describe, load


def main(argv: list[str] | None = None) -> int:
    """Run `python -m leman_core.settings [--json]`, which lists all settings."""
    parser = argparse.ArgumentParser(prog="python -m leman_core.settings", description="List all settings.")
    parser.add_argument("--json", action="store_true", help="one JSON array instead of lines")
    arguments = parser.parse_args(argv)
    try:
        settings = load()
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    rows = [asdict(info) for info in describe(settings)]
    lines = [f"{row['env']}={row['value']}  ({row['origin']})  {row['description']}" for row in rows]
    if not arguments.json:
        lines.append(f"# {class_archives.summary(class_archives.folder(settings.spark.class_archive_dir))}")
    try:
        sys.stdout.write((json.dumps(rows, indent=2) if arguments.json else "\n".join(lines)) + "\n")
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(
                f"standard output cannot be written: {error.strerror}. Redirect it to where there is room\n"
            )
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
