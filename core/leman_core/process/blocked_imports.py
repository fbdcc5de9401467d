"""Block optional imports, so that a process starts sooner."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

#: pyarrow imports pandas if it is installed (0.9 s), structlog imports rich for tracebacks (0.1 s), and redis imports
#: OpenTelemetry's SDK for its metrics (0.3 s), which services import later if metrics are wanted.
HEAVY = ("pandas", "rich", "opentelemetry")


class _Refusing(Loader):
    """A loader that refuses to load an installed module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        raise ModuleNotFoundError(f"{spec.name} is left out of this process", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Raise AssertionError, as `create_module` never returns."""
        raise AssertionError(module)


class _Absent:
    """A finder of installed modules that cannot be imported.

    Libraries still see that the modules are installed. This matters because they may remember what they saw: lance
    accepts no data frames after it found pandas not installed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names or PathFinder.find_spec(name, path) is None:
            return None
        return ModuleSpec(name, _Refusing(), is_package=True)


@contextlib.contextmanager
def blocked_imports(*names: str) -> Iterator[None]:
    """Make optional imports of these modules fail for the duration of the block."""
    finder = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
