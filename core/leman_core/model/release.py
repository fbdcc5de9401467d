"""Which services there are, and which release of them this is."""

from __future__ import annotations

from importlib import metadata

#: The module that runs each service.
MODULES = {"planner": "leman_planner", "executor": "leman_executor", "commit_coordinator": "leman_coordinator"}
SERVICES = tuple(MODULES)


def version() -> str:
    """Return the version of the installed software; `unknown` where it is not installed as a distribution."""
    try:
        return metadata.version("leman-services")
    except metadata.PackageNotFoundError:
        return "unknown"
