"""pandas in processes that were started without it: it is imported when a function wants it, and pyarrow told of it.

pyarrow looks once whether there is pandas, when it is imported itself. Without it is not aware of a Series that it is
given: it would take NaN for a value where it is none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "pandas"


def expect() -> None:
    """Tell pyarrow of pandas as soon as that is imported."""
    if _NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds pandas as it is found anyway, with a loader that tells of it, until it is imported.

    It may be asked without an import, as by `importlib.util.find_spec`, or for an import that fails.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _NAME or getattr(self._here, "looking", False):
            return None
        self._here.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._here.looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._leave)
        return spec

    def _leave(self) -> None:
        with contextlib.suppress(ValueError):  # another import of it was first
            sys.meta_path.remove(self)


class _TellingLoader(Loader):
    def __init__(self, loader: Loader, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import it, and have pyarrow look again."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        with contextlib.suppress(ImportError):  # no pyarrow, or pandas is too old for it, which is its to say
            from pyarrow.lib import _pandas_api  # noqa: PLC0415 - pandas can do without

            _ = _pandas_api.pd
        self._done()
