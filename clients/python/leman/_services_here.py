"""Where the services are installed in this Python environment, and how their programs are started."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from leman.errors import LemanError

#: Packages of the services' distribution.
PACKAGES = frozenset(
    {"leman_coordinator", "leman_core", "leman_executor", "leman_internal", "leman_local", "leman_planner"}
)
#: The module that runs a service.
MODULES = {"planner": "leman_planner", "executor": "leman_executor", "commit_coordinator": "leman_coordinator"}

_NOT_INSTALLED = (
    "The services are not installed in this Python environment: install leman[local] for local databases, or name"
    " running ones with leman.connect(..., endpoint='host:port')"
)


def are_installed() -> bool:
    """Return True where the services are installed in this Python environment."""
    return importlib.util.find_spec("leman_core") is not None


def require(error: type[LemanError]) -> None:
    """Check that the services are installed. Raises `error` (SERVICES_NOT_INSTALLED)."""
    if not are_installed():
        raise error(_NOT_INSTALLED, reason="SERVICES_NOT_INSTALLED")


def checkout() -> Path:
    """The folder that holds the source of the services, where they are installed from a checkout."""
    spec = importlib.util.find_spec("leman_core")
    return Path(str(spec.origin)).resolve().parents[2] if spec is not None else Path()


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the services in this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]
