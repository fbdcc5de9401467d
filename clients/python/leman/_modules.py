"""Which modules are the user's own code, and which are installed on every worker anyway."""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from leman import _services_here

_INSTALLED_FOLDERS = ("site-packages", "dist-packages")


def is_installed(name: str) -> bool:
    """True for the standard library, installed distributions and Leman itself.

    Such code is named, not shipped: workers have it. Everything else is the user's own and travels by
    value; that includes distributions in editable mode, whose code changes without their version.
    """
    top = name.partition(".")[0]
    if top == "__main__" or not name:
        return False
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "leman":
        return True
    places = _locations(name)
    if top in _services_here.PACKAGES:  # in a worker these names are the services' own
        found = _services_here.folder()
        return found is not None and any(Path(place).resolve().is_relative_to(found / top) for place in places)
    return any(_is_installed_path(path) for path in places)


def loaded_user_modules() -> list[ModuleType]:
    """All loaded modules of the user's own, `__main__` excepted."""
    return [module for name, module in list(sys.modules.items()) if _is_user(name, module)]


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
    if any(part in _INSTALLED_FOLDERS for part in Path(path).parts):
        return True
    known = (sysconfig.get_paths().get(key) for key in ("purelib", "platlib"))
    return any(folder and Path(path).is_relative_to(folder) for folder in known)


def _is_user(name: str, module: ModuleType | None) -> bool:
    if not isinstance(module, ModuleType) or module.__name__ != name or name == "__main__":
        return False
    return bool(_locations(name)) and not is_installed(name)
