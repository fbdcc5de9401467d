"""What is installed in this Python environment: the services, and which modules are the user's own.

Where the services are installed in this Python environment, and how their programs are started.

Which modules are the user's own code, and which are installed on every worker anyway.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
import types
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

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


def services_installed() -> bool:
    """Return True where the services are installed in this Python environment."""
    return importlib.util.find_spec("leman_core") is not None


def require_services(error: type[LemanError]) -> None:
    """Check that the services are installed. Raises `error` (SERVICES_NOT_INSTALLED)."""
    if not services_installed():
        raise error(_NOT_INSTALLED, reason="SERVICES_NOT_INSTALLED")


def services_checkout() -> Path:
    """The folder that holds the source of the services, where they are installed from a checkout."""
    spec = importlib.util.find_spec("leman_core")
    return Path(str(spec.origin)).resolve().parents[2] if spec is not None else Path()


def services_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the services in this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


_INSTALLED_FOLDERS = ("site-packages", "dist-packages")


def is_installed(name: str) -> bool:
    """Return True for a module of the standard library, of an installed distribution or of Leman itself.

    Such code is named, not shipped: workers have it. Everything else is the user's own and travels by
    value. That includes distributions in editable mode, whose code changes without their version. The place
    of the module's file decides, not its name: a user's `profile.py` is no part of Python.
    """
    top = name.partition(".")[0]
    if top == "__main__" or not name:
        return False
    if top == "leman" or top in PACKAGES or _is_built_in(name):
        return True
    places = _locations(name)
    if not places:  # parts of a module that have no file, and modules that this platform lacks
        return is_installed(top) if top != name else name in sys.stdlib_module_names
    return any(_is_installed_path(path) for path in places)


def is_installed_code(namespace: dict[str, Any]) -> bool:
    """Return True where the module with these globals is installed, whatever `sys.modules` has under its name."""
    name = str(namespace.get("__name__") or "")
    module = sys.modules.get(name)
    file = namespace.get("__file__")
    if not isinstance(file, str) or name == "__main__" or (module is not None and vars(module) is namespace):
        return is_installed(name)
    return _is_installed_path(file) or name.partition(".")[0] == "leman"


def is_installed_class(value: type) -> bool:
    """Return True for a class that workers have.

    The standard library names `types` as the module of classes that it makes for others, such as those of
    `dataclasses.make_dataclass`; metaclasses name their own. A class of a file that was loaded under the name of an
    installed module is known by its methods.
    """
    if value.__module__ == "types":
        return getattr(types, value.__qualname__, None) is value
    if not is_installed(value.__module__) or _is_named_by_metaclass(value):
        return False
    methods = (item for item in vars(value).values() if isinstance(item, FunctionType))
    own = next((m for m in methods if m.__code__.co_qualname == f"{value.__qualname__}.{m.__name__}"), None)
    return own is None or own.__module__ != value.__module__ or is_installed_code(own.__globals__)


def _is_named_by_metaclass(value: type) -> bool:
    """Return True for a class that got the module of the code that made it: `type("C", (abc.ABC,), {})` is in `abc`."""
    home = value.__module__
    if home == "builtins" or home not in [kind.__module__ for kind in type.mro(type(value))]:
        return False
    return getattr(sys.modules.get(home), value.__qualname__.partition(".")[0], None) is None


def loaded_user_modules() -> list[ModuleType]:
    """All loaded modules of the user's own, `__main__` excepted."""
    return [module for name, module in list(sys.modules.items()) if _is_user(name, module)]


def _is_built_in(name: str) -> bool:
    """Return True for what the interpreter itself holds: it has no file, or does not read it."""
    module = sys.modules.get(name)
    if module is None:
        return name in sys.builtin_module_names
    spec = getattr(module, "__spec__", None)
    return getattr(spec, "loader", None) in (BuiltinImporter, FrozenImporter)


def _locations(name: str) -> list[str]:
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return [file] if file else [str(path) for path in getattr(module, "__path__", ())]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return [spec.origin] if spec.origin and spec.has_location else list(spec.submodule_search_locations or ())


@functools.cache
def _is_installed_path(path: str) -> bool:
    """Return True for a file of the standard library or of an installed distribution."""
    if any(part in _INSTALLED_FOLDERS for part in Path(path).parts):
        return True
    return any(place.is_relative_to(folder) for place in {Path(path), Path(path).resolve()} for folder in _folders())


@functools.cache
def _folders() -> frozenset[Path]:
    """The folders of this Python, as they are written and as they are; its archive, where it has one."""
    kinds = ("purelib", "platlib", "stdlib", "platstdlib")
    found = {Path(folder) for kind in kinds if (folder := sysconfig.get_paths().get(kind))}
    found.add(Path(functools.__file__).parent)
    return frozenset(found | {folder.resolve() for folder in found})


def _is_user(name: str, module: ModuleType | None) -> bool:
    if not isinstance(module, ModuleType) or module.__name__ != name or name == "__main__":
        return False
    return bool(_locations(name)) and not is_installed(name)
