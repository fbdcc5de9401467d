"""The demo's command: `python -m examples.demo.main [--rows N] [--path DB] [--fresh]`.

Imports little at the top: the processes that parse source import this file too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROWS = 70_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="leman demo", description="Indexes the Python source on this machine.")
    parser.add_argument("--rows", type=int, default=ROWS, help="at most this many definitions (%(default)s)")
    parser.add_argument("--path", type=Path, default=Path("leman-demo"), help="the database (./%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="build again what is there already")
    options = parser.parse_args(arguments)
    if options.rows < 1:
        parser.error("--rows is a number of definitions, 1 or more")

    import leman  # noqa: PLC0415 - see above
    from examples.demo.tour import run  # noqa: PLC0415 - see above

    try:
        run(options.path, options.rows, fresh=options.fresh)
    except leman.LemanError as error:
        print(f"leman demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("leman demo: interrupted; the same command continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
