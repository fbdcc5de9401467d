"""pandas in processes that were started without it: it is imported when a function wants it, and pyarrow told of it.

pyarrow looks once whether there is pandas, when it is imported itself. Without it is not aware of a Series that it is
given: it would take NaN for a value where it is none.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "pandas"


def expect() -> None:
    """Tell pyarrow of pandas as soon as that is imported."""
    if _NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds pandas as it is found anyway, once, with a loader that tells of it."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        spec.loader = _TellingLoader(spec.loader)
        return spec


class _TellingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import it, and have pyarrow look again."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        from pyarrow.lib import _pandas_api  # noqa: PLC0415 - pandas can do without

        _ = _pandas_api.pd
