"""The command line of a service, which takes no arguments. Standard library only."""

from __future__ import annotations

import argparse

from leman_core.model.release import MODULES


def take_none(service: str) -> None:
    """Say what the command is, where that is asked for, and refuse arguments: `--help` is not to start a service."""
    argparse.ArgumentParser(
        prog=f"python -m {MODULES[service]}",
        description=f"Serve the {service.replace('_', ' ')} until SIGTERM.",
        epilog="Settings are LEMAN_… variables: `python -m leman_core.settings` lists them.",
    ).parse_args()
