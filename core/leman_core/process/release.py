"""The services, their release, and their command line without arguments. Standard library only."""

from __future__ import annotations

import argparse
from importlib import metadata

#: The module that runs each service.
MODULES = {"planner": "leman_planner", "executor": "leman_executor", "commit_coordinator": "leman_coordinator"}
SERVICES = tuple(MODULES)


def release_version() -> str:
    """Return the installed version; `unknown` if the services are not installed as a distribution."""
    try:
        return metadata.version("leman-services")
    except metadata.PackageNotFoundError:
        return "unknown"


def parse_no_args(service: str) -> None:
    """Answer `--help` and refuse any other argument."""
    argparse.ArgumentParser(
        prog=f"python -m {MODULES[service]}",
        description=f"Serve the {service.replace('_', ' ')} until SIGTERM.",
        epilog="Settings are LEMAN_… variables: `python -m leman_core.settings` lists them.",
    ).parse_args()
