"""Which services there are, and which release of them this is."""

from __future__ import annotations

from importlib import metadata

SERVICES = ("planner", "executor", "commit_coordinator")


def version() -> str:
    """Return the version of the installed software; `unknown` where it is not installed as a distribution."""
    try:
        return metadata.version("leman-services")
    except metadata.PackageNotFoundError:
        return "unknown"
