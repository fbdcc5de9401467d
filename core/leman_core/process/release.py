"""Which services there are, which release they are, and their command line.

Which services there are, and which release of them this is.

The command line of a service, which takes no arguments. Standard library only.
"""

from __future__ import annotations

import argparse
from importlib import metadata

#: The module that runs each service.
MODULES = {"planner": "leman_planner", "executor": "leman_executor", "commit_coordinator": "leman_coordinator"}
SERVICES = tuple(MODULES)


def release_version() -> str:
    """Return the version of the installed software; `unknown` where it is not installed as a distribution."""
    try:
        return metadata.version("leman-services")
    except metadata.PackageNotFoundError:
        return "unknown"


def parse_no_args(service: str) -> None:
    """Say what the command is, where that is asked for, and refuse arguments: `--help` is not to start a service."""
    argparse.ArgumentParser(
        prog=f"python -m {MODULES[service]}",
        description=f"Serve the {service.replace('_', ' ')} until SIGTERM.",
        epilog="Settings are LEMAN_… variables: `python -m leman_core.settings` lists them.",
    ).parse_args()
