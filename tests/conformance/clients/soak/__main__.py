"""`python -m tests.conformance.clients.soak [--seconds 3600] [--every 20] [LANGUAGE...]`: see docs/testing.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.conformance.clients import languages
from tests.conformance.clients.soak import soak


def main() -> int:
    """Soak clients, and tell how that went."""
    parser = argparse.ArgumentParser(description="Have clients work with services that restart again and again.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long services are restarted")
    parser.add_argument("--every", type=float, default=20.0, help="seconds from one restart to the next")
    parser.add_argument("languages", nargs="*", help="clients by the name of their folder; none: all")
    told = parser.parse_args()
    used = [one for one in languages.find("soak") if not told.languages or one.name in told.languages]
    missing = {one.name: one.missing() for one in used if one.missing()}
    if missing or not used:
        parser.error(f"not on this machine: {missing or told.languages}")
    with tempfile.TemporaryDirectory(prefix="leman-soak-") as folder:
        report = soak.run(used, Path(folder), round(told.seconds / told.every), told.every)
    sys.stdout.write(report.text() + "\n")
    return int(any(outcome.faults for outcome in report.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
