"""Where the services are installed in this Python environment, and how their programs are started."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from leman.errors import LemanError

#: Packages of the services' distribution. Its wheel keeps them in a folder of their own, so that they are not in the
#: way of others that are called the same; a path file names that folder, last of all.
PACKAGES = frozenset({"commit_coordinator", "core", "embedded", "executor", "leman_internal", "planner"})

_NOT_INSTALLED = (
    "The services are not installed in this Python environment: install leman[local] for local databases, or name"
    " running ones with leman.connect(..., endpoint='host:port')"
)


def folder() -> Path | None:
    """The folder that holds their packages; None where they are not installed."""
    spec = importlib.util.find_spec("leman_internal")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = Path(places[0]).resolve().parent if places else None
    return found if found is not None and (found / "core" / "config").is_dir() else None


def require(error: type[LemanError]) -> Path:
    """Their folder. Raises `error` (SERVICES_NOT_INSTALLED)."""
    found = folder()
    if found is None:
        raise error(_NOT_INSTALLED, reason="SERVICES_NOT_INSTALLED")
    return found


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the services in this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(found: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for it: this process's own, in which their folder comes first on the import path."""
    paths = [str(found), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **(more or {}), "PYTHONPATH": os.pathsep.join(paths)}
